"""`MemoryStorage`: a checkpoint storage that lives and dies with its process."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError
from penstock.runtime.snapshot.paths import check_folder, check_path
from penstock.runtime.snapshot.storage_statistics import StorageCounters, StorageStatistics


class MemoryStorage:
    """Objects in a dict; for the log of jobs without a checkpoint storage, for tests and the simulation.

    Args:
        url: A name for messages.

    Example:
        >>> storage = MemoryStorage()
        >>> storage.put("a/b", b"1")
        >>> storage.list("a/"), storage.get("a/b")
        (['a/b'], b'1')
    """

    def __init__(self, url: str = "memory:") -> None:
        self._url = url
        self._objects: dict[str, bytes] = {}
        self._counters = StorageCounters()

    @property
    def url(self) -> str:
        """A name for messages."""
        return self._url

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store `data`; with `create` only if nothing is there.

        Raises:
            ObjectExistsError: `create` was asked and something is there.
            StorageError: The path is not allowed.
        """
        if create and check_path(path) in self._objects:
            self._counters.conflicts += 1
            msg = f"{self._url}/{path} exists already"
            raise ObjectExistsError(msg)
        self._objects[check_path(path)] = bytes(data)
        self._counters.wrote(len(data))

    def get(self, path: str) -> bytes:
        """Read an object.

        Raises:
            ObjectNotFoundError: Nothing is there.
            StorageError: The path is not allowed.
        """
        data = self._objects.get(check_path(path))
        if data is None:
            msg = f"{self._url}/{path} does not exist"
            raise ObjectNotFoundError(msg)
        self._counters.read(len(data))
        return data

    def list(self, prefix: str) -> list[str]:
        """Paths below the folder `prefix`, sorted."""
        check_folder(prefix)
        self._counters.lists += 1
        return sorted(path for path in self._objects if path.startswith(prefix))

    def delete(self, paths: Iterable[str]) -> None:
        """Delete objects."""
        for path in paths:
            if self._objects.pop(check_path(path), None) is not None:
                self._counters.deletes += 1

    def statistics(self) -> StorageStatistics:
        """Counters."""
        return self._counters.freeze()
