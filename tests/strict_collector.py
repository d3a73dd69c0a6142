"""`StrictCollector`: sees every transaction that a `CollectSink` commits, and that none ever changes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeAlias, TypeVar

K = TypeVar("K")
V = TypeVar("V")
#: Names one transaction of a collecting sink, as that does.
TransactionKey: TypeAlias = tuple[str, str, int, int, int]


class StrictCollector(Generic[K, V]):
    """Takes every transaction of pairs as often as it comes, as long as it is the same one.

    Attributes:
        committed: The pairs of each transaction.
    """

    def __init__(self) -> None:
        self.committed: dict[TransactionKey, list[tuple[K, V]]] = {}

    def add(self, key: TransactionKey, rows: Sequence[tuple[K, V]]) -> None:
        """A transaction is committed, perhaps again.

        Raises:
            AssertionError: It was another one before.
        """
        assert self.committed.setdefault(key, list(rows)) == list(rows), f"{key} has changed"

    def by_key(self) -> dict[K, list[V]]:
        """The values of each key, in the order of the first commits."""
        values: dict[K, list[V]] = {}
        for rows in self.committed.values():
            for key, value in rows:
                values.setdefault(key, []).append(value)
        return values
