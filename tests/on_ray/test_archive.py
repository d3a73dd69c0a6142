"""A job that ended in a cluster that is gone: its storage still tells of it."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import ray
from jobs.driving import PATIENCE, finish, submit
from jobs.talking import talking_job

from penstock.actors import job as find_job
from penstock.runtime import JobStatus
from penstock.runtime.errors import ConfigurationError

pytestmark = pytest.mark.usefixtures("ray_cluster")

COMMAND = [sys.executable, "-m", "penstock.actors.command_line"]
PROGRAM = """
import sys
from penstock.runtime import Checkpointing, DiscardSink, StreamEnvironment

env = StreamEnvironment("gone", checkpointing=Checkpointing(every=60.0, storage=sys.argv[1]))
env.from_collection("numbers", range(100)).map(str, id="text").sink("out", DiscardSink())
print(env.run(progress=False).job_id)
"""


def run(*command: str, address: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    done = subprocess.run(
        [*command],
        env={**env, "RAY_ADDRESS": address},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("storage")


@pytest.fixture(scope="module")
def gone(storage: Path) -> str:
    """The id of a job whose program has ended, and its cluster with it."""
    return run(sys.executable, "-c", PROGRAM, str(storage), address="local").stdout.strip()


def this_cluster() -> str:
    return str(ray.get_runtime_context().gcs_address)


def no_cluster() -> str:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.mark.parametrize("where", [this_cluster, no_cluster], ids=["another cluster", "no cluster"])
def test_status_and_checkpoints_of_the_job_are_read_from_its_storage(
    storage: Path, gone: str, where: object
) -> None:
    assert callable(where)
    address = where()

    for text in (gone, "gone"):
        shown = run(*COMMAND, "status", text, "--storage", str(storage), address=address).stdout
        for expected in (gone, "finished", "running -> finished", "map(str)", "100 in, 100 out"):
            assert expected in shown
    as_json = run(*COMMAND, "status", gone, "--storage", str(storage), "--json", address=address).stdout
    status = json.loads(as_json)
    assert (status["status"], status["master"]) == ("finished", None)
    [counted] = [s["statistics"]["operators"]["text"]["records_in"] for s in status["subtasks"]]
    assert counted == 100
    checkpoints = run(*COMMAND, "checkpoints", gone, "--storage", str(storage), "--json", address=address)
    assert [each["status"] for each in json.loads(checkpoints.stdout)] == ["completed"]


def test_jobs_of_the_cluster_and_of_the_storage_are_listed_together(
    storage: Path, gone: str, tmp_path: Path
) -> None:
    mine = submit(talking_job(tmp_path, 500, 5_000.0, name="of this cluster"))
    finish(mine)
    listed = run(*COMMAND, "list", "--storage", str(storage), "--json", address=this_cluster()).stdout
    states = {each["job_id"]: each["state"] for each in json.loads(listed)}
    assert (states[mine.job_id], states[gone]) == ("finished", "finished")


def test_without_a_cluster_the_list_says_that_it_is_of_the_storage_alone(storage: Path, gone: str) -> None:
    done = run(*COMMAND, "list", "--storage", str(storage), address=no_cluster())
    assert gone in done.stdout
    [note] = done.stderr.splitlines()
    assert "no Ray cluster answers" in note
    assert str(storage) in note


def test_a_cluster_that_does_not_know_the_job_says_how_it_is_found(gone: str) -> None:
    done = run(*COMMAND, "status", gone, address=this_cluster(), code=1)
    [line] = done.stderr.splitlines()
    assert f"this cluster knows no job '{gone}'" in line
    assert "--storage" in line


def test_a_program_finds_the_job_in_its_storage(storage: Path, gone: str) -> None:
    with pytest.raises(ConfigurationError, match=f"this cluster knows no job '{gone}'"):
        find_job(gone)
    found = find_job("gone", storage=storage)
    assert (found.job_id, found.status()) == (gone, JobStatus.FINISHED)
    assert found.wait(1.0).statistics.operators["text"].records_in == 100
