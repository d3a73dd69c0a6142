"""Jobs in the hands of the program that submitted them, and of programs that find them again."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import ray
from jobs.driving import (
    PATIENCE,
    after_checkpoints,
    eventually,
    finish,
    kill_master,
    submit,
    wait_until,
    when_records_flow,
)
from jobs.talking import talking_job
from ray.experimental import internal_kv

from penstock import DiscardSink, JobCancelledError, JobFailedError, JobResult, JobStatus, StreamEnvironment
from penstock import job as find_job
from penstock.actors.client.logs import read_files
from penstock.actors.shared.node_processes import task_on_node
from penstock.actors.shared.output_capture import log_file_pattern
from penstock.actors.shared.registry import find_actor, has_master
from penstock.cluster import RayJobHandle
from penstock.runtime.errors import ConfigurationError, DeploymentError

pytestmark = pytest.mark.usefixtures("ray_cluster")

FOR_EVER = 1_000_000

#: Where Ray keeps the classes of actors.
FUNCTIONS = b"fun"

#: A program that starts an actor which lives on, and ends.
STARTS_AN_ACTOR = """
import ray
from penstock.actors.client.cluster import connect
from penstock.actors.shared.registry import start_actor

class Idle:
    def ready(self):
        return True

connect()
ray.get(start_actor(Idle, "idle", lifetime="detached", num_cpus=0).ready.remote())
"""


@pytest.mark.long
def test_actor_whose_class_ray_has_just_removed_counts_as_ended(ray_environment: dict[str, str]) -> None:
    """Ray forgets the classes of a program with its last actor, perhaps before the actor's name."""
    subprocess.run([sys.executable, "-c", STARTS_AN_ACTOR], env=ray_environment, check=True, timeout=PATIENCE)
    classes = {
        key: internal_kv._internal_kv_get(key, namespace=FUNCTIONS) or b""
        for key in internal_kv._internal_kv_list(b"ActorClass:", namespace=FUNCTIONS)
    }
    ((key, removed),) = ((key, value) for key, value in classes.items() if b"Idle" in value)
    internal_kv._internal_kv_del(key, namespace=FUNCTIONS)
    with pytest.raises(ValueError, match="the actor 'idle' has ended"):
        find_actor("idle")
    internal_kv._internal_kv_put(key, removed, namespace=FUNCTIONS)
    ray.kill(find_actor("idle"), no_restart=True)


def parse(text: str) -> int:
    """A user's function with a bug."""
    return int(text)


def failing_job() -> RayJobHandle:
    env = StreamEnvironment("failing")
    env.from_collection("texts", ["1", "two"]).map(parse, id="parse").sink("out", DiscardSink())
    return submit(env)


def test_a_job_is_found_again_by_its_id_its_beginning_and_its_name(tmp_path: Path) -> None:
    job = submit(talking_job(tmp_path, FOR_EVER, 1_000.0, name="lost and found"))
    for text in (job.job_id, job.job_id[:-3], "lost and found"):
        found = find_job(text)
        assert (found.job_id, found.name) == (job.job_id, "lost and found")
    assert find_job(job.job_id).status() is JobStatus.RUNNING or job.status() is JobStatus.DEPLOYING
    with pytest.raises(TimeoutError, match=f"job {job.job_id} is still"):
        found.wait(0.2)
    when_records_flow(job, "out")
    with pytest.raises(ConfigurationError, match="no operator 'tlak'; it has: numbers, talk"):
        job.logs(operator="tlak")
    assert job.status() is JobStatus.RUNNING, "the job is left alone"
    job.cancel()
    with pytest.raises(JobCancelledError, match=job.job_id):
        find_job(job.job_id).wait(PATIENCE)


@pytest.mark.long
def test_a_job_that_never_was_is_said_to_be_unknown_at_once() -> None:
    begun = time.monotonic()
    with pytest.raises(ConfigurationError, match="this cluster knows no job 'never-was'"):
        find_job("never-was")
    assert time.monotonic() - begun < PATIENCE / 2
    with pytest.raises(DeploymentError, match="never-was"):
        RayJobHandle("never-was", "never was").status()


class Ended(NamedTuple):
    """A job that has ended, its result, and the records in and out that a watcher has seen meanwhile."""

    job: RayJobHandle
    result: JobResult
    seen: list[tuple[int, int]]


