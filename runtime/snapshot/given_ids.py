"""The ids that a job has given to its checkpoints, as its storage knows them.

A file says that an id was given. So no JobMaster gives it again, and no reader waits at the mark of a
checkpoint that was begun before a restart.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.snapshot.paths import SnapshotPaths


def given_ids(paths: SnapshotPaths, present: Iterable[str]) -> dict[int, str]:
    """The ids that these files name, with the path of each."""
    return {given: path for path in present if (given := paths.given_by(path)) is not None}


def highest_given_id(storage: SnapshotStorage, job_id: str) -> int:
    """The highest id that was given to a checkpoint or savepoint; -1 for none. Blocks.

    Raises:
        StorageError: The storage could not be read.
    """
    paths = SnapshotPaths(job_id)
    return max(given_ids(paths, storage.list(paths.all_given_ids)), default=-1)
