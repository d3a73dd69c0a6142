"""Processes that serve one job after the other, and those that must not."""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import ray
from jobs import footprints
from jobs.driving import eventually, finish, kill_master, submit, when_records_flow
from jobs.words import NEVER, paced_lines, word_count

from penstock import CollectSink, DiscardSink, GeneratorSource, JobConfig, JobFailedError, StreamEnvironment
from penstock.actors.client.collect import RayCollector
from penstock.actors.shared.registry import NAMESPACE, claim, process_name, remove_from_job, warm_processes

pytestmark = pytest.mark.usefixtures("ray_cluster")

#: One subtask, so that a job needs one process.
ONE = 1


@pytest.fixture(autouse=True)
def no_warm_processes() -> None:
    """Each test begins without warm processes of others, also without offers of some that were killed."""
    while (process := claim("nobody", 0)) is not None:
        end_warm(process)
        remove_from_job("nobody", process)


def end_warm(process: str) -> None:
    try:
        ray.kill(ray.get_actor(process_name(process), namespace=NAMESPACE))
    except ValueError:
        return


def run(function: Callable[[int], Any], config: JobConfig | None = None) -> Any:
    """The result of one call of a function in a job of one subtask."""
    results = RayCollector()
    env = StreamEnvironment("one", config=config or JobConfig())
    env.from_source("in", GeneratorSource(int, count=ONE)).map(function).sink("out", CollectSink(results))
    env.run(progress=False)
    (row,) = results.rows()
    return row


def test_the_next_job_of_the_program_runs_in_the_process_of_the_one_before_and_finds_its_globals() -> None:
    first = run(footprints.pid_of)
    assert run(footprints.pid_of) == first
    assert [run(footprints.calls_so_far), run(footprints.calls_so_far)] == [1, 2]
    assert len(warm_processes()) == 1


@pytest.mark.long
def test_a_job_that_does_not_reuse_processes_neither_takes_nor_leaves_one() -> None:
    first = run(footprints.pid_of)
    own = run(footprints.pid_of, JobConfig(reuse_processes=False))
    assert own != first
    assert run(footprints.pid_of) == first
    assert len(warm_processes()) == 1


@pytest.mark.parametrize(
    "deed",
    [
        footprints.sets_a_variable,
        footprints.changes_the_folder,
        footprints.leaves_a_thread,
        footprints.sets_the_umask,
        footprints.stops_the_clock,
        footprints.leaves_a_child,
    ],
)
def test_a_process_in_which_a_job_has_left_something_serves_no_other(deed: Callable[[int], int]) -> None:
    assert run(deed) > 0
    assert list(warm_processes()) == []


@pytest.mark.long
def test_a_subtask_with_resources_takes_no_warm_process_and_leaves_none() -> None:
    warm = run(footprints.pid_of)
    results = RayCollector()
    env = StreamEnvironment("with-resources")
    numbers = env.from_source("in", GeneratorSource(int, count=ONE))
    numbers.map(footprints.pid_of, num_cpus=1).sink("out", CollectSink(results))
    env.run(progress=False)
    (pid,) = results.rows()
    assert pid != warm
    assert run(footprints.pid_of) == warm
    assert len(warm_processes()) == 1


@pytest.mark.long
def test_a_process_in_which_users_code_has_failed_serves_no_other() -> None:
    with pytest.raises(JobFailedError, match="in process"):
        run(footprints.fails)
    assert list(warm_processes()) == []


@pytest.mark.long
def test_a_module_that_was_edited_between_two_jobs_is_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder is on the cluster's path because it is that of the test's other modules."""
    file = Path(footprints.__file__).parent / f"edited_{os.getpid()}.py"
    long_ago = 1_000_000_000
    try:
        file.write_text("def answer(_):\n    return 'old'\n", encoding="utf-8")
        os.utime(file, (long_ago, long_ago))
        module = importlib.import_module(f"jobs.{file.stem}")
        assert run(module.answer) == "old"
        warm = list(warm_processes())
        assert len(warm) == 1, "the process may serve a job whose modules are the same"

        file.write_text("def answer(_):\n    return 'new'\n", encoding="utf-8")

        assert run(module.answer) == "new"
    finally:
        file.unlink(missing_ok=True)
        sys.modules.pop(f"jobs.{file.stem}", None)


def test_a_warm_process_that_was_killed_or_frozen_is_replaced() -> None:
    first = run(footprints.pid_of)
    os.kill(first, signal.SIGKILL)
    second = run(footprints.pid_of)
    assert second != first
    os.kill(second, signal.SIGSTOP)
    assert run(footprints.pid_of) not in (first, second)


@pytest.mark.long
def test_a_job_master_that_comes_back_finds_the_processes_that_its_job_had_claimed(tmp_path: Path) -> None:
    claimed = run(footprints.pid_of)
    job = submit(word_count(tmp_path, paced_lines(3_000, 3_000.0, attempt=NEVER, release=tmp_path / "go")))
    when_records_flow(job, "updates", 100)
    before = {process.pid for process in job.processes()}
    assert claimed in before
    kill_master(job)
    eventually("the next attempt", lambda: job.report().statistics.attempt == 2)
    when_records_flow(job, "updates", 1)
    assert {process.pid for process in job.processes()} == before
    (tmp_path / "go").touch()
    finish(job)


@pytest.mark.long
def test_each_job_has_its_own_output_of_a_process_that_served_both() -> None:
    for said, other in (("one", "two"), ("two", "one")):
        env = StreamEnvironment(said)
        env.from_collection("in", [said]).map(footprints.said).sink("out", DiscardSink())
        job = submit(env)
        finish(job)
        texts = [line.text for line in job.logs()]
        assert f"said {said}" in texts
        assert f"said {other}" not in texts


@pytest.mark.long
def test_a_warm_process_that_nobody_wants_ends_after_a_minute() -> None:
    pid = run(footprints.pid_of)
    eventually("its end", lambda: not Path(f"/proc/{pid}").exists(), patience=120.0)
    assert list(warm_processes()) == []