@pytest.fixture(scope="module")
def ended(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Ended:
    job = submit(talking_job(tmp_path_factory.mktemp("ended"), 4_000, 2_000.0))
    seen: list[tuple[int, int]] = []
    result = job.wait(PATIENCE, on_progress=lambda each: seen.append((each.records_in, each.records_out)))
    finish(job)
    return Ended(job, result, seen)


@pytest.mark.long
def test_whoever_waits_may_watch(ended: Ended) -> None:
    assert ended.seen[-1] == (4_000, 4_000)
    assert len(ended.seen) > 2


def test_a_job_that_has_ended_still_answers_when_its_job_master_has_left(ended: Ended) -> None:
    job, result, _ = ended
    eventually("the JobMaster has left", lambda: not has_master(job.job_id))

    again = find_job(job.job_id)

    assert again.status() is JobStatus.FINISHED
    assert again.statistics() == result.statistics
    assert again.wait(1.0) == result
    assert "numbers" in again.describe()
    assert again.processes() == ()
    again.cancel()
    assert again.status() is JobStatus.FINISHED
    assert any("printed 0" in line.text for line in again.logs())


@pytest.mark.long
def test_a_handle_waits_for_a_job_master_that_is_being_brought_back(tmp_path: Path) -> None:
    job = submit(talking_job(tmp_path, FOR_EVER, 1_000.0))
    after_checkpoints(job, 1)
    kill_master(job)
    # At this moment no JobMaster answers; each of these waits for the next JobMaster.
    report = job.report()
    assert report.status in (JobStatus.RESTARTING, JobStatus.DEPLOYING, JobStatus.RUNNING)
    assert "numbers" in [vertex.id for vertex in report.graph.vertices]
    wait_until(job, "the next attempt", lambda report: report.statistics.attempt >= 2)
    kill_master(job)
    job.cancel()
    with pytest.raises(JobCancelledError):
        job.wait(PATIENCE)


def test_the_error_of_a_failed_job_begins_with_operator_subtask_and_the_users_line() -> None:
    job = failing_job()
    with pytest.raises(JobFailedError) as caught:
        job.wait(PATIENCE)
    message = str(caught.value)
    first_line = message.splitlines()[0]
    assert first_line.startswith("operator 'parse' (subtask 1 of 1), defined at ")
    assert "test_handles.py:" in first_line
    assert "ValueError: invalid literal for int() with base 10: 'two'" in first_line
    assert "on record 'two'" in first_line
    assert "Traceback (most recent call last)" in message
    assert "return int(text)" in message
    *_, where, kept = message.splitlines()
    assert job.job_id in where
    assert kept == "kept: nothing"
    with pytest.raises(JobFailedError, match="operator 'parse'"):
        find_job(job.job_id).wait(PATIENCE)


def test_running_a_job_shows_lines_and_leaves_the_programs_own_output_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    print("before")
    talking_job(tmp_path, 2_000, 2_000.0).run()
    captured = capsys.readouterr()
    assert captured.out == "before\n"
    lines = [line for line in captured.err.splitlines() if line.startswith("talker: ")]
    assert "finished | in 2,000" in lines[-1]
    assert "out 2,000" in lines[-1]
    assert "restarts 0" in lines[-1]


def test_running_a_job_quietly_shows_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talking_job(tmp_path, 500, 2_000.0).run(progress=False)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "talker" not in captured.err


def test_what_a_source_prints_while_splits_are_listed_is_the_job_masters(tmp_path: Path) -> None:
    class Talkative:
        def splits(self, parallelism: int) -> list[Any]:
            print("listing")
            return []

        def reader(self, context: Any, splits: Any) -> Any:
            from penstock import GeneratorSource

            return GeneratorSource(abs, count=0).reader(context, splits)

    env = StreamEnvironment("talkative")
    env.from_source("in", Talkative()).sink("out", DiscardSink())
    job = submit(env)
    finish(job)
    assert "listing" in [line.text for line in job.logs(operator="job-master")]


@pytest.mark.long
def test_lines_of_another_node_come_by_a_task_that_is_bound_to_it(ended: Ended) -> None:
    pattern = log_file_pattern(ended.job.job_id)
    node = ray.get_runtime_context().get_node_id()
    parts = ray.get(task_on_node(node, read_files, pattern, {}), timeout=PATIENCE)
    read = {part.name: part.end for part in parts}
    assert any(b"printed 0" in part.data for part in parts)
    assert sorted(part.name for part in parts) == sorted(part.name for part in read_files(pattern, {}))
    again = ray.get(task_on_node(node, read_files, pattern, read), timeout=PATIENCE)
    assert not any(b"printed" in part.data for part in again)


@pytest.mark.long
def test_a_node_that_is_gone_is_told_and_does_not_hide_the_others(ended: Ended) -> None:
    reader = ended.job.log_reader()
    gone = "ab" * 28
    reader.nodes = lambda: [gone, ray.get_runtime_context().get_node_id()]
    assert any("printed 0" in line.text for line in reader.read())
    assert reader.silent_nodes == (gone[:8],)
