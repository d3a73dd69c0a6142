"""Checkpoints of back-pressured jobs: unaligned ones complete, aligned ones wait for the data.

No test compares a time with a constant. While a file exists, the sink lets a record through only now and
then. So an aligned barrier can't arrive before hundreds of records have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from jobs.backpressure import after_in_flight_checkpoint, checkpoint_that_waits, completed_records, record_of
from jobs.driving import after_checkpoints, finish, kill_subtask, submit, wait_until
from jobs.oracle import assert_exactly_once, hidden_files
from jobs.throttled import Throttled
from jobs.words import counted, environment, line, lines, paced_lines

from penstock import AdvancedConfig, FileSink, GeneratorSource, JobConfig, StreamEnvironment
from penstock.cluster import RayJobHandle
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus

pytestmark = pytest.mark.usefixtures("ray_cluster")

ALIGNED: dict[str, Any] = {}
UNALIGNED: dict[str, Any] = {"unaligned": True}
WITH_TIMEOUT: dict[str, Any] = {"unaligned": True, "aligned_timeout": 0.05}

#: Small buffers and few of them.
SMALL = JobConfig(advanced=AdvancedConfig(buffer_rows=10, credits=2))


def blocked(folder: Path, shut: Path, **how: Any) -> StreamEnvironment:
    """A fast source, an exchange, and a sink that lets a record through now and then.

    What waits in front of an aligned barrier keeps the sink busy for longer than the test waits for anything.
    """
    env = environment(folder, every=0.2, config=SMALL, **how)
    source = env.from_source("lines", GeneratorSource(line))
    source.rebalance().sink("out", Throttled(FileSink.json(folder / "out"), str(shut), seconds=1.0))
    return env


def test_only_checkpoints_that_overtake_complete_while_the_sink_is_shut(tmp_path: Path) -> None:
    """Three jobs side by side, behind one gate."""
    shut = tmp_path / "shut"
    shut.touch()
    aligned = submit(blocked(tmp_path / "aligned", shut))
    unaligned = submit(blocked(tmp_path / "unaligned", shut, **UNALIGNED))
    turning = submit(blocked(tmp_path / "turning", shut, **WITH_TIMEOUT))

    waiting = checkpoint_that_waits(aligned, "out", records=3)
    quick = [checkpoint_from_now_on(job) for job in (unaligned, turning)]
    still = record_of(aligned.report(), waiting.checkpoint_id)
    shut.unlink()
    wait_until(
        aligned,
        "the end of the aligned checkpoint",
        lambda report: is_completed(record_of(report, waiting.checkpoint_id)),
    )
    done = record_of(aligned.report(), waiting.checkpoint_id)
    for job in (aligned, unaligned, turning):
        job.cancel()

    assert still is not None
    assert still.status is CheckpointStatus.IN_PROGRESS, "it completed while the sink was shut"
    assert done is not None
    assert done.duration is not None
    assert done.in_flight_bytes == 0
    for record in quick:
        assert record.duration is not None
        assert record.in_flight_bytes > 0
        assert record.duration < done.duration, "it began later and ended earlier"


def checkpoint_from_now_on(job: RayJobHandle) -> CheckpointRecord:
    """A completed checkpoint with in-flight data that was triggered after this was asked for."""
    before = job.statistics().completed_checkpoints
    # The next one may run already.
    report = after_in_flight_checkpoint(job, attempt=1, completed=before + 2)
    return completed_records(report, attempt=1)[-1]


def is_completed(record: CheckpointRecord | None) -> bool:
    return record is not None and record.status is CheckpointStatus.COMPLETED


@pytest.mark.long
def test_with_a_timeout_a_checkpoint_that_is_not_held_up_stays_aligned(tmp_path: Path) -> None:
    """The timeout is longer than the test, so nothing turns; nothing would have to."""
    env = environment(tmp_path, every=0.1, parallelism=2, unaligned=True, aligned_timeout=600)
    counted(env.from_source("lines", paced_lines(100_000, 500.0)), FileSink.json(tmp_path / "out"))
    job = submit(env)

    report = after_checkpoints(job, 5)
    job.cancel()

    assert [record.in_flight_bytes for record in completed_records(report, attempt=1)] == [0] * len(
        completed_records(report, attempt=1)
    )
    assert report.statistics.failed_checkpoints == 0


@pytest.mark.parametrize(
    ("how", "victims"),
    [
        # A kill in `test_order.py` meets aligned barriers behind data without credit each time.
        pytest.param(ALIGNED, ["count"], id="aligned", marks=pytest.mark.long),
        pytest.param(UNALIGNED, ["lines", "count", "updates"], id="unaligned"),
        # Five failures of `test_unaligned_stress.py` meet checkpoints with a timeout each time.
        pytest.param(WITH_TIMEOUT, ["count"], id="aligned with timeout", marks=pytest.mark.long),
    ],
)
def test_kills_under_back_pressure_cost_nothing(
    tmp_path: Path, how: dict[str, Any], victims: list[str]
) -> None:
    """One after the other. What was in flight comes back to the source, the keyed vertex and the sink."""
    count, shut = 2_000, tmp_path / "shut"
    shut.touch()
    env = environment(tmp_path, every=0.2, parallelism=2, config=SMALL, **how)
    source = env.from_source("lines", paced_lines(count, 1e9, attempt=len(victims) + 1), parallelism=1)
    # A barrier that aligns waits for hundreds of records; one that overtakes must find some.
    seconds = 0.01 if how.get("unaligned") else 0.003
    sink = Throttled(FileSink.json(tmp_path / "out"), str(shut), seconds=seconds)
    counted(source, sink, sink_parallelism=1)
    job = submit(env)
    restored_bytes = []
    for attempt, victim in enumerate(victims, 1):
        if how.get("unaligned"):
            after_in_flight_checkpoint(job, attempt)
        else:
            wait_until(job, "a checkpoint", lambda r, a=attempt: completed_records(r, a) != [])  # type: ignore[misc]
        kill_subtask(job, victim)
        after = wait_until(job, "a restart", lambda r, a=attempt: r.statistics.attempt > a)  # type: ignore[misc]
        restored_bytes.append(completed_records(after, attempt)[-1].in_flight_bytes)
    shut.unlink()

    result = finish(job)

    assert result.statistics.restarts == len(victims)
    assert hidden_files(tmp_path / "out") == []
    if how.get("unaligned"):
        assert all(restored_bytes), "nothing was in flight: the test proves nothing"
    else:
        assert restored_bytes == [0] * len(victims)
    assert_exactly_once(tmp_path / "out", lines(count))
