"""The JobMaster dies, or the program that submitted the job ends: the job continues."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import replace
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
from jobs.faults import RaisesFrom
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, counted, environment, lines, paced_lines, word_count

from penstock import AdvancedConfig, FileSink, JobConfig, JobFailedError, JobStatus, NoRestart
from penstock.actors.shared.job_report import Takeover
from penstock.actors.shared.registry import find_master
from penstock.cluster import RayJobHandle
from penstock.runtime.checkpoint.log.decision_log import DecisionLog
from penstock.runtime.checkpoint.log.records import AttemptBegun
from penstock.runtime.io.storage import open_storage
from penstock.runtime.job.job_state import JobState, Transition
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.testing import kill_process

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


def test_a_killed_job_master_comes_back_and_finishes_the_job(tmp_path: Path) -> None:
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source, parallelism=2))
    before = after_checkpoints(job, 2)
    kill_master(job)

    after = wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2 and r.processes != ())
    assert after.processes == before.processes, "living subtask actors are taken over"
    assert after.master is not None
    assert before.master is not None
    assert after.master.pid != before.master.pid

    (tmp_path / "go").touch()
    result = finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert result.statistics.restarts == 1
    assert before.statistics.last_checkpoint_id is not None
    assert result.statistics.last_checkpoint_id is not None
    assert result.statistics.last_checkpoint_id > before.statistics.last_checkpoint_id
    assert result.statistics.completed_checkpoints >= 3
    history = job.report().history
    [died] = [at for at, entry in enumerate(history) if isinstance(entry, Takeover)]
    before_it = [entry.target for entry in history[:died] if isinstance(entry, Transition)]
    after_it = [entry.target for entry in history[died:] if isinstance(entry, Transition)]
    assert JobState.DEPLOYING in before_it
    assert after_it[-1] is JobState.FINISHED


@pytest.mark.long
def test_a_job_master_and_a_subtask_die_together_and_the_next_job_master_too(tmp_path: Path) -> None:
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE, attempt=4)))
    after_checkpoints(job, 2)
    kill_subtask(job, "count")
    kill_master(job)
    again = wait_until(
        job, "records again", lambda r: r.statistics.attempt > 1 and r.status is JobStatus.RUNNING
    )
    together = again.statistics.restarts
    assert 1 <= together <= 2

    kill_master(job)
    wait_until(job, "the next attempt", lambda r: r.statistics.restarts == together + 1)
    kill_master(job)
    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert result.statistics.restarts == together + 2


@pytest.mark.long
def test_a_job_master_killed_after_the_end_changes_nothing(tmp_path: Path) -> None:
    """One that leaves after its job; one that waits for another job is killed in test_warm_job_masters.py."""
    config = JobConfig(reuse_processes=False)
    job = submit(word_count(tmp_path, paced_lines(3_000, RATE, attempt=2), config=config))
    after_checkpoints(job, 1)
    kill_subtask(job, "count")
    finish(job)
    before = job.report()
    kill_master(job)

    eventually("the end of the JobMaster that came back", lambda: penstock_actors() == [], patience=30.0)

    report = job.report()
    assert report.status is JobStatus.FINISHED
    assert replace(report, master=None) == replace(before, master=None)
    assert_exactly_once(tmp_path / "out", lines(3_000))


@pytest.mark.long
def test_a_job_whose_end_could_not_be_recorded_is_not_run_again(tmp_path: Path) -> None:
    """Its log has no end. Its last report has one, and who waited for the job has heard it."""
    config = JobConfig(advanced=AdvancedConfig(storage_timeout=2.0))
    env = environment(tmp_path, restart=NoRestart(), config=config)
    raises = RaisesFrom(str(tmp_path / "raise"), str(tmp_path / "raised"))
    counted(
        env.from_source("lines", paced_lines(1_000_000, RATE)).map(raises), FileSink.json(tmp_path / "out")
    )
    job = submit(env)
    after_checkpoints(job, 1)
    log, away = tmp_path / "checkpoints" / job.job_id / "log", tmp_path / "log"
    log.rename(away)
    log.touch()  # nothing can be recorded below a file
    (tmp_path / "raise").touch()
    with pytest.raises(JobFailedError):
        job.wait(PATIENCE)
    before = job.report()
    assert "its end could not be recorded" in str(before)
    log.unlink()
    away.rename(log)
    recorded = sorted(log.iterdir())
    kept = log.with_name("status.json")
    kept.unlink()  # as if its process had died a little earlier
    kill_master(job)

    eventually("the end of the JobMaster that came back", lambda: penstock_actors() == [], patience=30.0)

    assert sorted(log.iterdir()) == recorded
    assert kept.exists(), "the report is beside the checkpoints again"
    assert replace(job.report(), master=None) == replace(before, master=None)


@pytest.mark.long
def test_a_frozen_job_master_finds_its_subtasks_gone_and_starts_them_again(tmp_path: Path) -> None:
    """One whose subtasks live is replaced, see test_hung_processes.py."""
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE, attempt=2)))
    report = after_checkpoints(job, 2)
    assert report.master is not None
    os.kill(report.master.pid, signal.SIGSTOP)
    try:
        for process in report.processes:
            kill_process(process)
        pids = [p.pid for p in report.processes]
        eventually("the subtasks end", lambda: not any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids))
    finally:
        os.kill(report.master.pid, signal.SIGCONT)

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert 1 <= result.statistics.restarts <= 2


@pytest.mark.long
def test_an_attempt_of_a_lost_process_takes_no_job_away_from_its_job_master(tmp_path: Path) -> None:
    """A process that counts as dead may still write into the log. It can't go on with the job."""
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    job = submit(word_count(tmp_path, source))
    before = after_checkpoints(job, 1)
    lost = DecisionLog(open_storage(str(tmp_path / "checkpoints")), SnapshotPaths(job.job_id), writer="lost")
    assert isinstance(lost.begin_attempt(time.time()), AttemptBegun)

    after = wait_until(job, "the third attempt", lambda r: r.statistics.attempt == 3 and r.processes != ())
    assert after.master is not None
    assert before.master is not None
    assert after.master.pid != before.master.pid

    (tmp_path / "go").touch()
    finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))


