"""The world around step jobs: a storage that refuses, and a collector that sees what is committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeAlias, TypeVar

from penstock.runtime.errors import StorageError
from penstock.runtime.snapshot.memory_storage import MemoryStorage

K = TypeVar("K")
V = TypeVar("V")
#: Names one transaction of a collecting sink, as that does.
TransactionKey: TypeAlias = tuple[str, str, int, int, int]


class RefusingStorage(MemoryStorage):
    """A storage that refuses to write from time to time.

    Attributes:
        refuses: Whether it refuses now.
    """

    refuses = False

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store `data`, unless it refuses.

        Raises:
            StorageError: It refuses.
        """
        if self.refuses:
            msg = f"{path}: no answer"
            raise StorageError(msg)
        super().put(path, data, create=create)


class UnsureStorage(RefusingStorage):
    """Half of what it refuses is there all the same."""

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store `data`; while it refuses, only what has an odd number of bytes.

        Raises:
            StorageError: It refuses.
        """
        if self.refuses and len(data) % 2:
            MemoryStorage.put(self, path, data, create=create)
        super().put(path, data, create=create)


class StrictCollector(Generic[K, V]):
    """Takes every transaction of pairs as often as it comes, as long as it is the same one.

    Attributes:
        committed: The pairs of each transaction.
    """

    def __init__(self) -> None:
        self.committed: dict[TransactionKey, list[tuple[K, V]]] = {}

    def add(self, key: TransactionKey, rows: Sequence[tuple[K, V]]) -> None:
        """A transaction is committed, perhaps once more.

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
