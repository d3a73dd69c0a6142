"""`key_by(names).window(...).aggregate(...)`: accumulators by key and window in columns.

`ColumnWindowOperator` is the base of windows over columns. A window is a slot of a table. Its start is a
column of the key, but is not used to compute the key group. When event time has passed a window, it is
emitted and its slot is freed. The ends of all windows are scanned, but only when a watermark has reached the
earliest end. A record whose windows have all ended goes to the side output.

`AlignedWindowOperator` is the base of tumbling, sliding and cumulative windows. A batch is first grouped into
partial results by key and pane (`panes.py`), here or by a combiner before the exchange.

`WindowedAggregateOperator` merges each pane's partial result into all windows that hold the pane. It has
tumbling windows, in which a window is a pane. It also has overlapping windows with a function that depends on
the order of rows. Grouping by pane loses the order of rows in different panes, so these rows are grouped by
window. Functions without partial results always receive the rows of each window. All other overlapping
windows keep panes (`paned_aggregate.py`).

A combiner's partial result may be late if its sender was idle, as this subtask's watermark is then ahead of
the sender's. The partial result does not contain its records, so it is dropped and counts as one late record.
Partial results that a source has combined have the number of their records (`panes_at_source.py`).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.aggregation import Accumulating, Aggregation, is_partial
from penstock.runtime.operators.aggregation.batch_columns import KeyedColumnOperator
from penstock.runtime.operators.aggregation.column_aggregate import taken
from penstock.runtime.operators.aggregation.panes import (
    FAR,
    PANE,
    ColumnWindows,
    Moments,
    Panes,
    moments_in,
    moments_of,
    partials_by_pane,
    records_in,
)
from penstock.runtime.operators.expressions import rows_where
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS, REACHED
from penstock.runtime.operators.held_watermark import ReachedWatermark
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList, Tagged
from penstock.runtime.operators.windows.window import SHAPE, WindowShape
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch, Watermark
from penstock.runtime.state.typed_columns import Slots
from penstock.runtime.time.windows import CumulativeEventTimeWindows

#: Name of the state table that holds the accumulators of windows.
WINDOW_AGGREGATE_STATE: Final = "window_aggregate"

#: Columns of the output in addition to those of the key and the functions.
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

#: Column of the key in state that has the window's start, in microseconds.
START: Final = ":start"

Columns: TypeAlias = Mapping[str, pa.Array]

_INSTANT: Final = pa.timestamp("us", "UTC")

#: Maximum rows of one output batch.
_SLICE: Final = 1 << 16


class ColumnWindowOperator(KeyedColumnOperator):
    """Aggregates records by key and window, and emits a window when event time has passed it.

    The output is Arrow batches: the key's columns, `window_start` and `window_end`, and a column for each
    function. Their timestamps are the last microseconds of the windows.
    """

    owner = "windows over columns"

    _reached: ReachedWatermark

    def __init__(self, key: ColumnKey, aggregation: Aggregation, shape: WindowShape, late_tag: str) -> None:
        super().__init__(key, aggregation)
        self._results = aggregation
        self._shape = shape
        self._late_tag = late_tag
        self._earliest_end: int = FAR
        self._late = 0

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._reached = ReachedWatermark(context, REACHED)
        if len(self._table):
            self._shape.check(context.restored.get(SHAPE, ()))
            slots = self._table.all_slots
            self._restored(slots)
            self._earliest_end = int(self._ends_of(slots).min())

    @property
    def doing(self) -> str:
        return f"aggregating windows by {self._key.__name__}"

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        reached = self._reached.advance(watermark.timestamp)
        if not len(self._table) or self._earliest_end - 1 > reached:
            return
        slots = self._table.all_slots
        ends = self._ends_of(slots)
        over = np.flatnonzero(ends - 1 <= reached)
        over = over[np.argsort(ends[over], kind="stable")]
        yield from self._emitted(self._table, slots[over], ends[over])
        self._delete_beside(slots[over], reached)
        self._table.delete(slots[over])
        self._earliest_end = int(np.delete(ends, over).min(initial=FAR))

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {REACHED: self._reached.state(), SHAPE: self._shape.state()}

    def built_in_counts(self) -> Mapping[str, int]:
        return {LATE_RECORDS: self._late}

    @abstractmethod
    def _ends_of(self, slots: Slots) -> Moments: ...

    @abstractmethod
    def _starts_of(self, slots: Slots, ends: Moments) -> Moments:
        """Starts of these windows, for the output."""

    def _restored(self, slots: Slots) -> None:
        """Rebuild the indexes of restored windows, which no snapshot holds."""

    def _delete_beside(self, slots: Slots, reached: int) -> None:
        """Delete the data that fired windows have outside their slots."""

    def _late_output(self, batch: Batch, is_late: NDArray[np.bool_]) -> Iterator[Output]:
        self._late += int(is_late.sum())
        yield Tagged(self._late_tag, rows_where(batch, pa.array(is_late)))

    def _note_end(self, end: int) -> None:
        self._earliest_end = min(self._earliest_end, end)

    def _emitted(self, windows: Accumulating, slots: Slots, ends: Moments) -> Iterator[ArrowBatch]:
        for first in range(0, len(slots), _SLICE):
            some, of_some = slots[first : first + _SLICE], ends[first : first + _SLICE]
            starts = self._starts_of(some, of_some)
            for places, keys, results in self._results.emitted(windows, some):
                columns: dict[str, Any] = {name: keys.column(name) for name in self._key.names}
                columns[WINDOW_START] = pa.array(starts[places]).view(_INSTANT)
                columns[WINDOW_END] = pa.array(of_some[places]).view(_INSTANT)
                columns |= results
                batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
                yield ArrowBatch(batch, pa.array(of_some[places] - 1))


class AlignedWindowOperator(ColumnWindowOperator):
    """Windows that the timestamp alone determines; `keeps` names the accumulators in snapshots."""

    state_name = WINDOW_AGGREGATE_STATE

    def __init__(
        self, key: ColumnKey, aggregation: Aggregation, windows: ColumnWindows, keeps: str, late_tag: str
    ) -> None:
        super().__init__(key, aggregation, _shape(windows, keeps), late_tag)
        self._panes = Panes(windows)

    def process(self, batch: Batch) -> Iterator[Output]:
        if isinstance(batch, ArrowBatch) and is_partial(batch.batch):
            self._merge(batch.batch)
            return
        stamps = moments_of(batch)
        late = self._late_rows(batch, stamps)
        if late.any():
            yield from self._late_output(batch, late)
            batch, stamps = rows_where(batch, pa.array(~late)), stamps[~late]
        if len(batch):
            for rows, keys, inputs in self._columns.of(batch):
                self._add(keys, inputs, stamps if rows is None else stamps[rows])

    def _late_rows(self, batch: Batch, stamps: Moments) -> NDArray[np.bool_]:
        return self._panes.are_late(stamps, self._reached.timestamp)

    def _starts_of(self, slots: Slots, ends: Moments) -> Moments:
        return self._panes.begins(ends)

    @abstractmethod
    def _add(self, keys: Columns, inputs: Columns, stamps: Moments) -> None:
        """Add rows, none of which is late."""

    @abstractmethod
    def _merge(self, partials: pa.RecordBatch) -> None:
        """Merge a combiner's partial results; drop and count those that are late."""


