from __future__ import annotations

from typing import Any

from penstock.runtime.graph.drawing import draw_graph
from penstock.runtime.graph.graph_info import graph_info
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment


def test_a_line_is_drawn_with_arrows_down(discard: Any) -> None:
    env = StreamEnvironment("words", parallelism=2)
    lines = env.from_collection("lines", ["a b"], parallelism=1)
    lines.flat_map(str.split, num_cpus=1).key_by(len).reduce("longest", max).sink("out", discard)
    assert env.describe().splitlines() == [
        "words: 3 vertices, 5 subtasks",
        "",
        "  +---------------------------------+",
        "  | 1 subtask                       |",
        "  | lines  source(CollectionSource) |",
        "  +---------------------------------+",
        "      |",
        "      | rebalance",
        "      v",
        "  +---------------------------------+",
        "  | 2 subtasks, 1 CPU each          |",
        "  | flat_map-1  flat_map(str.split) |",
        "  +---------------------------------+",
        "      |",
        "      | key_group by len",
        "      v",
        "  +----------------------------+",
        "  | 2 subtasks                 |",
        "  | longest  reduce(max)       |",
        "  | out      sink(DiscardSink) |",
        "  +----------------------------+",
    ]


def test_named_resources_are_shown_like_cpus(discard: Any) -> None:
    env = StreamEnvironment("models")
    env.from_collection("in", [1]).sink("out", discard, num_gpus=0.5, resources={"tpu": 2})
    assert "  | 1 subtask, 0.5 GPU each, 2 tpu each |" in env.describe().splitlines()


def test_a_fork_is_drawn_with_arrows_by_name(discard: Any) -> None:
    env = StreamEnvironment("fork")
    source = env.from_collection("in", [1])
    source.sink("out", discard)
    source.dead_letters().sink("bad", discard)
    picture = env.describe().splitlines()
    assert "      +--> bad  (forward, side output 'dead_letters' of in)" in picture
    assert not any(line.strip() == "v" for line in picture)


def test_an_arrow_names_the_operator_if_it_is_not_the_last_one_of_the_box(discard: Any) -> None:
    env = StreamEnvironment("fork")
    source = env.from_collection("in", [1])
    source.key_by(abs).reduce("sum", max).sink("sums", discard)
    source.sink("out", discard)
    picture = env.describe().splitlines()
    assert "      +--> sum  (key_group by abs, output of in)" in picture
    assert not any(line.strip() == "v" for line in picture)
    assert "key_group by abs, output of in" in draw_graph(graph_info(env.build()))


def test_a_join_is_drawn_with_arrows_by_name(discard: Any) -> None:
    env = StreamEnvironment("join")
    first, second = env.from_collection("first", [1]), env.from_collection("second", [1])
    first.union(second).sink("out", discard)
    picture = env.describe().splitlines()
    assert picture.count("      +--> out  (forward)") == 2


def test_the_picture_is_plain_ascii_without_trailing_blanks(discard: Any) -> None:
    env = StreamEnvironment("plain")
    env.from_collection("in", [1]).rebalance().sink("out", discard)
    picture = env.describe()
    assert picture.isascii()
    assert all(line == line.rstrip() for line in picture.splitlines())
