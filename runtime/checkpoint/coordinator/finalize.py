"""The last step of a checkpoint: its metadata is written, then its record is claimed in the log of decisions.

What finished subtasks kept is brought along before (`carried_state.py`), so that its files can be named.

In this order: metadata without a record is a file that nobody looks at; a record without metadata would be a
checkpoint that nobody can restore. Only the record makes the checkpoint exist.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace

from penstock.runtime.checkpoint.coordinator.carried_state import bring_along
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.decision_log import Fenced as Fenced
from penstock.runtime.checkpoint.log.records import CheckpointCompleted
from penstock.runtime.checkpoint.store.retention import split_retained
from penstock.runtime.errors import StorageError
from penstock.runtime.ports import SnapshotStorage, StorageOpener
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.snapshot.metadata import encode_metadata, write_state_file
from penstock.runtime.snapshot.paths import METADATA, SnapshotPaths


@dataclass(frozen=True, slots=True)
class Finalized:
    """The checkpoint exists.

    Attributes:
        checkpoint: With its metadata file and its size.
    """

    checkpoint: CompletedCheckpoint


def finalize(
    storage: SnapshotStorage,
    paths: SnapshotPaths,
    log: DecisionLog,
    checkpoint: CompletedCheckpoint,
    *,
    retained: int | None = None,
    open_location: StorageOpener | None = None,
) -> Finalized | Fenced:
    """Make a checkpoint exist, unless a newer attempt owns the job; blocks.

    Args:
        storage: Where snapshots are.
        paths: Of the job.
        log: Of the attempt that took the checkpoint.
        checkpoint: What was acknowledged; its `metadata` and `size` are filled in here, and what is
            `carried` is brought along.
        retained: How many checkpoints the job keeps: the log lets go of the others in the same record, and
            their files may be deleted after it. With `None` whoever calls this has to `drop` them.
        open_location: Opens the place of a savepoint that is not in the job's storage.

    Raises:
        StorageError: The metadata could not be written, or a file that is carried could not be copied: the
            checkpoint does not exist.
        OutcomeUnknownError: It may exist: none of its files may be deleted.
    """
    path = paths.metadata(checkpoint.kind, checkpoint.checkpoint_id, checkpoint.attempt)
    checkpoint = bring_along(checkpoint, storage, paths, open_location)
    size = state_size(checkpoint.operators, checkpoint.master_states)
    sized = replace(checkpoint, size=size, metadata=None)
    if sized.location is not None:
        if open_location is None:
            msg = f"nobody can open {sized.location}, where the savepoint is to be"
            raise StorageError(msg)
        complete_elsewhere(open_location(sized.location, create=True), sized)
    metadata = write_state_file(storage, path, encode_metadata(sized, path))
    record = CheckpointCompleted(
        checkpoint.checkpoint_id, checkpoint.attempt, checkpoint.kind, metadata, checkpoint.completed_at
    )
    if retained is not None:
        _, gone = split_retained((*log.view.completed, record), retained)
        record = replace(record, subsumes=tuple(c.checkpoint_id for c in gone if c is not record))
    outcome = log.complete(record)
    if isinstance(outcome, Fenced):
        # The answer is known whether or not the file goes; one that stays is swept by a later attempt.
        with suppress(StorageError):
            storage.delete([path])
            if sized.location is not None and open_location is not None:
                open_location(sized.location).delete([METADATA])
        return outcome
    return Finalized(replace(sized, metadata=metadata))


def complete_elsewhere(place: SnapshotStorage, checkpoint: CompletedCheckpoint) -> None:
    """Complete a savepoint in its own folder, which is a storage of its own and can be moved; blocks.

    Args:
        place: That folder; its files of state are there.
        checkpoint: What was acknowledged, without metadata.

    Raises:
        StorageError: Not all files can be seen here, or the metadata could not be written.
    """
    own = replace(checkpoint, location=None)
    present = frozenset(place.list(""))
    lost = sorted({handle.path for handle in own.files()} - present)
    if lost:
        msg = (
            f"{place.url}/{lost[0]} was written by a subtask and is not seen by the JobMaster; give a place "
            "that all nodes share (an object store, or a network file system mounted everywhere)"
        )
        raise StorageError(msg)
    write_state_file(place, METADATA, encode_metadata(own, METADATA))
