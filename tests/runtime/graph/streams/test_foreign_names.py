"""Names from other systems: the error says what to call instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from penstock import Checkpointing, CollectSink, GeneratorSource, KeyedProcessFunction, StreamEnvironment
from penstock.runtime.errors import ConfigurationError, GraphError
from penstock.windows import CountEvictor, CountTrigger, EventTimeSessionWindows, TumblingEventTimeWindows


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment("names")


@pytest.fixture
def rows(env: StreamEnvironment) -> Any:
    return env.from_collection("rows", [{"a": 1}])


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("print", r"show\(\)"),
        ("groupBy", r'key_by\("column"\)'),
        ("where", r"filter\(function\)"),
        ("add_sink", r"sink\(id, sink\)"),
        ("write_csv", r"FileSink\.csv\(directory\)"),
        ("process_element", r"process\(id, function\)"),
        ("sum", r'key_by\("column"\)\.aggregate\("id", sum=Sum\("column"\)\)'),
        ("interval_join", r"join\(other, on=\.\.\., within=\.\.\.\)"),
    ],
)
def test_a_foreign_method_of_a_stream_names_ours_and_the_line(rows: Any, name: str, advice: str) -> None:
    with pytest.raises(
        GraphError, match=rf"test_foreign_names\.py:\d+.*a DataStream has no {name}: .*{advice}"
    ):
        getattr(rows, name)
    assert not hasattr(rows, name)


def test_keyed_and_windowed_streams_advise_aggregate(rows: Any) -> None:
    keyed = rows.key_by("a")
    for stream in (keyed, keyed.window(TumblingEventTimeWindows(1))):
        with pytest.raises(GraphError, match=r'Stream has no count: use aggregate\("id", count=Count\(\)\)'):
            stream.count("n")


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("execute", r"use run\(\)"),
        ("from_elements", r"from_collection\(id, records\)"),
        ("enable_checkpointing", r"checkpointing=Checkpointing"),
    ],
)
def test_a_foreign_method_of_an_environment_names_ours(env: Any, name: str, advice: str) -> None:
    with pytest.raises(GraphError, match=f"a StreamEnvironment has no {name}: .*{advice}"):
        getattr(env, name)


def test_other_unknown_names_of_an_environment_suggest_the_nearest(env: Any) -> None:
    with pytest.raises(
        AttributeError, match=r"no attribute 'fromCollection'; did you mean 'from_collection'\?"
    ):
        _ = env.fromCollection


@pytest.mark.parametrize(
    ("kind", "call"),
    [
        (TumblingEventTimeWindows, r"TumblingEventTimeWindows\(size, offset\)"),
        (EventTimeSessionWindows, r"EventTimeSessionWindows\(gap\)"),
        (CountTrigger, r"CountTrigger\(count\)"),
        (CountEvictor, r"CountEvictor\(count\)"),
    ],
)
def test_the_factory_of_is_the_class_itself(kind: Any, call: str) -> None:
    with pytest.raises(AttributeError, match=f"no attribute 'of': call {call}"):
        kind.of(5)


def test_the_argument_interval_has_another_name(rows: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"no argument 'interval'; did you mean 'every'\?"):
        Checkpointing(interval=5)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match=r"no setting 'interval'; did you mean 'every'\?"):
        Checkpointing.from_mapping({"interval": 5})
    with pytest.raises(
        GraphError, match=r"join\(other\) has no argument 'interval'; did you mean 'within'\?"
    ):
        rows.join(rows, on="a", interval=5)


def test_arguments_by_place_that_need_a_name_are_listed(rows: Any) -> None:
    with pytest.raises(
        GraphError, match=r"join\(other\): too many positional arguments; give on=\.\.\., .* by name"
    ):
        rows.join(rows, "a")


def test_a_filter_in_text_is_refused_with_the_two_ways(rows: Any) -> None:
    with pytest.raises(GraphError, match=r"not the text 'a > 1': write filter\(lambda row: .*pc\.field"):
        rows.filter("a > 1")


@pytest.mark.parametrize(
    ("other", "advice"),
    [
        ([1, 2], r"env\.from_collection\(id, records\)"),
        (CollectSink(), r"sink\(id, sink\)"),
        (GeneratorSource(lambda n: n), r"env\.from_source\(id, source\)"),
        (len, "map, flat_map or process"),
    ],
)
def test_connect_join_and_union_say_how_to_make_a_stream(rows: Any, other: Any, advice: str) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: rows.connect(other),
        lambda: rows.join(other, on="a", within=1),
        lambda: rows.union(other),
    ]
    for call in calls:
        with pytest.raises(GraphError, match=rf"is not a DataStream but .*; .*{advice}"):
            call()


def test_process_element_is_called_process() -> None:
    with pytest.raises(
        ConfigurationError, match=r"Old\.process_element: this method is called process\(self"
    ):

        class Old(KeyedProcessFunction[Any, Any, Any]):
            def process_element(self, value: Any, ctx: Any) -> Any: ...


def test_a_helper_called_process_element_is_allowed_beside_process() -> None:
    class Both(KeyedProcessFunction[Any, Any, Any]):
        def process(self, value: Any, ctx: Any) -> Any:
            return self.process_element(value)

        def process_element(self, value: Any) -> Any:
            return [value]

    assert Both().process(1, None) == [1]
