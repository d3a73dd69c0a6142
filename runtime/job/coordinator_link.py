"""`CoordinatorLink`: the gateway of the checkpoint coordinator, which knows no attempts."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.subtask_id import SubtaskId


class CoordinatorLink:
    """Adds each subtask's attempt to the coordinator's messages, and hands them to the job's gateway."""

    def __init__(self, job: JobContext) -> None:
        self._job = job

    def trigger(self, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier) -> None:
        """Trigger a checkpoint."""
        for attempt, those in self._job.by_attempt(subtasks):
            self._job.gateway.trigger_checkpoint(attempt, those, barrier)

    def notify_checkpoint_complete(self, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        """Notify subtasks that a checkpoint is complete."""
        for attempt, those in self._job.by_attempt(subtasks):
            self._job.gateway.notify_checkpoint_complete(attempt, those, checkpoint_id)

    def notify_checkpoint_aborted(self, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        """Notify subtasks that a checkpoint was aborted."""
        for attempt, those in self._job.by_attempt(subtasks):
            self._job.gateway.notify_checkpoint_aborted(attempt, those, checkpoint_id)

    def fail_job(self, cause: str) -> None:
        """Too many checkpoints have failed."""
        self._job.state.failed(FailureCause(cause))

    def fenced(self) -> None:
        """Another JobMaster owns the job."""
        self._job.fence()
