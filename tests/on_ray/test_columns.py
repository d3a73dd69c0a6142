"""Aggregations over columns, by key and by window, in jobs whose processes are killed and that are rescaled.

Results of a key grow with its records, so the one that has counted most is the last one. It must be what
plain Python computes. Windows come once each.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs.all_windows import Numbers
from jobs.columnar import add_aggregations, expected_panes, expected_sums
from jobs.driving import LONG_PATIENCE, eventually, finish, submit
from jobs.kills import Kills
from jobs.oracle import committed_rows, hidden_files
from jobs.words import environment

from penstock import FileSink, FixedDelay
from penstock.cluster import RayJobHandle
from penstock.runtime.errors import RescaleError

pytestmark = pytest.mark.usefixtures("ray_cluster")

OPERATORS = ("sums", "panes")


def long(*values: object, id: str) -> object:
    return pytest.param(*values, id=id, marks=[pytest.mark.long, pytest.mark.timeout(900)])


def rescale(job: RayJobHandle) -> None:
    """Bring both aggregations to another parallelism; a job that fails meanwhile is asked again."""

    def is_done() -> bool:
        try:
            job.rescale(dict.fromkeys(OPERATORS, 1))
        except RescaleError:
            return False
        return True

    eventually("another parallelism", is_done)


@pytest.mark.parametrize(
    ("how", "seed", "kills"),
    [
        long({"unaligned": True}, 1, 2, id="2 kills"),  # the join in test_joins.py is of columns, too
        long({}, 2, 20, id="20 kills, aligned"),
        long({"unaligned": True}, 3, 20, id="20 kills, unaligned"),
        long({"unaligned": True, "aligned_timeout": 0.02}, 4, 20, id="20 kills, aligned with timeout"),
    ],
)
def test_aggregations_over_columns_are_exact_whoever_dies(
    tmp_path: Path,
    how: dict[str, Any],
    seed: int,
    kills: int,
    record_property: Callable[[str, object], None],
) -> None:
    count = 300 * kills
    env = environment(
        tmp_path, buffer_timeout=0.1, restart=FixedDelay(attempts=10 * kills, delay=0.05), **how
    )
    numbers = Numbers(count, rate=100.0, release=str(tmp_path / "go"))
    add_aggregations(env, numbers, lambda name: FileSink.json(tmp_path / name), 2)
    job, killer = submit(env), Kills(seed, OPERATORS)
    for strike in range(kills):
        killer.strike(job)
        if strike == kills // 2:
            rescale(job)
    (tmp_path / "go").touch()
    job.wait(LONG_PATIENCE)

    result = finish(job)

    record_property("shown", str(killer))
    assert result.statistics.restarts >= 1
    newest: dict[str, tuple[int, int, int]] = {}
    for row in committed_rows(tmp_path / "sums"):
        newest[row["k"]] = max(newest.get(row["k"], (0, 0, 0)), (row["n"], row["total"], row["top"]))
    assert newest == expected_sums(count)
    assert sorted(committed_rows(tmp_path / "panes")) == expected_panes(count)
    assert hidden_files(tmp_path / "sums") == hidden_files(tmp_path / "panes") == []
