"""`CollectionSource`: values of the program as a source.

The source does no input or output, so it is not in `io`, which this package must not import.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from penstock.runtime.names import NearestNames
from penstock.runtime.operators.source import ConnectorContext, Polled, SplitProgress
from penstock.runtime.record.elements import RowBatch

T = TypeVar("T")


class CollectionSource(Generic[T], metaclass=NearestNames):
    """Reads a collection once from its beginning to its end.

    The values are sent with the job. A split is a range of their positions, so a restored reader continues
    right after the last value that it returned.

    Args:
        values: The records; read once, when the source is created.

    Example:
        >>> CollectionSource("abcde").splits(2)
        [(0, 2), (2, 5)]
    """

    only_reads: ClassVar[bool] = True

    def __init__(self, values: Iterable[T]) -> None:
        self._values = tuple(values)

    def splits(self, parallelism: int) -> Sequence[tuple[int, int]]:
        """Non-empty ranges `(start, stop)` of positions, at most one per subtask."""
        size = len(self._values)
        bounds = [size * i // parallelism for i in range(parallelism + 1)]
        return [(start, stop) for start, stop in itertools.pairwise(bounds) if start < stop]

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> CollectionReader[T]:
        """Make the reader of one subtask."""
        return CollectionReader(self._values, splits)


class CollectionReader(Generic[T]):
    def __init__(self, values: tuple[T, ...], splits: Sequence[Any]) -> None:
        self._values = values
        self._ranges = [(int(start), int(stop)) for start, stop in splits]
        self._progress = self._next_progress()

    def poll(self, max_rows: int) -> Polled[T]:
        if not self._ranges:
            return Polled(finished=True)
        start, stop = self._ranges[0]
        end = min(stop, start + max_rows)
        if end < stop:
            self._ranges[0] = (end, stop)
        else:
            del self._ranges[0]
            self._progress = self._next_progress()
        return Polled(RowBatch(list(self._values[start:end])), finished=not self._ranges, split=stop)

    @property
    def split_progress(self) -> SplitProgress:
        return self._progress

    def snapshot(self) -> Sequence[tuple[int, int]]:
        return list(self._ranges)

    def close(self) -> None: ...

    def _next_progress(self) -> SplitProgress:
        return SplitProgress(tuple(stop for _, stop in self._ranges[:1]), len(self._ranges) > 1)
