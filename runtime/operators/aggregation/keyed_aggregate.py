"""`key_by(names)[.window(...)].aggregate(...)`: accumulators in columns, updated a batch at a time.

`KeyedAggregateOperator` has them by key, `WindowedAggregateOperator` by key and window. With windows, a batch
is first reduced by key and pane (`panes.py`), here or by a combiner in front of the exchange. Then each
pane's row is merged into all windows that hold the pane. A window is a slot of the table: its start is a part
of the key that does not decide the key group.

Rows of one window in several panes lose their order among each other. So where windows overlap, functions
that go by it are given the rows of each window, and no pane's. So are functions without parts.

When event time has passed a window it is emitted and its slot is freed. To find what has ended, all starts
are looked at, but only when the watermark has reached the earliest end that there is.

A record is late for a window that has fired. One that is late for all of its windows goes to the side output
`late_records`. A combiner's row may be late if its sender was idle: then this subtask's watermark has passed
the sender's. The records behind it are no longer known, so it is dropped, and counts as one late record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.aggregation import OF, Aggregation, distinct, is_reduced
from penstock.runtime.operators.aggregation.batch_columns import BatchColumns, chosen_rows
from penstock.runtime.operators.aggregation.combiner import PANE, Gain, reduced_by_pane
from penstock.runtime.operators.aggregation.panes import ColumnWindows, Moments, Panes, moments_of
from penstock.runtime.operators.functions.function_operator import only_column_tables
from penstock.runtime.operators.held_watermark import ReachedWatermark
from penstock.runtime.operators.operator import (
    BatchFormats,
    Operator,
    OperatorContext,
    Output,
    SavedList,
    Tagged,
)
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.windows.window import LATE_RECORDS, REACHED, SHAPE, WindowShape
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, Watermark
from penstock.runtime.state.columns.column_table import ColumnTable
from penstock.runtime.state.columns.typed_columns import Slots
from penstock.runtime.time.windows import CumulativeEventTimeWindows

#: Name of the state table that holds the accumulators.
AGGREGATE_STATE: Final = "aggregate"

#: Rows of one output batch.
_SLICE: Final = 1 << 16


class KeyedAggregateOperator(Operator):
    """Keeps the accumulators of each key and emits the results of the keys that a batch has touched.

    Rows are turned into columns, so that both kinds of batches have one state. What it emits are Arrow
    batches: the key's columns, then a column for each function.

    Args:
        aggregation: The functions.
        emit_every: Seconds between two outputs; `None` emits for every batch. What was touched since the
            last output is emitted before a barrier, too, so that no snapshot has to know it.
        is_combined: Whether a combiner stands in front of the exchange.
    """

    batch_format: ClassVar[BatchFormats] = "both"
    keyed = True

    def __init__(
        self,
        key: ColumnKey,
        aggregation: Aggregation,
        emit_every: float | None = None,
        *,
        is_combined: bool = False,
    ) -> None:
        self._key = key
        self._is_combined = is_combined
        self._aggregation = aggregation
        self._columns = BatchColumns(key, aggregation)
        self._emit_every = emit_every
        self._gain = Gain()
        self._table: ColumnTable | None = None
        #: The pairs of key and value of each result that counts different values.
        self._pairs: dict[str, ColumnTable] = {}
        self._monotonic: Callable[[], float] = lambda: 0.0
        self._flush_at: float | None = None
        self._touched: NDArray[np.bool_] = np.zeros(0, np.bool_)
        self._records_in = self._records_out = 0

    def open(self, context: OperatorContext) -> None:
        """Bind the state.

        Raises:
            StateMismatchError: The restored state is another kind of operator's.
        """
        names = {name: f"{AGGREGATE_STATE}{OF}{name}" for name in self._aggregation.pair_columns}
        tables = only_column_tables(context, (AGGREGATE_STATE, *names.values()), "an aggregation")
        self._table = tables[AGGREGATE_STATE]
        self._pairs = {name: tables[table] for name, table in names.items()}
        self._monotonic = context.connector.clock.monotonic

    @property
    def only_reads(self) -> bool:
        """Functions of the user's are given columns, in memory of their own."""
        return True

    @property
    def doing(self) -> str:
        """What it computes."""
        return f"aggregating by {self._key.__name__}"

    @property
    def flush_at(self) -> float | None:
        """When results have waited long enough."""
        return self._flush_at

    def process(self, batch: Batch) -> Iterator[Output]:
        """Merge a batch into the accumulators."""
        assert self._table is not None, "open() comes first"
        self._records_in += len(batch)
        if isinstance(batch, ArrowBatch) and is_reduced(batch.batch):
            slots = self._aggregation.merge(self._table, batch.batch)
        elif len(batch):
            # A combiner's parts that had become rows on the way would be counted as records.
            assert isinstance(batch, ArrowBatch) or not self._is_combined, "a combiner sends columns"
            touched = []
            for rows, keys, inputs in self._columns.of(batch):
                touched.append(self._merged(len(batch) if rows is None else len(rows), keys, inputs))
                self._aggregation.add_rows(self._table, self._pairs, keys, inputs)
            slots = touched[0] if len(touched) == 1 else distinct(np.concatenate(touched))
        else:
            return
        if self._emit_every is None:
            yield from self._emitted(slots)
            return
        if self._flush_at is None:
            self._flush_at = self._monotonic() + self._emit_every
        self._touch(slots)

    def flush(self) -> Iterator[Output]:
        """Emit what was touched since the last output."""
        self._flush_at = None
        slots = np.flatnonzero(self._touched)
        self._touched[slots] = False
        for start in range(0, len(slots), _SLICE):
            yield from self._emitted(slots[start : start + _SLICE])

    def prepare_snapshot_pre_barrier(self) -> Iterator[Output]:
        """Emit what was touched: after a restore nobody would know."""
        return self.flush()

    def end_of_data(self) -> Iterator[Output]:
        """Emit what was touched."""
        return self.flush()

    def statistics(self) -> OperatorStatistics:
        """Records taken and emitted."""
        return OperatorStatistics(self._records_in, self._records_out)

    def _merged(self, rows: int, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]) -> Slots:
        """Merge records: reduced first where that makes them fewer, otherwise as they are."""
        assert self._table is not None, "open() comes first"
        if not self._gain.should_try(rows):
            touched = self._aggregation.merge_each(self._table, keys, inputs)
            if touched is not None:
                return touched
        reduced = self._aggregation.reduced(keys, inputs)
        self._gain.learn(rows, reduced.num_rows)
        return self._aggregation.merge(self._table, reduced)

    def _emitted(self, slots: Slots) -> Iterator[Output]:
        assert self._table is not None, "open() comes first"
        if not len(slots):
            return
        self._records_out += len(slots)
        for _, keys, results in self._aggregation.emitted(self._table, slots):
            columns, names = [*keys.columns, *results.values()], [*keys.schema.names, *results]
            yield ArrowBatch(pa.RecordBatch.from_arrays(columns, names=names))

    def _touch(self, slots: Slots) -> None:
        end = int(slots.max(initial=-1)) + 1
        if end > len(self._touched):
            longer = np.zeros(2 * end, np.bool_)
            longer[: len(self._touched)] = self._touched
            self._touched = longer
        self._touched[slots] = True


