"""Messages to a running job: requests of users, what became of rescales, and reports of subtasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeAlias

from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointMetrics
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId


@dataclass(frozen=True, slots=True)
class StopRequest:
    """The kind of a stop.

    Attributes:
        drain: Whether event time advances to its end first: the job will not continue from the savepoint.
        target: URL of the folder in which the savepoint gets its own; `None` for the checkpoint storage.
    """

    drain: bool = False
    target: str | None = None


@dataclass(frozen=True, slots=True)
class RescaleStarted:
    """The state is saved, all subtasks have stopped, and the new deployment begins."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RescaleRefused:
    """The job keeps its parallelism."""

    why: str


RescaleAnswer: TypeAlias = RescaleStarted | RescaleRefused

OnRescaled: TypeAlias = Callable[[RescaleAnswer], None]


@dataclass(frozen=True, slots=True)
class RescaleRequest:
    """The new parallelism.

    Attributes:
        parallelism: By vertex id; other vertices keep theirs.
        on_answer: Called once with the answer.
    """

    parallelism: Mapping[str, int]
    on_answer: OnRescaled


@dataclass(frozen=True, slots=True)
class RescaleRecord:
    """One change of a job's parallelism.

    Attributes:
        requested_at: Wall-clock seconds.
        attempt: The attempt that ran at the time of the request.
        before: Old parallelism by vertex, of the vertices in the request.
        after: Requested parallelism of the same vertices.
        ended_at: Wall-clock seconds at which the new deployment began or the rescale was cancelled; `None`
            until then.
        checkpoint_id: The checkpoint that holds the state for the new parallelism; `None` without one.
        failure: Why the parallelism did not change; empty if it did, or while it is in progress.
    """

    requested_at: float
    attempt: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    ended_at: float | None = None
    checkpoint_id: int | None = None
    failure: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RescaleRecord:
        """The record that `to_dict` gave.

        Example:
            >>> record = RescaleRecord(1.0, 2, {"count": 1}, {"count": 4}, 3.0, 7)
            >>> RescaleRecord.from_dict(record.to_dict()) == record
            True
        """
        return cls(**data)


class RescaleHistory:
    """The last rescales of a job; only the newest one may be in progress.

    Args:
        capacity: Maximum number of rescales that are remembered.
    """

    def __init__(self, capacity: int = 32) -> None:
        self._records: deque[RescaleRecord] = deque(maxlen=capacity)

    def begin(self, record: RescaleRecord) -> None:
        self._records.append(record)

    def saved(self, checkpoint_id: int) -> None:
        self._records[-1] = replace(self._records[-1], checkpoint_id=checkpoint_id)

    def end(self, at: float, failure: str = "") -> None:
        self._records[-1] = replace(self._records[-1], ended_at=at, failure=failure)

    def records(self) -> tuple[RescaleRecord, ...]:
        return tuple(self._records)


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A subtask's part of a checkpoint is durable."""

    subtask: SubtaskId
    checkpoint_id: int
    snapshot: SubtaskSnapshot
    metrics: CheckpointMetrics


@dataclass(frozen=True, slots=True)
class Declined:
    """A subtask can't take part in a checkpoint."""

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
