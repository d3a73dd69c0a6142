"""A part of a simulated job that moves Arrow batches: a source of columns, a filter, an aggregation by key.

Its batches are in flight in the exchange, its accumulators are columns of keyed state. Its sink writes what
the aggregation emits: for each batch a row of every key that it has touched. Such a row has the key, the
number of its records so far, and their sum. The number grows from row to row. So a row that comes twice was
committed twice, and the row with the largest number tells all that the key has seen.

With windows each key has one row for each of its windows.
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

from penstock.runtime.graph.job_graph import JobEdge, JobVertex, OperatorSpec, Partitioner, Partitioning
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.functions import Count
from penstock.runtime.operators.aggregation.keyed_aggregate import CombineOperator, KeyedAggregateOperator
from penstock.runtime.operators.aggregation.panes import WindowCombineOperator
from penstock.runtime.operators.aggregation.sums import Sum
from penstock.runtime.operators.aggregation.window_aggregate import WINDOW_START, WindowedAggregateOperator
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.expression_operators import FilterExpressionOperator
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.source import ConnectorContext, Polled
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.testing.simulation.world.agenda import Draws
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import TumblingEventTimeWindows
from simulated_jobs.operators import (
    SimulatedReader,
    SimulatedSink,
    SimulatedSource,
    SimulatedWriter,
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

    def _senders(self, ports: JobPorts) -> list[OperatorSpec]:
        chain = [OperatorSpec(SOURCE, SOURCE, None, ColumnSource(self), stateful=True)]
        if self.length:
            strategy = WatermarkStrategy.for_bounded_out_of_orderness(
                timedelta(microseconds=self.chunk * UNIT)
            ).with_timestamp_column("at")
            chain.append(_spec("moments", partial(TimestampsAndWatermarksOperator, strategy)))
        if self.least:
            kept = pc.field("v") >= self.least
            chain.append(_spec("least", partial(FilterExpressionOperator, kept)))
        if self.combines:
            chain.append(self._combiner())
        return chain

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
    if not draws.chance(_SHARE):
        return None
    splits, size = draws.between(1, 4), draws.pick((8, 20, 40))
    length = draws.pick((0, 0, 0, 3, 8))
    return ColumnShape(
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

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> ColumnReader:
        """The reader of one subtask."""
        return ColumnReader(self, context, [(int(s), int(at), int(end)) for s, at, end in splits])


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
        columns = {
            "k": [self._source.shape.key_of(split, index) for split, index in places],
            "v": [index for _, index in places],
            "at": [index * UNIT for _, index in places],
        }
        return replace(polled, batch=ArrowBatch(pa.RecordBatch.from_pydict(columns)))


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
