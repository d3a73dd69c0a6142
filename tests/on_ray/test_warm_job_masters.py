"""JobMasters whose process runs one job of its program after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from jobs import footprints
from jobs.driving import after_checkpoints, eventually, finish, kill_master, submit, wait_until
from jobs.oracle import assert_exactly_once
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import DiscardSink, JobConfig, JobFailedError, JobStatus, StreamEnvironment
from penstock import job as job_of
from penstock.actors.shared.archive import load_from_cluster
from penstock.actors.shared.registry import (
    NAMESPACE,
    SubmittedJob,
    claim_master,
    has_master,
    is_living,
    master_name,
    processes_of_job,
    warm_masters,
)
from penstock.cluster import RayJobHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

RATE = 3_000.0

PROGRAM = """
import os, signal, sys
from pathlib import Path
from jobs import footprints
from jobs.driving import finish, submit
from jobs.words import NEVER, paced_lines, word_count
from penstock import DiscardSink, StreamEnvironment

folder = Path(sys.argv[1])
env = StreamEnvironment("small")
env.from_collection("in", ["one"]).map(footprints.said).sink("out", DiscardSink())
finish(submit(env))
(folder / "warm").touch()
job = submit(word_count(folder, paced_lines(3_000, 3_000.0, attempt=NEVER, release=folder / "go")))
master = job.report().master.pid
os.kill(master, signal.SIGKILL)
print(job.job_id, master, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def no_warm_job_masters() -> Iterator[None]:
    """Each test begins and ends without JobMasters that wait for a job."""
    end_warm()
    yield
    end_warm()


def end_warm() -> None:
    for process in warm_masters():
        claim_master(process)
        try:
            ray.kill(ray.get_actor(master_name(process), namespace=NAMESPACE))
        except ValueError:
            continue


def small(config: JobConfig | None = None) -> RayJobHandle:
    """A job that has ended well."""
    env = StreamEnvironment("small", config=config or JobConfig())
    env.from_collection("in", ["one"]).map(footprints.said).sink("out", DiscardSink())
    job = submit(env)
    finish(job)
    return job


def pid_of_job_master(job: RayJobHandle) -> int:
    """The process of a running job's JobMaster."""
    master = job.report().master
    assert master is not None
    return master.pid


def only_warm() -> tuple[str, int]:
    """The one JobMaster that waits for a job: its name and its process."""
    (only,) = warm_pids()
    return only


def warm_pids() -> list[tuple[str, int]]:
    """The JobMasters that wait for a job: their names and their processes."""
    handles = [
        (each, ray.get_actor(master_name(each), namespace=NAMESPACE))
        for each in warm_masters()
        if is_living(master_name(each))
    ]
    return [(each, ray._private.state.actors(handle._actor_id.hex())["Pid"]) for each, handle in handles]


def endless(tmp_path: Path, lines_: int = 3_000) -> StreamEnvironment:
    """A word count that ends when the file `go` is there."""
    return word_count(tmp_path, paced_lines(lines_, RATE, attempt=NEVER, release=tmp_path / "go"))


def test_the_next_job_of_the_program_has_the_job_master_of_the_one_before() -> None:
    first = small()
    before = only_warm()
    second = small()
    assert only_warm() == before
    assert first.job_id != second.job_id
    assert "said one" in [line.text for line in second.logs()]


@pytest.mark.long
def test_jobs_at_the_same_time_have_a_job_master_each(tmp_path: Path) -> None:
    first = submit(endless(tmp_path))
    small()
    assert only_warm()[1] != pid_of_job_master(first)
    first.cancel()
    eventually("two that wait", lambda: len(warm_masters()) == 2)
    assert first.status() is JobStatus.CANCELLED


@pytest.mark.long
def test_a_job_that_does_not_reuse_processes_neither_takes_nor_leaves_a_job_master() -> None:
    small()
    before = only_warm()
    small(JobConfig(reuse_processes=False))
    assert only_warm() == before
    small()
    assert only_warm() == before


@pytest.mark.long
def test_the_job_master_of_a_job_that_has_failed_runs_no_other() -> None:
    env = StreamEnvironment("fails")
    env.from_collection("in", ["one"]).map(footprints.fails).sink("out", DiscardSink())
    failed = submit(env)
    with pytest.raises(JobFailedError):
        failed.wait(60.0)
    assert list(warm_masters()) == []


@pytest.mark.long
def test_an_ended_job_answers_while_its_job_master_runs_another_one(tmp_path: Path) -> None:
    ended = small()
    result = ended.wait(5.0)
    _, pid = only_warm()
    running = submit(endless(tmp_path))
    assert pid_of_job_master(running) == pid

    ended.cancel()

    assert ended.status() is JobStatus.FINISHED
    assert ended.wait(5.0) == result
    after_checkpoints(running, 1)
    (tmp_path / "go").touch()
    finish(running)
    assert_exactly_once(tmp_path / "out", lines(3_000))


def test_a_killed_job_master_comes_back_with_the_job_that_it_took_last(tmp_path: Path) -> None:
    before = small()
    _, pid = only_warm()
    job = submit(endless(tmp_path))
    after_checkpoints(job, 1)
    assert kill_master(job) == pid
    again = wait_until(job, "the second attempt", lambda r: r.statistics.attempt == 2)
    assert again.master is not None
    assert again.master.pid != pid
    (tmp_path / "go").touch()

    finish(job)

    assert_exactly_once(tmp_path / "out", lines(3_000))
    assert before.status() is JobStatus.FINISHED
    assert list(warm_masters()) == [], "one that Ray has restarted runs no other job"


def test_a_warm_job_master_that_was_killed_or_frozen_is_replaced_and_repeats_no_job() -> None:
    first = small()
    killed, pid = only_warm()
    os.kill(pid, signal.SIGKILL)
    second = small()
    frozen, other = next(each for each in warm_pids() if each[0] != killed)
    os.kill(other, signal.SIGSTOP)
    small()
    eventually("the others end", lambda: not any(map(is_living, map(master_name, (killed, frozen)))))
    for job in (first, second):
        assert job.status() is JobStatus.FINISHED
        assert job.statistics().attempt == 1


@pytest.mark.long
def test_a_job_that_its_program_has_taken_back_is_never_begun() -> None:
    """As when a process takes a job so late that the program has begun it elsewhere."""
    small()
    process, _ = only_warm()
    assert claim_master(process)
    late = SubmittedJob("taken-back", "late", 0.0, ())

    taken = ray.get_actor(master_name(process), namespace=NAMESPACE).take.remote(late)

    assert ray.get(taken, timeout=60.0) is False
    eventually("the end of the process", lambda: not is_living(master_name(process)))
    assert not has_master(late.job_id)
    assert load_from_cluster(late.job_id) is None


@pytest.mark.long
def test_a_job_goes_on_when_its_warm_job_master_and_its_program_are_killed_behind_the_submission(
    tmp_path: Path, ray_environment: dict[str, str]
) -> None:
    program = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env={**ray_environment, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert program.returncode == -signal.SIGKILL, program.stderr
    job_id, killed = program.stdout.split()
    found = job_of(job_id)
    # The one that was killed may not have begun the first attempt.
    wait_until(found, "another JobMaster", lambda r: r.master is not None and r.master.pid != int(killed))
    (tmp_path / "go").touch()
    finish(found)
    assert_exactly_once(tmp_path / "out", lines(3_000))
    eventually("the end of its records", lambda: not has_master(job_id))
    assert list(processes_of_job(job_id)) == []


@pytest.mark.long
def test_a_job_master_that_no_job_wants_ends_after_a_minute() -> None:
    small()
    _, pid = only_warm()
    eventually("its end", lambda: not Path(f"/proc/{pid}").exists(), patience=120.0)
    assert list(warm_masters()) == []
