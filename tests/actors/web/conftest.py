"""A server that shows jobs that have ended, out of a real storage; no cluster is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

_TESTS = str(Path(__file__).parents[2])
if _TESTS not in sys.path:
    sys.path.append(_TESTS)

from serving.client import Client  # noqa: E402
from serving.in_thread import served  # noqa: E402

from penstock.actors.shared.archive import save_to_storage  # noqa: E402
from penstock.actors.shared.job_report import JobReport  # noqa: E402
from penstock.actors.web.job_directory import JobDirectory  # noqa: E402
from penstock.actors.web.server import WebServer  # noqa: E402
from penstock.runtime import JobStatus  # noqa: E402
from penstock.runtime.errors import UserLocation  # noqa: E402
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, OperatorInfo, VertexInfo  # noqa: E402
from penstock.runtime.graph.job_handle import JobStatistics  # noqa: E402
from penstock.runtime.io.storage import open_storage  # noqa: E402
from penstock.runtime.job.failure import FailureCause, FailureRecord  # noqa: E402
from penstock.runtime.record.elements import SnapshotKind  # noqa: E402
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus  # noqa: E402

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
        settings={"credits": "8", "checkpointing": "Checkpointing", "checkpointing.every": "10.0"},
    )


def leave(storage: Path, *reports: JobReport) -> None:
    for report in reports:
        save_to_storage(open_storage(str(storage)), report)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A storage that two jobs have left their reports in."""
    folder = tmp_path_factory.mktemp("storage")
    leave(
        folder,
        report_of("words-1f2e", "words", folder),
        report_of("hurt-9a8b", "<img src=x onerror=alert(1)>", folder, JobStatus.FINISHED),
    )
    return folder


@pytest.fixture(scope="module")
def server(storage: Path) -> Iterator[WebServer]:
    with served(JobDirectory(str(storage)), token=TOKEN, hosts=("penstock.example",)) as server:
        yield server


@pytest.fixture
def client(server: WebServer) -> Client:
    """Asks as a program with the standing token."""
    return Client(server.address, TOKEN)


@pytest.fixture
def stranger(server: WebServer) -> Client:
    """Asks without any token."""
    return Client(server.address)
