"""`CompactionHint`: the slot of a compaction, in a file that is written before anything is deleted.

Why a listing is not enough, and why the hint may be old, is told in `reader`.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.errors import CorruptSnapshotError, ObjectNotFoundError
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.snapshot.sealed_file import damaged, seal, unseal

_MAGIC: Final = b"PENSTKLH"
_VERSION: Final = 1
_WHAT: Final = "the hint of the decision log"


class CompactionHint:
    """Reads and writes the hint of one job's log; every call blocks."""

    def __init__(self, storage: SnapshotStorage, paths: SnapshotPaths) -> None:
        self._storage = storage
        self._path = paths.log_hint

    def write(self, slot: int) -> None:
        """Point at a compaction.

        Raises:
            StorageError: It could not be written; it may be there all the same.
        """
        self._storage.put(self._path, seal(_MAGIC, _VERSION, [slot]))

    def is_there(self) -> bool:
        """Whether a hint was ever written, damaged or not.

        Raises:
            StorageError: The storage could not be read.
        """
        try:
            self._storage.get(self._path)
        except ObjectNotFoundError:
            return False
        return True

    def is_older_than(self, slot: int) -> bool:
        """Whether it does not lead to the compaction in `slot`, or a later one.

        Raises:
            StorageError: The storage could not be read.
        """
        try:
            found = self.read()
        except CorruptSnapshotError:
            return True
        return found is None or found < slot

    def read(self) -> int | None:
        """The slot of a compaction; `None` when there is no hint.

        Raises:
            CorruptSnapshotError: It is damaged.
            StorageError: It could not be read.
        """
        try:
            data = self._storage.get(self._path)
        except ObjectNotFoundError:
            return None
        where = f"{self._storage.url}/{self._path}"
        body = unseal(_MAGIC, _VERSION, data, _WHAT, where)
        try:
            (slot,) = map(int, body)
        except (TypeError, ValueError) as error:
            raise damaged(_WHAT, where, f"its content makes no slot ({error})") from error
        return slot
