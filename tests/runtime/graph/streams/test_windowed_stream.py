"""Windows in the graph API: what they become, and what is refused with the user's line."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from penstock.runtime.errors import GraphError
from penstock.runtime.graph.collection_source import CollectionSource
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
from penstock.runtime.graph.streams.windowed_stream import WindowedStream
from penstock.runtime.io.connectors.collect_sink import DiscardSink
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.functions.keyed_folds import AggregateFunction
from penstock.runtime.operators.windows.window import WindowOperator
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import SlidingEventTimeWindows, TumblingEventTimeWindows

MINUTE = TumblingEventTimeWindows(60)
STRATEGY: WatermarkStrategy[int] = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(abs)


class Count(AggregateFunction[int, int, int]):
    """Keeps how often it was called in an attribute, as a careless user would."""

    def __init__(self) -> None:
        self.calls: list[int] = []

    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        self.calls.append(value)
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator


def rows(key: int, window: Any, records: list[int]) -> list[int]:
    return records


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment("windows", parallelism=2)


@pytest.fixture
def timed(env: StreamEnvironment) -> DataStream[int]:
    return env.from_collection("in", [1]).assign_timestamps_and_watermarks(STRATEGY)


@pytest.fixture
def windowed(timed: DataStream[int]) -> WindowedStream[int, int]:
    return timed.key_by(abs).window(MINUTE)


def test_streams_of_windows_say_what_they_are(timed: DataStream[int], windowed: Any) -> None:
    assert repr(timed) == "DataStream(timestamps(abs))"
    assert repr(windowed) == "WindowedStream(abs, TumblingEventTimeWindows(0:01:00))"
    assert repr(windowed.reduce("most", max)) == "DataStream(most)"


def test_timestamps_that_the_source_gave_are_said_to_be_its_own(env: StreamEnvironment) -> None:
    plain: WatermarkStrategy[int] = WatermarkStrategy.for_monotonous_timestamps()
    stream = env.from_collection("in", [1]).assign_timestamps_and_watermarks(plain, id="time")
    stream.sink("out", DiscardSink())
    assert "time  timestamps(timestamps of the source)" in env.describe()


def test_a_job_with_windows_describes_them(env: StreamEnvironment, windowed: Any, discard: Any) -> None:
    windowed.reduce("most", max).sink("out", discard)
    windowed.aggregate("count", Count(), parallelism=3).sink("counts", discard)
    windowed.apply("rows", rows).sink("all", discard)
    described = env.describe()
    assert "timestamps(abs)" in described
    assert "most  window(TumblingEventTimeWindows(0:01:00), reduce(max))" in described
    assert "window(TumblingEventTimeWindows(0:01:00), aggregate(Count))" in described
    assert "rows  window(TumblingEventTimeWindows(0:01:00), apply(rows))" in described
    assert env.build().vertex("count").parallelism == 3


def test_windows_are_made_anew_for_each_subtask(env: StreamEnvironment, windowed: Any, discard: Any) -> None:
    function = Count()
    windowed.aggregate("count", function).sink("out", discard)
    factory = env.build().vertex("count").operators[0].factory
    assert factory is not None
    first, second = factory(), factory()
    assert isinstance(first, WindowOperator)
    assert isinstance(second, WindowOperator)
    counts: list[Any] = [first._contents, second._contents]  # type: ignore[attr-defined]
    assert len({id(each._aggregate.calls) for each in counts} | {id(function.calls)}) == 3


def test_a_job_graph_with_windows_can_be_pickled(env: StreamEnvironment, windowed: Any, discard: Any) -> None:
    windowed.reduce("most", max).sink("out", discard)
    windowed.apply("rows", rows).sink("rows-out", discard)
    job = pickle.loads(pickle.dumps(env.build()))
    factories = [o.factory for vertex in job.vertices for o in vertex.operators if o.factory is not None]
    kinds = [type(factory()) for factory in factories]
    assert kinds.count(WindowOperator) == 2
    assert kinds.count(TimestampsAndWatermarksOperator) == 1


def test_late_records_are_a_side_output_of_the_window(
    env: StreamEnvironment, windowed: Any, discard: Any
) -> None:
    results = windowed.reduce("most", max)
    results.sink("out", discard)
    results.side_output("late_records").map(abs, id="late").sink("late-out", discard)
    described = env.describe()
    assert "late_records" in described
    assert "late" in described


def test_windows_of_windows_can_be_said(env: StreamEnvironment, windowed: Any, discard: Any) -> None:
    hours = windowed.reduce("minutes", max).key_by(abs).window(TumblingEventTimeWindows(3600))
    hours.reduce("hours", max).sink("out", discard)
    assert [vertex.operators[0].id for vertex in env.build().vertices][1:] == ["minutes", "hours"]


HERE = r"^tests/runtime/graph/streams/test_windowed_stream.py:\d+ in lambda: "


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda s, w: s.window(MINUTE),
            r"a DataStream has no window: group it with key_by\(function\) first",
        ),
        (
            lambda s, w: s.environment.from_source("other", CollectionSource([1]), watermarks=5),
            "from_source: watermarks: 5 is not a WatermarkStrategy",
        ),
        (
            lambda s, w: s.assign_timestamps_and_watermarks(STRATEGY.with_alignment("all", 5)),
            "only a source can wait for other sources, so give a strategy with_alignment to the source",
        ),
        (
            lambda s, w: s.assign_timestamps_and_watermarks(abs),
            "assign_timestamps_and_watermarks: <built-in function abs> is not a WatermarkStrategy",
        ),
        (lambda s, w: s.assign_timestamps_and_watermarks(), "missing a required argument: 'strategy'"),
        (lambda s, w: s.assign_timestamps_and_watermarks(STRATEGY, id=""), "id must not be empty"),
        (lambda s, w: s.key_by(abs).window(60), r"window needs windows such as Tumbling.*\(60\), not 60"),
        (lambda s, w: s.key_by(abs).window(TumblingEventTimeWindows), "window needs windows such as"),
        (lambda s, w: s.key_by(abs).window(), "missing a required argument: 'assigner'"),
        (
            lambda s, w: s.key_by(abs).assign_timestamps_and_watermarks(STRATEGY),
            "a KeyedStream has no assign_timestamps_and_watermarks: call assign_timestamps",
        ),
        (lambda s, w: w.reduce(max), "missing a required argument: 'function'; the id comes first"),
        (lambda s, w: w.reduce("most", 3), "reduce needs a function, not 3"),
        (lambda s, w: w.reduce("most", max, paralelism=2), "did you mean 'parallelism'"),
        (lambda s, w: w.reduce("a/b", max), "'a/b' must be at most 100 letters"),
        (lambda s, w: w.apply("rows", None), "apply needs a function, not None"),
        (lambda s, w: w.apply(rows, "rows"), "id must be a string, not function.*the id comes first"),
        (lambda s, w: w.aggregate("count", Count), r"aggregate: give an object, Count\(...\), not the class"),
        (
            lambda s, w: w.aggregate("count", max),
            "is not an AggregateFunction; for a plain function use reduce or apply",
        ),
        (lambda s, w: w.reduce("in", max), "the id 'in' of this window is already taken by the source"),
        (
            lambda s, w: w.reduce("most", max).side_output("late"),
            "has no side output 'late'; its side outputs are 'late_records'$",
        ),
        (lambda s, w: w.reduce("most", max).dead_letters(), "has no side output 'dead_letters'"),
        (
            lambda s, w: w.sink("out", DiscardSink()),
            "a WindowedStream has no sink: say what each",
        ),
        (lambda s, w: w.map(abs), r"a WindowedStream has no map: .* reduce\(id, function\), aggregate\(id"),
    ],
)
def test_a_wrong_call_is_refused_with_the_users_line(
    call: Callable[[Any, Any], object], message: str, timed: Any, windowed: Any
) -> None:
    with pytest.raises(GraphError, match=f"{HERE}.*{message}"):
        call(timed, windowed)


def test_other_unknown_names_are_plain_attribute_errors(windowed: Any) -> None:
    assert not hasattr(windowed, "no_such_method")
    assert not hasattr(windowed, "__len__")
    with pytest.raises(AttributeError, match="'WindowedStream' object has no attribute 'windows'"):
        _ = windowed.windows


def test_spans_that_make_no_sense_are_refused_where_they_are_written(timed: DataStream[int]) -> None:
    with pytest.raises(GraphError.__mro__[1], match="leave gaps"):
        timed.key_by(abs).window(SlidingEventTimeWindows(5, 10))
