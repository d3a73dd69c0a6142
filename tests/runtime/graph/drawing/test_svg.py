"""The picture of a graph: its contents, and what it must not contain."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from penstock import DiscardSink, StreamEnvironment
from penstock.windows import TumblingProcessingTimeWindows

SVG = "{http://www.w3.org/2000/svg}"


def picture(shown: Any) -> ElementTree.Element:
    """The `<svg>` element of what a notebook shows; it is well-formed XML."""
    page = shown._repr_html_()
    return ElementTree.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def texts(shown: Any) -> list[str]:
    found = picture(shown).iter(f"{SVG}text")
    return ["".join(each.itertext()).removeprefix(_title(each)) for each in found]


def _title(text: ElementTree.Element) -> str:
    title = text.find(f"{SVG}title")
    return "" if title is None else title.text or ""


def forked() -> tuple[StreamEnvironment, Any]:
    env = StreamEnvironment("fork", parallelism=2)
    lines = env.from_collection("lines", ["a b"], num_cpus=1)
    counts = lines.flat_map(str.split, id="words").key_by(len).reduce("longest", max)
    counts.sink("out", DiscardSink())
    lines.dead_letters().sink("bad", DiscardSink())
    return env, counts


def test_boxes_have_their_operators_and_edges_their_partitioning() -> None:
    env, _ = forked()
    assert sorted(texts(env)) == sorted(
        [
            "2 subtasks, 1 CPU each",
            "lines  source(CollectionSource)",
            "words  flat_map(str.split)",
            "2 subtasks",
            "longest  reduce(max)",
            "out      sink(DiscardSink)",
            "2 subtasks",
            "bad  sink(DiscardSink)",
            "key_group by len",
            "forward, 'dead_letters'",
        ]
    )
    assert len(list(picture(env).iter(f"{SVG}rect"))) == 3


def test_the_mouse_finds_the_users_line() -> None:
    env, _ = forked()
    told = [_title(text) for text in picture(env).iter(f"{SVG}text")]
    assert any(re.search(r"words  flat_map\(str\.split\)\n.*test_svg\.py:\d+", each) for each in told)


def test_a_stream_shows_what_leads_to_it() -> None:
    env, counts = forked()
    assert "longest  reduce(max)" in texts(counts)
    assert not any("DiscardSink" in text for text in texts(counts))
    assert "DataStream(longest)" in counts._repr_html_()
    assert "DiscardSink" in env._repr_html_()


def test_streams_of_keys_and_of_windows_show_what_leads_to_them() -> None:
    numbers = StreamEnvironment("kinds").from_collection("numbers", [1])
    keyed = numbers.key_by(abs)
    windows = (
        keyed.window(TumblingProcessingTimeWindows(10)),
        numbers.window_all(TumblingProcessingTimeWindows(10)),
    )
    for stream in (keyed, *windows):
        assert texts(stream) == ["1 subtask", "numbers  source(CollectionSource)"]
        assert type(stream).__name__ in stream._repr_html_()


def test_a_graph_without_a_sink_is_drawn_and_says_so() -> None:
    env = StreamEnvironment("begun")
    env.from_collection("numbers", [1])
    assert "no sink yet" in env._repr_html_()
    assert "no sink yet" not in forked()[0]._repr_html_()


def test_an_empty_graph_says_what_to_do() -> None:
    page = StreamEnvironment("empty")._repr_html_()
    assert "from_source(id, source)" in page
    assert "<svg" not in page


HOSTILE = "<img src=x onerror=alert(1)>\"'&"


@pytest.mark.parametrize("part", ["env", "stream"])
def test_names_are_escaped_wherever_they_stand(part: str) -> None:
    env = StreamEnvironment(HOSTILE)

    def harmless(value: int) -> int:
        return value

    harmless.__name__ = harmless.__qualname__ = HOSTILE
    stream = (
        env.from_collection("numbers", [1]).map(harmless, parallelism=2).key_by(harmless).reduce("r", max)
    )
    page = (env if part == "env" else stream)._repr_html_()
    assert "<img" not in page
    assert any(HOSTILE in text for text in texts(env if part == "env" else stream))


def test_the_picture_needs_nothing_from_outside_and_takes_the_colours_of_the_page() -> None:
    page = forked()[0]._repr_html_()
    assert not re.findall(r"<script|<image|<use|href|url\(|@import|<style|\bon\w+=", page)
    assert re.findall(r"https?://\S+?\"", page) == ['http://www.w3.org/2000/svg"']
    assert set(re.findall(r'(?:fill|stroke)="([^"]*)"', page)) == {"currentColor", "none"}


def test_a_hundred_vertices_are_drawn_once_each() -> None:
    env = StreamEnvironment("large", chaining=False)
    streams = [env.from_collection(f"source-{i}", [1]).map(abs, id=f"map-{i}") for i in range(33)]
    joined = streams[0].union(*streams[1:])
    joined.sink("out", DiscardSink())
    assert len(list(picture(env).iter(f"{SVG}rect"))) == 67
