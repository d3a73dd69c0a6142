"""The commands as a cluster's users run them: on another machine, and through `ray job submit`.

A job of a user's own project runs on the first node of a cluster. Commands then control it from a second
node, which joined later and has none of the job's processes, and through `ray job submit`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from head_node import Cluster, second_node

ON_RAY = Path(__file__).resolve().parents[1] / "on_ray"
if str(ON_RAY) not in sys.path:
    sys.path.append(str(ON_RAY))

from jobs.oracle import assert_exactly_once, hidden_files  # noqa: E402 (the path comes first)
from jobs.words import lines  # noqa: E402

pytestmark = pytest.mark.ray

COUNT, RATE = 3_000, 3_000.0
_PATIENCE = 150

#: Its source does not end before there is a file `go`; prints its job's id, and waits for the end if told to.
PROGRAM = f"""
import sys
from pathlib import Path

from jobs.words import NEVER, paced_lines, word_count

folder, *wait = sys.argv[1:]
source = paced_lines({COUNT}, {RATE}, attempt=NEVER, release=Path(folder) / "go")
job = word_count(Path(folder), source).submit()
print("submitted", job.job_id, flush=True)
if wait:
    print("ended as", job.wait({_PATIENCE}).status.value)
"""

#: Runs commands one after the other on the node that has a resource; prints what each has said.
ON_NODE = """
import json
import subprocess
import sys

import ray

from penstock.actors.client.cluster import join_existing


@ray.remote(num_cpus=0, resources={"second": 0.1})
def run(words: list[str], folder: str) -> tuple[str, int, str, str]:
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True)
    return ray.get_runtime_context().get_node_id(), done.returncode, done.stdout, done.stderr


address, folder, *commands = sys.argv[1:]
join_existing(address)
print(json.dumps([ray.get(run.remote(json.loads(words), folder)) for words in commands]))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A user's program with its modules."""
    folder = tmp_path / "project"
    shutil.copytree(ON_RAY / "jobs", folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "program.py").write_text(PROGRAM)
    return folder


@pytest.fixture
def job_id(cluster: Cluster, project: Path, tmp_path: Path) -> str:
    """A job that runs on the first node, and has one subtask of each vertex."""
    run = cluster.submit(project, "python", "program.py", tmp_path, outside=tmp_path)
    assert run.returncode == 0, run.stdout
    (submitted,) = (line.split()[-1] for line in run.stdout.splitlines() if line.startswith("submitted "))
    return submitted


class SecondNode:
    """Runs `penstock` in a task on the second node."""

    def __init__(self, cluster: Cluster, project: Path) -> None:
        self._cluster = cluster
        self._project = project

    def run(self, *commands: list[str]) -> list[str]:
        """What each of them has printed; none may fail."""
        words = [json.dumps(["penstock", *command]) for command in commands]
        done = subprocess.run(
            [sys.executable, "-c", ON_NODE, self._cluster.address, str(self._project), *words],
            env=self._cluster.environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        answers = json.loads(done.stdout.splitlines()[-1])
        assert [code for _, code, _, _ in answers] == [0] * len(commands), answers
        (self.node_id,) = {node for node, _, _, _ in answers}
        return [said.strip() for _, _, said, _ in answers]


def nodes_of(status: str) -> set[str]:
    """Where the processes of a job run, of `penstock status --json`."""
    report = json.loads(status)
    return {process["node_id"] for process in (*(s["process"] for s in report["subtasks"]), report["master"])}


def parallelism_of(operator: str, status: str) -> int:
    """Of `penstock status --json`."""
    vertices = json.loads(status)["graph"]["vertices"]
    found: dict[str, int] = {each["id"]: each["parallelism"] for v in vertices for each in v["operators"]}
    return found[operator]


def test_all_commands_work_from_another_machine_of_the_cluster(
    cluster: Cluster, project: Path, job_id: str, tmp_path: Path
) -> None:
    with second_node(cluster, "second"):
        second = SecondNode(cluster, project)
        status, saved, told, _, rescaled, seen, stopped = second.run(
            ["status", job_id, "--json"],
            ["savepoint", job_id, str(tmp_path / "saved")],
            ["checkpoints", job_id, "--json"],
            ["rescale", job_id, "count=2"],
            ["status", job_id, "--json"],
            ["inspect", str(tmp_path / "checkpoints" / job_id), "--json"],
            ["stop", job_id, str(tmp_path / "stopped")],
        )
        (tmp_path / "go").touch()
        (restored,) = second.run(
            ["restore", stopped, sys.executable, "program.py", str(tmp_path), "wait"],
        )

    assert second.node_id not in nodes_of(status), "the job runs on the other node"
    assert Path(saved, "metadata").exists()
    assert parallelism_of("count", rescaled) == 2
    assert_told(told, seen)
    assert restored.endswith("ended as finished")
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []


def test_all_commands_work_through_ray_job_submit(
    cluster: Cluster, project: Path, job_id: str, tmp_path: Path
) -> None:
    """Each submission takes seconds, so that some commands share one, as in a user's script."""
    (project / "commands.sh").write_text(
        "set -e\n"
        'penstock savepoint "$1" "$2/saved"\n'
        'penstock rescale "$1" count=2\n'
        'penstock status "$1" --json > "$2/rescaled"\n'
        'penstock checkpoints "$1" --json > "$2/told"\n'
        'penstock inspect "$2/checkpoints/$1" --json > "$2/seen"\n'
    )

    several = cluster.submit(project, "sh", "commands.sh", job_id, tmp_path, outside=tmp_path)
    stop = cluster.submit(None, "penstock", "stop", job_id, tmp_path / "stopped", outside=tmp_path)
    (tmp_path / "go").touch()
    (stopped,) = (tmp_path / "stopped").iterdir()
    restore = ["penstock", "restore", stopped, "python", "program.py", tmp_path, "wait"]
    restored = cluster.submit(project, *restore, outside=tmp_path)

    for run in (several, stop, restored):
        assert run.returncode == 0, run.stdout
    assert str(tmp_path / "saved") in several.stdout
    assert parallelism_of("count", (tmp_path / "rescaled").read_text()) == 2
    assert str(stopped) in stop.stdout
    assert_told((tmp_path / "told").read_text(), (tmp_path / "seen").read_text())
    assert "ended as finished" in restored.stdout
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []


def assert_told(checkpoints: str, inspected: str) -> None:
    """The savepoint is among the checkpoints, and the newest snapshot holds all state."""
    assert "savepoint" in [each["kind"] for each in json.loads(checkpoints)]
    states = {operator["operator_id"]: operator["states"] for operator in json.loads(inspected)["operators"]}
    assert [state["name"] for state in states["lines"]] == ["splits"]
    assert [(state["name"], state["kind"]) for state in states["count"]] == [("reduce", "keyed")]
