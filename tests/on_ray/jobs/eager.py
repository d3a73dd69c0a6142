"""A source whose enumerator assigns all splits when it begins, before any reader is there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jobs.pieces import Pieces

from penstock.connectors import OnRequest, SplitEnumerator


class Eager(OnRequest[str]):
    """The first `count` lines in pieces, all of them assigned at the start."""

    def __init__(self, count: int, pieces: int) -> None:
        source = Pieces(count, pieces, attempt=0)
        super().__init__(source)
        self.pieces = source.splits(1)

    def enumerator(self, context: Any, state: Any | None) -> SplitEnumerator:
        """Its state is whether everything was assigned."""
        return EagerEnumerator(context, [] if state else self.pieces)


class EagerEnumerator:
    """Deals the pieces out."""

    def __init__(self, context: Any, pieces: Sequence[Any]) -> None:
        self._context = context
        self._pieces = pieces

    def start(self) -> None:
        for number, piece in enumerate(self._pieces):
            self._context.assign(number % self._context.parallelism, [piece])
        for subtask in range(self._context.parallelism):
            self._context.signal_no_more_splits(subtask)

    def handle_split_request(self, subtask: int) -> None:
        """The commit has arrived."""

    def add_splits_back(self, splits: Sequence[Any]) -> None:
        raise AssertionError("no region restarts in this job")

    def snapshot(self) -> bool:
        return True

    def close(self) -> None:
        """Nothing is held."""
