"""Partitions that Spark computes again, because a task failed or its executor died: rows arrive once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    assert_each_once,
    buffers,
    copied,
    eventually,
    finish,
    kill_executor,
    slow_release,
)
from pipelines.numbered import COUNT, wide_numbers
from pipelines.stops_once import StopsOnce

from penstock import JobFailedError
from penstock.cluster import RayJobHandle
from penstock.spark import wait_for_transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_a_task_that_fails_and_a_killed_executor_cost_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """One task fails after some frames of its partition; another one's executor is killed then."""
    stops = StopsOnce(tmp_path, at=70_000, partitions=(2, 3))
    df = wide_numbers(spark).mapInArrow(stops, "id long, text string")
    job = copied(tmp_path, df, slow=Slowed(2_000, tmp_path / "go"), window=1 << 30)
    frames_of_those_that_stop(job, stops)
    stops.may_fail(2)
    eventually("a failure", stops.failed(2).exists)
    kill_executor(stops.executor(3))
    wait_for_transfer(job, PATIENCE)
    seen = buffers(job)
    stops.may_fail(3)  # what is left of the executor's Python worker may end
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 0
    assert sum(d.partitions for d in seen) == 5
    assert sum(d.attempts for d in seen) >= 7, "five partitions, and two of them at least twice"
    assert sum(d.duplicates for d in seen) >= 2, "frames that the two had pushed"


def test_rows_that_differ_when_they_are_computed_again_are_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    stops = StopsOnce(tmp_path, at=70_000, partitions=(2,), shift=True)
    df = wide_numbers(spark).mapInArrow(stops, "id long, text string")
    job = copied(tmp_path, df, slow=Slowed(200_000, tmp_path / "go"), window=1 << 30)
    frames_of_those_that_stop(job, stops)
    stops.may_fail(2)
    with pytest.raises(JobFailedError, match="gave different rows when Spark computed it again"):
        job.wait(PATIENCE)


def frames_of_those_that_stop(job: RayJobHandle, stops: StopsOnce) -> None:
    """Wait until the partitions stop and have pushed some frames: more than all before them together."""
    rows_before = COUNT // 5 * min(stops.partitions)
    few = 20_000 * len(stops.partitions)
    eventually("partitions that stop", lambda: all(stops.executor(p).exists() for p in stops.partitions))
    eventually("some of their frames", lambda: sum(d.rows for d in buffers(job)) > rows_before + few)
