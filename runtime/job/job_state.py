"""The states of a job, and the transitions that it has made."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class JobState(Enum):
    """Where a job is in its life.

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
        source: The former state.
        target: The new state.
        at: Time in wall-clock seconds.
        cause: Explains it to people; may be empty.
    """

    source: JobState
    target: JobState
    at: float
    cause: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON carries."""
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
        """The job has changed its state."""
        self._transitions.append(transition)

    def transitions(self) -> tuple[Transition, ...]:
        """The remembered transitions, oldest first."""
        return tuple(self._transitions)
