"""`max_concurrent=2` with `failover="full"`: two checkpoints at a time, and failures restart the whole job.

One job has two pipelines. The sink of the first is slow, so the barriers of two checkpoints wait in front of
it. A process of the second dies; with failover by region the first would not notice.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from jobs.backpressure import completed_records
from jobs.driving import LONG_PATIENCE, finish, submit, wait_until
from jobs.kills import Kills, Place
from jobs.oracle import assert_exactly_once, attempts_of_files, committed_rows, hidden_files
from jobs.throttled import Throttled
from jobs.words import NEVER, counted, environment, lines, paced_lines

from penstock import AdvancedConfig, FileSink, FixedDelay, JobConfig, StreamEnvironment
from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus

pytestmark = pytest.mark.usefixtures("ray_cluster")

CONFIG = JobConfig(advanced=AdvancedConfig(buffer_rows=10, credits=2), failover="full")
#: The vertices of the second pipeline.
SECOND = ("numbers", "copies")
#: Seconds that the slow sink needs for a record.
SECONDS = 0.01


def two_pipelines(tmp_path: Path, count: int, kills: int) -> StreamEnvironment:
    """Both end when the file `go` is there; the sink is slow while the file `shut` is."""
    env = environment(
        tmp_path,
        every=0.1,
        config=CONFIG,
        max_concurrent=2,
        buffer_timeout=0.1,
        restart=FixedDelay(attempts=10 * kills, delay=0.05),
    )
    (tmp_path / "shut").touch()
    words = env.from_source("lines", paced_lines(count, 1e9, NEVER, tmp_path / "go"))
    sink = Throttled(FileSink.json(tmp_path / "out"), str(tmp_path / "shut"), SECONDS)
    counted(words, sink, sink_parallelism=1)
    copied = env.from_source("numbers", paced_lines(count, 1e9, NEVER, tmp_path / "go"))
    copied.rebalance().sink("copies", FileSink.json(tmp_path / "copies"))
    return env


def in_progress(report: JobReport) -> int:
    """Number of incomplete checkpoints of the running attempt."""
    attempt = report.statistics.attempt
    running = (r for r in report.checkpoint_history if r.status is CheckpointStatus.IN_PROGRESS)
    return sum(r.attempt == attempt for r in running)


def two_at_a_time(now: JobReport) -> Callable[[JobReport], bool]:
    """Two checkpoints run, and this attempt has completed one: then each pipeline has files of it."""

    def is_there(report: JobReport) -> bool:
        assert in_progress(report) <= 2, "never more than two"
        return in_progress(report) == 2 and completed_records(report, report.statistics.attempt) != []

    return is_there


def strike(job: RayJobHandle, killer: Kills) -> None:
    """Kill while two checkpoints run, and wait for the restart."""
    before = job.report().statistics.attempt
    killer.strike(job, Place("beside two checkpoints", two_at_a_time))
    wait_until(job, "the restart", lambda report: report.statistics.attempt > before)


def assert_both_are_exact(tmp_path: Path, count: int) -> None:
    assert_exactly_once(tmp_path / "out", lines(count))
    assert sorted(committed_rows(tmp_path / "copies")) == sorted(lines(count))
    assert hidden_files(tmp_path / "out") == hidden_files(tmp_path / "copies") == []


def test_a_kill_beside_two_running_checkpoints_restarts_both_pipelines_and_costs_nothing(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    count = 1_000
    job, killer = submit(two_pipelines(tmp_path, count, 1)), Kills(1, ["copies"], SECOND)
    strike(job, killer)
    (tmp_path / "shut").unlink()
    (tmp_path / "go").touch()
    job.wait(LONG_PATIENCE)

    result = finish(job)

    record_property("shown", str(killer))
    assert_both_are_exact(tmp_path, count)
    assert attempts_of_files(tmp_path / "out") >= {1, 2}, "the other pipeline has restarted, too"
    assert (result.statistics.restarts, result.statistics.attempt) == (1, 2)
    assert not any("the region of" in step.cause for step in job.report().transitions)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [3, 4])
def test_twenty_kills_beside_two_running_checkpoints_cost_nothing(
    tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """Any process, also the JobMaster."""
    count, kills = 12_000, 20
    job, killer = submit(two_pipelines(tmp_path, count, kills)), Kills(seed, ["count", "copies"])
    while killer.count < kills:
        strike(job, killer)
    (tmp_path / "shut").unlink()
    (tmp_path / "go").touch()
    job.wait(LONG_PATIENCE)

    result = finish(job)

    record_property("shown", str(killer))
    assert result.statistics.restarts >= 1
    assert_both_are_exact(tmp_path, count)
