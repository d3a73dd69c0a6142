"""When an open buffer is full: a row limit that follows a byte budget."""

from __future__ import annotations

from penstock.runtime.record.elements import Buffer


class BufferBudget:
    """Turns a budget of bytes into a number of rows by what recent buffers weighed.

    Args:
        max_rows: No buffer holds more rows.
        max_bytes: No buffer should be larger (encoded); the rows of the next one are chosen for that.

    Example:
        >>> budget = BufferBudget(max_rows=4096, max_bytes=1000)
        >>> budget.rows
        4096
        >>> budget.observe(Buffer(b"x" * 2000, rows=20))
        >>> budget.rows
        10
    """

    def __init__(self, max_rows: int = 4096, max_bytes: int = 256 * 1024) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self.rows = max_rows

    def observe(self, buffer: Buffer) -> None:
        """Learn from a buffer that was just encoded."""
        if buffer.rows:
            bytes_per_row = max(1.0, len(buffer.payload) / buffer.rows)
            self.rows = max(1, min(self._max_rows, int(self._max_bytes / bytes_per_row)))
