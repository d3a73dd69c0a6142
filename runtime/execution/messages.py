"""Ends of subtasks. `task/descriptor` has the messages to a subtask, `job/messages` its reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.runtime.errors import OperatorLocation, UserLocation
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import SubtaskStatistics


@dataclass(frozen=True, slots=True)
class SubtaskFinished:
    """A subtask has done everything."""

    statistics: SubtaskStatistics | None


@dataclass(frozen=True, slots=True)
class SubtaskStopped: ...


@dataclass(frozen=True, slots=True)
class SubtaskFailed:
    """A subtask has failed.

    Attributes:
        error: One paragraph for people: what happened, where, what to do.
        recoverable: Whether another attempt may succeed.
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
