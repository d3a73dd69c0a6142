"""`Emission`: when the records that a user's function emits are copied.

A record is what it was when it was emitted. The function may have kept it, and may change it in its next
call, or behind its `yield`. So each record is copied before the function goes on. Records that can't change
are not (`own_copy`).

A function that only reads changes nothing between two records. Then it is enough to look at all records of a
batch at once, which is several times faster. In a subtask in which all functions only read there is nobody to
change a record, and nobody looks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from itertools import islice
from typing import Any

from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.state.fixed_values import LEAVES
from penstock.runtime.state.own_copy import own_copies, own_copy, own_draws


def reading(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A function that is only to look at records: one that may change or keep them looks at a copy.

    Example:
        >>> row = {"at": 5}
        >>> reading(lambda row: row.pop("at"))(row), row
        (5, {'at': 5})
    """
    return function if only_reads(function) else lambda row: function(own_copy(row))


class Emission(Enum):
    """When records are copied: `NEVER`, `BY_BATCH` behind the last one, or each `AT_ONCE`."""

    NEVER = "never"
    BY_BATCH = "by batch"
    AT_ONCE = "at once"

    @staticmethod
    def of(functions: Iterable[Callable[..., Any]], *, isolates: bool) -> Emission:
        """That of an operator with these functions.

        Args:
            isolates: Whether anything in the subtask could change a record.
        """
        if not isolates:
            return Emission.NEVER
        return Emission.BY_BATCH if all(map(only_reads, functions)) else Emission.AT_ONCE

    def mapped(self, function: Callable[[Any], Any], rows: Iterator[Any]) -> list[Any]:
        """What a function makes of each row.

        Example:
            >>> row = []
            >>> def grown(number):
            ...     row.append(number)
            ...     return row
            >>> Emission.AT_ONCE.mapped(grown, iter([1, 2]))
            [[1], [1, 2]]
        """
        if self is Emission.AT_ONCE:
            leaves = LEAVES
            return [made if type(made := function(row)) in leaves else own_copy(made) for row in rows]
        return self.batch([function(row) for row in rows])

    def batch(self, rows: list[Any]) -> list[Any]:
        """The records of a batch that is complete."""
        return own_copies(rows) if self is Emission.BY_BATCH else rows

    def drawn(self, records: Iterator[Any], most: int) -> list[Any]:
        """The next records that a function emits, at most so many."""
        return own_draws(records, most) if self is Emission.AT_ONCE else list(islice(records, most))
