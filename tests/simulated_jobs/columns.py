"""A part of a simulated job that moves Arrow batches: a source of columns, a filter, an aggregation by key.

Its batches are in flight in the exchange, its accumulators are columns of keyed state. Its sink writes what
the aggregation emits: for each batch a row of every key that it has touched. Such a row has the key, the
number of its records so far, and their sum. The number grows from row to row. So a row that comes twice was
committed twice, and the row with the largest number tells all that the key has seen.

With windows each key has one row for each of its windows.

Steps may also run at the source, as in Spark's workers. Then each split is put through the steps again
whenever a reader begins, as if a task of Spark were repeated. A position is a number of batches that the
steps emit.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.errors import OperatorLocation
from penstock.runtime.graph.job_graph import JobEdge, JobVertex, OperatorSpec, Partitioner, Partitioning
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.functions import Count
from penstock.runtime.operators.aggregation.keyed_aggregate import CombineOperator, KeyedAggregateOperator
from penstock.runtime.operators.aggregation.panes import WindowCombineOperator
from penstock.runtime.operators.aggregation.panes_at_source import WindowCombineAtSource
from penstock.runtime.operators.aggregation.sums import Sum
from penstock.runtime.operators.aggregation.window_aggregate import WINDOW_START, WindowedAggregateOperator
from penstock.runtime.operators.carried_watermarks import CarriedWatermarksOperator
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.expression_operators import FilterExpressionOperator
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.operators.source_steps import PassesOn, SourceStep, StepsAtSource
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import TumblingEventTimeWindows
from simulated_jobs.operators import (
    SimulatedReader,
    SimulatedSink,
    SimulatedSource,
    SimulatedWriter,
    Split,
)
from simulated_jobs.records import ExternalSystem
from simulated_jobs.split_source import JobPorts
from simulated_jobs.timed import UNIT

#: Ids of the source, of the aggregation and of its sink.
SOURCE: Final = "columns"
AGGREGATE: Final = "sums"
SINK: Final = "sums-sink"

#: How many of the seeds have columns.
_SHARE: Final = 0.15

#: Batches of records in each frame that steps at the source emit.
_BATCHES_OF_A_FRAME: Final = 3

#: The source's number in the records of the simulation; no other operator has it.
_NUMBER: Final = -1

_KEY: Final = ColumnKey(("k",))

#: A key, and the start of its window (0 without windows).
_Group: TypeAlias = tuple[Any, int]


@dataclass(frozen=True, slots=True)
class ColumnShape:
    """Such a part.

    Attributes:
        counts: How many records each split has.
        chunk: Most records of a batch.
        pause: Seconds between two batches.
        parallelism: Of the source, and of the aggregation.
        keys: How many there are.
        text_keys: Whether these are texts.
        least: Records with a smaller value are filtered out; 0 for no filter.
        combines: Whether a part of the work is done before the exchange.
        length: Of windows, in positions of a split; 0 for none.
        at_source: Whether the steps before the exchange run at the source; only with windows and a combiner.
    """

    counts: tuple[int, ...]
    chunk: int
    pause: float
    parallelism: tuple[int, int]
    keys: int
    text_keys: bool = False
    least: int = 0
    combines: bool = False
    length: int = 0
    at_source: bool = False

    def build(self, key_groups: int, ports: JobPorts) -> tuple[tuple[JobVertex, ...], JobEdge]:
        """Its two vertices, and the edge between them."""
        senders, keyed = self._senders(ports), self._keyed(ports)
        vertices = tuple(
            JobVertex(chain[0].id, tuple(chain), parallelism, key_groups)
            for chain, parallelism in zip((senders, keyed), self.parallelism, strict=True)
        )
        by_key = Partitioner(Partitioning.KEY_GROUP, _KEY)
        return vertices, JobEdge(senders[0].id, senders[-1].id, None, keyed[0].id, 0, by_key)

    def expected(self) -> dict[_Group, tuple[int, int]]:
        """Number and sum of each key's records, in each window."""
        sums: defaultdict[_Group, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for split, count in enumerate(self.counts):
            for index in range(self.least, count):
                start = index // self.length * self.length * UNIT if self.length else 0
                number, total = sums[self.key_of(split, index), start]
                sums[self.key_of(split, index), start] = number + 1, total + index
        return dict(sums)

    def key_of(self, split: int, index: int) -> int | str:
        """The key of a record."""
        key = (3 * split + index) % self.keys
        return f"key-{key}" if self.text_keys else key

    def batches(self, split: int) -> Iterator[pa.RecordBatch]:
        """The records of a split, in batches as its reader reads them without steps at the source."""
        for start in range(0, self.counts[split], self.chunk):
            yield self.batch([(split, i) for i in range(start, min(start + self.chunk, self.counts[split]))])

    def batch(self, places: Sequence[tuple[int, int]]) -> pa.RecordBatch:
        """Records by their split and number."""
        columns = {
            "k": [self.key_of(split, index) for split, index in places],
            "v": [index for _, index in places],
            "at": [index * UNIT for _, index in places],
        }
        return pa.RecordBatch.from_pydict(columns)

    def steps_at_source(self, split: int) -> StepsAtSource:
        """The steps before the exchange, for one split."""
        specs = [self._moments(TimestampsAndWatermarksOperator), *self._filters()]
        specs.append(_spec("combine", lambda: WindowCombineAtSource(_KEY, _aggregation(), self._windows)))
        steps = [SourceStep(OperatorLocation(spec.id), spec.factory) for spec in specs if spec.factory]
        return StepsAtSource(steps, "simulated", split, ManualClock())

    def _senders(self, ports: JobPorts) -> list[OperatorSpec]:
        chain = [OperatorSpec(SOURCE, SOURCE, None, ColumnSource(self), stateful=True)]
        if self.at_source:
            passing = [_spec(spec.id, PassesOn) for spec in (*self._filters(), self._combiner())]
            return [*chain, self._moments(CarriedWatermarksOperator), *passing]
        if self.length:
            chain.append(self._moments(TimestampsAndWatermarksOperator))
        chain += self._filters()
        if self.combines:
            chain.append(self._combiner())
        return chain

    def _moments(self, kind: type[TimestampsAndWatermarksOperator]) -> OperatorSpec:
        read_at_once = self.chunk * (_BATCHES_OF_A_FRAME if self.at_source else 1)
        bound = timedelta(microseconds=read_at_once * UNIT)
        strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_column("at")
        return _spec("moments", partial(kind, strategy))

    def _filters(self) -> list[OperatorSpec]:
        kept = pc.field("v") >= self.least
        return [_spec("least", partial(FilterExpressionOperator, kept))] if self.least else []

    def _combiner(self) -> OperatorSpec:
        if not self.length:
            return _spec("combine", lambda: CombineOperator(_KEY, _aggregation()))
        combiner = _spec("combine", lambda: WindowCombineOperator(_KEY, _aggregation(), self._windows))
        return replace(combiner, stateful=True)

    @property
    def _windows(self) -> TumblingEventTimeWindows:
        return TumblingEventTimeWindows(timedelta(microseconds=self.length * UNIT))

    def _keyed(self, ports: JobPorts) -> list[OperatorSpec]:
        sink = partial(SinkOperator, ColumnSink(ports.system, ports.hooks))
        return [
            replace(_spec(AGGREGATE, self._aggregate), stateful=True, keyed=True),
            replace(_spec(SINK, sink), stateful=True, is_sink=True),
        ]

    def _aggregate(self) -> Operator:
        if self.length:
            return WindowedAggregateOperator(_KEY, _aggregation(), self._windows)
        return KeyedAggregateOperator(_KEY, _aggregation(), has_combiner=self.combines)


def draw_columns(draws: Draws) -> ColumnShape | None:
    """Draw such a part; `None` for most seeds."""
    return draw_column_shape(draws) if draws.chance(_SHARE) else None


def draw_column_shape(draws: Draws) -> ColumnShape:
    """Draw such a part."""
    splits, size = draws.between(1, 4), draws.pick((8, 20, 40))
    length = draws.pick((0, 0, 0, 3, 8))
    shape = ColumnShape(
        counts=tuple(draws.between(size // 2, size) for _ in range(splits)),
        chunk=draws.pick((1, 2, 5, 10)),
        pause=draws.pick((0.0, 0.001, 0.005)),
        parallelism=(draws.between(1, 3), draws.between(1, 3)),
        keys=draws.pick((1, 3, 7)),
        text_keys=draws.chance(0.5),
        least=draws.pick((0, 0, 2)),
        combines=draws.chance(0.4),
        length=length,
    )
    return replace(shape, at_source=bool(shape.combines and shape.length) and draws.chance(0.7))


def column_problems(
    shape: ColumnShape, system: ExternalSystem, *, complete: bool, exactly_once: bool, whole_windows: bool
) -> list[str]:
    """Violations in the committed output.

    Args:
        complete: Whether the job has come to its end.
        exactly_once: Whether nothing may count twice.
        whole_windows: Whether no window may come out before its end.
    """
    expected = shape.expected()
    found = _committed(shape, system)
    problems = [f"{SINK} has written {group}, which nobody sent" for group in sorted(found.keys() - expected)]
    if shape.length and not whole_windows:
        return problems
    for group, right in expected.items():
        rows = found.get(group, Counter())
        newest = max(rows, default=(0, 0))
        if complete and (newest < right if not exactly_once else newest != right):
            problems.append(f"{SINK}, {group}: it ends with {newest} instead of {right}")
        if exactly_once and (newest > right or max(rows.values(), default=1) > 1):
            problems.append(f"{SINK}, {group}: rows that count twice, {sorted(rows.items())[-3:]} of {right}")
    return problems


def _committed(shape: ColumnShape, system: ExternalSystem) -> Mapping[_Group, Counter[tuple[int, int]]]:
    found: defaultdict[_Group, Counter[tuple[int, int]]] = defaultdict(Counter)
    row: Any  # one of this sink, whose rows have other parts than the records of the others
    for row, _ in system.rows(SINK):
        key, start, number, total = row
        found[key, start][number, total] += 1
    return found


class ColumnSource(SimulatedSource):
    """Reads splits of numbered records as Arrow batches.

    Args:
        shape: What it reads.
    """

    def __init__(self, shape: ColumnShape) -> None:
        super().__init__(_NUMBER, shape.counts, shape.chunk, shape.pause, in_order=shape.length > 0)
        self.shape = shape

    def splits(self, parallelism: int) -> Sequence[Split]:
        """All splits; with steps at the source they end after as many batches as the steps emit."""
        if not self.shape.at_source:
            return super().splits(parallelism)
        return [(split, 0, len(batches_at_source(self.shape, split))) for split in range(len(self.counts))]

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SimulatedReader:
        """The reader of one subtask."""
        reader = ReaderOfSteps if self.shape.at_source else ColumnReader
        return reader(self, context, [(int(s), int(at), int(end)) for s, at, end in splits])


class ColumnReader(SimulatedReader):
    """Reads the splits of one subtask in turn."""

    _source: ColumnSource

    def poll(self, max_rows: int) -> Polled[Any]:
        """The next records of the split whose turn it is, as one batch."""
        polled = super().poll(max_rows)
        if polled.batch is None:
            return polled
        assert isinstance(polled.batch, RowBatch), "a simulated source reads rows"
        places = [(split, index) for (_, split, index), _ in polled.batch.rows]
        return replace(polled, batch=ArrowBatch(self._source.shape.batch(places)))


def batches_at_source(shape: ColumnShape, split: int) -> list[tuple[int, pa.RecordBatch]]:
    """The batches that the steps emit for a split, each with the number of records in earlier frames.

    A frame has three batches of records, or those that are left.
    """
    batches = list(shape.batches(split))
    frames = [
        batches[first : first + _BATCHES_OF_A_FRAME] for first in range(0, len(batches), _BATCHES_OF_A_FRAME)
    ]
    found, frame = [], 0
    for batch in shape.steps_at_source(split).run_frames(frames):
        if batch is None:
            frame += 1
        else:
            found.append((frame * _BATCHES_OF_A_FRAME * shape.chunk, batch))
    return found


class ReaderOfSteps(SimulatedReader):
    """Reads what steps at the source emit; reads first the split that is furthest behind."""

    def __init__(self, source: ColumnSource, context: ConnectorContext, splits: list[Split]) -> None:
        super().__init__(source, context, splits)
        self._batches = {split: batches_at_source(source.shape, split) for split, _, _ in self._splits}

    def poll(self, max_rows: int) -> Polled[Any]:
        """The next batch."""
        now = self._context.clock.monotonic()
        if not self._splits:
            return Polled(finished=True)
        if now < self._ready_at:
            return Polled(ready_at=self._ready_at)
        self._ready_at = now + self._source.pause
        self._splits.sort(key=lambda split: self._batches[split[0]][split[1]][0])
        split, at, end = self._splits.pop(0)
        _, batch = self._batches[split][at]
        if at + 1 < end:
            self._splits.append((split, at + 1, end))
        return Polled(ArrowBatch(batch), finished=not self._splits)


class ColumnSink(SimulatedSink):
    """A sink of Arrow batches that stages transactions in the external system."""

    def writer(self, context: ConnectorContext) -> ColumnWriter:
        """The writer of one subtask."""
        return ColumnWriter(self, context)


class ColumnWriter(SimulatedWriter):
    """Writes the rows of one subtask."""

    def write(self, batch: Batch) -> None:
        """Add rows to the open transaction."""
        super().write(RowBatch([*_rows_of(batch)]))


def _rows_of(batch: Batch) -> Iterator[Any]:
    assert isinstance(batch, ArrowBatch), "an aggregation of columns emits columns"
    for row in batch.batch.to_pylist():
        start = row.get(WINDOW_START)
        at = 0 if start is None else round(start.timestamp() * 1_000_000)
        yield (row["k"], at, row["n"], row["total"]), ()


def _aggregation() -> Aggregation:
    return Aggregation(_KEY.names, {"n": Count(), "total": Sum("v")})


def _spec(name: str, make: Any) -> OperatorSpec:
    return OperatorSpec(name, name, make)