def test_subtasks_without_a_job_master_end_themselves(tmp_path: Path) -> None:
    job = submit(
        word_count(
            tmp_path,
            paced_lines(1_000_000, RATE),
            config=JobConfig(advanced=AdvancedConfig(lease_timeout=5.0)),
            every=60.0,
        )
    )
    wait_until(job, "the run", lambda r: r.status is JobStatus.RUNNING)
    assert len(subtask_actors(job)) == 2
    lived_from = time.monotonic()
    wait_until(job, "leases renewed", lambda r: time.monotonic() - lived_from > 7.0)
    assert len(subtask_actors(job)) == 2
    assert job.statistics().restarts == 0

    ray.kill(find_master(job.job_id), no_restart=True)

    assert_no_subtasks(job, patience=30.0)


def test_a_job_goes_on_when_its_driver_exits(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import sys
            from pathlib import Path

            from jobs.words import NEVER, paced_lines, word_count

            job = word_count(Path(sys.argv[1]), paced_lines(4_500, 3_000.0, attempt=2)).submit()
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
        check=False,
    )
    assert driver.returncode == 0, driver.stderr
    job = RayJobHandle(driver.stdout.split()[-1], "words")
    before = after_checkpoints(job, 1)
    assert before.status is JobStatus.RUNNING
    assert before.graph, "the job is described to whoever finds it"
    kill_master(job)

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(4_500))
    assert result.statistics.restarts == 1


def child_environment(**variables: str) -> dict[str, str]:
    """The environment of a program that imports what the tests import."""
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent), **variables}
