"""`MemoryPlaces`: storages in memory, opened by URL."""

from __future__ import annotations

from penstock.runtime.errors import StorageError
from penstock.runtime.snapshot.memory_storage import MemoryStorage


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
            StorageError: Nothing was ever put there.
        """
        if url not in self.storages:
            if not create:
                msg = f"{url} is no folder; check the path"
                raise StorageError(msg)
            self.storages[url] = MemoryStorage(url)
        return self.storages[url]

    def move(self, old: str, new: str) -> None:
        """Give a folder another name."""
        moved = MemoryStorage(new)
        for path in self.storages[old].list(""):
            moved.put(path, self.storages[old].get(path))
        del self.storages[old]
        self.storages[new] = moved
