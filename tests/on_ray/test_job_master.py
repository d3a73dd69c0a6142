"""The JobMaster dies, or the program that submitted the job ends: the job goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
import ray
from jobs.driving import (
    PATIENCE,
    after_checkpoints,
    assert_no_subtasks,
    eventually,
    finish,
    kill_master,
    kill_subtask,
    penstock_actors,
    submit,
    subtask_actors,
    wait_until,
)
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import lines, paced_lines, word_count

from penstock.actors import RayJobHandle
from penstock.actors.names import NAMESPACE, master_name
from penstock.runtime import JobConfig, JobStatus

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 9_000, 3_000.0


def test_a_killed_job_master_comes_back_and_finishes_the_job(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE), parallelism=2))
    before = after_checkpoints(job, 2)
    kill_master(job)

    after = wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2 and r.processes != ())
    assert after.processes == before.processes, "living subtask actors are taken over"
    assert after.master is not None
    assert before.master is not None
    assert after.master.pid != before.master.pid

    result = finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert result.statistics.restarts == 1
    assert before.statistics.last_checkpoint_id is not None
    assert result.statistics.last_checkpoint_id is not None
    assert result.statistics.last_checkpoint_id > before.statistics.last_checkpoint_id
    assert result.statistics.completed_checkpoints >= 3
    history = job.report().history
    died = history.index("the JobMaster died, another process took over")
    assert any("-> deploying" in step for step in history[:died])
    assert any("-> finished" in step for step in history[died:])


def test_a_job_master_killed_before_the_first_checkpoint_begins_again(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(6_000, RATE), every=2.0))
    wait_until(job, "the first attempt", lambda r: r.status is JobStatus.RUNNING)
    kill_master(job)

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(6_000))
    assert result.statistics.restarts == 1


def test_a_job_master_and_a_subtask_that_die_together(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE)))
    after_checkpoints(job, 2)
    kill_subtask(job, "count")
    kill_master(job)

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert 1 <= result.statistics.restarts <= 2


def test_a_job_master_killed_twice(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE)))
    after_checkpoints(job, 1)
    kill_master(job)
    wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2)
    kill_master(job)

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert result.statistics.restarts == 2


def test_subtasks_without_a_job_master_end_themselves(tmp_path: Path) -> None:
    job = submit(
        word_count(tmp_path, paced_lines(1_000_000, RATE), config=JobConfig(lease_timeout=3.0), every=60.0)
    )
    wait_until(job, "the run", lambda r: r.status is JobStatus.RUNNING)
    assert len(subtask_actors(job)) == 2
    lived_from = time.monotonic()
    wait_until(job, "leases renewed", lambda r: time.monotonic() - lived_from > 5.0)
    assert len(subtask_actors(job)) == 2
    assert job.statistics().restarts == 0

    ray.kill(ray.get_actor(master_name(job.job_id), namespace=NAMESPACE), no_restart=True)

    assert_no_subtasks(job, patience=30.0)


def test_a_job_goes_on_when_its_driver_exits(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import sys
            from pathlib import Path

            from jobs.words import paced_lines, word_count

            job = word_count(Path(sys.argv[1]), paced_lines(9_000, 3_000.0)).submit()
            print(job.job_id)
            """
        )
    )
    address = ray.get_runtime_context().gcs_address
    driver = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        env=child_environment(RAY_ADDRESS=address),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=True,
    )
    job = RayJobHandle(driver.stdout.split()[-1], "words")
    before = after_checkpoints(job, 1)
    assert before.status is JobStatus.RUNNING
    assert before.graph, "the job is described to whoever finds it"
    kill_master(job)

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(9_000))
    assert result.statistics.restarts == 1


def test_nothing_of_a_finished_job_is_left(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(1_000, RATE)))
    finish(job)
    eventually("the JobMaster leaves", lambda: penstock_actors() == [], patience=20.0)
    report = job.report()
    assert (report.status, report.processes) == (JobStatus.FINISHED, ())
    assert report.statistics.operators["updates"].records_in == 3_000


def child_environment(**variables: str) -> dict[str, str]:
    """The environment of a program that imports what the tests import."""
    import os

    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent), **variables}
