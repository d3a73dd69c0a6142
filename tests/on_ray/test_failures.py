"""Failures in a row, in the midst of each other, and a storage that is away for a while."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs.driving import (
    PATIENCE,
    after_checkpoints,
    eventually,
    failure_of,
    finish,
    kill_master,
    kill_subtask,
    submit,
    wait_until,
)
from jobs.faults import SlowToOpen, first_time
from jobs.oracle import assert_exactly_once, committed_rows, hidden_files
from jobs.words import NEVER, counted, environment, line, lines, paced_lines, word_count

from penstock import FileSink, FixedDelay, JobFailedError, JobStatus, NoRestart

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


@dataclass(frozen=True)
class RaisesTimes:
    """A map function that raises at one record, so many times; each time leaves a file."""

    record: Any
    times: int
    folder: str

    def __call__(self, record: Any) -> Any:
        if record == self.record:
            for time in range(self.times):
                if first_time(f"{self.folder}/raised-{time}"):
                    msg = f"failure number {time + 1}"
                    raise ValueError(msg)
        return record


# -- operators that fail ------------------------------------------------------------------------------------


@pytest.mark.long
def test_three_failures_in_a_row_cost_nothing(tmp_path: Path) -> None:
    """The same record fails three attempts, with no checkpoint in between."""
    env = environment(tmp_path, every=60.0)
    bad = RaisesTimes(line(500), 3, str(tmp_path))
    counted(env.from_source("lines", paced_lines(1_500, RATE)).map(bad), FileSink.json(tmp_path / "out"))
    job = submit(env)

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(1_500))
    assert len(list(tmp_path.glob("raised-*"))) == 3
    assert (result.statistics.restarts, result.statistics.attempt) == (3, 4)
    failures = job.report().failures
    assert [f"failure number {n}" in str(failure.root) for n, failure in enumerate(failures, 1)] == [True] * 3
    assert job.report().failure is None


def test_a_bug_ends_a_job_of_the_default_strategy_at_its_second_failure(tmp_path: Path) -> None:
    env = environment(tmp_path, every=60.0, restart=None)
    bad = RaisesTimes(line(0), 3, str(tmp_path))
    counted(env.from_source("lines", paced_lines(100, RATE)).map(bad), FileSink.json(tmp_path / "out"))
    job = submit(env)

    message = failure_of(job)

    assert "failure number 2" in message
    assert "The job has failed twice at this line and has completed no checkpoint" in message
    assert job.report().statistics.attempt == 2


@pytest.mark.long
def test_a_job_that_fails_leaves_no_files_that_nobody_can_commit(tmp_path: Path) -> None:
    """No checkpoint covers anything, and the process that had the file open is dead."""
    source = paced_lines(COUNT, RATE, attempt=NEVER)
    job = submit(word_count(tmp_path, source, sink_parallelism=2, every=600.0, restart=NoRestart()))
    eventually("a file in progress", lambda: hidden_files(tmp_path / "out") != [])
    kill_subtask(job, "updates")

    with pytest.raises(JobFailedError, match=r"worker process has died.*Worker exit detail"):
        job.wait(PATIENCE)

    assert hidden_files(tmp_path / "out") == []
    assert committed_rows(tmp_path / "out") == []


# -- failures in the midst of a restart ---------------------------------------------------------------------


@pytest.mark.parametrize("victim", [pytest.param("count", marks=pytest.mark.long), "master"])
def test_processes_killed_while_state_is_restored(tmp_path: Path, victim: str) -> None:
    """The subtask that has not read its state yet dies; in the next attempt another one, or the JobMaster."""
    closed, reached = tmp_path / "closed", tmp_path / "closed.reached"
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, SlowToOpen(source, str(closed))))
    after_checkpoints(job, 2)
    closed.touch()
    kill_subtask(job, "count")
    for attempt in (2, 3):
        before = wait_until(
            job,
            "the restore",
            lambda r, attempt=attempt: r.statistics.attempt == attempt and reached.exists(),  # type: ignore[misc]
        )
        assert before.status is JobStatus.DEPLOYING
        if attempt == 2:
            kill_subtask(job, "lines")
            reached.unlink()
    if victim == "master":
        kill_master(job)
    else:
        kill_subtask(job, victim)
    closed.unlink()
    (tmp_path / "go").touch()

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert result.statistics.restarts == 3


@pytest.mark.long
def test_a_job_master_killed_while_the_job_waits_for_its_restart(tmp_path: Path) -> None:
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    restart = FixedDelay(attempts=5, delay=600.0)
    job = submit(word_count(tmp_path, source, restart=restart))
    after_checkpoints(job, 2)
    kill_subtask(job, "count")
    wait_until(job, "the pause", lambda r: r.status is JobStatus.RESTARTING and r.failure is not None)
    kill_master(job)
    (tmp_path / "go").touch()

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert result.statistics.restarts == 1, "the JobMaster that came back did not wait ten minutes"


# -- a storage that is away ---------------------------------------------------------------------------------


def put_away(tmp_path: Path) -> None:
    """Make the storage's folder one in which nothing can be read or written."""
    (tmp_path / "checkpoints").rename(tmp_path / "away")
    (tmp_path / "checkpoints").touch()


def bring_back(tmp_path: Path) -> None:
    """Put it back as it was."""
    (tmp_path / "checkpoints").unlink()
    (tmp_path / "away").rename(tmp_path / "checkpoints")


@pytest.mark.long
def test_a_job_a_restart_and_a_job_master_wait_for_a_storage_that_is_away(tmp_path: Path) -> None:
    """First no process dies, and the job continues without checkpoints.

    Then a subtask dies, then the JobMaster.
    """
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    restart = FixedDelay(attempts=1_000, delay=0.2)
    job = submit(word_count(tmp_path, source, restart=restart, tolerable_failures=None))
    after_checkpoints(job, 2)

    put_away(tmp_path)
    wait_until(job, "failed checkpoints", lambda r: r.statistics.failed_checkpoints >= 3)
    away = job.report()
    assert away.status is JobStatus.RUNNING
    bring_back(tmp_path)
    again = after_checkpoints(job, away.statistics.completed_checkpoints + 2)
    assert again.statistics.restarts == 0

    put_away(tmp_path)
    kill_subtask(job, "count")
    wait_until(
        job,
        "attempts that can't begin",
        lambda r: sum("the attempt could not begin" in step.cause for step in r.transitions) >= 2,
    )
    bring_back(tmp_path)
    restarted = wait_until(
        job, "the restart", lambda r: r.status is JobStatus.RUNNING and r.statistics.restarts >= 1
    )

    put_away(tmp_path)
    killed = kill_master(job)
    wait_until(job, "another process", lambda r: r.master is not None and r.master.pid != killed)
    bring_back(tmp_path)
    taken = wait_until(job, "the next attempt", lambda r: r.statistics.attempt > restarted.statistics.attempt)
    (tmp_path / "go").touch()

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert taken.statistics.restarts > restarted.statistics.restarts >= 1
    assert result.statistics.failed_checkpoints >= 3
    eventually("the commit", lambda: hidden_files(tmp_path / "out") == [])
