"""Waiting for a JobMaster that does not answer: it ends in time, and what was asked for happens still."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import ray
from jobs.driving import PATIENCE, after_checkpoints, eventually, submit, wait_until
from jobs.talking import talking_job

from penstock import JobStatus, JobTimeoutError
from penstock.actors.client.master_calls import MasterCalls
from penstock.actors.command_line.app import app
from penstock.actors.shared.actor_calls import NoAnswerError, answer_of
from penstock.actors.shared.job_report import JobReport
from penstock.cluster import RayJobHandle
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus

pytestmark = pytest.mark.usefixtures("ray_cluster")

SHORT = 0.2
FOR_EVER = 1_000_000


@contextmanager
def standing_still(job: RayJobHandle) -> Iterator[None]:
    """The process of the JobMaster lives and does nothing."""
    process = job.report().master
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.pid, signal.SIGCONT)


def completed_savepoints(job: RayJobHandle) -> int:
    records = [each.record for each in job.checkpoints()]
    return sum(r.kind.is_savepoint and r.status is CheckpointStatus.COMPLETED for r in records)


@pytest.mark.long
def test_what_nobody_waits_for_any_more_happens_all_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A question, a savepoint, another parallelism, a stop: each finds the JobMaster standing still."""
    job = submit(talking_job(tmp_path, FOR_EVER, 1_000.0))
    after_checkpoints(job, 1)

    def status() -> JobReport:
        return MasterCalls(job.job_id).quick("status", of_ended=lambda report: report, timeout=SHORT)

    with (
        standing_still(job),
        pytest.raises(JobTimeoutError, match=r"has not answered `status` after 0.2 s.*penstock logs"),
    ):
        status()
    assert job.status() is JobStatus.RUNNING

    with (
        standing_still(job),
        pytest.raises(JobTimeoutError, match=r"is not complete after 0.2 s; it continues: `penstock checkp"),
    ):
        job.savepoint(timeout=SHORT)
    eventually("the savepoint is complete", lambda: completed_savepoints(job) == 1)
    assert job.savepoint(timeout=PATIENCE).startswith("/")

    with (
        standing_still(job),
        pytest.raises(JobTimeoutError, match=r"at the new parallelism after 0.2 s; the change continues"),
    ):
        job.rescale(largest=1, timeout=SHORT)
    wait_until(job, "it runs at the new parallelism", is_rescaled)

    with (
        standing_still(job),
        pytest.raises(JobTimeoutError, match=r"has not stopped after 0.2 s.*penstock status"),
    ):
        app(["stop", job.job_id, "--timeout", str(SHORT)], standalone_mode=False)
    assert job.wait(PATIENCE).status is JobStatus.FINISHED
    assert job.stop(timeout=PATIENCE) == job.report().savepoint


def is_rescaled(report: JobReport) -> bool:
    """It runs, not only comes up, at the new parallelism."""
    return (
        report.status is JobStatus.RUNNING
        and report.statistics.attempt == 2
        and any(each.id == "largest" and each.parallelism == 1 for each in report.operators)
    )


@ray.remote(num_cpus=0)
class Silent:
    """An actor that lives and answers one question."""

    async def name(self) -> str:
        return "silent"

    async def anything_else(self) -> None:
        await asyncio.Event().wait()


def test_an_actor_of_the_bridge_that_is_silent_is_named() -> None:
    silent = Silent.remote()
    assert answer_of(silent.name.remote(), "the actor") == "silent"
    with pytest.raises(NoAnswerError, match=r"the actor: no answer for 0.2 s, and Ray has not reported"):
        answer_of(silent.anything_else.remote(), "the actor", SHORT)
