"""A source that can't end before the failure that a test brings about, however slow the machine is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from penstock import GeneratorSource
from penstock.connectors import ConnectorContext, Polled, SourceReader

T = TypeVar("T")

#: Seconds between two records of the last third: some hundred records of it last for minutes.
_TRICKLE = 0.2


@dataclass(frozen=True)
class Lasting(Generic[T]):
    """A generator whose last third trickles until the job has begun a given attempt.

    Attributes:
        inner: Makes the records.
        attempt: From this attempt on it is read at full speed.
        release: When this file exists, too; before that the last record is kept back.
    """

    inner: GeneratorSource[T]
    attempt: int
    release: str | None = None

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T]:
        reader = self.inner.reader(context, splits)
        if context.attempt >= self.attempt or self.inner.count is None:
            return reader
        return TricklingReader(reader, context, self.inner.count * 2 // 3, self.release)


class TricklingReader(Generic[T]):
    """Reads on slowly when a number of records is reached."""

    def __init__(
        self, reader: SourceReader[T], context: ConnectorContext, slow_from: int, release: str | None
    ) -> None:
        self._reader = reader
        self._clock = context.clock
        self._slow_from = slow_from
        self._release = release
        self._next_at = 0.0

    def poll(self, max_rows: int) -> Polled[T]:
        splits = self._reader.snapshot()
        fast = [-(-(self._slow_from - split.next) // split.step) for split in splits]
        if all(rows > 0 for rows in fast):
            return self._reader.poll(min(max_rows, 100, *fast))
        now = self._clock.monotonic()
        if now < self._next_at:
            return Polled(ready_at=self._next_at)
        if self._release is not None and Path(self._release).exists():
            return self._reader.poll(max_rows)
        self._next_at = now + _TRICKLE
        if self._release is not None and self._has_come_to_its_last_record():
            return Polled(ready_at=self._next_at)
        return self._reader.poll(1)

    def _has_come_to_its_last_record(self) -> bool:
        left = [split for split in self._reader.snapshot() if not split.finished]
        return len(left) == 1 and left[0].after(left[0].first(1)).finished

    def snapshot(self) -> Sequence[Any]:
        return self._reader.snapshot()

    def close(self) -> None:
        self._reader.close()
