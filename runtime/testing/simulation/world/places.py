"""Folders of the simulated storage, opened as storages of their own: where savepoints are, and whole jobs.

They fail whenever the storage fails, because they are the same storage.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.errors import StorageError
from penstock.runtime.ports import SnapshotStorage, StorageOpener


class Folder:
    """One folder of a storage."""

    def __init__(self, storage: SnapshotStorage, path: str) -> None:
        self._storage = storage
        self._prefix = f"{path}/"

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{self._storage.url}/{self._prefix[:-1]}"

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store."""
        self._storage.put(self._prefix + path, data, create=create)

    def get(self, path: str) -> bytes:
        """Read."""
        return self._storage.get(self._prefix + path)

    def list(self, prefix: str) -> list[str]:
        """Paths below a folder of this one, sorted."""
        return [path.removeprefix(self._prefix) for path in self._storage.list(self._prefix + prefix)]

    def delete(self, paths: Iterable[str]) -> None:
        """Delete."""
        self._storage.delete([self._prefix + path for path in paths])


class Places:
    """Opens folders by their URL; a `StorageOpener`.

    Args:
        storage: Has all of them that are below its URL.
        elsewhere: Opens the others; `None` refuses them.

    Example:
        >>> from penstock.runtime.snapshot.memory_storage import MemoryStorage
        >>> places = Places(MemoryStorage("memory:"))
        >>> places("memory:/saved").put("a", b"1")
        >>> places("memory:").list("saved/")
        ['saved/a']
    """

    def __init__(self, storage: SnapshotStorage, elsewhere: StorageOpener | None = None) -> None:
        self._storage = storage
        self._elsewhere = elsewhere

    def __call__(self, url: str, *, create: bool = False) -> SnapshotStorage:
        """The folder at a URL.

        Raises:
            StorageError: The URL is of another storage.
        """
        root = self._storage.url
        if url == root:
            return self._storage
        if not url.startswith(f"{root}/"):
            if self._elsewhere is not None:
                return self._elsewhere(url, create=create)
            msg = f"{url} is no place of {root}"
            raise StorageError(msg)
        return Folder(self._storage, url.removeprefix(f"{root}/"))


def move_folder(storage: SnapshotStorage, old: str, new: str) -> None:
    """Give a folder another name, as users do with savepoints."""
    files = storage.list(f"{old}/")
    for path in files:
        storage.put(new + path.removeprefix(old), storage.get(path))
    storage.delete(files)
