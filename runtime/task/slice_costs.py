"""`SliceCosts`: what a slice costs, once and for each row.

A slice has a fixed cost. An Arrow batch wakes every operator of the chain, whatever its size. A model that
takes whole batches may need most of its time to begin. Where processes outnumber processors, the operating
system takes the processor away now and then. That costs a short slice as much as a long one.

A time per row of the last slice mixes both. Slices become smaller, their rows seem to become slower, and so
on. It ends with slices of a few rows that pay nothing but the fixed cost.

So the two are told apart by a straight line through the times of the last slices. It is that of least
squares, and an older slice counts less. Slices of one size draw no line. While they last, the fixed cost that
is known is believed less and less. So the sizes change a little, and there is a line again.
"""

from __future__ import annotations

from typing import Final

#: What a slice counts when the next one has come: some fifteen slices are looked at.
_DECAY: Final = 15 / 16

#: Slices before a line is drawn.
_LEAST_SLICES: Final = 8

#: Least spread of the sizes, beside their mean: with less the line follows chance.
_LEAST_SPREAD: Final = 0.1

#: Least share of the time that is put down to rows: a line that is nearly flat follows chance, too.
_LEAST_OF_ROWS: Final = 0.05


class SliceCosts:
    """Estimates the fixed cost of a slice and the cost of a row.

    Attributes:
        fixed: Seconds of a slice without rows; 0 while it can't be told.
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
        """A slice of so many rows, at least one, took so long."""
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
