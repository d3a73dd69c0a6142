"""Processes of subtasks die, operators fail: the result stays exact."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

import pytest
from jobs.driving import (
    after_checkpoints,
    eventually,
    finish,
    kill_master,
    kill_subtask,
    submit,
    subtask_actors,
    wait_until,
    when_records_flow,
)
from jobs.faults import RaisesOnce, SlowToOpen
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, counted, environment, line, lines, paced_lines, word_count

from penstock import AdvancedConfig, FileSink, JobConfig, JobStatus
from penstock.cluster import JobReport

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE = 4_500, 3_000.0


def test_killed_subtasks_cost_nothing(tmp_path: Path) -> None:
    """A source, the keyed vertex, the sink, one after the other."""
    victims = ["lines", "count", "updates"]
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE, attempt=len(victims) + 1), sink_parallelism=1))
    killed, completed = [], 0
    for attempt, vertex in enumerate(victims, 1):
        wait_until(job, "the attempt", lambda r, attempt=attempt: r.statistics.attempt == attempt)  # type: ignore[misc]
        before = after_checkpoints(job, completed + 2)
        assert before.statistics.restarts == attempt - 1
        completed = before.statistics.completed_checkpoints
        killed.append(kill_subtask(job, vertex))

    result = finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert (result.statistics.restarts, result.statistics.attempt) == (3, 4)
    assert result.statistics.completed_checkpoints > completed
    transitions = job.report().transitions
    assert [any(f"pid {pid}" in step.cause for step in transitions) for pid in killed] == [True] * 3


@pytest.mark.long
def test_kills_before_the_first_checkpoint_start_from_the_beginning(tmp_path: Path) -> None:
    """A subtask, and then the JobMaster."""
    job = submit(word_count(tmp_path, paced_lines(3_000, RATE, attempt=3), every=60.0))
    when_records_flow(job, "count", 100)
    kill_subtask(job, "count")
    wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2)
    before = when_records_flow(job, "count", 100)
    kill_master(job)
    assert before.statistics.completed_checkpoints == 0

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(3_000))
    assert result.statistics.restarts == 2
    assert result.statistics.completed_checkpoints >= 1


def test_several_processes_that_die_together_are_one_restart_and_others_may_die_meanwhile(
    tmp_path: Path,
) -> None:
    job = submit(word_count(tmp_path, paced_lines(COUNT, RATE, attempt=3), parallelism=2))
    after_checkpoints(job, 1)
    for vertex, index in [("lines", 0), ("count", 0), ("count", 1)]:
        kill_subtask(job, vertex, index)
    again = wait_until(
        job, "records again", lambda r: r.status is JobStatus.RUNNING and r.statistics.attempt > 1
    )
    together = again.statistics.restarts
    assert 1 <= together <= 2

    kill_subtask(job, "count", 0)
    wait_until(job, "a restart", lambda report: report.statistics.restarts == together + 1)
    kill_subtask(job, "count", 1)
    kill_subtask(job, "lines", 0)
    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert together + 2 <= result.statistics.restarts <= together + 3


@pytest.mark.long
@pytest.mark.parametrize("victim", ["count", pytest.param("master", marks=pytest.mark.long)])
def test_kills_while_the_job_is_deployed_are_survived(tmp_path: Path, victim: str) -> None:
    """The subtask that is being opened dies; in the next attempt one that was ready, or the JobMaster."""
    closed, reached = tmp_path / "closed", tmp_path / "closed.reached"
    closed.touch()
    job = submit(word_count(tmp_path, SlowToOpen(paced_lines(3_000, RATE, attempt=3), str(closed))))
    for attempt in (1, 2):
        before = wait_until(
            job,
            "the opening",
            lambda r, attempt=attempt: r.statistics.attempt == attempt and reached.exists(),  # type: ignore[misc]
        )
        assert before.status is JobStatus.DEPLOYING
        if attempt == 1:
            kill_subtask(job, "lines")
            reached.unlink()
    if victim == "master":
        kill_master(job)
    else:
        kill_subtask(job, victim)
    closed.unlink()

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(3_000))
    assert result.statistics.restarts == 2


@pytest.mark.long  # the simulation has a thousand such jobs each time
def test_kills_at_odd_moments_of_many_checkpoints_cost_nothing(tmp_path: Path) -> None:
    """Checkpoints follow each other without a pause, so every kill meets one."""
    source = paced_lines(COUNT, RATE, attempt=4)
    job = submit(word_count(tmp_path, source, every=0.02, buffer_timeout=0.1, parallelism=2))
    for kill, vertex in enumerate(["count", "lines", "count"]):
        seen = wait_until(job, "the attempt", lambda r, kill=kill: r.statistics.attempt == kill + 1)
        done = seen.statistics.completed_checkpoints
        after_checkpoints(job, done + 2)
        kill_subtask(job, vertex, kill % 2)

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert result.statistics.restarts == 3
    assert result.statistics.completed_checkpoints >= 7


def test_a_frozen_process_is_replaced_and_can_do_no_harm_when_it_wakes(tmp_path: Path) -> None:
    """It holds on to its attempt: its frames, acknowledgements and commits must not count any more."""
    config = JobConfig(advanced=AdvancedConfig(cancellation_timeout=0.5))
    job = submit(
        word_count(
            tmp_path,
            paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go"),
            sink_parallelism=1,
            config=config,
            timeout=5.0,
            tolerable_failures=0,
        )
    )
    after_checkpoints(job, 2)
    frozen = next(p for p in job.processes() if p.subtask.vertex == "updates")
    os.kill(frozen.pid, signal.SIGSTOP)
    wait_until(job, "the second attempt", runs_again)
    with contextlib.suppress(ProcessLookupError):
        os.kill(frozen.pid, signal.SIGCONT)
    (tmp_path / "go").touch()

    result = finish(job)

    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    # A busy machine may make another checkpoint late; the process that wakes must cause no restart.
    failures = job.report().failures
    assert result.statistics.restarts == len(failures) >= 1
    assert all(failure.root.subtask is None and "expired" in failure.root.message for failure in failures)
    eventually("the end of the frozen process", lambda: not Path(f"/proc/{frozen.pid}/cmdline").exists())


@pytest.mark.long
def test_an_operator_that_raises_once_is_tried_again(tmp_path: Path) -> None:
    env = environment(tmp_path)
    bad = RaisesOnce(line(2_000), str(tmp_path / "raised"))
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    counted(env.from_source("lines", source).map(bad), FileSink.json(tmp_path / "out"))
    job = submit(env)
    actors = wait_until(job, "the actors", lambda report: len(report.processes) == 2).processes
    again = wait_until(job, "the second attempt", lambda report: report.statistics.attempt == 2)
    assert again.processes == actors, "living actors are kept"
    (tmp_path / "go").touch()

    result = finish(job)

    assert (tmp_path / "raised").exists()
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert result.statistics.restarts == 1
    assert result.statistics.completed_checkpoints >= 2
    report = job.report()
    assert report.failure is None, "it has recovered"
    assert ["no luck with" in str(failure.root) for failure in report.failures] == [True]
    history = "\n".join(step.cause for step in report.transitions)
    assert "no luck with" in history
    assert "test_recovery.py" in history


@pytest.mark.long
def test_a_finished_source_stays_finished_after_a_kill(tmp_path: Path) -> None:
    """One source of a union ends long before the other; checkpoints go on, then a process is killed."""
    env = environment(tmp_path)
    short = env.from_collection("short", lines(50))
    long = env.from_source("long", paced_lines(COUNT, RATE, attempt=2))
    counted(short.union(long), FileSink.json(tmp_path / "out"))
    job = submit(env)
    wait_until(
        job,
        "the end of the short source",
        lambda r: r.statistics.completed_checkpoints >= 1 and read_by(r, "short") == 50,
    )
    done = job.statistics().completed_checkpoints
    before = after_checkpoints(job, done + 3)
    assert before.status is JobStatus.RUNNING
    kill_subtask(job, "count")

    result = finish(job)

    assert_exactly_once(tmp_path / "out", [*lines(50), *lines(COUNT)])
    assert result.statistics.restarts == 1
    assert subtask_actors(job) == []


def read_by(report: JobReport, operator: str) -> int:
    counters = report.statistics.operators.get(operator)
    return 0 if counters is None else counters.records_out


def runs_again(report: JobReport) -> bool:
    return report.statistics.attempt == 2 and report.status is JobStatus.RUNNING
