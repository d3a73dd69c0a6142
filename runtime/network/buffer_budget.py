"""Size of an open buffer: a row limit that follows a byte budget, and what the receiver consumes.

The first buffer of a channel has none before it to learn from. So a few of its rows are encoded and weighed
before it grows. Without that, 4,096 rows of a megabyte each would make a first buffer of 4 GB.

`BufferDebloater`: rows of a buffer follow what the receiver consumes (Flink's buffer debloating).

A frame costs sender and receiver about a millisecond each, whatever its size, so large buffers are cheap. But
an aligned barrier waits behind every outstanding buffer. In front of a slow receiver, large buffers are
minutes of work. So the rows are chosen such that all credits of the channel together hold `target` seconds of
what its receiver consumes. A barrier then waits about `target` seconds, whatever a record costs.

What is measured: a receiver answers a frame when it begins with it. Until its next answer it was busy with
that frame, and with other channels, if more was outstanding or waited for a credit. Only such time counts. An
answer that leaves nothing behind ends the measurement: the receiver may wait for the sender from then on. A
full buffer that did not keep the receiver busy shows that larger ones do no harm.

The sender takes several answers at once, between two pieces of work. So answers are gathered for `_WINDOW`
seconds. After that the size at most doubles or halves. So a pause of the receiver (a snapshot, a busy
machine) costs one step, and another one brings it back. A channel begins with small buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.runtime.record.elements import Buffer, RowBatch

#: Least seconds of a measurement.
_WINDOW: Final = 0.05
#: Maximum rows of a channel's first buffers.
_FIRST: Final = 1024


class BufferDebloater:
    """Chooses the rows of a channel's buffers by what its receiver consumes; see the module's docstring.

    Args:
        max_rows: No buffer holds more rows.
        target: Seconds that the receiver is meant to need for all outstanding buffers.

    Attributes:
        rows: Maximum rows of the next buffer, at least 1.

    Example:
        >>> debloater = BufferDebloater(max_rows=4096, credits=8, target=1.0)
        >>> debloater.consumed(1024, now=10.0, more=True)  # a receiver of 1,024 rows in 0.8 seconds ...
        >>> debloater.consumed(1024, now=10.8, more=True)
        >>> debloater.rows  # ... would get 160; this is the first step to it
        512
    """

    def __init__(self, max_rows: int, credits: int, target: float) -> None:
        self._max_rows = max_rows
        self._share = target / credits
        self._busy_since: float | None = None
        self._begun = 0
        self._busy = 0.0
        self._consumed = 0
        self.rows = min(_FIRST, max_rows)

    def consumed(self, rows: int, now: float, *, more: bool) -> None:
        """The receiver has answered a frame: it begins with its rows.

        Args:
            now: Monotonic seconds.
            more: Whether others are outstanding, or wait for this one's credit.
        """
        if self._busy_since is not None:
            self._busy += now - self._busy_since
            self._consumed += self._begun
        if self._busy >= _WINDOW:
            self._approach(int(self._share * self._consumed / self._busy))
            self._busy, self._consumed = 0.0, 0
        elif not more and rows >= self.rows:
            self._approach(self._max_rows)
        self._busy_since = now if more else None
        self._begun = rows

    def _approach(self, rows: int) -> None:
        """Change the size towards this many rows, at most to the double or the half."""
        self.rows = max(1, self.rows // 2, min(rows, 2 * self.rows, self._max_rows))


#: Rows that are weighed for the first buffer.
_SAMPLE: Final = 16


class BufferBudget:
    """Turns a budget of bytes into a number of rows by what recent buffers weighed.

    Args:
        max_rows: No buffer holds more rows.
        max_bytes: Intended most bytes of an encoded buffer.
        debloater: Lowers the limit for a slow receiver; `None` for never.

    Example:
        >>> budget = BufferBudget(max_rows=4096, max_bytes=1000)
        >>> budget.rows
        4096
        >>> budget.observe(Buffer(b"x" * 2000, rows=20))
        >>> budget.rows
        10
    """

    def __init__(
        self, max_rows: int = 16_384, max_bytes: int = 256 * 1024, debloater: BufferDebloater | None = None
    ) -> None:
        self._is_new = True
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._by_bytes = max_rows
        self._debloater = debloater

    @property
    def rows(self) -> int:
        debloater = self._debloater
        return self._by_bytes if debloater is None else min(self._by_bytes, debloater.rows)

    def consumed(self, rows: int, now: float, *, more: bool) -> None:
        if self._debloater is not None:
            self._debloater.consumed(rows, now, more=more)

    def weigh_first(self, rows: Sequence[Any], encode: Callable[[RowBatch], Buffer]) -> None:
        """Learn from a few rows, spread over those that wait, if no buffer has been encoded yet."""
        if self._is_new and rows:
            step = -(-len(rows) // _SAMPLE)
            self.observe(encode(RowBatch(list(rows[::step]))))

    def observe(self, buffer: Buffer) -> None:
        self._is_new = False
        if buffer.rows:
            bytes_per_row = max(1.0, len(buffer.payload) / buffer.rows)
            self._by_bytes = max(1, min(self._max_rows, int(self._max_bytes / bytes_per_row)))
