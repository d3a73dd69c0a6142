"""A job that ended in a cluster that is gone: its storage still tells of it."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
from jobs.commands import Done, run_here, run_in_a_program
from jobs.driving import eventually, finish, penstock_actors, submit
from jobs.talking import talking_job
from ray.experimental import internal_kv

from penstock import Checkpointing, DiscardSink, JobStatus, StreamEnvironment
from penstock import job as find_job
from penstock.actors.client.jobs import short_ids
from penstock.actors.shared.archive import load_from_cluster
from penstock.runtime.errors import ConfigurationError, StorageError

pytestmark = pytest.mark.usefixtures("ray_cluster")

Run: TypeAlias = Callable[..., list[Done]]


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def gone(ray_cluster: None, storage: Path) -> str:
    """The id of a job that has ended, and that the cluster has forgotten."""
    env = StreamEnvironment("gone", checkpointing=Checkpointing(every=60.0, storage=str(storage)))
    env.from_collection("numbers", range(100)).map(str, id="text").sink("out", DiscardSink())
    job = submit(env)
    finish(job)
    eventually("the JobMaster leaves", lambda: penstock_actors() == [])
    internal_kv._internal_kv_del(b"job:" + job.job_id.encode(), namespace=b"penstock")
    assert load_from_cluster(job.job_id) is None
    return job.job_id


def on_this_cluster(*commands: tuple[str, ...]) -> list[Done]:
    return [run_here(*words) for words in commands]


def without_cluster(*commands: tuple[str, ...]) -> list[Done]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    return run_in_a_program(*commands, address=nobody)


@pytest.mark.parametrize("run", [on_this_cluster, without_cluster], ids=["another cluster", "no cluster"])
def test_status_and_checkpoints_of_the_job_are_read_from_its_storage(
    storage: Path, gone: str, run: Run
) -> None:
    there = ("--storage", str(storage))
    *shown, status, checkpoints = run(
        ("status", gone, *there),
        ("status", "gone", *there),
        ("status", gone, *there, "--json"),
        ("checkpoints", gone, *there, "--json"),
    )

    for done in shown:
        for expected in (gone, "finished", "running -> finished", "map(str)", "100 in, 100 out"):
            assert expected in done.stdout
    told = json.loads(status.stdout)
    assert (told["status"], told["master"]) == ("finished", None)
    [counted] = [s["statistics"]["operators"]["text"]["records_in"] for s in told["subtasks"]]
    assert counted == 100
    assert [each["status"] for each in json.loads(checkpoints.stdout)] == ["completed"]


def test_jobs_of_the_cluster_and_of_the_storage_are_listed_together(
    storage: Path, gone: str, tmp_path: Path
) -> None:
    mine = submit(talking_job(tmp_path, 500, 5_000.0, name="of this cluster"))
    finish(mine)
    listed = run_here("list", "--storage", str(storage), "--json").stdout
    states = {each["job_id"]: each["state"] for each in json.loads(listed)}
    assert (states[mine.job_id], states[gone]) == ("finished", "finished")


@pytest.mark.long
def test_without_a_cluster_the_list_says_that_it_is_of_the_storage_alone(storage: Path, gone: str) -> None:
    [done] = without_cluster(("list", "--storage", str(storage)))
    assert done.returncode == 0
    assert short_ids([gone])[gone] in done.stdout
    [note] = done.stderr.splitlines()
    assert "no Ray cluster answers" in note
    assert str(storage) in note


@pytest.mark.long
def test_a_cluster_that_does_not_know_the_job_says_how_it_is_found(gone: str) -> None:
    done = run_here("status", gone)
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert f"this cluster knows no job '{gone}'" in line
    assert "--storage" in line


def test_a_program_finds_the_job_in_its_storage(storage: Path, gone: str) -> None:
    with pytest.raises(ConfigurationError, match=f"this cluster knows no job '{gone}'"):
        find_job(gone)
    found = find_job("gone", storage=storage)
    assert (found.job_id, found.status()) == (gone, JobStatus.FINISHED)
    assert found.wait(1.0).statistics.operators["text"].records_in == 100


@pytest.mark.long
def test_a_report_in_the_cluster_that_cannot_be_read_is_an_error_with_the_reason() -> None:
    internal_kv._internal_kv_put(b"job:damaged-1", b'{"format": 99}', overwrite=True, namespace=b"penstock")
    try:
        with pytest.raises(StorageError, match=r"report of job damaged-1 is not a report .*format 99"):
            find_job("damaged-1")
    finally:
        internal_kv._internal_kv_del(b"job:damaged-1", namespace=b"penstock")
