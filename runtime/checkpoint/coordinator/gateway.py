"""The port through which the coordinator reaches subtasks and the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.subtask_id import SubtaskId


class CoordinatorGateway(Protocol):
    """The coordinator's calls to subtasks and the job.

    No call blocks, and none calls the coordinator back before it returns.
    """

    def trigger(self, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier) -> None:
        """Tell these subtasks to begin the checkpoint of `barrier`."""
        ...

    def notify_checkpoint_complete(self, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        """Notify these subtasks that the checkpoint completed: they may commit."""
        ...

    def notify_checkpoint_aborted(self, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        """Notify these subtasks that the checkpoint was aborted."""
        ...

    def fail_job(self, cause: str) -> None:
        """Fail the job: too many checkpoints have failed."""
        ...

    def fenced(self) -> None:
        """Another attempt owns the log: this coordinator does nothing any more."""
        ...
