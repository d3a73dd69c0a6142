"""`SnapshotPlace`: sees that a checkpoint or savepoint can be written where it will be.

A storage that can't be written fails every subtask of a checkpoint, after barriers have held up the whole
job. A savepoint in a place that nobody can write would even end the data of a job that is to be stopped. So
the JobMaster writes a small file there first, and deletes it. Only then the checkpoint gets its id.

Nothing of it stays, whatever happens. The file is deleted even when its write failed: the storage may have
written it all the same. Folders are the storage's matter: it removes those that it has made and that are
empty.

What it can't see: a place that the JobMaster's node can write and another node can't. Its subtasks decline
the checkpoint then.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.errors import StorageError
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.paths import SnapshotPaths

#: Name of the file that is written and deleted.
TRIAL: Final = "place"
_TEXT: Final = b"A snapshot of a Penstock job is about to be written here.\n"


class SnapshotPlace:
    """Prepares the places of one job's checkpoints and savepoints.

    Args:
        storage: The job's checkpoint storage.
        open_location: Opens folders of savepoints outside `storage`.
    """

    def __init__(
        self, storage: SnapshotStorage, paths: SnapshotPaths, open_location: StorageOpener | None = None
    ) -> None:
        self._storage = storage
        self._paths = paths
        self._open_location = open_location

    def prepare(self, kind: SnapshotKind, target: str | None, checkpoint_id: int, attempt: int) -> None:
        """Write into the place of a snapshot, and leave nothing behind; blocks.

        Args:
            target: URL of the folder in which a savepoint gets its own; `None` for the job's storage.

        Raises:
            StorageError: It can't be written; the message names the place and the reason.
        """
        if target is None:
            folder = self._paths.snapshot_folder(kind, checkpoint_id, attempt)
            _try(self._storage, f"{folder}{TRIAL}")
            return
        location = self._paths.savepoint_location(target, checkpoint_id, attempt)
        if self._open_location is None:
            msg = f"no opener is given for {location}, which is outside of the job's storage"
            raise StorageError(msg)
        _try(self._open_location(location, create=True), TRIAL)


def _try(place: SnapshotStorage, path: str) -> None:
    try:
        place.put(path, _TEXT)
    except StorageError:
        _delete_what_may_be_there(place, path)
        raise
    place.delete([path])


def _delete_what_may_be_there(place: SnapshotStorage, path: str) -> None:
    try:
        place.delete([path])
    except StorageError:
        # The write has failed for the same reason, and its error is the one to report.
        return
