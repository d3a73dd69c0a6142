"""Recovery: the snapshot that a job starts from, and files that can be deleted.

A damaged newest checkpoint is an error that names the file. Only the user can decide to start from an older
one, because sinks have committed output since then and may commit the same records again.

`open_snapshot` finds a snapshot by a path or URL:

    .../savepoint-<job>-<id>-<attempt>     a savepoint: its folder is a storage of its own, under any name
    .../<job>/savepoint-<id>-<attempt>     a savepoint in a checkpoint storage: also a storage of its own
    .../<job>/chk-<id>-<attempt>           a checkpoint: its files are named from the storage's root
    .../<job>                              the newest checkpoint or savepoint of a job

The path of a `metadata` file stands for its folder. A savepoint's folder may be renamed. A checkpoint shares
files with others of its job, so only its whole storage can be moved.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from penstock.runtime.checkpoint.completed_store import CompletedCheckpointStore
from penstock.runtime.checkpoint.log.reader import DecisionLogReader
from penstock.runtime.checkpoint.log.records import CheckpointCompleted, LogView
from penstock.runtime.errors import (
    ConfigurationError,
    CorruptSnapshotError,
    FolderNotFoundError,
    ObjectNotFoundError,
    RestoreError,
    StorageError,
)
from penstock.runtime.ports import SnapshotStorage, StagesFiles, StorageOpener
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.metadata import missing, read_metadata
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths, assigned_ids
from penstock.runtime.trust.paths import check_named_location, inside_of, is_own_location


def check_own_location(checkpoint: CompletedCheckpoint, job_id: str) -> CompletedCheckpoint:
    """Return the checkpoint if its files are in the storage of its metadata, or in its own savepoint folder.

    Raises:
        CorruptSnapshotError: The metadata names another folder, which was not opened.
    """
    location = checkpoint.location
    folder = f"savepoint-{job_id}-{checkpoint.checkpoint_id}-{checkpoint.attempt}"
    if location is None or (checkpoint.is_savepoint and is_own_location(location, folder)):
        return checkpoint
    msg = (
        f"the metadata of {checkpoint.kind.value} {checkpoint.checkpoint_id} of job {job_id} names "
        f"{location!r} as the folder of its files, but only a folder {folder} may be named. "
        "The metadata was changed or is damaged"
    )
    raise CorruptSnapshotError(msg)


@dataclass(frozen=True, slots=True)
class LoadedCheckpoint:
    """The checkpoint that a job starts from.

    Newer checkpoints, whose ids are in `damaged`, must be dropped from the log. `warning` is for the user.
    """

    checkpoint: CompletedCheckpoint
    damaged: tuple[int, ...] = ()
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class RebuiltStore:
    """The completed checkpoints in a job's storage.

    Attributes:
        damaged: Ids of unreadable checkpoints, which are not in the store.
        orphans: Files that may be deleted: those of earlier attempts that no checkpoint names, and records of
            ids below `assigned_id`.
        assigned_id: The highest recorded id that was given to a checkpoint; -1 for none.
    """

    store: CompletedCheckpointStore
    damaged: tuple[int, ...]
    orphans: tuple[str, ...]
    assigned_id: int = -1


def load_latest(
    storage: SnapshotStorage,
    view: LogView,
    *,
    allow_older: bool,
    open_location: StorageOpener | None = None,
    known_damage: Mapping[int, str] = MappingProxyType({}),
) -> LoadedCheckpoint | None:
    """Return the checkpoint that a job restarts from, `None` without one; blocks.

    Reads the metadata, and checks that all files exist. Their contents are checked when they are read.

    Args:
        allow_older: Whether to take an older checkpoint when the newest one is damaged.
        open_location: Opens the folder of a savepoint outside `storage`; without it such files are not
            checked.
        known_damage: Damage that earlier restores have found, by checkpoint id.

    Raises:
        CorruptSnapshotError: All checkpoints are damaged, or the newest one is and no older one is allowed.
    """
    damaged: list[tuple[CheckpointCompleted, CorruptSnapshotError]] = []
    for record in reversed(view.completed):
        try:
            if record.checkpoint_id in known_damage:
                raise CorruptSnapshotError(known_damage[record.checkpoint_id])
            job_id = record.metadata.path.split("/")[0]
            checkpoint = check_own_location(read_metadata(storage, record.metadata), job_id)
            if checkpoint.location is None:
                check_files(storage, checkpoint)
            elif open_location is not None:
                check_files(open_location(checkpoint.location), replace(checkpoint, metadata=None))
        except CorruptSnapshotError as error:
            damaged.append((record, error))
            if not allow_older:
                break
        else:
            return _loaded(checkpoint, damaged)
    if not damaged:
        return None
    raise _nothing_left(view, damaged, allow_older=allow_older)


def check_files(storage: SnapshotStorage, checkpoint: CompletedCheckpoint) -> None:
    """Check that every file of a checkpoint exists; blocks.

    A listing may be old or incomplete, so a file that it lacks is read before it counts as missing.
    """
    present: dict[str, frozenset[str]] = {}
    for handle in checkpoint.files():
        folder = handle.path[: handle.path.rfind("/") + 1]
        if folder not in present:
            present[folder] = frozenset(storage.list(folder))
        if handle.path not in present[folder] and not _can_be_read(storage, handle.path):
            raise missing(storage, handle.path)


def _can_be_read(storage: SnapshotStorage, path: str) -> bool:
    try:
        storage.get(path)
    except ObjectNotFoundError:
        return False
    return True


def rebuild_store(
    storage: SnapshotStorage, paths: SnapshotPaths, view: LogView, *, attempt: int, retained: int
) -> RebuiltStore:
    """Fill a store from the log, and find files that can be deleted; blocks."""
    store = CompletedCheckpointStore(retained, may_delete=paths.may_delete)
    damaged = store.recover(view, lambda record: read_metadata(storage, record.metadata))
    present = storage.list(f"{paths.job_id}/")
    _sweep_staged(storage, paths, attempt)
    # The files of a damaged checkpoint are unknown, and the user may want to repair it.
    orphans = () if damaged else _orphans(paths, store, present, attempt)
    ids = assigned_ids(paths, present)
    assigned_id = max(ids, default=-1)
    older_ids = tuple(path for given, path in ids.items() if given < assigned_id)
    damaged_ids = tuple(record.checkpoint_id for record in damaged)
    return RebuiltStore(store, damaged_ids, orphans + older_ids, assigned_id)


def left_at_end(
    storage: SnapshotStorage, paths: SnapshotPaths, view: LogView, *, keeps: bool
) -> tuple[str, ...]:
    """Remaining files at the end of a job: files of aborted checkpoints, and records of assigned ids; blocks.

    No attempt begins after the end, so no checkpoint can use the files of late acknowledgements. With
    `keeps`, completed checkpoints stay.
    """
    store = CompletedCheckpointStore(may_delete=paths.may_delete)
    damaged = store.recover(view, lambda record: read_metadata(storage, record.metadata)) if keeps else ()
    present = storage.list(f"{paths.job_id}/")
    # The files of a damaged checkpoint are unknown.
    orphans = () if damaged else _orphans(paths, store, present, view.last_attempt + 1)
    return orphans + tuple(assigned_ids(paths, present).values())


def _orphans(
    paths: SnapshotPaths, store: CompletedCheckpointStore, present: Iterable[str], attempt: int
) -> tuple[str, ...]:
    """Files of earlier attempts that no checkpoint names; savepoints have all files in their own folders."""
    return tuple(
        path
        for path in present
        if (writer := paths.writer_of(path)) is not None and writer < attempt and not store.names(path)
    )


def _sweep_staged(storage: SnapshotStorage, paths: SnapshotPaths, attempt: int) -> None:
    """Delete the staging files of writers of earlier attempts.

    Such a writer may still be alive, for example in a region that continues; its put is then retried.
    """

    def is_past(path: str) -> bool:
        writer = paths.attempt_of(path)
        return writer is None or writer < attempt

    if isinstance(storage, StagesFiles):
        with suppress(StorageError):  # the next attempt tries again
            storage.delete_staged(f"{paths.job_id}/", is_past)


def _loaded(
    checkpoint: CompletedCheckpoint, damaged: list[tuple[CheckpointCompleted, CorruptSnapshotError]]
) -> LoadedCheckpoint:
    if not damaged:
        return LoadedCheckpoint(checkpoint)
    causes = "; ".join(f"{_name(record)}: {error}" for record, error in damaged)
    warning = (
        f"the job starts from {_name(checkpoint)}, because newer state is damaged ({causes}). "
        f"Sinks may repeat output that was committed since {_name(checkpoint)}"
    )
    return LoadedCheckpoint(checkpoint, tuple(record.checkpoint_id for record, _ in damaged), warning)


def _nothing_left(
    view: LogView, damaged: list[tuple[CheckpointCompleted, CorruptSnapshotError]], *, allow_older: bool
) -> CorruptSnapshotError:
    causes = "; ".join(f"{_name(record)}: {error}" for record, error in damaged)
    older = len(view.completed) - len(damaged)
    if not allow_older and older:
        advice = (
            "Put the file back, or set Checkpointing(allow_older=True) to "
            f"start from an older checkpoint (available: {older}); "
            "sinks may then repeat output that was committed since"
        )
    else:
        advice = "Put the file back, or start a new job, from a savepoint if there is one"
    return CorruptSnapshotError(f"the job can't be restored: {causes}. {advice}")


def _name(checkpoint: CheckpointCompleted | CompletedCheckpoint) -> str:
    return f"{'savepoint' if checkpoint.kind.is_savepoint else 'checkpoint'} {checkpoint.checkpoint_id}"


_CHECKPOINT: Final = re.compile(r"chk-[0-9]+-[0-9]+")
#: Maximum id of a snapshot that a job starts from. The job's own ids are higher, and JSON readers may round
#: integers above 2^53.
LAST_ID: Final = 1 << 53

_LOOKED_FOR: Final = (
    "name the folder of a savepoint, of a checkpoint (chk-...) in its storage, or of a job in its storage"
)


@dataclass(frozen=True, slots=True)
class OpenedSnapshot:
    """A snapshot that was found, and the storage of its metadata.

    The checkpoint's `location` is the URL of `storage`, or the folder elsewhere that a savepoint's metadata
    names.
    """

    checkpoint: CompletedCheckpoint
    storage: SnapshotStorage


def open_snapshot(url: str, open_location: StorageOpener) -> OpenedSnapshot:
    """Find a snapshot by its URL, read its metadata, and check that all its files exist; blocks.

    The files of a savepoint in a folder elsewhere are checked only if `url` names that folder or the job.
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
    except FolderNotFoundError as error:
        msg = f"there is no snapshot at {url}: {error}"
        raise RestoreError(msg) from error


