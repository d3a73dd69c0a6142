"""A checkpoint that runs, and who is told of its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.checkpoint.coordinator_plan import CheckpointPlan
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.checkpoint.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.request_decider import CheckpointRequest
from penstock.runtime.checkpoint.snapshot import SubtaskId
from penstock.runtime.record.elements import CheckpointBarrier


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
