"""An environment whose sources stop after a few records, until a file lets them read on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from penstock import DataStream
from penstock import StreamEnvironment as Environment
from penstock.connectors import ConnectorContext, Polled, Source, SourceReader, SplitProgress

T = TypeVar("T")

#: Records that a reader gives in one attempt, and seconds between two of them.
FEW = 6
_PAUSE = 0.03


@dataclass(frozen=True)
class Held(Generic[T]):
    """A source that does not come to its end before the file `release` exists."""

    inner: Source[T]
    release: str

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T]:
        return HeldReader(self.inner.reader(context, splits), context, Path(self.release))


class HeldReader(Generic[T]):
    def __init__(self, reader: Any, context: ConnectorContext, release: Path) -> None:
        self._reader = reader
        self._clock = context.clock
        self._release = release
        self._left = FEW
        self._next_at = 0.0

    def poll(self, max_rows: int) -> Polled[T]:
        if self._release.exists():
            return self._reader.poll(max_rows)  # type: ignore[no-any-return]
        now = self._clock.monotonic()
        if not self._left or now < self._next_at:
            return Polled(ready_at=max(self._next_at, now + _PAUSE))
        self._left -= 1
        self._next_at = now + _PAUSE
        return self._reader.poll(1)  # type: ignore[no-any-return]

    @property
    def split_progress(self) -> SplitProgress:
        return self._reader.split_progress  # type: ignore[no-any-return]

    def snapshot(self) -> Sequence[Any]:
        return self._reader.snapshot()  # type: ignore[no-any-return]

    def close(self) -> None:
        self._reader.close()


class HeldEnvironment(Environment):
    """Holds back whatever it reads."""

    def __init__(self, release: Path, name: str, **settings: Any) -> None:
        super().__init__(name, **settings)
        self._release = str(release)

    def from_source(self, id: str, source: Source[T], **options: Any) -> DataStream[T]:
        return super().from_source(id, Held(source, self._release), **options)
