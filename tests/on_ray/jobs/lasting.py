"""A source that can't end before the failure that a test brings about, however slow the machine is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.runtime import ConnectorContext, GeneratorSource, Polled, SourceReader

T = TypeVar("T")

#: Seconds between two records of the last third.
_TRICKLE = 0.05


@dataclass(frozen=True)
class Lasting(Generic[T]):
    """A generator whose last third trickles until the job has begun a given attempt.

    Attributes:
        inner: Makes the records.
        attempt: From this attempt on it is read at full speed.
    """

    inner: GeneratorSource[T]
    attempt: int

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T]:
        reader = self.inner.reader(context, splits)
        if context.attempt >= self.attempt or self.inner.count is None:
            return reader
        return TricklingReader(reader, context, self.inner.count * 2 // 3)


class TricklingReader(Generic[T]):
    """Reads on slowly when a number of records is reached."""

    def __init__(self, reader: SourceReader[T], context: ConnectorContext, slow_from: int) -> None:
        self._reader = reader
        self._clock = context.clock
        self._slow_from = slow_from
        self._next_at = 0.0

    def poll(self, max_rows: int) -> Polled[T]:
        position = max((split.next for split in self._reader.snapshot()), default=0)
        if position < self._slow_from:
            return self._reader.poll(min(max_rows, 100))
        now = self._clock.monotonic()
        if now < self._next_at:
            return Polled(ready_at=self._next_at)
        self._next_at = now + _TRICKLE
        return self._reader.poll(1)

    def snapshot(self) -> Sequence[Any]:
        return self._reader.snapshot()

    def close(self) -> None:
        self._reader.close()
