"""`PanedAggregateOperator`: sliding and cumulative windows over columns, with the accumulators of panes.

A record is in `size / slide` windows, but in one pane. So the state has a slot for each key and pane, not for
each key and window. When event time has passed a window, the accumulators of its panes are combined
(`combined_panes.py`). A pane is deleted with its last window. So the state, its snapshots and the work for a
batch are smaller than those of windows, by the factor `size / slide`.

Panes lose the order of the records of different panes. So functions that depend on this order have windows of
their own (`WindowedAggregateOperator`).

**Fired windows.** A pane outlives its first windows, so no slot says which windows have fired. All windows up
to the reached watermark have fired. After a restore at another parallelism, a subtask begins with the lowest
watermark of the old subtasks. Other old subtasks may have fired further windows of the keys that it now has.
So the operator finds the watermark of the old subtask of each key group. Windows up to this watermark neither
fire again nor take records of this key group.

**`CountDistinct`** keeps the pairs of key and value of each pane. When a window fires, it counts the distinct
pairs of its panes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.combined_panes import CombinedPanes, KeyNumbers
from penstock.runtime.operators.aggregation.panes import (
    FAR,
    NEVER,
    PANE,
    ColumnWindows,
    Moments,
    moments_in,
    partials_by_pane,
    records_in,
)
from penstock.runtime.operators.aggregation.window_aggregate import (
    AlignedWindowOperator,
    Columns,
)
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS, REACHED
from penstock.runtime.operators.functions.function_operator import keyed_state_of
from penstock.runtime.operators.held_watermark import ReachedWatermark
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import END_OF_TIME, ArrowBatch, Batch, Watermark
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.typed_columns import Slots

#: Maximum number of panes of windows that are combined at once; a single window may have more.
MOST_PARTS: Final = 1 << 18


class PanedAggregateOperator(AlignedWindowOperator):
    _fired: FiredWindows

    def __init__(
        self,
        key: ColumnKey,
        aggregation: Aggregation,
        windows: ColumnWindows,
        late_tag: str = LATE_RECORDS,
    ) -> None:
        assert not aggregation.is_ordered, "panes lose the order of records"
        super().__init__(key, aggregation, windows, "aggregates of panes in columns", late_tag)
        self._numbers = KeyNumbers(aggregation.key_names)

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._fired = FiredWindows(context, self._reached)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        before = self._reached.timestamp
        reached = self._reached.advance(watermark.timestamp)
        if not len(self._table) or self._earliest_end - 1 > reached:
            return
        slots = self._table.all_slots
        panes = self._table.key_numbers(PANE, slots)
        fired = self._fired.of_slots(self._table, slots, before)
        parts, ends = self._panes.due(panes, fired, reached)
        for first, last in _portions(ends):
            some = parts[first:last]
            yield from self._combined(slots[some], panes[some], ends[first:last], before)
        is_over = self._panes.are_late(panes, reached)
        self._delete(slots[is_over], reached)
        self._earliest_end = int(self._panes.next_ends(panes[~is_over], reached).min(initial=FAR))

    def _ends_of(self, slots: Slots) -> Moments:
        return self._panes.next_ends(self._table.key_numbers(PANE, slots), self._reached.timestamp)

    def _late_rows(self, batch: Batch, stamps: Moments) -> NDArray[np.bool_]:
        late = super()._late_rows(batch, stamps)
        if self._fired.is_ahead:
            for rows, keys, _ in self._columns.of(batch):
                places = slice(None) if rows is None else rows
                late[places] |= self._panes.are_late(stamps[places], self._fired.of_keys(keys))
        return late

    def _add(self, keys: Columns, inputs: Columns, stamps: Moments) -> None:
        self._merge_panes(partials_by_pane(self._aggregation, self._panes, keys, inputs, stamps))
        if not self._aggregation.combines:
            panes = {PANE: pa.array(self._panes.of(stamps))}
            self._aggregation.add_rows(self._table, self._pairs, keys, inputs, panes)

    def _merge(self, partials: pa.RecordBatch) -> None:
        panes = moments_in(partials, PANE)
        late = self._panes.are_late(panes, self._reached.timestamp)
        if self._fired.is_ahead:
            keys = {name: partials.column(name) for name in self._aggregation.key_names}
            late |= self._panes.are_late(panes, self._fired.of_keys(keys))
        if late.any():
            self._late += records_in(partials, late)
            partials = partials.filter(pa.array(~late))
        self._merge_panes(partials)

    def _merge_panes(self, partials: pa.RecordBatch) -> None:
        if partials.num_rows:
            self._aggregation.merge(self._table, partials, {PANE: partials.column(PANE)})
            ends = self._panes.next_ends(moments_in(partials, PANE), self._reached.timestamp)
            self._note_end(int(ends.min()))

    def _combined(
        self, slots: Slots, panes: Moments, ends: Moments, before: int | None
    ) -> Iterator[ArrowBatch]:
        """Emit windows; each part is a slot and the end of a window that holds its pane."""
        windows = CombinedPanes(self._table, slots, panes, self._numbers.of(self._table, slots), ends)
        windows.copy_values(self._aggregation.combining_names)
        self._aggregation.combine(windows, windows.steps())
        for name, pairs in self._pairs.items():
            known = pairs.all_slots
            if len(known):
                fired = np.maximum(self._fired.of_slots(pairs, known, before), ends[0] - 2)
                of_pairs = pairs.key_numbers(PANE, known)
                parts, of_ends = self._panes.due(of_pairs, fired, int(ends[-1]) - 1)
                chosen = known[parts]
                rows = windows.rows_of(self._numbers.of(pairs, chosen), of_ends)
                self._aggregation.add_pairs(windows, name, rows, pairs, chosen)
        yield from self._emitted(windows, windows.rows, windows.ends)

    def _delete(self, slots: Slots, reached: int) -> None:
        if not len(slots):
            return
        for pairs in self._pairs.values():
            known = pairs.all_slots
            if len(known):
                over = known[self._panes.are_late(pairs.key_numbers(PANE, known), reached)]
                pairs.delete(over)
                self._numbers.forget(pairs, over)
        self._table.delete(slots)
        self._numbers.forget(self._table, slots)
        self._numbers.delete_unused(self._table)


class FiredWindows:
    """The watermark up to which the windows of each key have fired; usually the operator's own watermark."""

    def __init__(self, context: OperatorContext, own: ReachedWatermark) -> None:
        backend = keyed_state_of(context)
        self._own = own
        self._max_parallelism = backend.max_parallelism
        self._by_group: Moments = np.full(backend.max_parallelism, NEVER)
        for subtask, parallelism, reached in context.restored.get(REACHED, ()):
            # A drained job that continues expects more records, so the end of time fires nothing for ever.
            if reached is not None and reached != END_OF_TIME:
                groups = key_group_range(subtask, parallelism, backend.max_parallelism)
                self._by_group[groups.first : groups.last + 1] = reached
        first, last = backend.key_groups.first, backend.key_groups.last
        self._highest = int(self._by_group[first : last + 1].max())

    @property
    def is_ahead(self) -> bool:
        """Whether windows of some keys may have fired that this subtask's watermark has not reached."""
        return self._highest > (NEVER if self._own.timestamp is None else self._own.timestamp)

    def of_slots(self, table: ColumnTable, slots: Slots, before: int | None) -> Moments:
        """The watermark for each slot, if the operator's own watermark is `before`."""
        own = NEVER if before is None else before
        if self._highest <= own:
            return np.full(len(slots), own)
        return np.maximum(self._by_group[table.key_groups(slots)], own)

    def of_keys(self, keys: Columns) -> Moments:
        """The watermark for each row's key, apart from the operator's own watermark."""
        groups = key_hashes(list(keys.values())) % np.uint64(self._max_parallelism)
        return self._by_group[groups.astype(np.int64)]


def _portions(ends: Moments) -> Iterator[tuple[int, int]]:
    """Split parts that are sorted by end into portions of whole windows.

    Example:
        >>> list(_portions(np.array([10, 10, 20])))
        [(0, 3)]
    """
    if len(ends):
        starts = np.flatnonzero(np.diff(ends, prepend=ends[0] - 1))
        firsts = np.unique(starts // MOST_PARTS, return_index=True)[1]
        cuts = [*starts[firsts].tolist(), len(ends)]
        yield from pairwise(cuts)
