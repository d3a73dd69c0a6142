"""A running job of four vertices whose report a test changes: what its page shows in each view."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from penstock import JobStatus
from penstock.actors.client.logs import LogLine
from penstock.actors.shared.job_report import JobReport, SubtaskInfo
from penstock.runtime.checkpoint.coordinator.plan import SubtaskStatus
from penstock.runtime.errors import UserLocation
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus, CoordinatorStatistics
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.statistics import OperatorRates, OutputFill, SubtaskRates, SubtaskStatistics
from serving.browser import opened
from serving.in_thread import served
from serving.reports import record
from serving.scripted import ScriptedDirectory, ScriptedJob

JOB = "orders-0123456789abcdef0123456789abcdef"
#: Half past eleven in the evening, UTC, of 14 November 2023.
BEGAN = 1_700_004_600.0
#: Parallelism, shares of the time that are busy and back-pressured, and records per second, by vertex.
_VERTICES = {
    "orders": (2, 0.2, 0.7, 5_000.0),
    "parse": (2, 0.4, 0.6, 5_000.0),
    "enrich": (4, 0.97, 0.0, 5_000.0),
    "total-of-each-customer": (2, 0.1, 0.0, 4_900.0),
}
_CHAINS = {
    "orders": ("Source(orders)", "assign timestamps", "filter(is_paid)"),
    "parse": ("map(parse)",),
    "enrich": ("map(enrich)", "filter(is_known)", "map(flat)", "key by customer", "map(trim)"),
    "total-of-each-customer": ("reduce(add)", "Sink(totals)"),
}
_EDGES = (("rebalance", 1.0), ("rebalance", 0.9), ("key_group", 0.1))


def pipeline_report(**changed: Any) -> JobReport:
    """The job while it runs; `changed` replaces fields of its report."""
    names = list(_VERTICES)
    vertices = tuple(_vertex(name, _VERTICES[name][0]) for name in names)
    edges = tuple(
        EdgeInfo(
            names[place], names[place + 1], partitioning, "customer" if place == 2 else None, names[place]
        )
        for place, (partitioning, _) in enumerate(_EDGES)
    )
    report = {
        "job_id": JOB,
        "name": "orders",
        "status": JobStatus.RUNNING,
        "submitted_at": BEGAN,
        "duration": 3_700.0,
        "statistics": JobStatistics(JobStatus.RUNNING, attempt=1),
        "graph": GraphInfo("orders", vertices, edges),
        "subtasks": tuple(_subtask(name, index) for name in names for index in range(_VERTICES[name][0])),
        "storage": "/storage",
        "checkpoints": CoordinatorStatistics(
            triggered=3,
            completed=3,
            latest_completed_id=3,
            latest_completed_at=BEGAN + 60,
            latest_duration=0.4,
            latest_size=1_310_720,
        ),
        "checkpoint_history": (record(3, CheckpointStatus.COMPLETED, 0.4),),
    }
    return JobReport(**{**report, **changed})


def _vertex(name: str, parallelism: int) -> VertexInfo:
    chain = _CHAINS[name]
    operators = tuple(
        OperatorInfo(
            name if place == 0 else f"{name}-{place}",
            text,
            name,
            parallelism,
            is_source=text.startswith("Source"),
            is_sink=text.startswith("Sink"),
            defined_at=UserLocation("/home/ada/shop/order_totals.py", 20 + place, "main"),
        )
        for place, text in enumerate(chain)
    )
    return VertexInfo(name, parallelism, 128, operators)


def _subtask(name: str, index: int) -> SubtaskInfo:
    parallelism, busy, blocked, records = _VERTICES[name]
    each = records / parallelism
    place = list(_VERTICES).index(name)
    chain = _CHAINS[name]
    operators = {
        (name if number == 0 else f"{name}-{number}"): OperatorRates(each, each)
        for number in range(len(chain))
    }
    outputs: tuple[OutputFill, ...] = ()
    if place < len(_EDGES):
        target = list(_VERTICES)[place + 1]
        channels = _VERTICES[target][0]
        used = round(10 * _EDGES[place][1])
        outputs = (OutputFill(target, name, None, 0, 0, 10, 0, (used,) * channels, (0,) * channels),)
    return SubtaskInfo(
        SubtaskId(name, index),
        1,
        SubtaskStatus.RUNNING,
        statistics=SubtaskStatistics(
            9, 9, 9, 9, 1.0, 0.0, 0, 0, current_watermark=int((BEGAN + 50) * 1e6), outputs=outputs
        ),
        rates=SubtaskRates(
            10.0, busy, blocked, 1 - busy - blocked, each, each, 30_000.0, 30_000.0, operators
        ),
    )


@dataclass(frozen=True)
class PipelinePage:
    """A page, the job that it shows, and the server's address."""

    page: Any
    job: ScriptedJob
    address: str

    def show(self, view: str = "graph") -> Any:
        """One view of the job, in a page that has seen nothing else."""
        self.page.goto(f"{self.address}#/jobs/{JOB}/{view}")
        self.page.reload()
        self.page.locator(f'.tabs a[aria-current="page"][href$="/{view.split("/")[0]}"]').wait_for()
        return self.page

    def write(self, *texts: str, vertex: str = "parse", subtask: int | None = 0, stream: str = "log") -> None:
        """Lines of the log, of the minute before midnight, UTC."""
        self.job.lines.extend(
            LogLine("2023-11-14T23:59:07.250000Z", vertex, subtask, stream, text) for text in texts
        )


@contextmanager
def pipeline_page(browser: Any, *, hides_records: bool = False, **options: Any) -> Iterator[PipelinePage]:
    """The page of the job on a server of its own; `options` are those of the browser's context."""
    job = ScriptedJob(pipeline_report())
    with served(ScriptedDirectory(job), hides_records=hides_records) as server:  # type: ignore[arg-type]
        login = f"{server.address}#token={server.access.new_login()}&job={JOB}"
        with opened(browser, login, **options) as page:
            page.locator(".tabs").wait_for()
            yield PipelinePage(page, job, server.address)
