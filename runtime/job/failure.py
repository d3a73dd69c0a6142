"""Why attempts failed: the root cause of each, and the failures that followed from it."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any, Final

from penstock.runtime.error_text import LONGEST_MESSAGE, LONGEST_TRACEBACK, fit_text
from penstock.runtime.errors import OperatorError, UserLocation
from penstock.runtime.snapshot.ids import SubtaskId

#: Maximum number of secondary failures that are kept of one attempt.
MAX_SECONDARY: Final = 16


class FailureKind(Enum):
    """The failed part.

    Attributes:
        OPERATOR: An operator, most often in a user's function.
        PROCESS: The process of a subtask died, hung or could not be reached.
        STATE: The state that was to be restored is damaged.
    """

    OPERATOR = "operator"
    PROCESS = "process"
    STATE = "state"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class FailureCause:
    """One failure.

    Attributes:
        message: What happened and where, in a few lines at most, as `fit_text` makes it.
        subtask: The subtask that failed; `None` for a failure outside of subtasks.
        traceback: The user's traceback, as `fit_text` makes it.
        recoverable: Whether another attempt may go better. `False` fails the job at once.
        is_damage: The restored checkpoint is damaged; an older one may be intact.
        operator: The operator that failed; `None` when it was none, or is not known.
        defined_at: The user's line that put the operator into the graph.
        is_bad_input: A source can't read what is stored. `FailureHistory.known` says when that is final.

    Example:
        >>> str(FailureCause("division by zero", SubtaskId("map", 0)))
        'map[0]: division by zero'
    """

    message: str
    subtask: SubtaskId | None = None
    traceback: str = ""
    recoverable: bool = True
    is_damage: bool = False
    kind: FailureKind = FailureKind.OTHER
    operator: str | None = None
    defined_at: UserLocation | None = None
    raised_at: UserLocation | None = None
    is_bad_input: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "message", fit_text(self.message, LONGEST_MESSAGE))
        object.__setattr__(self, "traceback", fit_text(self.traceback, LONGEST_TRACEBACK))

    @classmethod
    def of_operator(cls, error: OperatorError, traceback: str, *, recoverable: bool = True) -> FailureCause:
        """The failure of an operator that no subtask has reported."""
        where = error.location
        return cls(
            str(error),
            None,
            traceback,
            recoverable,
            kind=FailureKind.OPERATOR,
            operator=where.operator,
            defined_at=where.defined_at,
            raised_at=error.raised_at,
        )

    def __str__(self) -> str:
        return self.message if self.subtask is None else f"{self.subtask}: {self.message}"

    def to_dict(self) -> dict[str, Any]:
        subtask = None if self.subtask is None else [self.subtask.vertex, self.subtask.index]
        return {
            "message": self.message,
            "subtask": subtask,
            "traceback": self.traceback,
            "recoverable": self.recoverable,
            "is_damage": self.is_damage,
            "kind": self.kind.value,
            "operator": self.operator,
            "defined_at": None if self.defined_at is None else asdict(self.defined_at),
            "raised_at": None if self.raised_at is None else asdict(self.raised_at),
            "is_bad_input": self.is_bad_input,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FailureCause:
        subtask = None if data["subtask"] is None else SubtaskId(*data["subtask"])
        defined_at, raised_at = data.get("defined_at"), data.get("raised_at")
        return cls(
            data["message"],
            subtask,
            data["traceback"],
            data["recoverable"],
            data.get("is_damage", False),
            FailureKind(data.get("kind", FailureKind.OTHER.value)),  # this and what follows: new in 0.2
            data.get("operator"),
            None if defined_at is None else UserLocation(**defined_at),
            None if raised_at is None else UserLocation(**raised_at),
            data.get("is_bad_input", False),
        )


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """The failure of one attempt.

    Attributes:
        attempt: Number of the attempt.
        at: Time in wall-clock seconds.
        root: The first failure, the cause of the others.
        secondary: Later failures, in order.
    """

    attempt: int
    at: float
    root: FailureCause
    secondary: tuple[FailureCause, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "attempt": self.attempt,
            "at": self.at,
            "root": self.root.to_dict(),
            "secondary": [cause.to_dict() for cause in self.secondary],
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> FailureRecord:
        secondary = tuple(FailureCause.from_dict(cause) for cause in data["secondary"])
        return cls(data["attempt"], data["at"], FailureCause.from_dict(data["root"]), secondary)


class FailureHistory:
    """The failures of the last attempts.

    Args:
        capacity: Maximum number of attempts that are remembered.
    """

    def __init__(self, capacity: int = 16) -> None:
        self._records: deque[FailureRecord] = deque(maxlen=capacity)

    def attempt_failed(self, attempt: int, at: float, root: FailureCause) -> None:
        self._records.append(FailureRecord(attempt, at, root))

    def also_failed(self, cause: FailureCause) -> None:
        last = self._records[-1]
        if len(last.secondary) < MAX_SECONDARY:
            self._records[-1] = replace(last, secondary=(*last.secondary, cause))

    def known(self, cause: FailureCause) -> FailureCause:
        """Return the cause; not recoverable if an earlier attempt has failed on the same bad input.

        A message about bad input names its place. What is stored there does not change, so the same message
        would come after every restart. Failures of users' functions may heal and are never held to this.
        """
        same = (each for record in self._records for each in (record.root, *record.secondary))
        if cause.is_bad_input and any(each.is_bad_input and each.message == cause.message for each in same):
            return replace(cause, recoverable=False)
        return cause

    def records(self) -> tuple[FailureRecord, ...]:
        return tuple(self._records)
