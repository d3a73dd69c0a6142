"""The combiner of windows runs in Spark's Python workers: the same windows, watermarks and late records."""

from __future__ import annotations

import datetime as dt
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import DataStream, DiscardSink, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import ApproxCountDistinct, Count, First, Last, Max, Mean, Min, Sum
from penstock.bridge import push_partition
from penstock.bridge.arrow import with_zeros_under_nulls
from penstock.bridge.push_partition import encoded, frames
from penstock.bridge.receive_buffer_messages import BufferSettings
from penstock.bridge.spark_source import SparkSource
from penstock.runtime.graph.job_graph import JobGraph, OperatorSpec
from penstock.runtime.operators.aggregation import keyed_aggregate
from penstock.runtime.operators.carried_watermarks import (
    AFTER,
    BEFORE,
    CarriedWatermarksOperator,
    with_watermarks,
)
from penstock.runtime.operators.chain import OperatorChain, TimeElement
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.operator import OperatorContext
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.operators.source_steps import PassesOn, SourceStep, StepsAtSource
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch, Watermark
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.time.watermarks import WatermarkValve
from penstock.testing import OperatorHarness
from penstock.windows import (
    CumulativeEventTimeWindows,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

SCHEMA = pa.schema({"k": pa.string(), "v": pa.int64(), "x": pa.float64(), "at": pa.timestamp("us", "UTC")})
V = pc.field("v")
MICRO = 1e-6

WINDOWS = [
    TumblingEventTimeWindows(5 * MICRO),
    SlidingEventTimeWindows(10 * MICRO, 4 * MICRO),
    CumulativeEventTimeWindows(12 * MICRO, 3 * MICRO, offset=1 * MICRO),
]

#: Functions whose results do not depend on the order of additions; the last two depend on the order of rows.
FUNCTIONS: dict[str, Any] = {
    "n": Count(),
    "some": Count("x"),
    "total": Sum("v"),
    "mean": Mean("v"),
    "low": Min("x"),
    "top": Max("v"),
    "kinds": ApproxCountDistinct("v"),
    "first": First("v"),
    "last": Last("v"),
}


def rows_in(env: StreamEnvironment, batch_format: Any = "arrow", **options: Any) -> DataStream[Any]:
    source = SparkSource(BufferSettings("transfer"), batch_format, SCHEMA)
    return env.from_source("rows", source, **options)


def timed(rows: DataStream[Any], bound: float = 0, **options: Any) -> DataStream[Any]:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound * MICRO).with_timestamp_column("at")
    return rows.assign_timestamps_and_watermarks(strategy, id="time", **options)


def windowed(
    rows: DataStream[Any], windows: Any = WINDOWS[0], *, by_key: bool = True, **functions: Any
) -> DataStream[Any]:
    of_rows: Any = rows.key_by("k").window(windows) if by_key else rows.window_all(windows)
    return of_rows.aggregate("sums", **(functions or {"n": Count()}))  # type: ignore[no-any-return]


def operators(graph: JobGraph) -> dict[str, OperatorSpec]:
    return {operator.id: operator for vertex in graph.vertices for operator in vertex.operators}


def steps_in_spark(graph: JobGraph) -> Sequence[SourceStep]:
    source: Any = operators(graph)["rows"].source
    packed = source.buffers.part.steps
    return pickle.loads(packed) if packed else ()  # type: ignore[no-any-return]


def moved(env: StreamEnvironment) -> list[str]:
    """The ids of the steps that run in Spark; others must run in the job, and only others."""
    graph = env.build()
    ids = [step.location.operator for step in steps_in_spark(graph)]
    found = operators(graph)
    stand_ins = (PassesOn, CarriedWatermarksOperator)
    assert ids == [id for id, each in found.items() if each.factory and isinstance(each.factory(), stand_ins)]
    assert ids == [id for id, each in found.items() if each.name.endswith(", in Spark") and id != "rows"]
    return ids


@pytest.fixture
def env() -> StreamEnvironment:
    return StreamEnvironment("job", parallelism=2)


def test_timestamps_and_the_combiner_of_windows_run_in_spark(env: StreamEnvironment) -> None:
    kept = timed(rows_in(env).filter(V > 3, id="f")).filter(V > 4, id="g")
    windowed(kept, n=Count(), s=Sum("v")).sink("out", DiscardSink())
    assert moved(env) == ["f", "time", "g", "sums-combine"]


@pytest.mark.parametrize("windows", WINDOWS[1:], ids=str)
def test_the_combiner_of_overlapping_windows_runs_in_spark(env: StreamEnvironment, windows: Any) -> None:
    windowed(timed(rows_in(env)), windows).sink("out", DiscardSink())
    assert moved(env) == ["time", "sums-combine"]


