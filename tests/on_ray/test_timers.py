"""Timers of both kinds and session windows, on RocksDB, in a job that is killed and rescaled."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from jobs.all_windows import Numbers
from jobs.driving import after_checkpoints, eventually, finish, kill_subtask, submit, wait_until
from jobs.kills import Kills
from jobs.oracle import committed_rows, hidden_files
from jobs.timers import add_to, expected_reminders, expected_sessions
from jobs.words import environment

from penstock import FileSink, FixedDelay, JobConfig, RescaleError, RocksDB

pytestmark = pytest.mark.usefixtures("ray_cluster")

#: The last record sets a timer of event time: one of processing time would not fire before the end.
MANY = pytest.param(20, 2_001, marks=[pytest.mark.long, pytest.mark.timeout(900)])


@pytest.mark.parametrize(("kills", "count"), [(2, 301), MANY])
def test_timers_and_sessions_are_exact_whoever_dies_and_at_another_parallelism(
    tmp_path: Path, kills: int, count: int, record_property: Callable[[str, object], None]
) -> None:
    env = environment(
        tmp_path,
        config=JobConfig(state_backend=RocksDB()),
        restart=FixedDelay(attempts=10 * kills, delay=0.05),
        unaligned=True,
    )
    # The last number is held until `go`: what is seen before did not come of the end of the input.
    numbers = Numbers(count, rate=100.0, release=str(tmp_path / "go"))
    folders = tmp_path / "reminders", tmp_path / "sessions"
    add_to(env, numbers, *map(FileSink.json, folders))
    job, killer = submit(env), Kills(kills, ("remind", "sessions"))
    after_checkpoints(job, 1)
    kill_subtask(job, "remind")
    wait_until(job, "restart", lambda report: report.statistics.restarts >= 1)
    for _ in range(1, kills):
        killer.strike(job)

    def rescaled() -> bool:
        with suppress(RescaleError):  # the last kill may just be noticed
            job.rescale(remind=2, sessions=2)
            return True
        return False

    eventually("another parallelism", rescaled)
    by_clock = {number for what, number in expected_reminders(count - 1) if what == "processing_time"}

    def reminded() -> bool:
        return by_clock <= {number for _, number in committed_rows(folders[0])}

    eventually("all timers of processing time have fired", reminded)
    (tmp_path / "go").touch()
    result = finish(job)

    record_property("shown", str(killer))
    assert result.statistics.restarts >= 1
    assert sorted(map(tuple, committed_rows(folders[0]))) == expected_reminders(count)
    assert sorted(committed_rows(folders[1])) == expected_sessions(count)
    assert [hidden_files(folder) for folder in folders] == [[], []]
