"""Savepoints and stops of an unaligned job under back pressure, with kills in their midst.

Checkpoints of such a job overtake what waits; a savepoint is aligned and waits with it. Each round asks for a
savepoint or a stop while every exchange is full, kills a process before it is complete, and asks again. A job
that was stopped continues from its savepoint at another parallelism. In the end every number is in one
window.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jobs.backpressure import completed_records
from jobs.driving import LONG_PATIENCE, PATIENCE, assert_no_subtasks, finish, wait_until
from jobs.kills import IN_A_SAVEPOINT, Kills
from jobs.oracle import hidden_files
from jobs.throttled import Throttled
from jobs.windowed import add_windows, committed_windows, expected_windows, numbers_in
from jobs.words import NEVER, environment

from penstock import AdvancedConfig, FileSink, FixedDelay, JobConfig, JobStatus
from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.errors import JobTimeoutError

pytestmark = pytest.mark.usefixtures("ray_cluster")

#: Small buffers and few of them; a row takes its time at the sink.
SMALL = JobConfig(advanced=AdvancedConfig(buffer_rows=5, credits=2))
#: For a job that has only to come to its end. With more credits it would need other processes.
LARGE = JobConfig(advanced=AdvancedConfig(credits=2))
SECONDS = 0.01
#: Numbers in one window of all keys: so there is a row for every third number.
LONG = 10
#: Long enough for a request to arrive.
ASKING = 0.3

#: Numbers: more than the sink takes while it is shut.
COUNT = 12_000

ROUNDS = ("savepoint", "stop", "drain")


class Pressed:
    """A job that is stopped and continued, again and again.

    Args:
        folder: Of the test.
        count: Numbers.
        killer: Kills in the midst of every savepoint.
    """

    def __init__(self, folder: Path, count: int, killer: Kills) -> None:
        self.folder = folder
        self.out = folder / "out"
        self.count = count
        self.killer = killer
        self.saved: list[str] = []
        self._shut = folder / "shut"
        self._shut.touch()
        self.job = self.start(2, self.out)

    def start(
        self, parallelism: int, out: Path, restore_from: str | None = None, config: JobConfig = SMALL
    ) -> RayJobHandle:
        """Begin, or go on from a savepoint."""
        env = environment(
            self.folder,
            parallelism=parallelism,
            config=config,
            restart=FixedDelay(attempts=1000, delay=0.05),
            buffer_timeout=0.1,
            unaligned=True,
        )
        # The savepoint names files of the folder before.
        moved = out != self.out
        sink = Throttled(FileSink.json(out, trust_paths=moved), str(self._shut), SECONDS)
        go = self.folder / "go"
        add_windows(env, sink, self.count, 1e9, attempt=NEVER, release=go, long=LONG)
        job = env.submit(restore_from=restore_from)
        assert isinstance(job, RayJobHandle)
        return job

    def saves(self) -> None:
        """Take a savepoint under back pressure, while no process dies."""
        self._when_exchanges_are_full()
        self.saved.append(self._ask("savepoint", PATIENCE))

    def round(self, what: str, parallelism: int, config: JobConfig = SMALL) -> None:
        """Ask under back pressure, kill, and ask again.

        Args:
            what: A savepoint, or a stop with or without drain.
            parallelism: At which a stopped job continues.
            config: With which it continues.
        """
        before = self._when_exchanges_are_full()
        with contextlib.suppress(JobTimeoutError):  # no caller waits; it continues
            self._ask(what, ASKING)
        self.killer.strike(self.job, IN_A_SAVEPOINT, since=before)
        self._when_exchanges_are_full(before.statistics.attempt + 1)
        path = self._ask(what, PATIENCE)
        self.saved.append(path)
        if what != "savepoint":
            assert self.job.status() is JobStatus.FINISHED
            assert_no_subtasks(self.job)
            assert hidden_files(self.out) == []
            self.job = self.start(parallelism, self.out, path, config)

    def end(self) -> None:
        """Let all that is left come out."""
        (self.folder / "go").touch()
        self._shut.unlink()
        self.job.wait(LONG_PATIENCE)
        finish(self.job)
        assert hidden_files(self.out) == []

    def _ask(self, what: str, timeout: float) -> str:
        place = self.folder / "saved"
        if what == "savepoint":
            return self.job.savepoint(place, timeout=timeout)
        return self.job.stop(place, drain=what == "drain", timeout=timeout)

    def _when_exchanges_are_full(self, attempt: int = 1) -> JobReport:
        """Wait until an attempt's newest checkpoint holds data in flight; a stopped job may end before.

        Args:
            attempt: This or a later one.
        """

        def is_full(report: JobReport) -> bool:
            done = completed_records(report, max(attempt, report.statistics.attempt))
            return report.status.is_terminal or (done != [] and done[-1].in_flight_bytes > 0)

        return wait_until(self.job, "data in flight", is_full)


def test_savepoints_and_stops_under_back_pressure_cost_nothing_whoever_dies_in_their_midst(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """A savepoint of the running job is whole, too: another job continues from there by itself."""
    pressed = Pressed(tmp_path, COUNT, Kills(5, ["windows"]))
    pressed.saves()
    pressed.round("stop", 1)
    committed = committed_windows(pressed.out)
    pressed.round("drain", 1, LARGE)
    pressed.end()
    other = pressed.start(1, tmp_path / "again", pressed.saved[0], LARGE)
    other.wait(LONG_PATIENCE)
    finish(other)

    record_property("shown", str(pressed.killer))
    assert pressed.killer.count == 2
    whole = set(expected_windows(COUNT, LONG))
    windows = committed_windows(pressed.out)
    assert numbers_in(windows) == list(range(COUNT))
    assert set(windows) - whole, "windows that were open came out with the drain"
    assert set(committed) <= whole, "nothing was drained before"
    again = committed_windows(tmp_path / "again")
    assert len(set(again)) == len(again) > 0
    assert set(again) <= whole
    assert whole - set(again) <= set(committed)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("seed", "kinds"),
    [
        pytest.param(1, ("savepoint", "stop"), id="stopped"),
        pytest.param(2, ROUNDS, id="stopped and drained"),
    ],
)
def test_twenty_kills_in_savepoints_and_stops_under_back_pressure_cost_nothing(
    tmp_path: Path, seed: int, kinds: Any, record_property: Callable[[str, object], None]
) -> None:
    count, chance = 40_000, random.Random(seed)
    pressed = Pressed(tmp_path, count, Kills(seed, ["windows"]))
    while pressed.killer.count < 20:
        pressed.round(chance.choice(kinds), chance.randint(1, 3))
    pressed.end()

    record_property("shown", str(pressed.killer))
    windows = committed_windows(pressed.out)
    if "drain" in kinds:
        assert numbers_in(windows) == list(range(count))
    else:
        assert sorted(windows) == expected_windows(count, LONG)
