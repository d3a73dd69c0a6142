"""Numbers of event time whose sources become quiet somewhere, until a test lets them end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import GeneratorSource
from penstock.connectors import ConnectorContext, Polled, SourceReader


@dataclass(frozen=True)
class QuietNumbers:
    """The numbers `first`, `first + 2`, ... in one subtask; behind `count` of them it is quiet.

    Attributes:
        release: When this file exists the source ends.
    """

    first: int
    count: int
    release: str

    def splits(self, parallelism: int) -> Sequence[Any]:
        return self._numbers.splits(1)

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> SourceReader[int]:
        return QuietReader(self._numbers.reader(context, splits), context, Path(self.release))

    @property
    def _numbers(self) -> GeneratorSource[int]:
        return GeneratorSource(self._number, count=self.count)

    def _number(self, index: int) -> int:
        return self.first + 2 * index


class QuietReader:
    def __init__(self, reader: SourceReader[int], context: ConnectorContext, release: Path) -> None:
        self._reader = reader
        self._clock = context.clock
        self._release = release

    def poll(self, max_rows: int) -> Polled[int]:
        if self._reader.snapshot():
            polled = self._reader.poll(min(max_rows, 100))
            return Polled(polled.batch)
        if self._release.exists():
            return Polled(finished=True)
        return Polled(ready_at=self._clock.monotonic() + 0.05)

    def snapshot(self) -> Sequence[Any]:
        return self._reader.snapshot()

    def close(self) -> None:
        self._reader.close()


def moment(number: int) -> int:
    """A millisecond of event time for each number."""
    return number * 1000


def third(number: int) -> int:
    return number % 3


def add(one: int, other: int) -> int:
    return one + other
