"""Every kind of window, with late records at the side, in jobs whose processes are killed.

What is late must not depend on where a restart was. The committed rows are compared with what plain Python
computes from the input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from jobs.all_windows import SLIDES, WINDOWS, Numbers, add_all_windows, expected, expected_rows
from jobs.driving import LONG_PATIENCE, finish, submit
from jobs.kills import Kills
from jobs.oracle import committed_rows, hidden_files
from jobs.words import environment

from penstock import FileSink, FixedDelay, JobConfig, RocksDB

pytestmark = pytest.mark.usefixtures("ray_cluster")

ON_DISK: dict[str, Any] = {"config": JobConfig(state_backend=RocksDB(memory=16 << 20))}
UNALIGNED: dict[str, Any] = {"unaligned": True}
WITH_TIMEOUT: dict[str, Any] = {"unaligned": True, "aligned_timeout": 0.02}


def long(*values: object, id: str) -> object:
    return pytest.param(*values, id=id, marks=[pytest.mark.long, pytest.mark.timeout(600)])


#: Each kind and each function; every pair of them is in the long tests and in the simulation.
SOME = ("tumbling-reduce", "sliding-aggregate", "sliding-apply")


@pytest.mark.parametrize(
    ("how", "seed", "kills", "names", "parallelism"),
    [
        pytest.param({}, 1, 2, SOME, 1, id="2 kills"),
        pytest.param(ON_DISK, 5, 1, SOME[:1], 1, id="1 kill, on disk"),
        long({}, 2, 20, WINDOWS, 2, id="20 kills, aligned"),
        long(ON_DISK, 6, 20, WINDOWS, 2, id="20 kills, on disk"),
        long(UNALIGNED, 3, 20, WINDOWS, 2, id="20 kills, unaligned"),
        long(WITH_TIMEOUT, 4, 20, WINDOWS, 2, id="20 kills, aligned with timeout"),
    ],
)
def test_windows_of_every_kind_and_what_is_late_are_exact_whoever_dies(
    tmp_path: Path,
    how: dict[str, Any],
    seed: int,
    kills: int,
    names: Sequence[str],
    parallelism: int,
    record_property: Callable[[str, object], None],
) -> None:
    count = 300 * kills
    restart = FixedDelay(attempts=10 * kills, delay=0.05)
    env = environment(tmp_path, buffer_timeout=0.1, restart=restart, **how)
    numbers = Numbers(count, rate=100.0, release=str(tmp_path / "go"))
    add_all_windows(env, numbers, lambda name: FileSink.json(tmp_path / name), parallelism, names)
    job, killer = submit(env), Kills(seed, names)
    for _ in range(kills):
        killer.strike(job)
    (tmp_path / "go").touch()
    job.wait(LONG_PATIENCE)

    result = finish(job)

    record_property("shown", str(killer))
    assert result.statistics.restarts >= 1
    for name, rows in expected_rows(count, names).items():
        assert sorted(map(tuple, committed_rows(tmp_path / name))) == rows, name
        assert hidden_files(tmp_path / name) == []


@pytest.mark.long
@pytest.mark.parametrize("kind", SLIDES)
def test_stragglers_are_late_everywhere_in_some_windows_and_nowhere(kind: str) -> None:
    """Otherwise the comparison would prove little."""
    of = expected(SLIDES[kind], 1_000)
    assert len(of.late) > 10
    assert (of.partly > 10) == (kind == "sliding")
    assert len(of.late) + of.partly < 1_000 // 13
