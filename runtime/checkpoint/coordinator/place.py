"""`SnapshotPlace`: the first step of a checkpoint, in storage: its place can be written, and its id is taken.

*The place.* A storage that can't be written fails every subtask of a checkpoint, after barriers have held up
the whole job. A savepoint in a place that nobody can write would even end the data of a job that is to be
stopped. So the JobMaster writes a small file first. In a folder of the user's that file is deleted again.
That is also done when its write failed: the storage may have written it all the same. Its name is always the
same. So a file that a dying JobMaster has left is removed by the next savepoint into that folder. Several
jobs may write and delete it at a time. Only a folder in which nothing may be deleted keeps it. Folders are
the storage's matter: it removes those that it has made and that are empty.

*The id.* Master hooks put the id of a checkpoint into systems outside, as the mark of an externally induced
source. A JobMaster that dies before the checkpoint is complete leaves the mark there. If another one gave
the same id again, readers would take the new checkpoint at the old mark. So the id is written down before
any hook hears of it. One such file is kept, that of the newest id. In the job's own storage it is also the
proof that this can be written.

Why no id is given twice. An id is a file that is created only if it is absent, with the attempt as its text.
Attempts are unique by the decision log. Take an attempt and a newer one.

1. The old one writes the id, *then* looks into the log. The newer one writes itself into the log, *then*
   lists the ids, and begins behind the highest. So at least one of them sees the other: the old one is
   refused, or the newer one begins behind its id. This holds whatever was deleted meanwhile.
2. An attempt that finds the file of an older one goes on to the next id. It is a leftover, or its writer has
   given it. An attempt that finds the file of a newer one is past.
3. An attempt that finds its own file has written it: the answer was lost, or its earlier start was refused.
   Nobody has heard of that id.

What it must never do: delete the file of the newest id, even if its write seems to have failed. It may be
that of another attempt by then. The next JobMaster removes what stays behind, or the end of the job does.

What it can't see: a place that the JobMaster's node can write and another node can't. Its subtasks decline
the checkpoint then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final

from penstock.runtime.errors import ObjectExistsError, ObjectNotFoundError, StorageError
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.paths import SnapshotPaths

#: Name of the file that is written into a folder of the user's, and deleted.
TRIAL: Final = ".penstock-trial"
#: Not empty: a full disk takes empty files.
_TEXT: Final = b"A savepoint of a Penstock job is about to be written here. This file may be deleted.\n"
_GIVEN_BY: Final = re.compile(rb"given by attempt ([0-9]+)\n")


class PastAttemptError(StorageError):
    """A newer attempt of the job has begun, so this one gets no id; the message names it."""


class SnapshotPlace:
    """Prepares the places of one job's checkpoints and savepoints.

    Args:
        storage: The job's checkpoint storage.
        newer_attempt: Looks into the decision log for an attempt of another JobMaster; blocks.
        open_location: Opens folders of savepoints outside `storage`.
    """

    def __init__(
        self,
        storage: SnapshotStorage,
        paths: SnapshotPaths,
        newer_attempt: Callable[[], int | None],
        open_location: StorageOpener | None = None,
    ) -> None:
        self._storage = storage
        self._paths = paths
        self._newer_attempt = newer_attempt
        self._open_location = open_location

    def prepare(self, checkpoint_id: int, attempt: int) -> int:
        """Take an id in the job's storage; blocks.

        Args:
            checkpoint_id: The id to take; the next one that is free when an older attempt has it.

        Returns:
            The id that was taken.

        Raises:
            PastAttemptError: A newer attempt has begun.
            StorageError: The storage can't be written; the message names the place and the reason.
        """
        taken = next(each for each in count(checkpoint_id) if self._take(each, attempt))
        newer = self._newer_attempt()
        if newer is not None:
            raise PastAttemptError(self._is_past(taken, newer))
        older = map(self._paths.given_id, range(checkpoint_id - 1, taken))
        # What can't be deleted now is swept by the next JobMaster.
        with suppress(StorageError):
            self._storage.delete(older)
        return taken

    def try_target(self, target: str) -> None:
        """Try a folder of the user's, in which a savepoint is to get its own; blocks.

        Args:
            target: URL of the folder.

        Raises:
            StorageError: It can't be written; the message names the place and the reason.
        """
        if self._open_location is None:
            msg = f"no opener is given for {target}, which is outside of the job's storage"
            raise StorageError(msg)
        place = self._open_location(target, create=True)
        try:
            place.put(TRIAL, _TEXT)
        finally:
            # A savepoint needs no deletion. After a failed write, its error is the one to report.
            with suppress(StorageError):
                place.delete([TRIAL])

    def _take(self, checkpoint_id: int, attempt: int) -> bool:
        """Take an id; `False` when an older attempt has it."""
        path = self._paths.given_id(checkpoint_id)
        try:
            self._storage.put(path, b"given by attempt %d\n" % attempt, create=True)
        except ObjectExistsError:
            owner = self._owner(path)
            if owner is not None and owner > attempt:
                raise PastAttemptError(self._is_past(checkpoint_id, owner)) from None
            return owner == attempt
        return True

    def _owner(self, path: str) -> int | None:
        """The attempt that has written the file of an id; `None` when that can't be known any more."""
        try:
            found = _GIVEN_BY.fullmatch(self._storage.get(path))
        except ObjectNotFoundError:
            return None
        return None if found is None else int(found[1])

    def _is_past(self, checkpoint_id: int, newer: int) -> str:
        where = f"{self._storage.url}/{self._paths.given_id(checkpoint_id)}"
        return f"{where} is not for this attempt: attempt {newer} of the job has begun"
