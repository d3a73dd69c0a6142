"""Slices of a batch: their numbers of rows, and their costs.

Between slices of about ten milliseconds a subtask serves barriers and control. The size follows the measured
time per row. Cheap operators take whole batches; a slow user function takes a few rows at a time, or one.

A list slice has at most a few thousand rows. More rows gain nothing, because the cost of a slice is already
spread thin. They leave the processor's cache and wake Python's cycle collector. An Arrow batch is a few
objects whatever its size, so it may be larger.

`SliceCosts`: a slice has a fixed cost, too. An Arrow batch wakes every operator of the chain, whatever its
size. A model that takes whole batches may need most of its time to begin. Where processes outnumber
processors, the operating system takes the processor away now and then. Where the fixed cost is large, smaller
slices would not be faster, only more numerous. So a slice may take longer than ten milliseconds: its fixed
cost is at most a fifth of its time.

The time per row of the last slice mixes both costs. Slices would shrink, their rows would seem slower, and so
on, until slices of a few rows pay only the fixed cost. So a straight line through the times of the last
slices separates the two costs. It is fitted by least squares, and older slices count less. Slices of equal
size determine no line. While they last, the estimate of the fixed cost decays. So the sizes change a little,
and a line can be fitted again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch

#: Decay of a slice's weight with each later slice; about fifteen slices count.
_DECAY: Final = 15 / 16

#: Number of slices before a line is fitted.
_LEAST_SLICES: Final = 8

#: Minimum spread of the sizes relative to their mean; with less the line follows noise.
_LEAST_SPREAD: Final = 0.1

#: Minimum share of the time attributed to rows; a nearly flat line follows noise, too.
_LEAST_OF_ROWS: Final = 0.05


class SliceCosts:
    """Estimates the fixed cost of a slice and the cost of a row.

    Attributes:
        fixed: Seconds of a slice without rows; 0 while it is unknown.
        each: Seconds of a row.

    Example:
        >>> costs = SliceCosts()
        >>> for rows in (100, 200, 300) * 3:
        ...     costs.observe(rows, 0.004 + rows * 0.00001)
        >>> round(costs.fixed, 6), round(costs.each, 8)
        (0.004, 1e-05)
    """

    def __init__(self) -> None:
        self.fixed = self.each = 0.0
        self._seen = 0
        self._weight = self._rows = self._seconds = self._squares = self._products = 0.0

    def observe(self, rows: int, seconds: float) -> None:
        self._seen += 1
        self._weight = _DECAY * self._weight + 1
        self._rows = _DECAY * self._rows + rows
        self._seconds = _DECAY * self._seconds + seconds
        self._squares = _DECAY * self._squares + rows * rows
        self._products = _DECAY * self._products + rows * seconds
        mean_rows, mean_seconds = self._rows / self._weight, self._seconds / self._weight
        spread = self._squares / self._weight - mean_rows * mean_rows
        if spread <= (_LEAST_SPREAD * mean_rows) ** 2:
            self.fixed *= _DECAY
        elif self._seen >= _LEAST_SLICES:
            slope = (self._products / self._weight - mean_rows * mean_seconds) / spread
            self.fixed = max(0.0, mean_seconds - slope * mean_rows)
        self.fixed = min(self.fixed, (1 - _LEAST_OF_ROWS) * mean_seconds)
        self.each = (mean_seconds - self.fixed) / mean_rows


#: Maximum records of a slice of a list of records.
MOST_ROWS: Final = 4_096

#: Minimum time for rows beside the fixed cost of a slice.
_TIMES_FIXED: Final = 4


class SliceSizer:
    """Chooses the size of the next slice from the time of the last ones.

    Args:
        target: Intended seconds of a slice.
        maximum: Maximum rows of a slice of any kind.

    Attributes:
        rows: Size of the next slice, from the times of the last slices.

    Example:
        >>> sizer = SliceSizer(target=0.01, initial=64)
        >>> sizer.observe(rows=64, seconds=0.064)
        >>> sizer.rows
        10
    """

    def __init__(self, target: float = 0.01, initial: int = 256, maximum: int = 262_144) -> None:
        self._target = target
        self._maximum = maximum
        self.overruns = 0
        self._costs = SliceCosts()
        self.rows = initial

    def rows_of(self, batch: Batch) -> int:
        """Rows of the next slice of this batch.

        Example:
            >>> SliceSizer(initial=50_000).rows_of(RowBatch([1, 2]))
            4096
        """
        return self.rows if isinstance(batch, ArrowBatch) else min(self.rows, MOST_ROWS)

    def observe(self, rows: int, seconds: float) -> None:
        if rows <= 0:
            return
        if seconds > 10 * self._target:
            self.overruns += 1
        costs = self._costs
        costs.observe(rows, seconds)
        fitting = self._maximum if seconds <= 0 else int(self._target * rows / seconds)
        paying = int(_TIMES_FIXED * costs.fixed / costs.each) if costs.each > 0 else 1
        self.rows = max(1, min(self._maximum, max(fitting, paying), self.rows * 4))


class BatchRemainder:
    """A batch that is processed slice by slice; its rest is available at every slice boundary.

    Example:
        >>> remainder = BatchRemainder(RowBatch([1, 2, 3]))
        >>> remainder.take(2).rows, remainder.is_empty
        ([1, 2], False)
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._taken = 0

    @property
    def batch(self) -> Batch:
        return self._batch

    @property
    def is_empty(self) -> bool:
        return self._taken >= len(self._batch)

    def take(self, rows: int) -> Batch:
        """Take the next rows, at most `rows`; returns the whole batch without copying if it fits."""
        batch, start = self._batch, self._taken
        size = min(rows, len(batch) - start)
        self._taken += size
        if size == len(batch):
            return batch
        if isinstance(batch, ArrowBatch):
            return batch.slice(start, size)
        stamps = None if batch.timestamps is None else batch.timestamps[start : start + size]
        return RowBatch(batch.rows[start : start + size], stamps)

    def rest(self) -> Iterator[Batch]:
        """The rows that were not taken, as one batch (none when empty)."""
        if not self.is_empty:
            left = BatchRemainder(self._batch)
            left._taken = self._taken
            yield left.take(len(self._batch))
