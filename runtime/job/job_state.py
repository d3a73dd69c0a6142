"""The states of a job, the transitions that it has made, and its statistics at one moment."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.job.failure import FailureRecord
from penstock.runtime.job.messages import RescaleRecord
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CoordinatorStatistics
from penstock.runtime.snapshot.ids import SubtaskId


class JobState(Enum):
    """The state of a job.

    created -> deploying -> initialising -> running -> finished
                   ^                           |
              restarting  <---  failing  <-----+      failing -> failed
    any of them -> cancelling -> cancelled
    running -> rescaling -> deploying             rescaling -> running, when nothing came of it
    running -> stopping -> finished               stopping -> failing or, when nothing came of it, running
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
        """Whether no other state follows."""
        return self in (JobState.FINISHED, JobState.FAILED, JobState.CANCELLED)

    @property
    def is_coming_up(self) -> bool:
        """Whether the job is about to run, for the first time or again, so that a request may wait."""
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
    """One change of a job's state.

    Attributes:
        at: Time in wall-clock seconds.
        cause: Explains it to people; may be empty.
    """

    source: JobState
    target: JobState
    at: float
    cause: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {"from": self.source.value, "to": self.target.value, "at": self.at, "cause": self.cause}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Transition:
        """The transition that `to_dict` gave.

        Example:
            >>> step = Transition(JobState.CREATED, JobState.DEPLOYING, 1.0)
            >>> Transition.from_dict(step.to_dict()) == step
            True
        """
        return cls(JobState(data["from"]), JobState(data["to"]), data["at"], data["cause"])


class TransitionHistory:
    """The last transitions of a job.

    Args:
        capacity: Maximum number of transitions that are remembered.
    """

    def __init__(self, capacity: int = 200) -> None:
        self._transitions: deque[Transition] = deque(maxlen=capacity)

    def add(self, transition: Transition) -> None:
        self._transitions.append(transition)

    def transitions(self) -> tuple[Transition, ...]:
        return tuple(self._transitions)


@dataclass(frozen=True, slots=True)
class SchedulerStatistics:
    """A job at one moment, and the counters of its scheduler.

    Attributes:
        job_id: The job's id.
        name: The user's name for it.
        attempt: The current or last attempt; 0 before the first.
        restarts: Attempts of the job's life that began after a failure or the death of a JobMaster.
        restored_checkpoint: The checkpoint that the attempt began from; `None` for a fresh start.
        warning: A warning about that checkpoint, for the user; `None` for none.
        is_fenced: Another JobMaster owns the job; this is what this one knew last.
        failures: Why attempts failed, oldest first.
        transitions: Changes of its state, oldest first.
        rescales: Changes of the parallelism, oldest first.
        subtasks: How far each subtask is.
        checkpoints: Counters; `None` without checkpointing.
        checkpoint_history: The last checkpoints, oldest first.
        stopped_with: URL of the savepoint that the job was stopped with.
        drained: Whether event time went to its end before that savepoint.
        ended_at: Wall-clock seconds of an end that the log had when this JobMaster came; else `None`.
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
