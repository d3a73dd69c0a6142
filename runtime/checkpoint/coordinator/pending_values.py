"""What a pending checkpoint says: what became of an acknowledgement, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId


class AcknowledgeResult(Enum):
    """What became of one acknowledgement."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    DISCARDED = "discarded"


class PendingState(Enum):
    """Where a pending checkpoint is in its life."""

    COLLECTING = "collecting"
    FINALISING = "finalising"
    COMPLETED = "completed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One subtask's part.

    Attributes:
        snapshot: Its state; `None` when it has none.
        metrics: What it measured.
    """

    snapshot: SubtaskSnapshot | None
    metrics: CheckpointMetrics


@dataclass(frozen=True, slots=True)
class PendingStatistics:
    """How far a pending checkpoint is.

    Attributes:
        checkpoint_id: Which.
        state: Where it is in its life.
        acknowledged: Subtasks that have acknowledged.
        missing: Subtasks that have not, sorted.
        missing_coordinators: Operators whose coordinator has not, sorted.
        missing_masters: Master hooks that have not, sorted.
        written_bytes: New bytes written by those that have.
        in_flight_bytes: Of these, data that was between subtasks.
        metrics: What each of them measured.
    """

    checkpoint_id: int
    state: PendingState
    acknowledged: int
    missing: tuple[SubtaskId, ...]
    written_bytes: int
    in_flight_bytes: int
    metrics: Mapping[SubtaskId, CheckpointMetrics] = field(default_factory=dict)
    missing_coordinators: tuple[str, ...] = ()
    missing_masters: tuple[str, ...] = ()