#: Name of the state table that holds the accumulators.
WINDOW_AGGREGATE_STATE: Final = "window_aggregate"

#: Columns of the output beside the key's and the functions' own.
WINDOW_START: Final = "window_start"

WINDOW_END: Final = "window_end"

#: A part of the key beside the columns that users name.
START: Final = ":start"

Columns: TypeAlias = Mapping[str, pa.Array]

_INSTANT: Final = pa.timestamp("us", "UTC")

_FAR: Final = np.iinfo(np.int64).max

#: Rows of one output batch.
SLICE: Final = 1 << 16


class WindowedAggregateOperator(Operator):
    """Aggregates records by key and window, and emits a window when event time has passed it.

    It emits Arrow batches: the key's columns, `window_start` and `window_end`, and a column for each
    function. Their timestamps are the last microseconds of the windows.

    Args:
        aggregation: The functions.
        windows: Tumbling, sliding or cumulative windows.
        late_tag: The side output of late records.
    """

    batch_format: ClassVar[BatchFormats] = "both"
    keyed = True

    def __init__(
        self,
        key: ColumnKey,
        aggregation: Aggregation,
        windows: ColumnWindows,
        late_tag: str = LATE_RECORDS,
    ) -> None:
        self._key = key
        self._late_tag = late_tag
        self._aggregation = aggregation
        self._columns = BatchColumns(key, aggregation)
        self._panes = Panes(windows)
        self._size = self._panes.size
        self._shape = _shape(windows)
        self._table: ColumnTable | None = None
        #: The values of each window of each result that counts different ones.
        self._pairs: dict[str, ColumnTable] = {}
        self._reached: ReachedWatermark | None = None
        self._earliest_end: int = _FAR
        self._records_in = self._records_out = self._late = 0

    def open(self, context: OperatorContext) -> None:
        """Bind the state.

        Raises:
            StateMismatchError: The restored state is of another kind of operator or of other windows.
        """
        names = {name: f"{WINDOW_AGGREGATE_STATE}{OF}{name}" for name in self._aggregation.pair_columns}
        tables = only_column_tables(
            context, (WINDOW_AGGREGATE_STATE, *names.values()), "windows over columns"
        )
        self._table = tables[WINDOW_AGGREGATE_STATE]
        self._pairs = {name: tables[table] for name, table in names.items()}
        self._reached = ReachedWatermark(context, REACHED)
        if len(self._table):
            self._shape.check(context.restored.get(SHAPE, ()))
            self._look_for_earliest_end()

    @property
    def only_reads(self) -> bool:
        """Functions of the user's are given columns, in memory of their own."""
        return True

    @property
    def doing(self) -> str:
        """What it computes."""
        return f"aggregating windows by {self._key.__name__}"

    def process(self, batch: Batch) -> Iterator[Output]:
        """Merge a batch into its windows; late records come out at the side."""
        self._records_in += len(batch)
        if not len(batch):
            return
        if isinstance(batch, ArrowBatch) and is_reduced(batch.batch):
            self._merge(batch.batch)
            return
        stamps, reached = moments_of(batch), self._event_time
        late = self._panes.are_late(stamps, reached)
        if late.any():
            self._late += int(late.sum())
            yield Tagged(self._late_tag, chosen_rows(batch, late))
            batch, stamps = chosen_rows(batch, ~late), stamps[~late]
        if len(batch):
            for rows, keys, inputs in self._columns.of(batch):
                self._add(keys, inputs, stamps if rows is None else stamps[rows])

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Emit the windows that have ended, the earliest first."""
        assert self._reached is not None, "open() comes first"
        assert self._table is not None, "open() comes first"
        reached = self._reached.advance(watermark.timestamp)
        if not len(self._table) or self._earliest_end - 1 > reached:
            return
        slots = self._table.all_slots
        ends = self._table.key_numbers(START, slots) + self._size
        over = np.flatnonzero(ends - 1 <= reached)
        over = over[np.argsort(ends[over], kind="stable")]
        for first in range(0, len(over), SLICE):
            some = over[first : first + SLICE]
            self._records_out += len(some)
            starts = self._panes.begins(ends[some])
            yield from emitted_windows(
                self._key, self._aggregation, self._table, slots[some], starts, ends[some]
            )
        self._table.delete(slots[over])
        for pairs in self._pairs.values():
            self._forget(pairs, reached)
        self._look_for_earliest_end()

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        """How far event time has come, and what windows these are; the windows themselves are keyed state."""
        assert self._reached is not None, "open() comes first"
        return {REACHED: self._reached.state(), SHAPE: self._shape.state()}

    def statistics(self) -> OperatorStatistics:
        """Records taken and emitted, and how many were late."""
        return OperatorStatistics(self._records_in, self._records_out, extra={LATE_RECORDS: self._late})

    @property
    def _event_time(self) -> int | None:
        assert self._reached is not None, "open() comes first"
        return self._reached.timestamp

    def _add(self, keys: Columns, inputs: Columns, stamps: Moments) -> None:
        assert self._table is not None, "open() comes first"
        needs_rows = not self._aggregation.combines
        by_window = self._panes.overlap and self._aggregation.is_ordered
        if not by_window:
            self._merge(reduced_by_pane(self._aggregation, self._panes, keys, inputs, stamps))
        if not by_window and not needs_rows:
            return
        rows, starts = self._rows_of_windows(self._panes.of(stamps))
        some_keys = {name: column.take(rows) for name, column in keys.items()}
        some_inputs = {name: column.take(rows) for name, column in inputs.items()}
        if by_window:
            reduced = self._aggregation.reduced({**some_keys, START: starts}, some_inputs)
            self._merge_windows(reduced, reduced.column(START).to_numpy(zero_copy_only=False))
        if needs_rows:
            self._aggregation.add_rows(self._table, self._pairs, some_keys, some_inputs, {START: starts})

    def _rows_of_windows(self, panes: Moments) -> tuple[pa.Array, pa.Array]:
        """Each row once for each of its open windows, in the order of the rows, and the windows' starts."""
        found = [(np.flatnonzero(some), starts[some]) for starts, some in self._open_windows(panes)]
        rows, starts = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        return pa.array(rows[order]), pa.array(starts[order])

    def _merge(self, reduced: pa.RecordBatch) -> None:
        """Merge rows of keys and panes into those of their windows that have not fired."""
        assert self._table is not None, "open() comes first"
        panes = reduced.column(PANE).to_numpy(zero_copy_only=False)
        self._late += int(self._panes.are_late(panes, self._event_time).sum())
        for starts, is_open in self._open_windows(panes):
            some = reduced if is_open.all() else reduced.filter(pa.array(is_open))
            self._merge_windows(some, starts[is_open])

    def _merge_windows(self, reduced: pa.RecordBatch, starts: Moments) -> None:
        """Merge rows into windows that begin at these moments."""
        assert self._table is not None, "open() comes first"
        self._aggregation.merge(self._table, reduced, {START: pa.array(starts)})
        self._earliest_end = min(self._earliest_end, int(starts.min()) + self._size)

    def _open_windows(self, panes: Moments) -> Iterator[tuple[Moments, NDArray[np.bool_]]]:
        """Starts of windows, and which of them hold the pane and have not fired."""
        for starts, holds in self._panes.windows_of(panes):
            is_open = holds & ~self._panes.are_over(starts, self._event_time)
            if is_open.any():
                yield starts, is_open

    def _forget(self, pairs: ColumnTable, reached: int) -> None:
        """Delete the pairs of windows that have fired."""
        slots = pairs.all_slots
        if len(slots):
            pairs.delete(slots[self._panes.are_over(pairs.key_numbers(START, slots), reached)])

    def _look_for_earliest_end(self) -> None:
        assert self._table is not None, "open() comes first"
        slots = self._table.all_slots
        starts = self._table.key_numbers(START, slots) if len(slots) else np.empty(0, np.int64)
        self._earliest_end = int(starts.min()) + self._size if len(starts) else _FAR


def emitted_windows(
    key: ColumnKey,
    aggregation: Aggregation,
    table: ColumnTable,
    slots: Slots,
    starts: Moments,
    ends: Moments,
) -> Iterator[ArrowBatch]:
    """What some windows of a table give, as batches of the output."""
    for places, keys, results in aggregation.emitted(table, slots):
        columns: dict[str, Any] = {name: keys.column(name) for name in key.names}
        columns[WINDOW_START] = pa.array(starts[places]).view(_INSTANT)
        columns[WINDOW_END] = pa.array(ends[places]).view(_INSTANT)
        columns |= results
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        yield ArrowBatch(batch, pa.array(ends[places] - 1))


def _shape(windows: ColumnWindows) -> WindowShape:
    if isinstance(windows, CumulativeEventTimeWindows):
        offset = windows.offset % windows.max_size
        return WindowShape(windows.max_size, "cumulative aggregates in columns", windows.step, offset)
    return WindowShape.of(windows, "aggregates in columns")
