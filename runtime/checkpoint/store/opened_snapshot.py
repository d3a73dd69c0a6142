"""Finds the snapshot that a user names by a path or URL, and reads its metadata.

    .../savepoint-<job>-<id>-<attempt>     a savepoint: its folder is a storage of its own, under any name
    .../<job>/savepoint-<id>-<attempt>     a savepoint in a checkpoint storage: likewise
    .../<job>/chk-<id>-<attempt>           a checkpoint: its files are named from the storage's root
    .../<job>                              the newest checkpoint or savepoint of a job

The path of a `metadata` file stands for its folder. A savepoint is found under any name that its folder has
now. A checkpoint shares files with others of its job, so it is read where it was written: only the whole
storage can be moved.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import CheckpointCompleted
from penstock.runtime.checkpoint.store.recovery import check_files, check_own_location
from penstock.runtime.errors import (
    ConfigurationError,
    CorruptSnapshotError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
)
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.metadata import read_metadata
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths
from penstock.runtime.trust.paths import check_named_location, inside_of

_CHECKPOINT: Final = re.compile(r"chk-[0-9]+-[0-9]+")
#: The numbers of a job's own checkpoints go on behind that of its snapshot, and have an end. A number up to
#: here is exact in every JSON reader, too.
LAST_ID: Final = 1 << 53
_LOOKED_FOR: Final = (
    "name the folder of a savepoint, of a checkpoint (chk-...) in its storage, or of a job in its storage"
)


@dataclass(frozen=True, slots=True)
class OpenedSnapshot:
    """A snapshot that was found.

    Attributes:
        checkpoint: Its `location` is the URL of `storage`.
        storage: Paths of its files are relative to it.
    """

    checkpoint: CompletedCheckpoint
    storage: SnapshotStorage


def open_snapshot(url: str, open_location: StorageOpener) -> OpenedSnapshot:
    """Find a snapshot, read its metadata, and check that all its files are there; blocks.

    Args:
        url: In one of the forms of the module's text.

    Raises:
        RestoreError: There is no snapshot, or a part of it is missing or damaged; the message says what to
            do.
    """
    place = url.rstrip("/").removesuffix(f"/{METADATA}").rstrip("/")
    parent, _, name = place.rpartition("/")
    try:
        if _CHECKPOINT.fullmatch(name):
            root, _, job = parent.rpartition("/")
            return _read(root, f"{job}/{name}/{METADATA}", open_location)
        if _has_metadata(open_location(place)):
            return _read(place, METADATA, open_location)
        return _newest_of_job(parent, name, open_location)
    except CorruptSnapshotError as error:
        msg = f"the job can't start from {url}: {error}"
        raise RestoreError(msg) from error


def _has_metadata(place: SnapshotStorage) -> bool:
    """Whether this is the folder of a snapshot; it is read, because a listing may leave out a new name."""
    try:
        place.get(METADATA)
    except ObjectNotFoundError:
        return False
    return True


def _newest_of_job(root: str, job: str, open_location: StorageOpener) -> OpenedSnapshot:
    """The newest snapshot of a job, which may run and let go of one while it is read."""
    newest = _newest_record(root, job, open_location)
    while True:
        try:
            opened = _read(root, newest.metadata.path, open_location)
            break
        except RestoreError:
            gone, newest = newest, _newest_record(root, job, open_location)
            if newest == gone:
                raise
    location = opened.checkpoint.location
    return opened if location == root or location is None else open_snapshot(location, open_location)


def _newest_record(root: str, job: str, open_location: StorageOpener) -> CheckpointCompleted:
    nothing = f"there is no snapshot at {root}/{job}: {_LOOKED_FOR}"
    try:
        paths = SnapshotPaths(job)
        storage = open_location(root)
        if not storage.list(paths.log):
            raise RestoreError(nothing)
        newest = DecisionLogReader(storage, paths).replay().newest
    except (ConfigurationError, ObjectNotFoundError) as error:
        raise RestoreError(nothing) from error
    if newest is None:
        msg = (
            f"job {job} has left no checkpoint in {root}; the setting keep_after says after which end of a "
            "job its checkpoints stay, and a savepoint always stays"
        )
        raise RestoreError(msg)
    return newest


def _read(root: str, path: str, open_location: StorageOpener) -> OpenedSnapshot:
    storage = open_location(root or "/")
    try:
        checkpoint = read_metadata(storage, path)
    except ObjectNotFoundError as error:
        msg = f"there is no snapshot at {root}/{path.removesuffix('/' + METADATA)}: {_LOOKED_FOR}"
        raise RestoreError(msg) from error
    if checkpoint.checkpoint_id > LAST_ID:
        msg = (
            f"{storage.url}/{path} has the number {checkpoint.checkpoint_id}. No job gets so far, and none "
            "could number its own checkpoints behind it: it was changed, or damaged"
        )
        raise RestoreError(msg)
    if checkpoint.location is not None:
        # The job's note of a savepoint that is elsewhere, in <job>/savepoint-<id>-<attempt>.
        job = path.split("/")[0] if path != METADATA else root.rpartition("/")[2]
        checked = check_own_location(checkpoint, job)
        check_named_location(checkpoint.location, root, job)
        _require_no_link_to(checkpoint.location, root, storage)
        return OpenedSnapshot(checked, storage)
    try:
        check_files(storage, replace(checkpoint, metadata=None))
    except CorruptSnapshotError as error:
        raise RestoreError(_not_whole(root, checkpoint, error)) from error
    return OpenedSnapshot(replace(checkpoint, location=root or "/"), storage)


def _require_no_link_to(location: str, root: str, storage: SnapshotStorage) -> None:
    """Refuse a folder inside of a storage that is a link leading out: none is followed below a root."""
    inside = inside_of(root, location)
    if inside is not None:
        with suppress(ObjectNotFoundError):  # opening the folder says what is missing there
            storage.get(f"{inside}/{METADATA}")


def _not_whole(root: str, checkpoint: CompletedCheckpoint, error: StorageError) -> str:
    if checkpoint.is_savepoint:
        return f"the savepoint at {root} is not whole: {error}"
    return (
        f"the checkpoint is not whole: {error}. A checkpoint shares files with others of its job and can't "
        "be moved out of its storage; move the whole storage, or take a savepoint"
    )
