"""A job whose reports a test writes one by one: shapes that no machine of a test can run."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

from penstock import JobStatus
from penstock.actors.client.logs import LogLine
from penstock.actors.shared.edge_records import EdgeRecord
from penstock.actors.shared.job_report import JobReport, SubtaskInfo
from penstock.actors.web.server import JobDirectory
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import OperatorRates, SubtaskRates
from serving.reports import record


class ScriptedJob:
    """Stands for the handle of a running job; `report` gives what the test has put there."""

    def __init__(self, report: JobReport) -> None:
        self.current = report
        self.lines: list[LogLine] = []
        #: Clear while its JobMaster does not answer.
        self.answers = threading.Event()
        self.answers.set()
        self.records_flow = True

    @property
    def job_id(self) -> str:
        return self.current.job_id

    def log_reader(self) -> ScriptedLog:
        return ScriptedLog(self.lines)

    def sample_edge(self, edge: int, *, most: int = 10, timeout: float = 2.0) -> list[EdgeRecord]:
        found = [
            EdgeRecord(n % 2, 1_700_004_600_000_000 + n, f"{{'order': {n}, 'edge': {edge}}}")
            for n in range(most)
        ]
        return found if self.records_flow else []

    def checkpoints(self) -> tuple[CheckpointDetails, ...]:
        return tuple(CheckpointDetails(each, {}) for each in self.current.checkpoint_history)

    def checkpoint_details(self, checkpoint_id: int) -> CheckpointDetails | None:
        alike = [each for each in self.checkpoints() if each.record.checkpoint_id == checkpoint_id]
        return alike[-1] if alike else None

    def report(self, *, fresh: bool = True) -> JobReport:
        self.answers.wait()
        return self.current


class ScriptedLog:
    """Gives each line once."""

    silent_nodes = ()

    def __init__(self, lines: list[LogLine]) -> None:
        self._lines = lines

    def read(self) -> list[LogLine]:
        new, self._lines[:] = list(self._lines), []
        return new


class ScriptedDirectory(JobDirectory):
    """Knows one job."""

    def __init__(self, job: ScriptedJob) -> None:
        super().__init__()
        self._job = job

    def all(self) -> list[Any]:
        return []

    def find(self, job: str) -> Any:
        return self._job


def wide_report(vertices: int, checkpoints: int, busy: float = 0.5) -> JobReport:
    """A running job of so many vertices, in layers of ten; `busy` is the share of the first."""
    names = [f"vertex-{number}" for number in range(vertices)]
    graph = GraphInfo(
        "wide",
        tuple(
            VertexInfo(name, 1, 128, (OperatorInfo(name, f"map({name})", name, 1, is_source=number < 10),))
            for number, name in enumerate(names)
        ),
        tuple(EdgeInfo(names[i], names[i + 10], "rebalance") for i in range(vertices - 10)),
    )
    statistics = JobStatistics(JobStatus.RUNNING, attempt=1)
    report = JobReport(
        "wide-1f2e",
        "wide",
        JobStatus.RUNNING,
        0.0,
        100.0,
        statistics,
        graph,
        storage=str(Path("/storage")),
        checkpoints=CoordinatorStatistics(triggered=checkpoints, completed=checkpoints),
        checkpoint_history=tuple(
            record(number, CheckpointStatus.COMPLETED, 0.1) for number in range(1, checkpoints + 1)
        ),
    )
    return with_busy(report, busy)


def with_busy(report: JobReport, busy: float) -> JobReport:
    """The same job when its first vertex is busy for such a share of the time, and reads so many records."""
    rates = SubtaskRates(1.0, 0.1, 0.0, 0.9, 5.0, 5.0, 50.0, 50.0)
    first = replace(
        rates,
        busy=busy,
        idle=1.0 - busy,
        operators={report.graph.vertices[0].id: OperatorRates(1_000 * busy, 1_000 * busy)},
    )
    subtasks = tuple(
        SubtaskInfo(
            SubtaskId(vertex.id, 0),
            1,
            SubtaskStatus.RUNNING,
            rates=first if number == 0 else rates,
        )
        for number, vertex in enumerate(report.graph.vertices)
    )
    return replace(report, subtasks=subtasks)
