"""A cancelled job: what was committed stays, nothing else becomes visible, no process is left."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from jobs.driving import (
    PATIENCE,
    after_checkpoints,
    assert_no_subtasks,
    eventually,
    kill_master,
    kill_subtask,
    penstock_actors,
    submit,
    wait_until,
)
from jobs.faults import Stuck
from jobs.oracle import committed_updates, expected_updates
from jobs.words import counted, environment, lines, paced_lines, word_count

from penstock import AdvancedConfig, FileSink, FixedDelay, JobCancelledError, JobConfig, JobStatus
from penstock.actors.shared.archive import save_to_cluster

pytestmark = pytest.mark.usefixtures("ray_cluster")


def test_a_cancelled_job_leaves_what_it_has_committed(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(1_000_000, 3_000.0)))
    before = after_checkpoints(job, 2)
    job.cancel()

    with pytest.raises(JobCancelledError, match=job.job_id):
        job.wait(PATIENCE)

    assert_no_subtasks(job)
    report = job.report()
    assert (report.status, report.failure) == (JobStatus.CANCELLED, None)
    assert report.statistics.completed_checkpoints >= before.statistics.completed_checkpoints
    committed = committed_updates(tmp_path / "out")
    assert committed.total() > 0
    assert committed <= expected_updates(lines(100_000)), "something was committed twice or made up"
    # Only what precedes it was committed, too: the words of a prefix of the lines.
    read = max(n for word, n in committed if word == "the")
    assert {n for word, n in committed if word == "the"} == set(range(1, read + 1))
    job.cancel()
    assert job.status() is JobStatus.CANCELLED


@pytest.mark.parametrize("state", [JobStatus.CREATED, JobStatus.DEPLOYING])
def test_a_job_cancelled_before_it_runs_leaves_nobody(tmp_path: Path, state: JobStatus) -> None:
    """Its actors may just be starting: they must not live on without a JobMaster."""
    job = submit(word_count(tmp_path, paced_lines(1_000_000, 3_000.0)))
    if state is JobStatus.DEPLOYING:
        wait_until(job, "an actor", lambda r: len(penstock_actors()) > 1)
    job.cancel()

    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE)

    assert_no_subtasks(job, patience=30.0)
    eventually("the JobMaster leaves", lambda: penstock_actors() == [], patience=60.0)
    assert not list((tmp_path / "out").glob("[!._]*"))


def test_a_job_stuck_in_a_users_function_can_be_cancelled(tmp_path: Path) -> None:
    env = environment(tmp_path, config=JobConfig(advanced=AdvancedConfig(cancellation_timeout=1.0)))
    stuck = Stuck(str(tmp_path / "stuck"))
    counted(
        env.from_source("lines", paced_lines(1_000_000, 3_000.0)).map(stuck), FileSink.json(tmp_path / "out")
    )
    job = submit(env)
    eventually("the function is stuck", (tmp_path / "stuck").exists)
    begun = time.monotonic()
    job.cancel()

    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE)

    assert time.monotonic() - begun < 60.0
    assert_no_subtasks(job)


@pytest.mark.long
def test_a_job_is_cancelled_while_it_waits_for_its_restart(tmp_path: Path) -> None:
    restart = FixedDelay(attempts=3, delay=60.0)
    job = submit(word_count(tmp_path, paced_lines(1_000_000, 3_000.0), restart=restart))
    after_checkpoints(job, 1)
    kill_subtask(job, "count")
    wait_until(job, "the pause", lambda r: r.status is JobStatus.RESTARTING)
    job.cancel()

    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE)

    assert_no_subtasks(job)


@pytest.mark.parametrize("every", [0.2, pytest.param(None, marks=pytest.mark.long)])
def test_a_cancelled_job_is_not_run_again_when_its_job_master_dies_meanwhile(
    tmp_path: Path, every: float | None
) -> None:
    """Not even if the last that it has said of the job is that it comes up."""
    env = environment(
        tmp_path, every=every, config=JobConfig(advanced=AdvancedConfig(cancellation_timeout=5.0))
    )
    stuck = Stuck(str(tmp_path / "stuck"))
    stream = env.from_source("lines", paced_lines(1_000_000, 3_000.0)).map(stuck)
    counted(stream, FileSink.json(tmp_path / "out"))
    job = submit(env)
    eventually("the function is stuck", (tmp_path / "stuck").exists)
    job.cancel()
    report = wait_until(job, "the cancellation", lambda r: r.status is JobStatus.CANCELLING)
    assert report.master is not None
    os.kill(report.master.pid, signal.SIGSTOP)
    save_to_cluster(replace(report, status=JobStatus.DEPLOYING))
    os.kill(report.master.pid, signal.SIGKILL)

    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE)

    assert_no_subtasks(job, patience=30.0)


@pytest.mark.long
def test_a_job_is_cancelled_whose_job_master_came_back_and_can_not_read_its_storage(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(1_000_000, 3_000.0)))
    before = after_checkpoints(job, 1)
    storage, away = tmp_path / "checkpoints", tmp_path / "away"
    storage.rename(away)
    storage.touch()  # nothing can be read or written below a file
    kill_master(job)
    wait_until(job, "the next JobMaster", lambda r: r.master not in (None, before.master))
    job.cancel()

    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE)

    assert_no_subtasks(job)
    report = job.report()
    assert report.status is JobStatus.CANCELLED
    assert any("its end could not be recorded: StorageError" in warning for warning in report.warnings)