def _has_metadata(place: SnapshotStorage) -> bool:
    """Whether this is the folder of a snapshot; tries a read, as a listing may lack a new file."""
    try:
        place.get(METADATA)
    except ObjectNotFoundError:
        return False
    return True


def _newest_of_job(root: str, job: str, open_location: StorageOpener) -> OpenedSnapshot:
    """Return the newest snapshot of a job; tries again if the running job deletes it meanwhile."""
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
            f"job {job} has left no checkpoint in {root}; Checkpointing(keep_after=...) keeps checkpoints "
            "after the end of a job, and savepoints are always kept"
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
            f"{storage.url}/{path} has the id {checkpoint.checkpoint_id}, above the largest possible id "
            f"{LAST_ID}: the file was changed or is damaged"
        )
        raise RestoreError(msg)
    if checkpoint.location is not None:
        # The folder <job>/savepoint-<id>-<attempt> names the location of a savepoint elsewhere.
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
    """Refuse a folder in the storage if it is a link that leads outside."""
    inside = inside_of(root, location)
    if inside is not None:
        with suppress(ObjectNotFoundError):  # opening the folder reports missing files
            storage.get(f"{inside}/{METADATA}")


def _not_whole(root: str, checkpoint: CompletedCheckpoint, error: StorageError) -> str:
    if checkpoint.is_savepoint:
        return f"the savepoint at {root} is incomplete: {error}"
    return (
        f"the checkpoint is incomplete: {error}. A checkpoint shares files with others of its job and can't "
        "be moved out of its storage; move the whole storage, or take a savepoint"
    )
