"""`WindowCombineAtSource`: the combiner of windows, run where a source's rows are.

A source gets its input in frames, such as those of a Spark task. Without moved steps, the job puts the
batches of a frame through the steps one after another, with a watermark after each batch. Here the same
batches go through the same steps before the transfer. A frame of rows becomes a frame of partial results,
with the watermarks in their places (`carried_watermarks.py`). The receiver then finds the same records late,
and fires the same windows.

**Why that is right.** A row of the partial results stands for records of one key and pane. All of them are in
the same windows. A receiver merges the row into the windows that are open, and drops it for the others. So it
must meet the watermarks that its records would have met:

1. Before a watermark that ends a window of kept records, the kept records are sent. So no record is later
   than it was.
2. A record that arrives after a watermark is never sent before it. So no record is earlier than it was.
3. Between these two, other watermarks may pass a kept record. None of them ends a window that was open for
   it, and other windows have ended already. So they change nothing.
4. Nothing is kept beyond a frame. So the watermarks of other partitions come between frames, as they did. If
   records were kept longer, a partition that is slightly ahead would make them late. Large partial results of
   a frame are cut into several frames, like those of a partition that is a moment later.

The operator does not judge whether records are late, unlike `WindowCombineOperator`: it does not know the
watermarks of other partitions. So late records are combined, too. A column has the number of records of each
row, so the receiver counts late records as before. If grouping saves few rows, the records are sent with
their timestamps.

**When it is not right.** Late records can't go to a side output, because partial results do not contain them.
If that output is read, the combiner must stay in the job. A watermark generator of the user must see each
record, so it must stay there as well. `runtime/graph/push_down.py` checks both.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.panes import (
    PANE,
    ColumnWindows,
    WindowCombineOperator,
    counting_records,
    moments_in,
    moments_of,
    partials_by_pane,
)
from penstock.runtime.operators.operator import Output
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import Batch


class WindowCombineAtSource(WindowCombineOperator):
    """Groups all records by key and pane, also late ones; its input has timestamps and watermarks."""

    def __init__(self, key: ColumnKey, aggregation: Aggregation, windows: ColumnWindows) -> None:
        super().__init__(key, counting_records(aggregation), windows)

    def process(self, batch: Batch) -> Iterator[Output]:
        if not self._gain.should_try(len(batch)):
            yield from self._passed_on(batch)
            return
        stamps = moments_of(batch)
        for rows, keys, inputs in self._columns.of(batch):
            own = stamps if rows is None else stamps[rows]
            partials = partials_by_pane(self._aggregation, self._panes, keys, inputs, own)
            self._note_ends(moments_in(partials, PANE))
            yield from self._taken_in(len(own), partials, {PANE: partials.column(PANE)})
