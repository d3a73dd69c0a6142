"""A source and a function with which a test lets one record pass at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from penstock.runtime import ConnectorContext, GeneratorSource, Polled, SourceReader

T = TypeVar("T")

_POLL = 0.02


@dataclass(frozen=True)
class HeldAtEachRecord:
    """Waits at each record for a file that admits it.

    Attributes:
        admit: Admits one record, which takes the file away.
        open: Admits all records for as long as it exists.
    """

    admit: str
    open: str

    def __call__(self, record: Any) -> Any:
        while not Path(self.open).exists():
            try:
                Path(self.admit).unlink()
            except FileNotFoundError:
                time.sleep(_POLL)
            else:
                break
        return record


@dataclass(frozen=True)
class OneByOne(Generic[T]):
    """A generator that gives one record at each poll, and the next one at once.

    A checkpoint is taken between any two of its records, also when a chained function waits at each of them.
    """

    inner: GeneratorSource[T]

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self.inner.splits(parallelism)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[T]:
        return OneByOneReader(self.inner.reader(context, splits))


class OneByOneReader(Generic[T]):
    """Asks the inner reader for one record."""

    def __init__(self, inner: SourceReader[T]) -> None:
        self._inner = inner

    def poll(self, max_rows: int) -> Polled[T]:
        return self._inner.poll(1)

    def snapshot(self) -> Sequence[Any]:
        return self._inner.snapshot()

    def close(self) -> None:
        self._inner.close()
