"""A job with a spare: the process that waits takes the role of one that dies, and none stays behind."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from pathlib import Path

import pytest
import ray
from jobs import footprints
from jobs.driving import (
    after_checkpoints,
    eventually,
    finish,
    kill_master,
    kill_subtask,
    submit,
    wait_until,
    when_records_flow,
)
from jobs.oracle import assert_exactly_once
from jobs.words import NEVER, counted, environment, lines, paced_lines, word_count

from penstock import FileSink, JobConfig, StreamEnvironment
from penstock.actors.shared.registry import NAMESPACE, process_name, processes_of_job
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

LINES, RATE = 3_000, 3_000.0


def with_spare(tmp_path: Path) -> StreamEnvironment:
    """A word count with one spare that ends when the file `go` is there."""
    source = paced_lines(LINES, RATE, attempt=NEVER, release=tmp_path / "go")
    return word_count(tmp_path, source, config=JobConfig(standby=1))


def spare_pid(job: RayJobHandle) -> int | None:
    """The process of the job's spare, when it has loaded the job."""
    for process in processes_of_job(job.job_id):
        try:
            actor = ray.get_actor(process_name(process), namespace=NAMESPACE)
            held = ray.get(actor.ask.remote(), timeout=60.0)
        except (ValueError, ray.exceptions.RayActorError):
            continue
        if held.is_prepared:
            pid: int = held.place.pid
            return pid
    return None


def spare_of(job: RayJobHandle) -> int:
    """The process of the job's spare; waits for one."""
    found: list[int] = []

    def is_there() -> bool:
        pid = spare_pid(job)
        found.extend([] if pid is None else [pid])
        return pid is not None

    eventually("a spare", is_there)
    return found[-1]


def end(job: RayJobHandle, tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    finish(job)
    assert_exactly_once(tmp_path / "out", lines(LINES))
    assert list(processes_of_job(job.job_id)) == []


def pid_of(job: RayJobHandle, attempt: int) -> int:
    """The process of the subtask that counts, in a running attempt."""
    wait_until(job, f"attempt {attempt}", lambda report: report.statistics.attempt == attempt)
    when_records_flow(job, "count")
    return next(p.pid for p in job.processes() if p.subtask.vertex == "count")


def test_a_spare_takes_the_role_of_a_killed_process_and_another_one_takes_its_place(tmp_path: Path) -> None:
    job = submit(with_spare(tmp_path))
    after_checkpoints(job, 1)
    spare = spare_of(job)
    kill_subtask(job, "count")
    assert pid_of(job, attempt=2) == spare
    assert spare_of(job) != spare
    end(job, tmp_path)


@pytest.mark.long
def test_a_spare_that_is_dead_or_frozen_when_it_is_needed_costs_nothing(tmp_path: Path) -> None:
    job = submit(with_spare(tmp_path))
    after_checkpoints(job, 1)
    os.kill(spare_of(job), signal.SIGKILL)
    kill_subtask(job, "count")
    pid_of(job, attempt=2)
    frozen = spare_of(job)
    os.kill(frozen, signal.SIGSTOP)
    kill_subtask(job, "count")
    assert pid_of(job, attempt=3) != frozen
    end(job, tmp_path)


@pytest.mark.long
def test_a_job_master_that_comes_back_keeps_a_spare_of_its_own(tmp_path: Path) -> None:
    job = submit(with_spare(tmp_path))
    after_checkpoints(job, 1)
    before = spare_of(job)
    kill_master(job)
    wait_until(job, "the second attempt", lambda report: report.statistics.attempt == 2)
    eventually("another spare", lambda: spare_pid(job) not in (before, None))
    eventually("the end of the former one", lambda: not Path(f"/proc/{before}").exists())
    end(job, tmp_path)


@pytest.mark.long
def test_a_spare_that_has_loaded_a_module_that_was_edited_since_takes_no_role(tmp_path: Path) -> None:
    """The module is on the cluster's path because its folder is that of the test's other modules."""
    file = Path(footprints.__file__).parent / f"spared_{os.getpid()}.py"
    long_ago = 1_000_000_000
    try:
        file.write_text("def marked(text):\n    return text\n", encoding="utf-8")
        os.utime(file, (long_ago, long_ago))
        module = importlib.import_module(f"jobs.{file.stem}")
        env = environment(tmp_path, config=JobConfig(standby=1))
        source = paced_lines(LINES, RATE, attempt=NEVER, release=tmp_path / "go")
        counted(env.from_source("lines", source).map(module.marked), FileSink.json(tmp_path / "out"))
        job = submit(env)
        after_checkpoints(job, 1)
        spare = spare_of(job)
        file.write_text("def marked(text):\n    return text + ''\n", encoding="utf-8")
        kill_subtask(job, "count")
        assert pid_of(job, attempt=2) != spare
        end(job, tmp_path)
    finally:
        file.unlink(missing_ok=True)
        sys.modules.pop(f"jobs.{file.stem}", None)
