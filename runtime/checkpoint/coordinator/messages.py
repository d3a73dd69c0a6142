"""What subtasks say about checkpoints, and what becomes of it.

Messages cross each other: an acknowledgement may come twice, after its checkpoint has ended, or for an
attempt that is past. Only the first one in time counts; files that a late one names are deleted if nothing
can need them.
"""

from __future__ import annotations

from enum import Enum

from penstock.runtime.checkpoint.coordinator.checkpoint_history import CheckpointHistory
from penstock.runtime.checkpoint.coordinator.pending import PendingCheckpoints
from penstock.runtime.checkpoint.coordinator.pending_values import AcknowledgeResult, PendingState
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId


class MessageOutcome(Enum):
    """What became of an acknowledgement or a refusal.

    `ENDED_CHECKPOINT` is said of every id that was given out and does not run, however long ago it ended.
    """

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNKNOWN_SUBTASK = "unknown_subtask"
    ENDED_CHECKPOINT = "ended_checkpoint"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    STALE_ATTEMPT = "stale_attempt"

    @property
    def is_known(self) -> bool:
        """Whether the message belongs to a checkpoint of this attempt that runs or has ended."""
        return self not in (MessageOutcome.UNKNOWN_CHECKPOINT, MessageOutcome.STALE_ATTEMPT)


class CheckpointMessages:
    """Takes the messages of the current attempt.

    Args:
        pending: The checkpoints that run.
        history: What is remembered.
    """

    def __init__(self, pending: PendingCheckpoints, history: CheckpointHistory) -> None:
        self._pending = pending
        self._history = history
        self.stale_count = self.late_count = 0

    def stale(self) -> MessageOutcome:
        """A message of another attempt: nothing in it is touched, its files may be in use."""
        self.stale_count += 1
        return MessageOutcome.STALE_ATTEMPT

    def acknowledge(
        self,
        subtask: SubtaskId,
        checkpoint_id: int,
        snapshot: SubtaskSnapshot | None,
        metrics: CheckpointMetrics | None,
    ) -> MessageOutcome:
        """A subtask's part of a checkpoint is durable."""
        started = self._pending.get(checkpoint_id)
        if started is None:
            self.late_count += 1
            if snapshot is not None:
                self._pending.discard_late(checkpoint_id, snapshot.files())
            return self._ended_or_unknown(checkpoint_id)
        result = started.pending.acknowledge(subtask, snapshot, metrics)
        if result is AcknowledgeResult.DUPLICATE:
            return MessageOutcome.DUPLICATE
        if result is not AcknowledgeResult.SUCCESS:
            if snapshot is not None:
                self._pending.discard(checkpoint_id, snapshot.files())
            return MessageOutcome.UNKNOWN_SUBTASK
        if started.pending.is_a_step_further:
            self._history.progress(started.pending.statistics())
        self._pending.finalise_if_complete(started)
        return MessageOutcome.ACCEPTED

    def decline(
        self, subtask: SubtaskId, checkpoint_id: int, reason: CheckpointFailureReason, detail: str
    ) -> MessageOutcome:
        """A subtask can't take part: the checkpoint is given up, whoever says so (as in Flink)."""
        started = self._pending.get(checkpoint_id)
        if started is None:
            return self._ended_or_unknown(checkpoint_id)
        if started.pending.state is not PendingState.COLLECTING:
            return MessageOutcome.DUPLICATE
        self._pending.abort(started, reason, f"{subtask}: {detail}" if detail else f"{subtask} declined it")
        return MessageOutcome.ACCEPTED

    def _ended_or_unknown(self, checkpoint_id: int) -> MessageOutcome:
        if checkpoint_id >= self._pending.next_id:
            return MessageOutcome.UNKNOWN_CHECKPOINT
        return MessageOutcome.ENDED_CHECKPOINT
