"""What subtasks report to the scheduler of their job while they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metrics import CheckpointMetrics


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A subtask's part of a checkpoint is durable.

    Attributes:
        snapshot: Handles of its state.
        metrics: How long each part took.
    """

    subtask: SubtaskId
    checkpoint_id: int
    snapshot: SubtaskSnapshot
    metrics: CheckpointMetrics


@dataclass(frozen=True, slots=True)
class Declined:
    """A subtask can't take part in a checkpoint.

    Attributes:
        reason: Why it can't.
        detail: Explains it to people.
    """

    subtask: SubtaskId
    checkpoint_id: int
    reason: CheckpointFailureReason
    detail: str


@dataclass(frozen=True, slots=True)
class ReachedEndOfData:
    subtask: SubtaskId


@dataclass(frozen=True, slots=True)
class EventForCoordinator:
    """An event of a subtask for the coordinator of one of its operators."""

    subtask: SubtaskId
    operator_id: str
    event: Any


SubtaskReport: TypeAlias = Acknowledged | Declined | ReachedEndOfData | EventForCoordinator
