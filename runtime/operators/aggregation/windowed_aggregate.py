"""`key_by(names).window(...).aggregate(...)`: accumulators of each key and window, in columns.

A batch is first reduced by key and *pane*, the longest span of time that no window begins or ends in. Then
each pane's row is merged into all windows that hold the pane. A window is a slot of the table: its start is a
part of the key that does not decide the key group.

When event time has passed a window it is emitted and its slot is freed. To find what has ended, all starts
are looked at, but only when the watermark has reached the earliest end that there is.

A record is late for a window that has fired. One that is late for all of its windows goes to the side output
`late_records`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import compress
from math import gcd
from typing import Any, ClassVar, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.batch_columns import BatchColumns
from penstock.runtime.operators.keyed_function_operator import only_column_tables
from penstock.runtime.operators.operator import (
    BatchFormats,
    ListState,
    Operator,
    OperatorContext,
    Output,
    Tagged,
)
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.reached_watermark import ReachedWatermark
from penstock.runtime.operators.window import LATE_RECORDS, REACHED, SHAPE
from penstock.runtime.operators.window_shape import WindowShape
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch, Watermark
from penstock.runtime.state.columns.column_table import ColumnTable
from penstock.runtime.state.columns.growing_column import Slots
from penstock.runtime.time.windows import SlidingEventTimeWindows, TumblingEventTimeWindows

#: Name of the state table that holds the accumulators.
WINDOW_AGGREGATE_STATE: Final = "window_aggregate"

#: Columns of the output beside the key's and the functions' own.
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

#: Windows that this operator knows.
ColumnWindows = TumblingEventTimeWindows | SlidingEventTimeWindows

_START: Final = ":start"
_PANE: Final = ":pane"
_INSTANT: Final = pa.timestamp("us", "UTC")
_FAR: Final = np.iinfo(np.int64).max

#: Rows of one output batch.
_SLICE: Final = 1 << 16


class WindowedAggregateOperator(Operator):
    """Aggregates records by key and window, and emits a window when event time has passed it.

    It emits Arrow batches: the key's columns, `window_start` and `window_end`, and a column for each
    function. Their timestamps are the last microseconds of the windows.

    Args:
        key: The key's columns.
        aggregation: The functions.
        windows: Tumbling or sliding windows.
    """

    takes: ClassVar[BatchFormats] = "both"
    keyed = True

    def __init__(self, key: ColumnKey, aggregation: Aggregation, windows: ColumnWindows) -> None:
        self._aggregation = aggregation
        self._columns = BatchColumns(key, aggregation.inputs)
        self._size, self._slide, self._offset = windows.size, windows.slide, windows.offset
        self._pane = gcd(self._size, self._slide)
        self._shape = WindowShape.of(windows, "aggregates in columns")
        self._table: ColumnTable | None = None
        self._reached: ReachedWatermark | None = None
        self._earliest_end: int = _FAR
        self._records_in = self._records_out = self._late = 0

    def open(self, context: OperatorContext) -> None:
        """Bind the state.

        Raises:
            StateMismatchError: The restored state is of another kind of operator or of other windows.
        """
        tables = only_column_tables(context, (WINDOW_AGGREGATE_STATE,), "windows over columns")
        self._table = tables[WINDOW_AGGREGATE_STATE]
        self._reached = ReachedWatermark(context, REACHED)
        if len(self._table):
            self._shape.check(context.restored.get(SHAPE, ()))
            self._look_for_earliest_end()

    @property
    def doing(self) -> str:
        """What it computes."""
        return f"aggregating windows by {', '.join(self._aggregation.key_names)}"

    def process(self, batch: Batch) -> Iterator[Output]:
        """Merge a batch into its windows; late records come out at the side."""
        self._records_in += len(batch)
        if not len(batch):
            return
        stamps = _timestamps(batch)
        if self._is_over(self._last_start(stamps.min(keepdims=True))).any():
            late = self._is_over(self._last_start(stamps))
            self._late += int(late.sum())
            yield Tagged(LATE_RECORDS, _chosen(batch, late))
            batch, stamps = _chosen(batch, ~late), stamps[~late]
        if len(batch):
            self._add(batch, stamps)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Emit the windows that have ended, the earliest first."""
        assert self._reached is not None, "open() comes first"
        assert self._table is not None, "open() comes first"
        reached = self._reached.advance(watermark.timestamp)
        if not len(self._table) or self._earliest_end - 1 > reached:
            return
        slots = self._table.all_slots
        ends = self._table.key_numbers(_START, slots) + self._size
        over = np.flatnonzero(ends - 1 <= reached)
        over = over[np.argsort(ends[over], kind="stable")]
        for first in range(0, len(over), _SLICE):
            some = over[first : first + _SLICE]
            yield self._emitted(slots[some], ends[some])
        self._table.delete(slots[over])
        self._look_for_earliest_end()

    def snapshot(self, checkpoint_id: int) -> Mapping[str, ListState]:
        """How far event time has come, and what windows these are; the windows themselves are keyed state."""
        assert self._reached is not None, "open() comes first"
        return {REACHED: self._reached.state(), SHAPE: self._shape.state()}

    def statistics(self) -> OperatorStatistics:
        """Records taken and emitted, and how many were late."""
        return OperatorStatistics(self._records_in, self._records_out, extra={LATE_RECORDS: self._late})

    def _add(self, batch: Batch, stamps: NDArray[np.int64]) -> None:
        assert self._table is not None, "open() comes first"
        reduced, panes = self._reduced(batch, stamps)
        last = self._last_start(panes)
        for number in range(-(-self._size // self._slide)):
            starts = last - number * self._slide
            holds = (starts + self._size > panes) & ~self._is_over(starts)
            if not holds.any():
                continue
            some = reduced if holds.all() else reduced.filter(pa.array(holds))
            starts = starts[holds]
            self._aggregation.merge(self._table, some, {_START: pa.array(starts)})
            self._earliest_end = min(self._earliest_end, int(starts.min()) + self._size)

    def _reduced(self, batch: Batch, stamps: NDArray[np.int64]) -> tuple[pa.RecordBatch, NDArray[np.int64]]:
        """One row for each key and pane, and the panes of these rows."""
        keys, inputs = self._columns.of(batch)
        first, last = self._pane_of(np.array([stamps.min(), stamps.max()]))
        if first == last:  # most batches: a second part of the key would triple the time
            reduced = self._aggregation.reduced(keys, inputs)
            return reduced, np.full(reduced.num_rows, first)
        panes = self._pane_of(stamps)
        reduced = self._aggregation.reduced({**keys, _PANE: pa.array(panes)}, inputs)
        return reduced, reduced.column(_PANE).to_numpy(zero_copy_only=False)

    def _pane_of(self, stamps: NDArray[np.int64]) -> NDArray[np.int64]:
        return stamps - (stamps - self._offset) % self._pane

    def _last_start(self, stamps: NDArray[np.int64]) -> NDArray[np.int64]:
        return stamps - (stamps - self._offset) % self._slide

    def _is_over(self, starts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which windows have fired."""
        assert self._reached is not None, "open() comes first"
        if self._reached.timestamp is None:
            return np.zeros(len(starts), np.bool_)
        is_over: NDArray[np.bool_] = starts + (self._size - 1) <= self._reached.timestamp
        return is_over

    def _emitted(self, slots: Slots, ends: NDArray[np.int64]) -> ArrowBatch:
        assert self._table is not None, "open() comes first"
        keys = self._table.keys(slots)
        results = self._aggregation.results(self._table, slots)
        columns: dict[str, Any] = {name: keys.column(name) for name in self._aggregation.key_names}
        columns[WINDOW_START] = pa.array(ends - self._size).view(_INSTANT)
        columns[WINDOW_END] = pa.array(ends).view(_INSTANT)
        columns |= results
        self._records_out += len(slots)
        batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
        return ArrowBatch(batch, pa.array(ends - 1))

    def _look_for_earliest_end(self) -> None:
        assert self._table is not None, "open() comes first"
        slots = self._table.all_slots
        starts = self._table.key_numbers(_START, slots) if len(slots) else np.empty(0, np.int64)
        self._earliest_end = int(starts.min()) + self._size if len(starts) else _FAR


def _chosen(batch: Batch, rows: NDArray[np.bool_]) -> Batch:
    """Some rows of a batch that has timestamps."""
    if isinstance(batch, ArrowBatch):
        mask = pa.array(rows)
        return ArrowBatch(batch.batch.filter(mask), pc.filter(batch.timestamps, mask))
    return RowBatch(list(compress(batch.rows, rows)), list(compress(batch.timestamps or (), rows)))


def _timestamps(batch: Batch) -> NDArray[np.int64]:
    if batch.timestamps is None:
        msg = (
            "the records have no timestamps, so they are in no window; call "
            "assign_timestamps_and_watermarks(...) before key_by, and after a map_batches that does "
            "not return one batch as long as its input: only such a one keeps them"
        )
        raise PenstockError(msg)
    return np.asarray(batch.timestamps, np.int64)
