"""Jobs and commands on a cluster that `ray start` has made and that asks for a token.

Jobs are submitted with `ray job submit`. Commands are given where users give them: in the same way, and on
another machine of the cluster.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from generate_text import generate_text
from head_node import Cluster, answers, second_node

ROOT = Path(__file__).resolve().parents[2]
ON_RAY = ROOT / "tests" / "on_ray"
if str(ON_RAY) not in sys.path:
    sys.path.append(str(ON_RAY))

from jobs.oracle import assert_exactly_once, hidden_files  # noqa: E402 (the path comes first)
from jobs.words import lines  # noqa: E402

pytestmark = pytest.mark.ray


def rows(output: Path) -> list[object]:
    """All committed rows."""
    return [
        json.loads(line)
        for file in output.glob("part-*")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]


@pytest.mark.long  # test_local_cluster.py asks a cluster without its token, too
def test_who_has_no_token_is_refused(cluster: Cluster, tmp_path: Path) -> None:
    assert answers(cluster.dashboard, None) in (401, 403)
    run = cluster.submit(tmp_path, "python", "-c", "print(1)", outside=tmp_path, RAY_AUTH_MODE="disabled")
    assert run.returncode != 0
    assert "oken" in run.stdout


@pytest.mark.long  # test_examples.py runs the program with a kill, the next test submits a project
def test_the_word_count_survives_a_kill_when_the_checkout_is_submitted(
    cluster: Cluster, tmp_path: Path
) -> None:
    generate_text(tmp_path / "a.txt", megabytes=0.1)
    checkout = tmp_path / "checkout"
    (checkout / "examples").mkdir(parents=True)
    for example in (ROOT / "examples").glob("*.py"):
        (checkout / "examples" / example.name).write_bytes(example.read_bytes())
    places = ("--input", tmp_path / "*.txt", "--output", tmp_path / "out")
    options = ("--checkpoint-interval", 0.5, "--kill-after-checkpoints", 1, "--parallelism", 1)

    run = cluster.submit(checkout, "python", "examples/word_count.py", *places, *options, outside=tmp_path)

    assert run.returncode == 0, run.stdout
    assert "killed count[0]" in run.stdout
    assert "1 restart(s)" in run.stdout
    words = Counter((tmp_path / "a.txt").read_text(encoding="utf-8").split())
    expected = Counter((word, n) for word, total in words.items() for n in range(1, total + 1))
    assert Counter((row["word"], row["count"]) for row in rows(tmp_path / "out")) == expected  # type: ignore[index]


# -- commands ------------------------------------------------------------------------------------------------

COUNT, RATE = 3_000, 3_000.0
_PATIENCE = 400

#: Its source does not end before there is a file `go`; prints its job's id, and waits for the end if told to.
HELD_PROGRAM = f"""
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

#: A user's script: commands in one program, then the job again from the savepoint that it was stopped with.
SCRIPT = """
python -m jobs.commands "$(cat told.json)" > "$1/said" &&
penstock restore "$1"/stopped/* python program.py "$1"
"""

#: A restore from the only savepoint of a folder.
RESTORE = 'penstock restore "$1"/* "$2" program.py "$3" wait'

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
    (folder / "program.py").write_text(HELD_PROGRAM)
    return folder


def started_by(run: subprocess.CompletedProcess[str]) -> str:
    """The id of the job that a submitted program has started before it ended."""
    assert run.returncode == 0, run.stdout
    (job_id,) = (line.split()[-1] for line in run.stdout.splitlines() if line.startswith("submitted "))
    return job_id


