"""Storages in memory that refuse writes when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.runtime.errors import StorageError
from penstock.runtime.snapshot.memory_storage import MemoryStorage


class RefusingStorage(MemoryStorage):
    """A storage that refuses to write from time to time.

    Attributes:
        refuses: Whether it refuses now.
    """

    refuses = False

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Takes everything for a while."""
        refused, self.refuses = self.refuses, False
        yield
        self.refuses = refused

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store `data`, unless it refuses.

        Raises:
            StorageError: It refuses.
        """
        if self.refuses:
            msg = f"{self.url}/{path}: no answer"
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
