"""Storages in memory: opened by URL, and some that refuse writes when a test says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from penstock.runtime.errors import FolderNotFoundError, StorageError
from penstock.runtime.snapshot.storage import MemoryStorage


class MemoryPlaces:
    """Storages by URL, as a `StorageOpener`; they exist as long as this object.

    Attributes:
        storages: What was opened so far, by URL.
    """

    def __init__(self) -> None:
        self.storages: dict[str, MemoryStorage] = {}

    def __call__(self, url: str, *, create: bool = False) -> MemoryStorage:
        """The storage at a URL.

        Raises:
            FolderNotFoundError: Nothing was ever put there.
        """
        if url not in self.storages:
            if not create:
                msg = f"{url} is not a folder; check the path"
                raise FolderNotFoundError(msg)
            self.storages[url] = MemoryStorage(url)
        return self.storages[url]

    def move(self, old: str, new: str) -> None:
        """Give a folder another name."""
        moved = MemoryStorage(new)
        for path in self.storages[old].list(""):
            moved.put(path, self.storages[old].get(path))
        del self.storages[old]
        self.storages[new] = moved


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
