"""A submitted job, and the times of its restarts; one run may submit two jobs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.task.descriptor import TaskDescriptor

#: The ids of the first job of a run, and of the job that continues from its savepoint.
FIRST_JOB: Final = "simulated"

SECOND_JOB: Final = "simulated-again"


class UserCode(Protocol):
    """Copies users' objects for processes; a cluster pickles them for each process."""

    def graph_for_master(self) -> ExecutionGraph:
        """The job with its own copies of objects."""
        ...

    def task_for_process(self, task: TaskDescriptor, effect: Callable[[], None]) -> TaskDescriptor:
        """The task with its own copies of objects; calls `effect` before each effect of users' code."""
        ...


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job.

    Attributes:
        code: Copies users' objects for each process; `None` shares them.
        is_new: Whether its first JobMaster treats it as just submitted.
        compact_every: Number of records after which its log is compacted.
        inline_limit: Maximum bytes of a state that stays in the metadata; `None` for the default.
    """

    id: str
    graph: ExecutionGraph
    config: JobConfig
    code: UserCode | None = None
    is_new: bool = True
    compact_every: int = COMPACT_EVERY
    inline_limit: int | None = None

    def received(self) -> SimulatedJob:
        """The job as a JobMaster receives it."""
        return self if self.code is None else replace(self, graph=self.code.graph_for_master())

    def received_task(self, task: TaskDescriptor, effect: Callable[[], None]) -> TaskDescriptor:
        """The task as a process receives it; `effect` is called before users' code has an effect outside."""
        return task if self.code is None else self.code.task_for_process(task, effect)


@dataclass(slots=True)
class RestartLedger:
    """The times of a job's attempts, in the world's time.

    The oracle uses them to check that the job restarted as often as its user allows. They do not rely on the
    job's own counters.

    Attributes:
        deployed: Time of each deployment, of the job or of a region, including the first one.
        stopped: Time at which the previous attempt was stopped; for the first deployment its own time.
        last_stop: Time of the last stop of an attempt, whether or not another one followed.
    """

    masters: int = 0
    deployed: list[float] = field(default_factory=list)
    stopped: list[float] = field(default_factory=list)
    last_stop: float = 0.0

    def note_deployment(self, now: float) -> None:
        self.stopped.append(self.last_stop if self.deployed else now)
        self.deployed.append(now)

    def note_stop(self, now: float) -> None:
        self.last_stop = now
