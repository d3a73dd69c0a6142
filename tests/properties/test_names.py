"""Rule: a name of any alphabet comes through every place, or is refused where it is written."""

from __future__ import annotations

import html
import json
import re
from typing import Any
from unicodedata import normalize

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from penstock import (
    CollectSink,
    KeyedProcessFunction,
    ListState,
    OutputTag,
    ProcessFunction,
    StreamEnvironment,
    ValueState,
    WatermarkStrategy,
)
from penstock.actors.client.executor import make_job_id
from penstock.actors.shared.output_capture import job_of_log_file, log_file_name
from penstock.actors.shared.telemetry import metric_tags
from penstock.runtime.errors import ConfigurationError, GraphError
from penstock.runtime.graph.stream_graph import problem_with_id
from penstock.runtime.io.connectors.collect_sink import InMemoryCollector
from penstock.runtime.names import LONGEST_NAME, checked_name, normal_name, problem_with_name
from penstock.runtime.snapshot.paths import check_job_id, escape_name
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.trust.paths import check_path

#: Any text: all alphabets, halves of surrogate pairs, control characters.
TEXTS = st.text(st.characters(categories=None), max_size=40)
NAMES = TEXTS.filter(lambda text: problem_with_name(text) is None)
ODD = [
    "Übung",
    "注文",
    "job\N{EN DASH}1",
    "..",
    "a/b",
    "%2F",
    '"\\"',
    "<b>",
    "\N{CAT FACE}",
    "x" * LONGEST_NAME,
    "\u200fab",
]
REFUSED = ["", " ", "a\n", "a\0b", "\ud800", " a", "a\t", "\x1b[31m", "a\u202eb", "x" * (LONGEST_NAME + 1)]


@pytest.mark.parametrize("name", ODD)
def test_odd_names_are_names(name: str) -> None:
    assert problem_with_name(name) is None


@pytest.mark.parametrize("name", [*REFUSED, None, 7, b"name"])
def test_what_can_not_be_a_name_is_refused_with_the_reason_everywhere(name: Any) -> None:
    places: list[Any] = [
        StreamEnvironment,
        lambda name: ValueState(name=name),
        lambda name: ListState(renamed_from=name, name="now"),
        lambda name: WatermarkStrategy.for_monotonous_timestamps().with_alignment(name, 1),
        lambda name: StreamEnvironment().from_collection("in", [1]).split({name: bool}),
        lambda name: StreamEnvironment().from_collection("in", [1], resources={name: 1}),
    ]
    if name is not None:  # which stands for the attribute's name
        places.append(OutputTag)
    else:
        del places[1:3]
    for place in places:
        with pytest.raises((ConfigurationError, GraphError), match=r"a name (must|has)"):
            place(name)


def test_a_resource_that_ray_would_not_take_is_refused() -> None:
    stream = StreamEnvironment().from_collection("in", [1])
    with pytest.raises(GraphError, match="Ray takes only ASCII characters"):
        stream.map(abs, resources={"Übung": 1})
    stream.map(abs, resources={"host-1/a b": 1})


@given(NAMES)
@example("U\N{COMBINING DIAERESIS}bung")
def test_all_spellings_of_a_name_are_one(name: str) -> None:
    one = checked_name("it", name)
    assert one == normalize("NFC", name)
    for form in ("NFC", "NFD"):
        other = normalize(form, name)
        assert normal_name(other) == one
    assert problem_with_name(one) is None
    assert one.encode().decode() == one


@given(NAMES)
def test_a_name_survives_json_html_and_the_tags_of_metrics(name: str) -> None:
    assert json.loads(json.dumps({"name": name}, ensure_ascii=False).encode())["name"] == name
    assert html.unescape(html.escape(name)) == name
    assert metric_tags(job_name=name)["job_name"].encode("ascii").decode() == name


@given(TEXTS, TEXTS)
@example("a-b", "a.2db")
@example("A", "a")
@example("x" * 400, "x" * 399 + "y")
def test_different_texts_have_different_file_names_on_every_file_system(one: str, other: str) -> None:
    assume(one != other)
    first, second = escape_name(one), escape_name(other)
    assert first.casefold() != second.casefold()
    for name in (first, second):
        assert len(name.encode()) <= 255 - len("savepoint-channels--") - 60
        assert name == "" or check_path(f"f-{name}") == f"f-{name}"


@given(TEXTS)
def test_every_job_has_an_id_that_names_files_urls_and_logs(name: str) -> None:
    job_id = check_job_id(make_job_id(name))
    file = log_file_name(job_id, name, 0, "1")
    assert job_of_log_file(file) == job_id
    assert len(file.encode()) <= 255
    assert "/" not in file


@given(TEXTS)
def test_an_operators_id_is_refused_with_one_that_is_allowed(text: str) -> None:
    problem = problem_with_id(text)
    if problem is not None and text:
        proposed = re.search(r"for example '([^']*)'$", problem)
        assert proposed is not None
        assert problem_with_id(proposed[1]) is None


@given(NAMES.filter(lambda name: not name.startswith("penstock:")))
@example("U\N{COMBINING DIAERESIS}bung")
def test_a_state_is_found_again_under_every_spelling_of_its_name(name: str) -> None:
    class Counts(KeyedProcessFunction[str, int, int]):
        def __init__(self, form: str) -> None:
            self.name = normalize(form, name)

        def open(self, ctx: Any) -> None:
            self.seen = ctx.value_state(self.name, default=0)
            assert ctx.value_state(normal_name(name), default=0) is self.seen

        def process(self, value: int, ctx: Any) -> list[int]:
            self.seen.update(self.seen.value() + value)
            return [self.seen.value()]

    def harness(form: str, **settings: Any) -> OperatorHarness:
        build = lambda stream: stream.key_by(str).process("counts", Counts(form))  # noqa: E731
        return OperatorHarness.of(build, **settings)

    with harness("NFD") as before:
        before.push([1])
        snapshot = before.snapshot()
    with harness("NFC", restored=[snapshot]) as after:
        assert after.push([1]) == [2]
        assert after.state(normalize("NFD", name)) == {"1": 2}


@given(NAMES)
def test_a_side_output_is_found_under_every_spelling_of_its_name(name: str) -> None:
    class Sorts(ProcessFunction[int, int]):
        odd = OutputTag[int](normalize("NFD", name))

        def process(self, value: int, ctx: Any) -> list[int]:
            ctx.output(normalize("NFC", name), value)
            return []

    env = StreamEnvironment(name)
    numbers = env.from_collection("in", [1, 2]).process("sorts", Sorts())
    numbers.side_output(normalize("NFD", name)).sink("out", CollectSink(InMemoryCollector()))
    assert env.build().name == normal_name(name)
