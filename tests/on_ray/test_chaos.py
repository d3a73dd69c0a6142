"""Many random kills in one job; takes minutes."""

from __future__ import annotations

import contextlib
import random
import time
from pathlib import Path

import pytest
from jobs.driving import finish, submit, wait_until
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import counted, environment, lines, paced_lines

from penstock import FileSink, FixedDelay
from penstock.cluster import RayJobHandle
from penstock.testing import kill_process

pytestmark = [pytest.mark.usefixtures("ray_cluster"), pytest.mark.long]

COUNT, KILLS = 20_000, 12


@pytest.mark.parametrize("seed", range(5))
def test_any_process_may_die_at_any_moment(tmp_path: Path, seed: int) -> None:
    """Two sources, a union, two keyed subtasks, a sink of its own, and a JobMaster: all of them mortal."""
    chance = random.Random(seed)
    restart = FixedDelay(attempts=10 * KILLS, delay=0.05)
    every, timeout = chance.choice([0.05, 0.3]), chance.choice([0.1, 1.0])
    env = environment(tmp_path, every=every, buffer_timeout=timeout, restart=restart, parallelism=2)
    first = env.from_source("first", paced_lines(COUNT, 1_000.0), parallelism=1)
    second = env.from_source("second", paced_lines(COUNT // 2, 1_000.0))
    counted(first.union(second), FileSink.json(tmp_path / "out"), sink_parallelism=2)
    job = submit(env)
    killed = 0
    while killed < KILLS:
        killed += kill_somebody(job, chance)
        time.sleep(chance.uniform(0.0, 2.5))

    result = finish(job)

    assert_exactly_once(tmp_path / "out", [*lines(COUNT), *lines(COUNT // 2)])
    assert hidden_files(tmp_path / "out") == []
    assert 1 <= result.statistics.restarts <= KILLS * 3
    assert result.statistics.last_checkpoint_id is not None


def kill_somebody(job: RayJobHandle, chance: random.Random) -> int:
    """SIGKILL one process of the job, now and then two at once; how many died."""
    report = wait_until(job, "a process", lambda r: r.processes != ())
    assert report.master is not None
    mortal = [*report.processes, report.master]
    victims = chance.sample(mortal, k=min(len(mortal), chance.choice([1, 1, 1, 2])))
    died = 0
    for victim in victims:
        with contextlib.suppress(ProcessLookupError):
            kill_process(victim)
            died += 1
    return died
