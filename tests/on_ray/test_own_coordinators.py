"""Coordinators of users' operators in jobs on Ray.

Counts and limits are exactly once, whichever process is killed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs.driving import after_checkpoints, finish, kill_master, kill_subtask, submit, wait_until
from jobs.limits import limited
from jobs.oracle import committed_rows, hidden_files
from jobs.words import NEVER, lines, paced_lines

from penstock.cluster import RayJobHandle
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import InlineHandle

pytestmark = pytest.mark.usefixtures("ray_cluster")

COUNT, RATE, EVERY = 3_000, 2_000.0, 50
CODEC = ValueCodec()


def counted(url: Path) -> tuple[int, int]:
    """The count of a snapshot's coordinator, with events on their way to it, and its limit."""
    handle = open_snapshot(str(url), open_location).checkpoint.operators["limited"].coordinator
    assert isinstance(handle, InlineHandle)
    state, on_the_way = CODEC.loads(handle.data)
    total, limit = CODEC.loads(state)
    return total + sum(CODEC.loads(event) for _, event in on_the_way), limit


def assert_exact(folder: Path, job: RayJobHandle) -> None:
    rows = committed_rows(folder / "out")
    assert sorted(row["line"] for row in rows) == sorted(lines(COUNT))
    assert hidden_files(folder / "out") == []
    assert counted(folder / "checkpoints" / job.job_id)[0] == COUNT
    assert max(row["limit"] for row in rows) <= COUNT // EVERY


def killed_one_after_the_other(folder: Path, seed: int, kills: int, **options: Any) -> str:
    """A seed says who dies, and how many checkpoints later; every death is the only cause of a restart."""
    draws = random.Random(seed)
    source = paced_lines(COUNT, RATE, attempt=kills + 1)
    job = submit(limited(folder, source, EVERY, parallelism=2, **options))
    victims, completed = [], 0
    for _ in range(kills):
        completed = after_checkpoints(job, completed + draws.randint(1, 2)).statistics.completed_checkpoints
        victim = draws.choice(["lines", "limited", "limited", "master"])
        if victim == "master":
            kill_master(job)
        else:
            kill_subtask(job, victim, draws.randrange(2))
        victims.append(victim)
    result = finish(job)
    assert_exact(folder, job)
    assert result.statistics.restarts == kills, job.report().failures
    return f"seed {seed}: killed {', '.join(victims)}; {result.statistics.restarts} restarts"


@pytest.mark.long
@pytest.mark.parametrize("unaligned", [False, True], ids=["aligned", "unaligned"])
@pytest.mark.parametrize("seed", range(5))
def test_many_kills_lose_and_repeat_no_count_and_no_limit(
    tmp_path: Path, seed: int, unaligned: bool, record_property: Callable[[str, object], None]
) -> None:
    shown = killed_one_after_the_other(tmp_path, seed, kills=4, unaligned=unaligned)
    record_property("shown", shown)


def test_counts_and_limits_are_exactly_once_when_processes_are_killed_and_at_another_parallelism(
    tmp_path: Path,
) -> None:
    """A subtask and the JobMaster die, then the job is stopped; another one continues with two subtasks."""
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    first = submit(limited(tmp_path, source, EVERY, parallelism=3))
    before = after_checkpoints(first, 2)
    kill_subtask(first, "limited", 1)
    after_checkpoints(first, before.statistics.completed_checkpoints + 2)
    kill_master(first)
    wait_until(first, "the third attempt", lambda report: report.statistics.attempt == 3)
    path = first.stop(tmp_path / "saved")
    assert first.statistics().restarts == 2, first.report().failures
    total, limit = counted(Path(path))
    assert total == len(committed_rows(tmp_path / "out"))
    assert 0 <= limit <= total // EVERY

    (tmp_path / "go").touch()
    second = limited(tmp_path, source, EVERY, parallelism=2).submit(restore_from=path)
    assert isinstance(second, RayJobHandle)
    result = finish(second)
    assert_exact(tmp_path, second)
    assert result.statistics.restarts == 0, second.report().failures
