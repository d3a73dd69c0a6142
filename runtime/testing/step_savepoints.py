"""Savepoints of a `StepJob`: taken to a place of their own, and found again as a job finds them."""

from __future__ import annotations

from dataclasses import replace

from penstock.runtime.checkpoint.coordinator.finalize import complete_elsewhere
from penstock.runtime.checkpoint.store.opened_snapshot import open_snapshot
from penstock.runtime.ports import StorageOpener
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.testing.step_job import JobStuckError, StepJob


def take_savepoint(job: StepJob, places: StorageOpener, url: str) -> None:
    """Move until a savepoint at `url` is complete; the job goes on.

    Raises:
        JobStuckError: It does not complete.
    """
    checkpoint_id = job.trigger_checkpoint(SnapshotKind.SAVEPOINT, location=url)
    while checkpoint_id in job.checkpoints.running and job.move():
        pass
    _complete(job, places, url, checkpoint_id)


def stop_with_savepoint(job: StepJob, places: StorageOpener, url: str, *, drain: bool = False) -> None:
    """Move until the job has been stopped with a savepoint at `url`, as its master would do it.

    Raises:
        JobStuckError: It does not complete, or the job does not end.
    """
    checkpoint_id = job.trigger_checkpoint(SnapshotKind.SYNC_SAVEPOINT, location=url, drain=drain)
    while not job.is_finished and job.move():
        pass
    if not job.is_finished:
        msg = f"the job does not end after savepoint {checkpoint_id}"
        raise JobStuckError(msg)
    _complete(job, places, url, checkpoint_id)


def found_at(places: StorageOpener, url: str) -> CompletedCheckpoint:
    """The snapshot at `url`, for a job to start from.

    Raises:
        RestoreError: There is none.
    """
    return open_snapshot(url, places).checkpoint


def _complete(job: StepJob, places: StorageOpener, url: str, checkpoint_id: int | None) -> None:
    newest = job.checkpoints.newest
    if newest is None or newest.checkpoint_id != checkpoint_id:
        msg = f"savepoint {checkpoint_id} did not complete"
        raise JobStuckError(msg)
    complete_elsewhere(
        places(url, create=True), replace(newest, metadata=None, size=state_size(newest.operators))
    )
