"""Which record a loop over a batch has come to, known without any work per record.

A fast operator is one list comprehension; when the user's function fails in it, the message must still show
the record. A list's iterator knows how much is left, so it is enough to keep that iterator. The record that
it handed out last is the one that failed. The user's function is not called a second time to find out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Any


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    """A record that is being processed."""

    value: Any


class RecordCursor:
    """Hands out the iterator of a batch's rows and can tell afterwards where it stood.

    Example:
        >>> cursor = RecordCursor()
        >>> try:
        ...     [1 // row for row in cursor.over([1, 0, 2])]
        ... except ZeroDivisionError:
        ...     cursor.current
        CurrentRecord(value=0)
    """

    __slots__ = ("_iterator", "_rows")

    def __init__(self) -> None:
        self._rows: Sequence[Any] = ()
        self._iterator: Iterator[Any] = iter(())

    def over(self, rows: Sequence[Any]) -> Iterator[Any]:
        """Begin a loop over these rows."""
        if not isinstance(rows, list | tuple):
            rows = list(rows)
        self._rows = rows
        self._iterator = iterator = iter(rows)
        return iterator

    def done(self) -> None:
        """The loop is over: nothing that fails from now on is about a record."""
        self._rows = ()
        self._iterator = iter(())

    @property
    def current(self) -> CurrentRecord | None:
        """The record that was handed out last; `None` outside a loop."""
        index = len(self._rows) - length_hint(self._iterator) - 1
        return None if index < 0 else CurrentRecord(self._rows[index])
