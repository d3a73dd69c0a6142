"""`Panes`: tumbling, sliding and cumulative windows over arrays of moments, and the combiner of windows.

A *pane* is the longest span of time in which no window begins or ends. All moments of a pane are in the same
windows. So rows are grouped by pane, and each pane's row is merged into all windows that hold the pane.

Cumulative windows begin together and differ in size. `Panes` identifies such a window by its end and treats
it as if it had the largest size. Only the output has its real start.

`WindowCombineOperator` groups the records of one sender into one row per key and pane, and sends these rows
instead. A partial result can't go to the side output of late records. So it must not contain a record that is
late at the receiver. Three facts ensure that:

1. The receiver's watermark is the lowest of its senders', so it is never ahead of this sender's. A record
   that is not late here is not late there either, unless a watermark that ends one of its windows overtakes
   it. So the kept rows are sent before such a watermark.
2. A record that is late here may or may not be late there. It is sent unchanged, with all of its columns, and
   may overtake the kept rows. With tumbling windows, no kept row belongs to its window. If windows overlap,
   functions that depend on the order of records have no combiner.
3. A restored receiver continues at the watermark that it had reached. So this operator saves its own
   watermark, too. Its watermark and the receivers' are saved at one barrier, so the restored watermark is not
   behind theirs. A snapshot of a job without a combiner has no such watermark. A combiner that starts from it
   can't tell which records are late at the receivers, and sends all records unchanged.

Idle senders are the exception: they do not hold the receiver's watermark back. When such a sender is active
again, its records may be late there and not here. The receiver drops and counts partial results of such
records, as Flink does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import gcd
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.aggregation import OF, Aggregation
from penstock.runtime.operators.aggregation.functions import Count
from penstock.runtime.operators.aggregation.keyed_aggregate import Combiner
from penstock.runtime.operators.expressions import rows_where
from penstock.runtime.operators.functions.event_time_operator import REACHED, no_timestamps
from penstock.runtime.operators.held_watermark import ReachedWatermark
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import Batch, Watermark
from penstock.runtime.time.windows import (
    CumulativeEventTimeWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

#: The column with the pane of a partial result, in microseconds.
PANE: Final = ":pane"

#: Name of an additional function that counts records, and of its accumulator. No function of a user has it.
_RECORDS: Final = ""
RECORDS: Final = f"{_RECORDS}{OF}count"

#: Later than the end of every window.
FAR: Final = np.iinfo(np.int64).max

#: Earlier than every watermark.
NEVER: Final = np.iinfo(np.int64).min

#: Windows of aggregates over columns.
ColumnWindows = TumblingEventTimeWindows | SlidingEventTimeWindows | CumulativeEventTimeWindows

#: Moments in microseconds.
Moments = NDArray[np.int64]


class Panes:
    """The panes of some windows; `size` is the size of the largest window, in microseconds.

    Example:
        >>> panes = Panes(SlidingEventTimeWindows(size=10e-6, slide=4e-6))
        >>> panes.of(np.array([9, 10, 11])).tolist()
        [8, 10, 10]
        >>> [(starts.tolist(), holds.tolist()) for starts, holds in panes.windows_of(np.array([8, 10]))]
        [([8, 8], [True, True]), ([4, 4], [True, True]), ([0, 0], [True, False])]
    """

    def __init__(self, windows: ColumnWindows) -> None:
        self._offset = windows.offset
        self._is_cumulative = isinstance(windows, CumulativeEventTimeWindows)
        if isinstance(windows, CumulativeEventTimeWindows):
            self.size, self._slide, self._period = windows.max_size, windows.step, windows.max_size
        else:
            self.size, self._slide, self._period = windows.size, windows.slide, windows.slide
        self._length = gcd(self.size, self._slide)

    @property
    def overlap(self) -> bool:
        return self.size > self._slide

    def begins(self, ends: Moments) -> Moments:
        """Starts of the windows that end at these moments.

        Example:
            >>> panes = Panes(CumulativeEventTimeWindows(max_size=15e-6, step=5e-6))
            >>> panes.begins(np.array([5, 10, 15, 20])).tolist()
            [0, 0, 0, 15]
        """
        return self._last_start(ends - 1) if self._is_cumulative else ends - self.size

    def of(self, stamps: Moments) -> Moments:
        return stamps - (stamps - self._offset) % self._length

    def only_one(self, stamps: Moments) -> int | None:
        """The start of the pane that holds all moments; `None` if there are several panes, or no moments.

        Example:
            >>> panes = Panes(TumblingEventTimeWindows(10e-6))
            >>> panes.only_one(np.array([12, 19, 11])), panes.only_one(np.array([19, 20]))
            (10, None)
        """
        if not len(stamps):
            return None
        first, last = self.of(np.array([stamps.min(), stamps.max()]))
        return int(first) if first == last else None

    def windows_of(self, panes: Moments) -> Iterator[tuple[Moments, NDArray[np.bool_]]]:
        """Yield windows of each pane, the last ones first: their starts, and whether each holds its pane."""
        last = self._last_start(panes)
        for number in range(-(-self.size // self._slide)):
            starts = last - number * self._slide
            holds: NDArray[np.bool_] = starts + self.size > panes
            yield starts, holds

    def open_windows(
        self, panes: Moments, reached: int | None
    ) -> Iterator[tuple[Moments, NDArray[np.bool_]]]:
        """Like `windows_of`, but leaves out windows that have fired at this watermark."""
        for starts, holds in self.windows_of(panes):
            is_open = holds & ~self.are_over(starts, reached)
            if is_open.any():
                yield starts, is_open

    def next_ends(self, panes: Moments, reached: int | Moments | None) -> Moments:
        """End of the first window that holds each pane and is open at this watermark; `FAR` without one.

        Example:
            >>> panes = Panes(SlidingEventTimeWindows(size=10e-6, slide=4e-6))
            >>> panes.next_ends(np.array([8, 10]), None).tolist(), panes.next_ends(np.array([8]), 9).tolist()
            ([10, 14], [14])
        """
        last = self._last_start(panes) + self.size
        after = panes
        if reached is not None:
            after = np.maximum(panes, np.minimum(reached, FAR - 1) + 1)
        ends = last - (last - after - 1) // self._slide * self._slide
        return np.where(last > after, ends, FAR)

    def due(self, panes: Moments, fired: Moments, reached: int) -> tuple[NDArray[np.int64], Moments]:
        """Find the windows that hold these panes and end at this watermark, but did not end at `fired`.

        Returns:
            The index of a pane for each pane and window, and the end of the window; sorted by end.

        Example:
            >>> panes = Panes(SlidingEventTimeWindows(size=10e-6, slide=4e-6))
            >>> parts, ends = panes.due(np.array([8, 10]), np.array([9, 9]), 17)
            >>> parts.tolist(), ends.tolist()
            ([0, 1, 0, 1], [14, 14, 18, 18])
        """
        firsts = self.next_ends(panes, fired)
        lasts = np.minimum(self._last_start(panes) + self.size - 1, reached) + 1
        counts = np.where(firsts == FAR, 0, np.maximum((lasts - firsts) // self._slide + 1, 0))
        parts = np.repeat(np.arange(len(panes)), counts)
        numbers = np.arange(len(parts)) - np.repeat(np.cumsum(counts) - counts, counts)
        ends = firsts[parts] + numbers * self._slide
        order = np.argsort(ends, kind="stable")
        return parts[order], ends[order]

    def are_over(self, starts: Moments, reached: int | Moments | None) -> NDArray[np.bool_]:
        if reached is None:
            return np.zeros(len(starts), np.bool_)
        are_over: NDArray[np.bool_] = starts + (self.size - 1) <= reached
        return are_over

    def are_late(self, stamps: Moments, reached: int | Moments | None) -> NDArray[np.bool_]:
        """Whether each moment is in no window that is open at this watermark."""
        # Usually not even the earliest moment is late.
        if len(stamps) and not self.are_over(self._last_start(stamps.min(keepdims=True)), reached).any():
            return np.zeros(len(stamps), np.bool_)
        return self.are_over(self._last_start(stamps), reached)

    def _last_start(self, stamps: Moments) -> Moments:
        return stamps - (stamps - self._offset) % self._period


def moments_of(batch: Batch) -> Moments:
    if batch.timestamps is None:
        raise no_timestamps()
    return np.asarray(batch.timestamps, np.int64)


def moments_in(batch: pa.RecordBatch, name: str) -> Moments:
    moments: Moments = batch.column(name).to_numpy(zero_copy_only=False)
    return moments


def counting_records(aggregation: Aggregation) -> Aggregation:
    """The aggregation with one more accumulator: the number of records in a partial result."""
    return aggregation.and_also({_RECORDS: Count()})


def records_in(partials: pa.RecordBatch, some: NDArray[np.bool_]) -> int:
    """The number of records in some partial results; each counts as one if their numbers are unknown."""
    if RECORDS not in partials.schema.names:
        return int(some.sum())
    return int(moments_in(partials, RECORDS)[some].sum())


def partials_by_pane(
    aggregation: Aggregation,
    panes: Panes,
    keys: Mapping[str, pa.Array],
    inputs: Mapping[str, pa.Array],
    stamps: Moments,
) -> pa.RecordBatch:
    """Partial results with one row per key and pane, and a column `PANE`.

    Most batches lie within one pane. They are grouped by the key alone, which takes half the time.
    """
    only = panes.only_one(stamps)
    if only is None:
        return aggregation.partials({**keys, PANE: pa.array(panes.of(stamps))}, inputs)
    partials = aggregation.partials(keys, inputs)
    columns = dict(zip(partials.schema.names, partials.columns, strict=True))
    named = {name: columns.pop(name) for name in keys}
    named |= {PANE: pa.array(np.full(partials.num_rows, only)), **columns}
    return pa.RecordBatch.from_arrays(list(named.values()), names=list(named))


class WindowCombineOperator(Combiner):
    _reached: ReachedWatermark

    def __init__(self, key: ColumnKey, aggregation: Aggregation, windows: ColumnWindows) -> None:
        super().__init__(key, aggregation)
        self._panes = Panes(windows)
        #: Whether this operator's watermark is not behind the receivers', so that lateness can be judged.
        self._knows_receivers = True
        self._earliest_end: int = FAR

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._reached = ReachedWatermark(context, REACHED)
        self._knows_receivers = not context.is_restored or REACHED in context.restored

    @property
    def doing(self) -> str:
        return "combining rows by key and window"

    def process(self, batch: Batch) -> Iterator[Output]:
        if not self._knows_receivers or not self._gain.should_try(len(batch)):
            yield from self._passed_on(batch)
            return
        stamps = moments_of(batch)
        late = self._panes.are_late(stamps, self._reached.timestamp)
        if late.any():
            yield rows_where(batch, pa.array(late))
            batch, stamps = rows_where(batch, pa.array(~late)), stamps[~late]
        if not len(batch):
            return
        for rows, keys, inputs in self._columns.of(batch):
            own = stamps if rows is None else stamps[rows]
            partials = partials_by_pane(self._aggregation, self._panes, keys, inputs, own)
            self._note_ends(moments_in(partials, PANE))
            yield from self._taken_in(len(own), partials, {PANE: partials.column(PANE)})

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        if self._earliest_end - 1 <= self._reached.advance(watermark.timestamp):
            yield from self.flush()

    def flush(self) -> Iterator[Output]:
        self._earliest_end = FAR
        return super().flush()

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {REACHED: self._reached.state()} if self._knows_receivers else {}

    def _note_ends(self, panes: Moments) -> None:
        for starts, is_open in self._panes.open_windows(panes, self._reached.timestamp):
            self._earliest_end = min(self._earliest_end, int(starts[is_open].min()) + self._panes.size)
