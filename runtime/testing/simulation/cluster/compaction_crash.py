"""The death of a JobMaster in the middle of a compaction of its decision log.

A compaction writes its record, then the hint, and then it deletes the slots in front of it, in several calls.
The JobMaster may die in front of any call behind the record, and in the middle of a call that deletes several
files. What it has done before stays done.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.testing.simulation.cluster.task_supervisor import ProcessDied
from penstock.runtime.testing.simulation.world.world import World

#: How the path of a hint ends.
_HINT = "/log/compaction"


class CompactionCrash:
    """When a JobMaster dies that compacts the log; one for all JobMasters of a job.

    Args:
        world: Nobody dies any more when it is calm.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self._calls: int | None = None

    def plan(self, calls: int) -> None:
        """Let a JobMaster die in front of the call after this many that belong to a compaction."""
        self._calls = calls

    def comes_now(self) -> bool:
        """Whether a JobMaster dies in front of this call, which belongs to a compaction."""
        if self._calls is None or self._world.is_calm:
            return False
        self._calls -= 1
        if self._calls >= 0:
            return False
        self._calls = None
        return True


class StorageOfMaster:
    """The checkpoint storage as a JobMaster sees it; see the module's text.

    Args:
        storage: The storage itself.
        crash: When the JobMaster dies.
    """

    def __init__(self, storage: SnapshotStorage, crash: CompactionCrash) -> None:
        self._storage = storage
        self._crash = crash

    @property
    def url(self) -> str:
        """A name for messages."""
        return self._storage.url

    def put(self, path: str, data: bytes, *, create: bool = False) -> None:
        """Store.

        Raises:
            ProcessDied: The JobMaster dies first.
        """
        if path.endswith(_HINT) and self._crash.comes_now():
            raise ProcessDied
        self._storage.put(path, data, create=create)

    def get(self, path: str) -> bytes:
        """Read."""
        return self._storage.get(path)

    def list(self, prefix: str) -> list[str]:
        """List."""
        return self._storage.list(prefix)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete.

        Raises:
            ProcessDied: The JobMaster dies when half of it is deleted.
        """
        doomed = list(paths)
        if any("/log/" in path for path in doomed) and self._crash.comes_now():
            self._storage.delete(doomed[: len(doomed) // 2])
            raise ProcessDied
        self._storage.delete(doomed)