@pytest.mark.parametrize("windows", [EventTimeSessionWindows(5), WINDOWS[1]], ids=str)
def test_windows_without_a_combiner_run_in_the_job(env: StreamEnvironment, windows: Any) -> None:
    """Sessions have none, nor have overlapping windows of functions that depend on the order of rows."""
    windowed(timed(rows_in(env).filter(V > 3, id="f")), windows, f=First("v")).sink("out", DiscardSink())
    assert moved(env) == ["f"]


def test_windows_whose_late_records_are_read_run_in_the_job(env: StreamEnvironment) -> None:
    """A partial result does not have its records."""
    sums = windowed(timed(rows_in(env).filter(V > 3, id="f")))
    sums.sink("out", DiscardSink())
    sums.side_output(LATE_RECORDS).sink("late", DiscardSink())
    assert moved(env) == ["f"]


def marks(row: Any, at: int) -> int | None:
    return at


@pytest.mark.parametrize(
    "strategy",
    [
        WatermarkStrategy.for_punctuated(marks).with_timestamp_column("at"),
        WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda row: row["at"]),
    ],
    ids=["a generator", "an assigner"],
)
def test_timestamps_by_functions_of_the_user_run_in_the_job(env: StreamEnvironment, strategy: Any) -> None:
    kept = rows_in(env).filter(V > 3, id="f")
    windowed(kept.assign_timestamps_and_watermarks(strategy)).sink("out", DiscardSink())
    assert moved(env) == ["f"]


def test_timestamps_without_a_combiner_behind_them_run_in_the_job(env: StreamEnvironment) -> None:
    timed(rows_in(env).filter(V > 3, id="f")).filter(V > 4).sink("out", DiscardSink())
    assert moved(env) == ["f"]


def test_an_aggregation_without_windows_behind_timestamps_runs_in_the_job(env: StreamEnvironment) -> None:
    timed(rows_in(env).filter(V > 3, id="f")).key_by("k").aggregate("sums", n=Count()).sink(
        "out", DiscardSink()
    )
    assert moved(env) == ["f"]


def test_timestamps_at_another_parallelism_than_the_source_are_assigned_in_the_job(
    env: StreamEnvironment,
) -> None:
    """Each subtask of that step follows only the rows that it gets."""
    windowed(timed(rows_in(env).filter(V > 3, id="f"), parallelism=3)).sink("out", DiscardSink())
    assert moved(env) == ["f"]


class Sender:
    """The operators behind a source, of one subtask, and the receiver of their output."""

    def __init__(self, graph: JobGraph, receiver: Receiver, channel: int) -> None:
        steps = [each for each in graph.vertices[0].operators if each.source is None]
        located = [
            (step.location, step.factory()) for step in map(_located, steps) if step.factory is not None
        ]
        self._receiver, self._channel = receiver, channel
        self._chain = OperatorChain(located, self._emit, self._advance)
        self._chain.open(
            {
                at.operator: OperatorContext(
                    at, ConnectorContext("job", "job", at.operator, channel, 2, 1, ManualClock())
                )
                for at, _ in located
            }
        )

    def process(self, batch: pa.RecordBatch) -> None:
        for _ in self._chain.process(ArrowBatch(batch)):
            pass

    def end(self) -> None:
        for _ in self._chain.end_of_data():
            pass
        self._advance(Watermark(END_OF_TIME))

    def _emit(self, _: int, tag: str | None, batch: Any) -> None:
        assert tag is None
        self._receiver.windows.push_batch(batch)

    def _advance(self, passing: TimeElement) -> None:
        assert isinstance(passing, Watermark)
        self._receiver.advance(self._channel, passing)


def _located(spec: OperatorSpec) -> SourceStep:
    from penstock.runtime.errors import OperatorLocation

    assert spec.factory is not None
    return SourceStep(OperatorLocation(spec.id), spec.factory)


class Receiver:
    """The windows of the only subtask behind the exchange."""

    def __init__(self, graph: JobGraph, senders: int) -> None:
        factory = operators(graph)["sums"].factory
        assert factory is not None
        self.windows = OperatorHarness(factory())
        self._valve = WatermarkValve(senders)
        self.senders = [Sender(graph, self, number) for number in range(senders)]

    def advance(self, channel: int, watermark: Watermark) -> None:
        passed = self._valve.watermark(channel, watermark)
        if passed is not None:
            self.windows.push_watermark(passed.timestamp)

    @property
    def outcome(self) -> Any:
        """All windows so far, the watermark that was reached, and the number of late records."""
        rows = [
            row
            for batch in self.windows.batches
            if isinstance(batch, ArrowBatch)
            for row in batch.batch.to_pylist()
        ]
        in_order = sorted(rows, key=lambda row: (row["window_end"], repr(row.get("k"))))
        return in_order, self._valve.reached, self.windows.statistics().extra[LATE_RECORDS]