class SecondNode:
    """Runs `penstock` in a task on the second node."""

    def __init__(self, cluster: Cluster, project: Path) -> None:
        self._cluster = cluster
        self._project = project

    def run_programs(self, *programs: list[str]) -> list[str]:
        """Run programs; what each of them has printed. None may fail."""
        words = [json.dumps(program) for program in programs]
        done = subprocess.run(
            [sys.executable, "-c", ON_NODE, self._cluster.address, str(self._project), *words],
            env=self._cluster.environment,
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        # Ray may print a warning of its own behind it.
        (answers,) = (json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
        assert [code for _, code, _, _ in answers] == [0] * len(programs), answers
        (self.node_id,) = {node for node, _, _, _ in answers}
        return [said.strip() for _, _, said, _ in answers]


def nodes_of(status: str) -> set[str]:
    """Nodes of a job's processes, of `penstock status --json`."""
    report = json.loads(status)
    return {process["node_id"] for process in (*(s["process"] for s in report["subtasks"]), report["master"])}


def parallelism_of(operator: str, status: str) -> int:
    """Of `penstock status --json`."""
    vertices = json.loads(status)["graph"]["vertices"]
    found: dict[str, int] = {each["id"]: each["parallelism"] for v in vertices for each in v["operators"]}
    return found[operator]


def outputs(said: str) -> list[str]:
    """The output of each command of `jobs.commands`. None may have failed."""
    ended = json.loads(said)
    assert [code for code, _, _ in ended] == [0] * len(ended), ended
    return [out.strip() for _, out, _ in ended]


@pytest.mark.long
@pytest.mark.timeout(1200)  # ten programs, one after the other
def test_all_commands_work_from_another_machine_and_through_ray_job_submit(
    cluster: Cluster, project: Path, tmp_path: Path
) -> None:
    """Each job continues without its driver, whose modules it needs. It is changed and stopped.

    The first job has its commands from programs that are submitted, the second one from another machine.
    Each of these starts for seconds, so that several commands share one.
    """
    first_id = started_by(cluster.submit(project, "python", "program.py", tmp_path, outside=tmp_path))
    first_commands = [
        ["savepoint", first_id, str(tmp_path / "saved")],
        *told_of(first_id, tmp_path),
        ["stop", first_id, str(tmp_path / "stopped")],
    ]
    (project / "told.json").write_text(json.dumps(first_commands))
    (project / "commands.sh").write_text(SCRIPT)
    second_id = started_by(cluster.submit(project, "sh", "commands.sh", tmp_path, outside=tmp_path))
    (stopped,) = (tmp_path / "stopped").iterdir()

    # Its agent would unpack what is submitted once more, into the same folder.
    with second_node(cluster, "second"):
        second = SecondNode(cluster, project)
        commands = [
            ["status", second_id, "--json"],
            ["savepoint", second_id, str(tmp_path / "saved-2")],
            *told_of(second_id, tmp_path),
            ["stop", second_id, str(tmp_path / "stopped-2")],
        ]
        said, _, ended = second.run_programs(
            [sys.executable, "-m", "jobs.commands", json.dumps(commands)],
            ["touch", str(tmp_path / "go")],
            ["sh", "-c", RESTORE, "sh", str(tmp_path / "stopped-2"), sys.executable, str(tmp_path)],
        )
        status, saved_again, *told_again, stopped_again = outputs(said)

    saved, *told, where_stopped = outputs((tmp_path / "said").read_text())
    assert str(tmp_path / "saved") in saved
    assert str(stopped) in where_stopped
    assert_told(told)
    assert second.node_id not in nodes_of(status), "the job runs on the other node"
    assert Path(saved_again, "metadata").exists()
    assert Path(stopped_again, "metadata").exists()
    assert_told(told_again)
    assert ended.endswith("ended as finished")
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []


def told_of(job_id: str, folder: Path) -> list[list[str]]:
    """Commands after a savepoint: what they say is for `assert_told`."""
    return [
        ["checkpoints", job_id, "--json"],
        ["rescale", job_id, "count=2"],
        ["status", job_id, "--json"],
        ["inspect", str(folder / "checkpoints" / job_id), "--json"],
    ]


def assert_told(told: list[str]) -> None:
    """A savepoint is among the checkpoints, the job is rescaled, the newest snapshot holds all state."""
    checkpoints, _, rescaled, inspected = told
    assert parallelism_of("count", rescaled) == 2
    assert "savepoint" in [each["kind"] for each in json.loads(checkpoints)]
    states = {operator["operator_id"]: operator["states"] for operator in json.loads(inspected)["operators"]}
    assert [state["name"] for state in states["lines"]] == ["splits"]
    assert [(state["name"], state["kind"]) for state in states["count"]] == [("reduce", "keyed")]
