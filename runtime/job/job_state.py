"""The states of a job, requests to it, reports of its subtasks, and its statistics at one moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, TypeAlias

from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.job.failover import FailureRecord
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointRecord,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.plain_values import PLAIN_NAME


@dataclass(frozen=True, slots=True)
class StopRequest:
    """A request to stop a job with a savepoint.

    Attributes:
        drain: Whether event time advances to its end first, because no job will continue from the savepoint.
        target: URL of the parent of the savepoint's folder; `None` for the checkpoint storage.
    """

    drain: bool = False
    target: str | None = None


@dataclass(frozen=True, slots=True)
class RescaleStarted:
    """Answer to a rescale: the state is saved, all subtasks have stopped, and the new deployment begins."""

    attempt: int


@dataclass(frozen=True, slots=True)
class RescaleRefused:
    """Answer to a rescale: the job keeps its parallelism."""

    why: str


RescaleAnswer: TypeAlias = RescaleStarted | RescaleRefused

OnRescaled: TypeAlias = Callable[[RescaleAnswer], None]


@dataclass(frozen=True, slots=True)
class RescaleRequest:
    """A request for another parallelism.

    Attributes:
        parallelism: New parallelism by vertex id; other vertices keep theirs.
        on_answer: Callback, called once.
    """

    parallelism: Mapping[str, int]
    on_answer: OnRescaled


@dataclass(frozen=True, slots=True)
class RescaleRecord:
    """A change of a job's parallelism.

    Attributes:
        requested_at: Wall-clock seconds.
        attempt: The attempt that ran at the time of the request.
        before: Old parallelism by vertex, of the vertices in the request.
        after: Requested parallelism of the same vertices.
        ended_at: Wall-clock seconds at which the new deployment began or the rescale failed; `None` until
            then.
        checkpoint_id: The checkpoint that holds the state for the new parallelism; `None` without one.
        failure: Reason why the parallelism did not change; empty after success, or while in progress.
    """

    requested_at: float
    attempt: int
    before: Mapping[str, int]
    after: Mapping[str, int]
    ended_at: float | None = None
    checkpoint_id: int | None = None
    failure: str = ""


class RescaleHistory:
    """The last rescales of a job; only the newest one may be in progress."""

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
    """Report of a subtask: its part of a checkpoint is complete and its files are durable."""

    subtask: SubtaskId
    checkpoint_id: int
    snapshot: SubtaskSnapshot
    metrics: CheckpointMetrics


@dataclass(frozen=True, slots=True)
class Declined:
    """Report of a subtask: it can't take part in a checkpoint."""

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


@dataclass(frozen=True, slots=True)
class Warned:
    """A warning of a subtask's operator for the user."""

    subtask: SubtaskId
    operator_id: str
    text: str


SubtaskReport: TypeAlias = Acknowledged | Declined | ReachedEndOfData | EventForCoordinator | Warned


class JobState(Enum):
    """The state of a job.

    created -> deploying -> initialising -> running -> finished
                   ^                           |
              restarting  <---  failing  <-----+      failing -> failed
    running -> rescaling -> deploying             rescaling -> running, if its checkpoint fails
    running -> stopping -> finished               stopping -> running, if no savepoint began
    running -> restarting -> running              if only a region restarts
    deploying -> stopping                         if the attempt starts from the job's last savepoint
    deploying -> finished, failed, cancelled      if the log already has that end of the job
    any state of an attempt -> failing
    any of these -> cancelling -> cancelled       unless the end is being recorded
    """

    CREATED = "created"
    DEPLOYING = "deploying"
    INITIALISING = "initialising"
    RUNNING = "running"
    RESCALING = "rescaling"
    STOPPING = "stopping"
    FAILING = "failing"
    RESTARTING = "restarting"
    CANCELLING = "cancelling"
    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)

    @property
    def is_coming_up(self) -> bool:
        """Whether the job may soon run, for the first time or again, so that a request can wait."""
        return self in (
            JobState.CREATED,
            JobState.DEPLOYING,
            JobState.INITIALISING,
            JobState.FAILING,
            JobState.RESTARTING,
            JobState.RESCALING,
        )


@dataclass(frozen=True, slots=True)
class Transition:
    """A change of a job's state.

    Attributes:
        at: Time in wall-clock seconds.
        cause: Human-readable explanation; may be empty.
    """

    source: JobState = field(metadata={PLAIN_NAME: "from"})
    target: JobState = field(metadata={PLAIN_NAME: "to"})
    at: float
    cause: str = ""


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """A job at one moment, and the counters of its scheduler.

    Attributes:
        job_id: The job's id.
        name: Name that the user gave the job.
        attempt: The current or last attempt; 0 before the first.
        restarts: Attempts, over the job's whole life, that began after a failure or after a JobMaster died.
        restored_checkpoint: The checkpoint that the attempt began from; `None` for a fresh start.
        warning: A warning for the user about that checkpoint, or about the end of the job; `None` for none.
        is_fenced: Whether another JobMaster owns the job; all other values are then the last known ones.
        failures: Failures of attempts, oldest first.
        transitions: Changes of the job's state, oldest first.
        rescales: Changes of the parallelism, oldest first.
        subtasks: Progress of each subtask.
        checkpoints: Counters; `None` without checkpointing.
        checkpoint_history: The last checkpoints, oldest first.
        stopped_with: URL of the savepoint that the job was stopped with.
        drained: Whether event time advanced to its end before that savepoint.
        ended_at: Wall-clock seconds of an end that this JobMaster found in the log; else `None`.
    """

    job_id: str
    name: str
    state: JobState
    attempt: int = 0
    restarts: int = 0
    restored_checkpoint: int | None = None
    warning: str | None = None
    is_fenced: bool = False
    failures: tuple[FailureRecord, ...] = ()
    transitions: tuple[Transition, ...] = ()
    rescales: tuple[RescaleRecord, ...] = ()
    subtasks: Mapping[SubtaskId, SubtaskStatus] = field(default_factory=dict)
    checkpoints: CoordinatorStatistics | None = None
    checkpoint_history: tuple[CheckpointRecord, ...] = ()
    stopped_with: str | None = None
    drained: bool = False
    ended_at: float | None = None

    @property
    def cause(self) -> str:
        return str(self.failures[-1].root) if self.failures else ""
