"""When an open buffer is full: a row limit that follows a byte budget, and what the receiver consumes.

The first buffer of a channel has none before it to learn from. So a few of its rows are encoded and weighed
before it grows. Without that, 4,096 rows of a megabyte each would make a first buffer of 4 GB.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from penstock.runtime.network.buffer_debloater import BufferDebloater
from penstock.runtime.record.elements import Buffer, RowBatch

#: Rows that are weighed for the first buffer.
_SAMPLE: Final = 16


class BufferBudget:
    """Turns a budget of bytes into a number of rows by what recent buffers weighed.

    Args:
        max_rows: No buffer holds more rows.
        max_bytes: No buffer should be larger (encoded); the rows of the next one are chosen for that.
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
        """Most rows of the next buffer."""
        debloater = self._debloater
        return self._by_bytes if debloater is None else min(self._by_bytes, debloater.rows)

    def consumed(self, rows: int, now: float, *, more: bool) -> None:
        """The receiver has consumed a frame; see `BufferDebloater.consumed`."""
        if self._debloater is not None:
            self._debloater.consumed(rows, now, more=more)

    def weigh_first(self, rows: Sequence[Any], encode: Callable[[RowBatch], Buffer]) -> None:
        """Learn from a few rows, spread over those that wait, if no buffer has been encoded yet.

        Example:
            >>> budget = BufferBudget(max_rows=4096, max_bytes=1000)
            >>> budget.weigh_first(["row"] * 16, lambda sample: Buffer(b"x" * 1600, rows=len(sample.rows)))
            >>> budget.rows
            10
        """
        if self._is_new and rows:
            step = -(-len(rows) // _SAMPLE)
            self.observe(encode(RowBatch(list(rows[::step]))))

    def observe(self, buffer: Buffer) -> None:
        """Learn from a buffer that was just encoded."""
        self._is_new = False
        if buffer.rows:
            bytes_per_row = max(1.0, len(buffer.payload) / buffer.rows)
            self._by_bytes = max(1, min(self._max_rows, int(self._max_bytes / bytes_per_row)))
