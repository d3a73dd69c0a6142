"""`penstock cancel`: it asks before it deletes the only checkpoints of a job."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from typer.testing import CliRunner, Result

from penstock import JobStatus
from penstock.actors.command_line import cancel as command
from penstock.actors.command_line.app import app
from penstock.actors.command_line.cancel import deletes_only_checkpoints
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus

RULE = "checkpointing.keep_after"
SAVEPOINT = CheckpointRecord(3, 1, SnapshotKind.SAVEPOINT, CheckpointStatus.COMPLETED, 1.0)


def running(keep_after: str = "FAILURE", last: int | None = 4, *taken: CheckpointRecord) -> JobReport:
    statistics = JobStatistics(JobStatus.RUNNING, 1, last_checkpoint_id=last)
    settings = {RULE: f"KeepAfter.{keep_after}"}
    return JobReport(
        "words-1",
        "words",
        JobStatus.RUNNING,
        0.0,
        1.0,
        statistics,
        checkpoint_history=taken,
        settings=settings,
    )


@pytest.mark.parametrize(
    ("report", "deletes"),
    [
        (running(), True),
        (running("NEVER"), True),
        (running("FAILURE_OR_CANCELLATION"), False),
        (running("ALWAYS"), False),
        (running(last=None), False),
        (running("FAILURE", 4, SAVEPOINT), False),
        (running("FAILURE", 4, replace(SAVEPOINT, status=CheckpointStatus.FAILED)), True),
        (running("FAILURE", 4, replace(SAVEPOINT, kind=SnapshotKind.CHECKPOINT)), True),
    ],
)
def test_only_the_last_snapshots_of_a_job_are_worth_a_question(report: JobReport, deletes: bool) -> None:
    assert deletes_only_checkpoints(report) is deletes


def test_a_job_without_checkpoints_has_none_to_delete() -> None:
    assert not deletes_only_checkpoints(replace(running(last=None), settings={}))


class Job:
    """The handle of a job that ends when it is cancelled."""

    job_id = "words-1"

    def __init__(self, report: JobReport) -> None:
        self.now = report

    def report(self) -> JobReport:
        return self.now

    def status(self) -> JobStatus:
        return self.now.status

    def cancel(self) -> None:
        self.now = replace(self.now, status=JobStatus.CANCELLED)


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    handle = Job(running())
    monkeypatch.setattr(command, "named_job", lambda job, address: handle)
    return handle


def run(*arguments: str, answer: str = "") -> Result:
    return CliRunner().invoke(app, ["cancel", "words", *arguments], input=answer)


def test_without_a_terminal_it_needs_the_option(job: Job) -> None:
    done = run()
    assert isinstance(done.exception, PenstockError)
    for part in ("cancelling job words-1 deletes its checkpoints", "--yes", "`penstock stop words-1`"):
        assert part in str(done.exception)
    assert job.now.status is JobStatus.RUNNING
    left = "kept: nothing\ndeleted: its checkpoints, by keep_after='failure'\n"
    assert run("--yes").stdout == "job words-1: cancelled\n" + left
    assert run().stdout == "job words-1 had already ended: cancelled\n" + left


def test_at_a_terminal_it_asks(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "is_terminal", lambda: True)
    refused = run(answer="n\n")
    assert refused.exit_code == 1
    assert "it has no savepoint. Cancel it?" in refused.stderr
    assert job.now.status is JobStatus.RUNNING
    agreed = run("--json", answer="y\n")
    told = json.loads(agreed.stdout.partition("\n")[2])  # its first line shows the input
    assert told == {
        "job_id": "words-1",
        "status": "cancelled",
        "had_ended": False,
        "kept": None,
        "deleted": "its checkpoints, by keep_after='failure'",
        "command": None,
    }


def test_a_job_whose_checkpoints_stay_is_cancelled_at_once(job: Job) -> None:
    job.now = running("ALWAYS")
    assert json.loads(run("--json").stdout)["status"] == "cancelled"
