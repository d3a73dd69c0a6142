"""Reports of jobs made by hand, and a storage that has them."""

from __future__ import annotations

from pathlib import Path

from penstock import JobStatus
from penstock.actors.shared.archive import save_to_storage
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import UserLocation
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.io.storage import open_storage
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus

TOKEN = "a token that is long enough"

GRAPH = GraphInfo(
    "words",
    (
        VertexInfo(
            "lines",
            2,
            128,
            (
                OperatorInfo(
                    "lines",
                    "source",
                    "lines",
                    2,
                    is_source=True,
                    defined_at=UserLocation("job.py", 7, "main"),
                ),
            ),
        ),
        VertexInfo("count", 4, 128, (OperatorInfo("count", "reduce", "count", 4, is_sink=True),)),
    ),
    (EdgeInfo("lines", "count", "key_group", "word_of", "lines"),),
)


def record(number: int, status: CheckpointStatus, duration: float | None) -> CheckpointRecord:
    return CheckpointRecord(
        number, 1, SnapshotKind.CHECKPOINT, status, float(number), 6, 6, duration, 1_000 * number
    )


def report_of(job_id: str, name: str, storage: Path, status: JobStatus = JobStatus.FAILED) -> JobReport:
    failure = FailureRecord(1, 2.0, FailureCause("operator 'count' broke", None, "Traceback ..."))
    return JobReport(
        job_id,
        name,
        status,
        1.0,
        20.0,
        JobStatistics(status, attempt=2, restarts=1),
        GRAPH,
        failure if status is JobStatus.FAILED else None,
        failures=(failure,),
        storage=str(storage),
        checkpoint_history=(
            record(1, CheckpointStatus.COMPLETED, 0.1),
            record(2, CheckpointStatus.FAILED, 9.0),
            record(3, CheckpointStatus.COMPLETED, 0.3),
        ),
        settings={"advanced.credits": "8", "checkpointing": "Checkpointing", "checkpointing.every": "10.0"},
    )


def leave(storage: Path, *reports: JobReport) -> None:
    for report in reports:
        save_to_storage(open_storage(str(storage)), report)
