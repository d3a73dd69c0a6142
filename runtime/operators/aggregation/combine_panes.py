"""`WindowCombineOperator`: a part of an aggregation by key and window, in front of the exchange.

It is `CombineOperator` for windows. It reduces what passes one sender to one row a key and pane, and sends
these rows instead of the records. What makes windows harder is event time. A reduced row can't go to the side
output of late records, so no record that the receiver would call late may be in one.

Why it is right.

1. The receiver's watermark is the lowest of its senders', so it is never ahead of this one's. A record that
   is not late here is not late there either, unless a watermark that ends one of its windows overtakes it. So
   what is kept leaves before such a watermark passes.
2. A record that is late here may or may not be late there. It is sent as it is, with all of its columns, and
   may overtake what is kept. In tumbling windows nothing that is kept is of its window. Where windows
   overlap, functions that go by the order of records do not combine.
3. A receiver that was restored knows the watermark that it had reached. So this operator keeps its own in
   snapshots: the restored ones are not behind those of the receivers either, since both were taken at one
   barrier. Where the aggregation did not combine, the snapshot has none. A job that goes on from it knows
   nothing about the receivers, and hands all records on.

Idle senders are the exception: they do not hold the receiver's watermark back. When one is active again, its
records may be late there and not here. The receiver drops and counts such reduced rows, as Flink does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from penstock.runtime.operators.aggregation.aggregation import Aggregation
from penstock.runtime.operators.aggregation.batch_columns import chosen_rows
from penstock.runtime.operators.aggregation.combiner import Combiner
from penstock.runtime.operators.aggregation.panes import ColumnWindows, Moments, Panes, moments_of
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.timers.reached_watermark import ReachedWatermark
from penstock.runtime.operators.windows.window import REACHED
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import Batch, Watermark

#: The column with the pane of a reduced row, in microseconds.
PANE: Final = ":pane"

_FAR: Final = np.iinfo(np.int64).max


class WindowCombineOperator(Combiner):
    """Reduces records by key and pane before they are sent.

    Args:
        aggregation: All of its functions must combine.
        windows: Those of the receiver.
    """

    def __init__(self, key: ColumnKey, aggregation: Aggregation, windows: ColumnWindows) -> None:
        super().__init__(key, aggregation)
        self._panes = Panes(windows)
        self._reached: ReachedWatermark | None = None
        self._knows_receivers = True
        self._earliest_end: int = _FAR

    def open(self, context: OperatorContext) -> None:
        """Take the clock, and the event time that was reached."""
        super().open(context)
        self._reached = ReachedWatermark(context, REACHED)
        self._knows_receivers = not context.is_restored or REACHED in context.restored

    @property
    def doing(self) -> str:
        """What it is part of."""
        return "combining rows by key and window"

    def process(self, batch: Batch) -> Iterator[Output]:
        """Take a batch in, or hand it on."""
        assert self._reached is not None, "open() comes first"
        self._records_in += len(batch)
        if not len(batch):
            return
        if not self._knows_receivers or not self._gain.should_try(len(batch)):
            yield from self._handed_on(batch)
            return
        stamps = moments_of(batch)
        late = self._panes.are_late(stamps, self._reached.timestamp)
        if late.any():
            yield self._sent(chosen_rows(batch, late))
            batch, stamps = chosen_rows(batch, ~late), stamps[~late]
        if not len(batch):
            return
        for rows, keys, inputs in self._columns.of(batch):
            own = stamps if rows is None else stamps[rows]
            reduced = reduced_by_pane(self._aggregation, self._panes, keys, inputs, own)
            panes = reduced.column(PANE)
            self._look_for_ends(panes.to_numpy(zero_copy_only=False))
            yield from self._taken_in(len(own), reduced, {PANE: panes})

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        """Send what is kept if a window of it ends."""
        assert self._reached is not None, "open() comes first"
        if self._earliest_end - 1 <= self._reached.advance(watermark.timestamp):
            yield from self.flush()

    def flush(self) -> Iterator[Output]:
        """Send what is kept."""
        self._earliest_end = _FAR
        return super().flush()

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        """How far event time has come, where that is known of the receivers, too."""
        assert self._reached is not None, "open() comes first"
        return {REACHED: self._reached.state()} if self._knows_receivers else {}

    def _look_for_ends(self, panes: Moments) -> None:
        """The first end of a window that is open and holds one of these panes."""
        assert self._reached is not None, "open() comes first"
        for starts, holds in self._panes.windows_of(panes):
            is_open = holds & ~self._panes.are_over(starts, self._reached.timestamp)
            if is_open.any():
                self._earliest_end = min(self._earliest_end, int(starts[is_open].min()) + self._panes.size)


def reduced_by_pane(
    aggregation: Aggregation,
    panes: Panes,
    keys: Mapping[str, pa.Array],
    inputs: Mapping[str, pa.Array],
    stamps: Moments,
) -> pa.RecordBatch:
    """One row for each key and pane, in which `PANE` is a column beside those of `Aggregation.reduced`.

    Most batches lie within one pane. They are grouped by the key alone, which takes half of the time.
    """
    only = panes.only_one(stamps)
    if only is None:
        return aggregation.reduced({**keys, PANE: pa.array(panes.of(stamps))}, inputs)
    reduced = aggregation.reduced(keys, inputs)
    columns = dict(zip(reduced.schema.names, reduced.columns, strict=True))
    named = {name: columns.pop(name) for name in keys}
    named |= {PANE: pa.array(np.full(reduced.num_rows, only)), **columns}
    return pa.RecordBatch.from_arrays(list(named.values()), names=list(named))
