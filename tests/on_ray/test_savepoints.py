"""Savepoints: taken while the job goes on, jobs stopped with them, jobs started from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs.driving import (
    after_checkpoints,
    assert_no_subtasks,
    finish,
    kill_master,
    submit,
    wait_until,
    when_records_flow,
)
from jobs.oracle import assert_exactly_once
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock.runtime import JobStatus
from penstock.runtime.checkpoint.snapshot import SubtaskId

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


def test_a_job_goes_on_from_the_savepoint_that_another_was_stopped_with(tmp_path: Path) -> None:
    """At another parallelism, from a folder that was moved."""
    source = paced_lines(COUNT, RATE, attempt=NEVER)
    job = submit(word_count(tmp_path, source, parallelism=2))
    when_records_flow(job, "count", 500)
    after_checkpoints(job, 1)

    path = job.stop(tmp_path / "saved")

    assert job.status() is JobStatus.FINISHED
    assert job.report().savepoint == path
    assert_no_subtasks(job)
    assert job.stop(tmp_path / "saved") == path  # the job has ended: it tells what it was stopped with
    moved = Path(path).rename(tmp_path / "elsewhere")
    again = word_count(tmp_path, paced_lines(COUNT, RATE), parallelism=3)
    finish(again.submit(restore_from=str(moved)))
    assert_exactly_once(tmp_path / "out", lines(COUNT))


def test_a_running_job_is_rescaled_up_and_down(tmp_path: Path) -> None:
    release = tmp_path / "go"
    job = submit(
        word_count(tmp_path, paced_lines(COUNT, RATE, attempt=NEVER, release=release), parallelism=2)
    )
    when_records_flow(job, "count", 300)

    job.rescale(count=3, lines=1)

    assert {p.subtask.vertex: p.subtask.index + 1 for p in job.processes()} == {"lines": 1, "count": 3}
    assert {o.id: o.parallelism for o in job.report().operators}["updates"] == 3
    when_records_flow(job, "count", 100)
    job.rescale({"count": 1})
    kill_master(job)
    running = wait_until(
        job, "another attempt", lambda r: r.statistics.attempt >= 4 and r.status is JobStatus.RUNNING
    )
    assert {p.subtask for p in running.processes} == {SubtaskId("lines", 0), SubtaskId("count", 0)}
    release.touch()
    finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