class WindowedAggregateOperator(AlignedWindowOperator):
    """Keeps the accumulators of each key and window."""

    def __init__(
        self,
        key: ColumnKey,
        aggregation: Aggregation,
        windows: ColumnWindows,
        late_tag: str = LATE_RECORDS,
    ) -> None:
        super().__init__(key, aggregation, windows, "aggregates in columns", late_tag)

    def _ends_of(self, slots: Slots) -> Moments:
        ends: Moments = self._table.key_numbers(START, slots) + self._panes.size
        return ends

    def _delete_beside(self, slots: Slots, reached: int) -> None:
        for pairs in self._pairs.values():
            known = pairs.all_slots
            if len(known):
                pairs.delete(known[self._panes.are_over(pairs.key_numbers(START, known), reached)])

    def _add(self, keys: Columns, inputs: Columns, stamps: Moments) -> None:
        needs_rows = not self._aggregation.combines
        by_window = self._panes.overlap and self._aggregation.is_ordered
        if not by_window:
            self._merge(partials_by_pane(self._aggregation, self._panes, keys, inputs, stamps))
        if not by_window and not needs_rows:
            return
        rows, starts = self._rows_of_windows(self._panes.of(stamps))
        some_keys, some_inputs = taken(keys, rows), taken(inputs, rows)
        if by_window:
            partials = self._aggregation.partials({**some_keys, START: starts}, some_inputs)
            self._merge_windows(partials, moments_in(partials, START))
        if needs_rows:
            self._aggregation.add_rows(self._table, self._pairs, some_keys, some_inputs, {START: starts})

    def _rows_of_windows(self, panes: Moments) -> tuple[pa.Array, pa.Array]:
        """Return each row's index once per open window that holds it, and the starts of these windows."""
        windows = self._panes.open_windows(panes, self._reached.timestamp)
        found = [(np.flatnonzero(some), starts[some]) for starts, some in windows]
        rows, starts = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
        order = np.argsort(rows, kind="stable")
        return pa.array(rows[order]), pa.array(starts[order])

    def _merge(self, partials: pa.RecordBatch) -> None:
        panes = moments_in(partials, PANE)
        self._late += records_in(partials, self._panes.are_late(panes, self._reached.timestamp))
        for starts, is_open in self._panes.open_windows(panes, self._reached.timestamp):
            some = partials if is_open.all() else partials.filter(pa.array(is_open))
            self._merge_windows(some, starts[is_open])

    def _merge_windows(self, partials: pa.RecordBatch, starts: Moments) -> None:
        self._aggregation.merge(self._table, partials, {START: pa.array(starts)})
        self._note_end(int(starts.min()) + self._panes.size)


def _shape(windows: ColumnWindows, keeps: str) -> WindowShape:
    if isinstance(windows, CumulativeEventTimeWindows):
        offset = windows.offset % windows.max_size
        return WindowShape(windows.max_size, f"cumulative {keeps}", windows.step, offset)
    return WindowShape.of(windows, keeps)
