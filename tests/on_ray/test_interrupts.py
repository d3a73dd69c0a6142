"""Ctrl-C at any moment of a call that begins a job: the job ends, or the interrupt names it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parent / "jobs" / "interrupted.py"


#: Ctrl-C comes at the worst moment: Ray has a core worker and has not stored it yet.
WHILE_JOINING = """
import os, signal
import ray
from penstock.actors.client.cluster import connect

made = ray._raylet.CoreWorker

def make(*args):
    core_worker = made(*args)
    os.kill(os.getpid(), signal.SIGINT)
    return core_worker

ray._raylet.CoreWorker = make
try:
    connect()
except KeyboardInterrupt:
    print("interrupted")
connect()
print("nodes:", len(ray.nodes()))
"""


@pytest.mark.long
def test_a_program_that_was_interrupted_while_it_joined_a_cluster_can_join_it_again(
    ray_environment: dict[str, str],
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WHILE_JOINING],
        env=ray_environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.stdout.split("\n")[:2] == ["interrupted", "nodes: 1"], done.stdout + done.stderr


@pytest.mark.parametrize("call", [pytest.param("take", marks=pytest.mark.long), "run"])
def test_an_interrupt_never_leaves_a_job_that_its_user_does_not_know(
    ray_environment: dict[str, str], call: str
) -> None:
    assert_nothing_is_lost(ray_environment, call, seed=1, moments=6)


@pytest.mark.long
@pytest.mark.parametrize("call", ["take", "collect", "show", "to_pandas", "run", "submit"])
@pytest.mark.parametrize("seed", range(4))
def test_interrupts_at_many_moments(ray_environment: dict[str, str], call: str, seed: int) -> None:
    assert_nothing_is_lost(ray_environment, call, seed=seed + 100, moments=40)


#: Presses Ctrl-C once a checkpoint is complete; after a restore it shows from what it was restored.
LOCAL = """
import os, signal, sys, threading
from penstock import Checkpointing, DiscardSink, GeneratorSource, StreamEnvironment

env = StreamEnvironment("local", checkpointing=Checkpointing(every=0.2, storage=sys.argv[1]))
numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=None, rate=1_000.0))
numbers.key_by(lambda n: n % 2).reduce("count", max).sink("out", DiscardSink())

def interrupt(report):
    if report.statistics.completed_checkpoints:
        print(report.restored_from, flush=True)
        os.killpg(os.getpgid(0), signal.SIGINT)
        threading.Event().wait(60)

env.submit().wait(on_progress=interrupt)
"""


@pytest.mark.long  # `test_local_cluster.py` interrupts a program of its own each time
def test_the_command_that_continues_a_local_job_after_ctrl_c_is_interrupted_likewise(tmp_path: Path) -> None:
    """Ctrl-C reaches the program and `penstock restore`, as in a shell."""
    (tmp_path / "job.py").write_text(LOCAL)
    mine = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment = {**mine, "RAY_raylet_start_wait_time_s": "120", "RAY_ADDRESS": "local"}
    program = [sys.executable, "job.py", str(tmp_path / "kept")]

    def interrupted(*command: str) -> tuple[int, str, str]:
        done = subprocess.run(
            command,
            env=environment,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
            start_new_session=True,
        )
        return done.returncode, done.stdout, done.stderr

    code, out, line = interrupted(*program)
    assert code == 128 + signal.SIGINT, line
    assert out == "None\n", line
    (job,) = (path for path in (tmp_path / "kept").iterdir() if path.is_dir())
    restore = f"penstock restore {job} {' '.join(program)}"
    ends = rf"job {job.name} ends with this program; checkpoint \d+ is saved. To continue: "
    assert re.fullmatch(f"{ends}{re.escape(restore)}\n", line)

    code_again, out, again = interrupted(
        sys.executable, "-m", "penstock.actors.command_line", *restore.split()[1:]
    )
    assert (code_again, out) == (code, f"{job}\n"), again
    assert again.count("\n") == 1
    assert "is saved. To continue: penstock restore" in again


def assert_nothing_is_lost(environment: dict[str, str], call: str, *, seed: int, moments: int) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), call, str(seed), str(moments), "0.8"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(answers) == moments, done.stdout + done.stderr
    assert [answer for answer in answers if answer["lost"]] == []
