"""Ctrl-C at any moment of a call that begins a job: the job ends, or the interrupt names it."""

from __future__ import annotations

import json
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


@pytest.mark.parametrize("call", ["take", "run"])
def test_an_interrupt_never_leaves_a_job_that_its_user_does_not_know(
    ray_environment: dict[str, str], call: str
) -> None:
    assert_nothing_is_lost(ray_environment, call, seed=1, moments=12)


@pytest.mark.long
@pytest.mark.parametrize("call", ["take", "collect", "show", "to_pandas", "run", "submit"])
@pytest.mark.parametrize("seed", range(4))
def test_interrupts_at_many_moments(ray_environment: dict[str, str], call: str, seed: int) -> None:
    assert_nothing_is_lost(ray_environment, call, seed=seed + 100, moments=40)


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
