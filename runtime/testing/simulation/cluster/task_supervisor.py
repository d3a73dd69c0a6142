"""How far an attempt of a subtask is, and what it tells its process."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from penstock.runtime.execution.messages import SubtaskOutcome
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.cluster.links import Links
from penstock.runtime.testing.simulation.world.agenda import Happening


class ProcessDied(BaseException):
    """The process is gone in the middle of what it did; nothing of the task's may catch this."""


class TaskState(Enum):
    """How far an attempt of a subtask is."""

    DEPLOYING = "being deployed"
    DEPLOYED = "deployed, not started"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"
    DEAD = "dead with its process"

    @property
    def is_on_its_way(self) -> bool:
        """Whether it is to be started."""
        return self in (TaskState.DEPLOYING, TaskState.DEPLOYED)

    @property
    def is_open(self) -> bool:
        """Whether it still takes what arrives."""
        return self in (TaskState.DEPLOYED, TaskState.STARTED)


class TaskSupervisor(Protocol):
    """What a task tells the world: its process, and through it the JobMaster."""

    @property
    def process(self) -> str:
        """Names the process."""
        ...

    @property
    def clock(self) -> ManualClock:
        """The clock of the process."""
        ...

    @property
    def links(self) -> Links:
        """Whom the process can reach."""
        ...

    def holds(self, kind: Happening, act: Callable[[], None], *what: object) -> bool:
        """Keep something for later when the process can't run; whether it was kept."""
        ...

    def before_effect(self) -> None:
        """Something is about to happen outside of the process.

        Raises:
            ProcessDied: The process dies first.
        """
        ...

    def before_upload(self) -> None:
        """A file is about to be written.

        Raises:
            ProcessDied: The process dies first.
        """
        ...

    def died(self) -> None:
        """The process has died in the middle of something."""
        ...

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """A report."""
        ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """A report."""
        ...

    def end_of_data(self) -> None:
        """A report."""
        ...

    def operator_event(self, operator_id: str, event: Any) -> None:
        """A report."""
        ...

    def ended(self, outcome: SubtaskOutcome) -> None:
        """The task has finished, or failed."""
        ...
