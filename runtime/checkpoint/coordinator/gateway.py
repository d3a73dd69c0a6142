"""The port through which the coordinator reaches subtasks and the job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.subtask_id import SubtaskId


class CoordinatorGateway(Protocol):
    """What the coordinator asks of the world. No call blocks and none calls the coordinator back at once."""

    def trigger(self, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier) -> None:
        """Tell these subtasks to start the checkpoint of `barrier`."""
        ...

    def notify_checkpoint_complete(self, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        """Tell these subtasks that the checkpoint is complete: they may commit."""
        ...

    def notify_checkpoint_aborted(self, subtasks: Sequence[SubtaskId], checkpoint_id: int) -> None:
        """Tell these subtasks that the checkpoint was given up."""
        ...

    def fail_job(self, cause: str) -> None:
        """Too many checkpoints have failed: the job must fail for this reason."""
        ...

    def fenced(self) -> None:
        """Another attempt has taken the log over: this coordinator is past and does nothing any more."""
        ...
