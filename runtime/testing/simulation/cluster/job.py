"""`SimulatedJob`: what is submitted; one run may submit two, the second one from a snapshot of the first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import ExecutionGraph

#: The id of the first job of a run, and of the one that starts from what the first has left.
FIRST_JOB: Final = "simulated"
SECOND_JOB: Final = "simulated-again"


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job.

    Attributes:
        id: Its id in the storage.
        graph: As it is submitted.
        config: Its settings.
    """

    id: str
    graph: ExecutionGraph
    config: JobConfig
