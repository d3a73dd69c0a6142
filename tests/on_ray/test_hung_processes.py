"""A process that lives and does nothing is named, killed and replaced; one that is busy lives."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from jobs.driving import after_checkpoints, finish, submit, wait_until
from jobs.oracle import assert_exactly_once
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock.actors import JobReport, RayJobHandle
from penstock.actors.shared.job_report import JobMasterProcess, SubtaskProcess
from penstock.runtime import JobConfig
from penstock.runtime.snapshot.subtask_id import SubtaskId

pytestmark = pytest.mark.usefixtures("ray_cluster")

RATE = 3_000.0
#: A quarter of the default, for jobs whose processes are stopped.
QUICK = JobConfig(heartbeat_timeout=2.0)


@contextmanager
def stopped(process: SubtaskProcess | JobMasterProcess) -> Iterator[None]:
    """Stop a process with SIGSTOP; it goes on at the end if it still lives."""
    os.kill(process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGCONT)


def process_of(job: RayJobHandle, vertex: str) -> SubtaskProcess:
    return next(p for p in job.processes() if p.subtask == SubtaskId(vertex, 0))


def silent(report: JobReport) -> list[SubtaskId]:
    return [each.subtask for each in report.subtasks if each.silence is not None]


def test_a_stopped_subtask_is_named_and_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(4_500, RATE, attempt=2), config=QUICK))
    after_checkpoints(job, 1)
    hung = process_of(job, "count")
    with stopped(hung):
        report = wait_until(job, "its name", lambda r: silent(r) != [])
        assert silent(report) == [hung.subtask]
        report = wait_until(job, "another attempt", lambda r: r.statistics.attempt == 2)
        finish(job)
    assert_exactly_once(tmp_path / "out", lines(4_500))
    report = job.report()
    assert report.statistics.restarts == 1
    [failure] = report.failures
    assert failure.root.subtask == hung.subtask
    assert "it hangs" in failure.root.message
    assert f"pid {hung.pid}" in failure.root.message


def test_a_stopped_job_master_is_replaced_by_the_word_of_its_subtasks(tmp_path: Path) -> None:
    source = paced_lines(4_500, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, config=QUICK))
    before = after_checkpoints(job, 1)
    assert before.master is not None
    with stopped(before.master):
        after = wait_until(
            job, "the second attempt", lambda r: r.statistics.attempt == 2 and r.processes != ()
        )
        assert after.master is not None
        assert after.master.pid != before.master.pid
        assert after.processes == before.processes, "subtasks that live are taken over"
        (tmp_path / "go").touch()
        finish(job)
    assert_exactly_once(tmp_path / "out", lines(4_500))
