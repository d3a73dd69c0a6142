"""The wall clock of a whole cluster is set forward and back by an hour: nothing depends on it.

libfaketime shifts the wall clock of every process of a cluster of its own, Ray's servers among them, while
they run. The monotonic clock continues, as when a user sets a machine's clock. The clock of this machine
stays.
"""

from __future__ import annotations

import ctypes.util
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from jobs.driving import after_checkpoints, eventually, finish, kill_subtask, submit, wait_until
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.words import NEVER, lines, paced_lines, word_count

from penstock import FailureRate
from penstock.cluster import start_local

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

COUNT, RATE = 3_000, 3_000.0
HOUR = 3_600


def library() -> Path | None:
    """Path of libfaketime for programs with threads."""
    found = ctypes.util.find_library("faketimeMT")
    places = [Path("/usr/lib"), Path("/usr/local/lib")]
    if found is not None and Path(found).is_absolute():
        return Path(found)
    return next((file for place in places for file in place.glob("**/libfaketimeMT.so.1")), None)


@pytest.fixture(scope="module")
def clock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The file that says by how much the clock of the cluster is wrong."""
    faked = library()
    if faked is None:
        pytest.skip("there is no libfaketime (Debian: apt-get install faketime)")
    offset = tmp_path_factory.mktemp("clock") / "offset"
    offset.write_text("+0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        patch.setenv("LD_PRELOAD", str(faked))
        patch.setenv("FAKETIME_TIMESTAMP_FILE", str(offset))
        patch.setenv("FAKETIME_CACHE_DURATION", "1")
        patch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        patch.setenv("DONT_FAKE_MONOTONIC", "1")
        start_local(num_cpus=4)
        try:
            yield offset
        finally:
            ray.shutdown()


@ray.remote(num_cpus=0)
def wall_clock() -> float:
    import time

    return time.time()


def set_clock(offset: Path, seconds: int) -> None:
    """Set it wrong by so much, and wait until processes of the cluster see it."""
    import time

    new = offset.with_suffix(".new")
    new.write_text(f"{seconds:+d}")
    new.replace(offset)
    eventually("the new time", lambda: abs(ray.get(wall_clock.remote()) - time.time() - seconds) < 60)


@pytest.mark.parametrize("hours", [(1, -1), (-1, 1)])
def test_a_clock_that_jumps_by_an_hour_changes_nothing(
    tmp_path: Path, clock: Path, hours: tuple[int, int]
) -> None:
    """Kills between the jumps: restarts are counted by a rate, which no jump may use up."""
    set_clock(clock, 0)
    source = paced_lines(COUNT, RATE, attempt=NEVER, release=tmp_path / "go")
    restart = FailureRate(failures=3, interval=600, delay=0.1)
    job = submit(word_count(tmp_path, source, restart=restart))
    done = after_checkpoints(job, 2).statistics.completed_checkpoints
    for attempt, jump in enumerate(hours, 2):
        set_clock(clock, jump * HOUR)
        done = after_checkpoints(job, done + 3).statistics.completed_checkpoints
        kill_subtask(job, "count")
        wait_until(job, "the next attempt", lambda r, attempt=attempt: r.statistics.attempt == attempt)  # type: ignore[misc]
        done = after_checkpoints(job, done + 2).statistics.completed_checkpoints
    (tmp_path / "go").touch()

    result = finish(job)
    assert_exactly_once(tmp_path / "out", lines(COUNT))
    assert hidden_files(tmp_path / "out") == []
    assert result.statistics.restarts == 2
