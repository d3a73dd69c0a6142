"""A source of many splits that are read one after the other, slowly enough to be interrupted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from jobs.words import line

from penstock.connectors import ConnectorContext, Polled
from penstock.operators import RowBatch

#: Seconds between two polls that give something, and between two records of the last third.
_PAUSE = 0.02
_TRICKLE = 0.1


@dataclass(frozen=True)
class Pieces:
    """The first `count` lines, cut into pieces; the last third trickles until a given attempt of the job."""

    count: int
    pieces: int
    attempt: int

    def splits(self, parallelism: int) -> Sequence[tuple[int, int]]:
        bounds = [self.count * i // self.pieces for i in range(self.pieces + 1)]
        return list(pairwise(bounds))

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> PiecesReader:
        slow_from = self.count if context.attempt >= self.attempt else self.count * 2 // 3
        return PiecesReader(context, splits, slow_from)


class PiecesReader:
    """Reads 20 lines at a time."""

    def __init__(self, context: ConnectorContext, splits: Sequence[Any], slow_from: int) -> None:
        self._clock = context.clock
        self._left = [tuple(split) for split in splits]
        self._slow_from = slow_from
        self._next_at = 0.0

    def poll(self, max_rows: int) -> Polled[str]:
        if not self._left:
            return Polled(finished=True)
        now = self._clock.monotonic()
        if now < self._next_at:
            return Polled(ready_at=self._next_at)
        start, stop = self._left[0]
        trickles = start >= self._slow_from
        self._next_at = now + (_TRICKLE if trickles else _PAUSE)
        end = min(stop, start + (1 if trickles else 20))
        if end < stop:
            self._left[0] = (end, stop)
        else:
            del self._left[0]
        return Polled(RowBatch([line(i) for i in range(start, end)]), finished=not self._left)

    def snapshot(self) -> Sequence[Any]:
        return list(self._left)

    def close(self) -> None:
        """Nothing is held."""
