"""`penstock submit` and `penstock upgrade` on a cluster of `ray start`, with commands that are killed."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from head_node import Cluster

ON_RAY = Path(__file__).resolve().parents[1] / "on_ray"
if str(ON_RAY) not in sys.path:
    sys.path.append(str(ON_RAY))

from jobs.oracle import assert_exactly_once, hidden_files  # noqa: E402 (the path comes first)
from jobs.words import lines  # noqa: E402

pytestmark = [pytest.mark.ray, pytest.mark.timeout(1200)]

COUNT, RATE = 2_000, 2_000.0
_PATIENCE = 400

#: Its source ends once there is a file `go`. `how` makes it raise, fail in its job, or have other operators.
PROGRAM = f"""
import sys
from pathlib import Path

from jobs.words import NEVER, environment, line, paced_lines, word_count
from penstock import DiscardSink

folder, how = Path(sys.argv[1]), sys.argv[2]

def broken(i):
    raise ZeroDivisionError("broken line")

if how == "raises":
    raise ValueError("no such input")
made = broken if how == "fails" else line
source = paced_lines({COUNT}, {RATE}, attempt=NEVER, release=folder / "go", line=made)
if how == "other":
    env = environment(folder)
    env.from_source("other", source).sink("nothing", DiscardSink())
else:
    env = word_count(folder, source)
env.submit()
"""

#: The lines that a command prints between its steps.
KEPT, STOPPED, SUBMITTED = "its program is kept", "is stopped: ", "program raysubmit"
RUNS, GOES_BACK, IS_BACK = "runs from the savepoint", "going back", "runs the old program"


@dataclass
class Shell:
    """Gives commands on the head node; its programs are in `project`, and write to `folder`."""

    cluster: Cluster
    project: Path
    folder: Path

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock.actors.command_line", *words],
            env={**self.cluster.environment, "RAY_ADDRESS": self.cluster.address},
            cwd=self.project,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str, code: int = 0) -> tuple[str, str]:
        command = self.start(*words)
        out, err = command.communicate(timeout=_PATIENCE)
        assert command.returncode == code, out + err
        return out, err

    def program(self, how: str) -> tuple[str, ...]:
        return "program.py", str(self.folder), how

    def submit(self, how: str) -> str:
        told = json.loads(self.run("submit", "--json", *self.program(how))[0])
        assert told["status"] == "running"
        return str(told["job_id"])

    def upgrade(self, job_id: str, how: str, code: int = 0) -> tuple[str, str]:
        return self.run("upgrade", job_id, *self.program(how), code=code)

    def killed_upgrade(self, job_id: str, how: str, after: str) -> list[str]:
        """Kill the command once it has printed a line; return the words of the command that it printed."""
        command = self.start("upgrade", job_id, *self.program(how))
        printed = ""
        assert command.stdout is not None
        for line in command.stdout:
            printed += line
            if after in line:
                break
        command.kill()
        _, err = command.communicate()
        assert after in printed, printed + err
        return shlex.split(printed.splitlines()[0].partition("repeat: penstock ")[2])

    def jobs(self) -> list[dict[str, Any]]:
        known: list[dict[str, Any]] = json.loads(self.run("list", "--json")[0])
        return [job for job in known if job["storage"] and job["storage"].startswith(str(self.folder))]

    def running(self) -> str:
        """The only job that runs here."""
        (job_id,) = running_in(self.jobs())
        return job_id

    def finish(self, job_id: str) -> None:
        """Let the job read its input to the end, and compare its output with a run without upgrades."""
        (self.folder / "go").touch()
        self.run("logs", job_id, "--follow")  # until the end of the job
        assert_exactly_once(self.folder / "out", lines(COUNT))
        assert hidden_files(self.folder / "out") == []


def running_in(jobs: list[dict[str, Any]]) -> list[str]:
    return [job["job_id"] for job in jobs if job["state"] not in ("finished", "failed", "cancelled")]


@pytest.fixture
def shell(cluster: Cluster, tmp_path: Path) -> Iterator[Shell]:
    project = tmp_path / "project"
    shutil.copytree(ON_RAY / "jobs", project / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "program.py").write_text(PROGRAM)
    (tmp_path / "data").mkdir()
    made = Shell(cluster, project, tmp_path / "data")
    yield made
    for job_id in running_in(made.jobs()):
        made.run("cancel", job_id, "--yes")


@pytest.mark.long
def test_a_killed_upgrade_goes_back_when_it_is_repeated_and_another_one_succeeds(shell: Shell) -> None:
    """The program that fails is repeated by the command that the killed one has printed."""
    first = shell.submit("good")
    repeat = shell.killed_upgrade(first, "fails", after=STOPPED)

    out, err = shell.run(*repeat, code=1)

    assert f"job {first} was stopped before: " in out
    assert "ZeroDivisionError: broken line" in err.splitlines()[0], "the cause comes first"
    back = shell.running()
    assert back in err.splitlines()[-1]
    assert f"penstock stop {back}" in out
    assert "restored from: " in out

    upgraded = json.loads(shell.run("upgrade", "--json", back, *shell.program("good"))[0])

    assert (upgraded["status"], upgraded["has_gone_back"]) == ("running", False)
    assert "savepoint" in upgraded["savepoint"]
    shell.finish(upgraded["job_id"])


@pytest.mark.long
def test_a_program_that_fails_before_its_job_shows_its_last_lines(shell: Shell) -> None:
    _, err = shell.run("submit", *shell.program("raises"), code=1)
    assert "    raise ValueError(" in err
    assert re.search(
        r"penstock: ValueError: no such input \(program \w+ failed without starting a job\)", err
    )
    assert shell.run("submit", "--no-wait", *shell.program("raises"))[0].count("\n") == 1


@pytest.mark.long
@pytest.mark.parametrize(
    ("how", "cause"),
    [
        ("raises", "ValueError: no such input"),
        ("other", "which the job does not have"),
        ("fails", "ZeroDivisionError"),
    ],
)
def test_a_program_that_fails_is_replaced_by_the_old_one(shell: Shell, how: str, cause: str) -> None:
    first = shell.submit("good")
    _, err = shell.upgrade(first, how, code=1)
    assert cause in err
    back = shell.running()
    assert f"job {first} was not upgraded; job {back} continues" in err
    shell.finish(back)


@pytest.mark.long
@pytest.mark.parametrize("after", [KEPT, STOPPED, SUBMITTED, RUNS])
def test_an_upgrade_that_is_killed_continues_when_it_is_repeated(shell: Shell, after: str) -> None:
    first = shell.submit("good")
    repeat = shell.killed_upgrade(first, "good", after)
    shell.run(*repeat)
    (new,) = running_in(jobs := shell.jobs())
    assert len(jobs) == 2, "the program was submitted once"
    shell.finish(new)


@pytest.mark.long
@pytest.mark.parametrize("after", [SUBMITTED, GOES_BACK, IS_BACK])
def test_an_upgrade_that_is_killed_goes_back_once_when_it_is_repeated(shell: Shell, after: str) -> None:
    first = shell.submit("good")
    repeat = shell.killed_upgrade(first, "fails", after)
    shell.run(*repeat, code=1)
    shell.finish(shell.running())
