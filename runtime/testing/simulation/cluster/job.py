"""`SimulatedJob`: what is submitted; one run may submit two, the second one from a snapshot of the first."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Protocol

from penstock.runtime.checkpoint.log.decision_log import COMPACT_EVERY
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.task.descriptor import TaskDescriptor

#: The id of the first job of a run, and of the one that starts from what the first has left.
FIRST_JOB: Final = "simulated"
SECOND_JOB: Final = "simulated-again"


class UserCode(Protocol):
    """Users' objects on their way to processes; on a cluster they are pickled for each."""

    def graph_for_master(self) -> ExecutionGraph:
        """The job with objects of its own."""
        ...

    def task_for_process(self, task: TaskDescriptor, effect: Callable[[], None]) -> TaskDescriptor:
        """A task with objects of its own.

        Args:
            task: What the JobMaster sends.
            effect: Called before users' code does something; the process may die there.
        """
        ...


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job.

    Attributes:
        id: Its id in the storage.
        graph: As it is submitted.
        config: Its settings.
        code: Copies users' objects for each process; `None` shares them.
        is_new: Whether its first JobMaster is that of a job that was only just submitted.
        compact_every: Number of records after which its log is compacted.
        inline_limit: Most bytes of a state that stay in the metadata; `None` for the usual limit.
    """

    id: str
    graph: ExecutionGraph
    config: JobConfig
    code: UserCode | None = None
    is_new: bool = True
    compact_every: int = COMPACT_EVERY
    inline_limit: int | None = None

    def received(self) -> SimulatedJob:
        """The job as a JobMaster receives it: with users' objects of its own."""
        return self if self.code is None else replace(self, graph=self.code.graph_for_master())

    def received_task(self, task: TaskDescriptor, effect: Callable[[], None]) -> TaskDescriptor:
        """A task as a process receives it: with users' objects of its own.

        Args:
            task: What the JobMaster sends.
            effect: Called before users' code does something; the process may die there.
        """
        return task if self.code is None else self.code.task_for_process(task, effect)