@dataclass(frozen=True)
class Drawn:
    """Parts of a DataFrame, in the batches of Spark, and the order in which readers receive their frames.

    Attributes:
        order: Indexes of parts; the next frame of the part is read each time.
    """

    parts: list[list[pa.RecordBatch]]
    readers: list[int]
    order: list[int]


def batch_of(rows: Sequence[tuple[Any, Any, Any, int]]) -> pa.RecordBatch:
    columns = [list(column) for column in zip(*rows, strict=True)] if rows else [[]] * 4
    moments = [dt.datetime.fromtimestamp(0, dt.UTC) + dt.timedelta(microseconds=at) for at in columns[3]]
    arrays = [
        pa.array(column, kind) for column, kind in zip([*columns[:3], moments], SCHEMA.types, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


@st.composite
def drawn_input(draw: st.DrawFn) -> Drawn:
    """Rows that advance in time, with jumps forward and backward; some are late."""
    row = st.tuples(
        st.sampled_from(["a", "b", "c", None]),
        st.none() | st.integers(-3, 9),
        st.none() | st.sampled_from([-1.5, 0.0, 2.5]),
        st.integers(-8, 8),
    )
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        pace, batches, moment = draw(st.integers(0, 6)), [], draw(st.integers(-10, 10))
        for rows in draw(st.lists(st.lists(row, max_size=8), max_size=8)):
            batches.append(batch_of([(*row[:3], moment + row[3]) for row in rows]))
            moment += pace
        parts.append(batches)
    readers = draw(st.lists(st.integers(0, 1), min_size=len(parts), max_size=len(parts)))
    order = draw(st.lists(st.integers(0, len(parts) - 1), max_size=24))
    return Drawn(parts, readers, order)


def in_turn(drawn: Drawn, frames_of_parts: Sequence[Iterator[Any]]) -> Iterator[tuple[int, Any]]:
    """The reader and the frame of each read; what the drawn order leaves comes in the order of the parts."""
    for part in drawn.order:
        for frame in frames_of_parts[part]:
            yield drawn.readers[part], frame
            break
    for part, left in enumerate(frames_of_parts):
        for frame in left:
            yield drawn.readers[part], frame


def frames_from_spark(graph: JobGraph, batches: Sequence[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    """The batches that Spark's workers send for each frame of rows."""

    def sent() -> Iterator[pa.RecordBatch | None]:
        emitted = StepsAtSource(steps_in_spark(graph), "job", 0, ManualClock()).run_frames(
            frames(narrowed(graph, batches))
        )
        return (None if batch is None else with_zeros_under_nulls(batch) for batch in emitted)

    once, again = ([encoded(frame) for frame in frames(sent())] for _ in range(2))
    assert once == again, "a retried task sends the same frames"
    read: list[pa.RecordBatch] = []
    for batch in sent():
        if batch is None:
            yield read
            read = []
        else:
            read.append(batch)


def narrowed(graph: JobGraph, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    source: Any = operators(graph)["rows"].source
    places = source.buffers.part.places
    return [batch if places is None else batch.select(list(places)) for batch in batches]


def result(graph: JobGraph, drawn: Drawn, *, in_spark: bool, slices: int = 1 << 20) -> Any:
    receiver = Receiver(graph, 2)
    parts: list[Iterator[Any]] = [
        frames_from_spark(graph, batches) if in_spark else frames(narrowed(graph, batches))
        for batches in drawn.parts
    ]
    outcomes = []
    for reader, frame in in_turn(drawn, parts):
        for batch in frame:
            for start in range(0, batch.num_rows, slices):
                receiver.senders[reader].process(batch.slice(start, slices))
        outcomes.append(receiver.outcome)
    for sender in receiver.senders:
        sender.end()
    return [*outcomes, receiver.outcome]


@settings(deadline=None, max_examples=25 * DEEP)
@pytest.mark.parametrize("windows", WINDOWS, ids=str)
@given(
    drawn=drawn_input(),
    bound=st.sampled_from([0, 3, 9]),
    names=st.sets(st.sampled_from(sorted(FUNCTIONS)), min_size=1),
    steps=st.integers(0, 3),
    by_key=st.booleans(),
    frame_rows=st.sampled_from([4, 16]),
    telling=st.sampled_from([1, 256]),
    slices=st.sampled_from([1, 3, 1 << 20]),
)
def test_windows_are_the_same_as_without_moved_steps(
    windows: Any,
    drawn: Drawn,
    bound: int,
    names: set[str],
    steps: int,
    by_key: bool,
    frame_rows: int,
    telling: int,
    slices: int,
) -> None:
    """A reader may have several partitions, whose frames come in any order, and some rows are late.

    The other job has no moved steps and no combiner. It reads the same frames in the same order. After each
    frame the windows, the watermark and the number of late records are equal.
    """
    without = () if isinstance(windows, TumblingEventTimeWindows) else ("first", "last")
    functions = {name: FUNCTIONS[name] for name in sorted(names) if name not in without} or {"n": Count()}

    def graph(batch_format: str, **options: Any) -> JobGraph:
        env = StreamEnvironment("job", parallelism=2)
        rows = rows_in(env, batch_format)
        rows = rows.filter(V > -2, id="f") if steps & 1 else rows
        rows = timed(rows, bound)
        rows = rows.with_columns(v=V * 2, id="w").filter(V > 2, id="g") if steps & 2 else rows
        windowed(rows, windows, by_key=by_key, **functions, **options).sink("out", DiscardSink())
        return env.build()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(push_partition, "FRAME_ROWS", frame_rows)
        patch.setattr(keyed_aggregate, "_TELLING", telling)  # whether grouping pays off is judged at once
        one = result(graph("arrow"), drawn, in_spark=True, slices=slices)
        other = result(graph("rows", combine=False), drawn, in_spark=False)
    assert one == other


def test_a_frame_of_rows_becomes_one_frame_of_partial_results(env: StreamEnvironment) -> None:
    """Its batches keep their watermarks: before the first row, and after the last one."""
    windowed(timed(rows_in(env)), s=Sum("v")).sink("out", DiscardSink())
    graph = env.build()
    batches = [
        batch_of([("a", 1, None, 0), ("a", 2, None, 1)]),
        batch_of([("a", 4, None, 2), ("b", 8, None, 3)]),
        batch_of([("a", 16, None, 7)]),
    ]
    (frame,) = frames_from_spark(graph, [*batches, batch_of([("a", 32, None, 1)])])
    first, second = (batch.to_pydict() for batch in frame)
    assert (first["k"], first["s:sum"]) == (["a", "b", "a"], [7, 8, 16])
    assert (first[BEFORE], first[AFTER]) == ([2, None, None], [None] * 3)
    assert (second["s:sum"], second[BEFORE], second[AFTER]) == ([32], [6], [6])


def test_a_reader_without_frames_becomes_idle_and_active_again() -> None:
    """Idleness is measured in the job: a clock must not decide what a Spark task sends."""
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_column("at").with_idleness(5)
    rows = pa.record_batch({"n": [1, 2]})
    with OperatorHarness(CarriedWatermarksOperator(strategy)) as harness:
        harness.push_batch(ArrowBatch(with_watermarks(rows, 3, 8)))
        harness.advance(4)
        assert not harness.is_idle
        harness.advance(5)
        assert harness.is_idle
        harness.push_batch(ArrowBatch(with_watermarks(rows, None, 7)))
        assert not harness.is_idle
        harness.push_batch(ArrowBatch(with_watermarks(None, None, 9)))
        assert harness.watermarks == (3, 8, 9)
        assert harness.outputs == [{"n": 1}, {"n": 2}] * 2


def test_the_job_warns_of_timestamps_that_are_probably_in_another_unit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(5).with_timestamp_column("at")
    with OperatorHarness(CarriedWatermarksOperator(strategy)) as harness:
        for reached in (1_694_999_999, 1_695_000_000):
            harness.push_batch(ArrowBatch(with_watermarks(None, None, reached)))
    (message,) = caplog.messages
    assert message.startswith("timestamp column 'at': the timestamp 1700000000 lies in 1970")
    assert message.endswith('It seems to be in seconds: give unit="s"')


def test_watermarks_of_filtered_rows_are_sent(env: StreamEnvironment) -> None:
    windowed(timed(rows_in(env)).filter(V > 100, id="g")).sink("out", DiscardSink())
    (frame,) = frames_from_spark(env.build(), [batch_of([("a", 1, None, 7)])])
    assert [batch.to_pydict() for batch in frame] == [{BEFORE: [None], AFTER: [6]}]


def test_a_partition_without_rows_sends_nothing(env: StreamEnvironment) -> None:
    windowed(timed(rows_in(env))).sink("out", DiscardSink())
    assert list(frames_from_spark(env.build(), [batch_of([])])) == []
