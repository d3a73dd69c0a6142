"""A checkpoint that runs, and who is told of its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan
from penstock.runtime.checkpoint.coordinator.request_decider import CheckpointRequest
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.subtask_id import SubtaskId


@dataclass(slots=True, eq=False)
class StartedCheckpoint:
    """A checkpoint that runs.

    Attributes:
        pending: What has come in.
        plan: Who takes part.
        request: Who asked for it.
        barrier: What begins it.
        started_at: Monotonic seconds.
        is_told: Whether subtasks have been told of it; before, coordinators and hooks do their part.
        ended_before: Subtasks that came to the end of their data before anybody was told.
    """

    pending: PendingCheckpoint
    plan: CheckpointPlan
    request: CheckpointRequest
    barrier: CheckpointBarrier
    started_at: float
    is_told: bool = False
    ended_before: list[SubtaskId] = field(default_factory=list)

    @property
    def id(self) -> int:
        """Its id."""
        return self.pending.checkpoint_id

    @property
    def location(self) -> str | None:
        """URL of a savepoint's place that is not in the job's storage."""
        return self.barrier.options.location

    def tell(self) -> tuple[SubtaskId, ...]:
        """Coordinators and hooks have done their part: who is told now."""
        self.is_told = True
        return (*self.plan.trigger, *self.ended_before)

    def data_ended(self, subtask: SubtaskId) -> bool:
        """A subtask came to the end of its data: whether it is to be told now, since no barrier comes there.

        While coordinators and hooks do their part nobody is told; it is told with the others then.
        """
        if not self.pending.waits_for(subtask) or subtask in self.plan.trigger:
            return False
        if not self.is_told:
            self.ended_before.append(subtask)
        return self.is_told


@dataclass(frozen=True, slots=True)
class PendingEnds:
    """Who is told when a checkpoint ends.

    Attributes:
        completed: A checkpoint completed.
        failed: One failed: reason, detail.
        fenced: Another attempt owns the log.
    """

    completed: Callable[[StartedCheckpoint, CompletedCheckpoint], None]
    failed: Callable[[StartedCheckpoint, Reason, str], None]
    fenced: Callable[[], None]
