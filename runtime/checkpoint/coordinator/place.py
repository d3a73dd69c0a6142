"""`SnapshotPlace`: the first step of a checkpoint, in storage: its place can be written, and its id is taken.

*The place.* A storage that can't be written fails every subtask of a checkpoint, after barriers have held up
the whole job. A savepoint in a place that nobody can write would even end the data of a job that is to be
stopped. So the JobMaster writes a small file first. For a savepoint in a folder of the user's it writes there
and deletes the file again. Nothing of it stays, whatever happens. The file is deleted even when its write
failed: the storage may have written it all the same. Folders are the storage's matter: it removes those that
it has made and that are empty.

*The id.* Master hooks put the id of a checkpoint into systems outside, as the mark of an externally induced
source. A JobMaster that dies before the checkpoint is complete leaves the mark there. If its successor gave
the same id again, readers would take the new checkpoint at the old mark. So the id is written down before
any hook hears of it, and the successor begins behind it. One such file is kept, that of the newest id; in the
job's own storage it is also the proof that this can be written.

What it can't see: a place that the JobMaster's node can write and another node can't. Its subtasks decline
the checkpoint then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from penstock.runtime.errors import StorageError
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.paths import SnapshotPaths

#: Name of the file that is written into a folder of the user's, and deleted.
TRIAL: Final = "place"
#: Not empty: a full disk takes empty files.
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

    def prepare(self, target: str | None, checkpoint_id: int, attempt: int) -> None:
        """Try the place of a snapshot, and take its id; blocks.

        Args:
            target: URL of the folder in which a savepoint gets its own; `None` for the job's storage.

        Raises:
            StorageError: It can't be written; the message names the place and the reason.
        """
        if target is not None:
            self._try(self._paths.savepoint_location(target, checkpoint_id, attempt))
        path = self._paths.given_id(checkpoint_id)
        with _nothing_stays(self._storage, path):
            self._storage.put(path, _TEXT)
        # What can't be deleted now is swept by the next JobMaster.
        with suppress(StorageError):
            self._storage.delete([self._paths.given_id(checkpoint_id - 1)])

    def _try(self, location: str) -> None:
        if self._open_location is None:
            msg = f"no opener is given for {location}, which is outside of the job's storage"
            raise StorageError(msg)
        place = self._open_location(location, create=True)
        with _nothing_stays(place, TRIAL):
            place.put(TRIAL, _TEXT)
        place.delete([TRIAL])


@contextmanager
def _nothing_stays(place: SnapshotStorage, path: str) -> Iterator[None]:
    """Delete a file whose write has failed: it may be there all the same."""
    try:
        yield
    except StorageError:
        # The deletion may fail for the same reason; the error of the write is the one to report.
        with suppress(StorageError):
            place.delete([path])
        raise
