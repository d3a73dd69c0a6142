"""Writes a subtask's state: inline while it is small, else into a file of its own."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.handles import INLINE_LIMIT, FileHandle, InlineHandle, StateHandle
from penstock.runtime.snapshot.metadata import read_state, write_state_file


class StateFiles:
    """Writes and reads the state of one operator in one subtask for one checkpoint.

    Runs beside the task (in the asynchronous part of a checkpoint); every call blocks.

    Args:
        next_path: Returns the path of each new file.
        read_from: Holds older files; by default `storage`.
        inline_limit: Most bytes that stay inline; by default `INLINE_LIMIT`.
    """

    def __init__(
        self,
        storage: SnapshotStorage,
        next_path: Callable[[], str],
        read_from: SnapshotStorage | None = None,
        inline_limit: int | None = None,
    ) -> None:
        self._storage = storage
        self._read_from = read_from or storage
        self._next_path = next_path
        self._inline_limit = INLINE_LIMIT if inline_limit is None else inline_limit
        self._tried: list[str] = []
        self.written: list[FileHandle] = []

    def write(self, data: bytes) -> StateHandle:
        """Write `data`; small state stays inline.

        Raises:
            StorageError: The file could not be written.
        """
        if len(data) <= self._inline_limit:
            return InlineHandle(data)
        path = self._next_path()
        self._tried.append(path)
        handle = write_state_file(self._storage, path, data)
        self.written.append(handle)
        return handle

    def read(self, handle: StateHandle) -> bytes:
        """The bytes behind a handle.

        Raises:
            CorruptSnapshotError: The file is damaged.
            StorageError: It could not be read.
        """
        return read_state(self._read_from, handle)

    def remove_written(self) -> None:
        """Delete all files that were written through this object: the checkpoint was aborted.

        A file whose writing failed is deleted too: it may have been written all the same.

        Raises:
            StorageError: A file could not be deleted.
        """
        self._storage.delete(self._tried)
        self._tried.clear()
        self.written.clear()
