"""The two sides of a subtask's checkpoints: the subtask that is saved, and the job that is told."""

from __future__ import annotations

from typing import Protocol

from penstock.runtime.checkpoint.subtask.operator_snapshot import SubtaskSnapshotTask
from penstock.runtime.record.elements import CheckpointBarrier, Event
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics


class CheckpointedTask(Protocol):
    """What the coordinator needs of its subtask."""

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Do what must happen in front of the barrier."""
        ...

    def broadcast_event(self, event: Event) -> None:
        """Put an event on all outputs in one step; barriers are sent by `BarrierSender` if there is one."""
        ...

    def capture_input(self, checkpoint_id: int) -> None:
        """Hand what is in flight in the inputs to the channel state writer."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether operators are closed, so that their state can't be taken any more."""
        ...

    def snapshot_state(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half."""
        ...

    def tell_operators_complete(self, checkpoint_id: int) -> None:
        """Let operators commit what a checkpoint covers."""
        ...

    def confirm_state(self, checkpoint_id: int) -> None:
        """Later checkpoints may name the files of this one again."""
        ...

    def tell_operators_aborted(self, checkpoint_id: int) -> None:
        """Tell operators that a checkpoint was given up."""
        ...

    def forget_state(self, checkpoint_id: int) -> None:
        """No later checkpoint may name the files of this one."""
        ...


class CheckpointResponder(Protocol):
    """Where acknowledgements go."""

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """The subtask's part is durable.

        Args:
            checkpoint_id: The checkpoint.
            snapshot: Handles of its state.
            metrics: How long each part took.
        """
        ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """The subtask can't take part.

        Args:
            checkpoint_id: The checkpoint.
            reason: Why.
            detail: More about that, for people.
        """
        ...
