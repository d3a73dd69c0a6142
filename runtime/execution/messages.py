"""What the JobMaster tells subtasks, and how they end. What they report is in `runtime/job/reports`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from penstock.runtime.errors import OperatorLocation, UserLocation
from penstock.runtime.job.failure import FailureCause, FailureKind
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import SubtaskStatistics


@dataclass(frozen=True, slots=True)
class TriggerCheckpoint:
    """Take a checkpoint; for sources, and subtasks whose senders have all finished.

    Attributes:
        barrier: The barrier that the source sends.
    """

    barrier: CheckpointBarrier


@dataclass(frozen=True, slots=True)
class NotifyComplete:
    """A checkpoint is complete: commit what it covers."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class NotifyAborted:
    """A checkpoint was aborted."""

    checkpoint_id: int


@dataclass(frozen=True, slots=True)
class EventForOperator:
    """An event of an operator coordinator for one of its subtasks.

    Attributes:
        number: Counts the events for this subtask, so that a repeated one is recognised.
    """

    operator_id: str
    number: int
    event: Any


SubtaskControl: TypeAlias = TriggerCheckpoint | NotifyComplete | NotifyAborted | EventForOperator


@dataclass(frozen=True, slots=True)
class SubtaskFinished:
    """A subtask has done everything.

    Attributes:
        statistics: Its last counters.
    """

    statistics: SubtaskStatistics | None


@dataclass(frozen=True, slots=True)
class SubtaskStopped:
    """A subtask was stopped because its attempt is over."""


@dataclass(frozen=True, slots=True)
class SubtaskFailed:
    """A subtask has failed.

    Attributes:
        error: One paragraph for people: what happened, where, what to do.
        traceback: The user's traceback, as text.
        recoverable: Whether another attempt may go better.
        location: The operator that failed; `None` when it was none.
        is_damage: Whether the state that it was to restore is damaged.
        raised_at: The user's line that raised, if it is known.
        is_bad_input: Whether a source can't read what is stored; the same failure would come again.
    """

    error: str
    traceback: str
    location: OperatorLocation | None = None
    recoverable: bool = True
    is_damage: bool = False
    raised_at: UserLocation | None = None
    is_bad_input: bool = False

    def cause(self, subtask: SubtaskId) -> FailureCause:
        """The failure as the scheduler takes it."""
        kind = FailureKind.STATE if self.is_damage else FailureKind.OTHER
        where = self.location
        return FailureCause(
            self.error,
            subtask,
            self.traceback,
            self.recoverable,
            self.is_damage,
            kind if where is None else FailureKind.OPERATOR,
            None if where is None else where.operator,
            None if where is None else where.defined_at,
            self.raised_at,
            self.is_bad_input,
        )


SubtaskOutcome: TypeAlias = SubtaskFinished | SubtaskStopped | SubtaskFailed
