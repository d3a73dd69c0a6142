"""What a `SubtaskCheckpointCoordinator` drives: the state and the outputs of its subtask, and the answer."""

from __future__ import annotations

from typing import Protocol

from penstock.runtime.checkpoint.channel_state.barrier_sender import BarrierOutputs
from penstock.runtime.checkpoint.subtask.operator_snapshot import SubtaskSnapshotTask
from penstock.runtime.record.elements import CheckpointBarrier, Event
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics


class CheckpointedState(Protocol):
    """The work and the state of a subtask. No call comes back into the coordinator."""

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Do what must happen in front of the barrier; it may still emit."""
        ...

    def capture_rest(self, checkpoint_id: int) -> None:
        """Hand what was taken from the input and not begun to the channel state writer."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the operators are closed, so that there is no state to take."""
        ...

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half of a checkpoint."""
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Let operators commit what a checkpoint covers."""
        ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify operators that a checkpoint was aborted."""
        ...

    def confirm(self, checkpoint_id: int) -> None:
        """The files of a completed checkpoint may be named by later ones."""
        ...

    def forget(self, checkpoint_id: int) -> None:
        """No later checkpoint may name the files of this one."""
        ...


class CheckpointedOutputs(BarrierOutputs, Protocol):
    """The outputs of a subtask, as far as checkpoints use them."""

    def broadcast_event(self, event: Event) -> None:
        """Put an event on every channel in one step; after the end of a channel it is dropped."""
        ...


class CheckpointResponder(Protocol):
    """Takes the answers of a subtask to the coordinator of the job."""

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """The subtask's part of a checkpoint is durable."""
        ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """The subtask can't take part in a checkpoint; `detail` is for people."""
        ...
