"""Everything a subtask is told when it is deployed; plain data that is pickled once per deployment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionSubtask
from penstock.runtime.restore.task_restore import TaskRestore
from penstock.runtime.snapshot.subtask_id import SubtaskId


@dataclass(frozen=True, slots=True)
class TaskDescriptor:
    """One subtask of one attempt.

    Attributes:
        attempt: Number of the attempt; every call carries it.
        subtask: Operators and channels.
        config: The job's settings.
        restore: State to begin with; `None` on a fresh start.
        splits: Fresh splits of the source at the head of the chain (none when restored).
        classes: Classes of records that are found in no module here, such as those of the user's `__main__`.
        given_id: Highest id that a checkpoint was given before this attempt; -1 for none, or not asked for.
    """

    job_id: str
    job_name: str
    attempt: int
    subtask: ExecutionSubtask
    config: JobConfig
    restore: TaskRestore | None = None
    splits: Sequence[Any] = ()
    classes: tuple[type, ...] = ()
    given_id: int = -1

    @property
    def id(self) -> SubtaskId:
        """The subtask's id."""
        return self.subtask.id
