"""Partitions that Spark computes again, because a task failed or its executor died: rows arrive once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    tell_executor,
)
from pipelines.numbered import COUNT, wide_numbers

from penstock import bridge
from penstock.actors import RayJobHandle
from penstock.runtime import JobFailedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_killed_executor_costs_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """It is killed while one of its tasks has pushed some of the frames of a partition, and not all."""
    stops = FailsOnce(str(tmp_path / "failed"), at=70_000)
    df = wide_numbers(spark).mapInArrow(stops, "id long, text string")
    job = copied(tmp_path, df, slow=Slowed(60_000, tmp_path / "go"), window=1 << 30)
    rows_of_the_one_that_stops(job)
    kill_executor(tmp_path / "failed.executor")
    bridge.wait_for_transfer(job, PATIENCE)
    seen = buffers(job)
    (tmp_path / "failed.now").touch()  # what is left of the executor's Python worker may end
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 0
    assert sum(d.attempts for d in seen) > sum(d.partitions for d in seen) == 5
    assert sum(d.duplicates for d in seen) >= 1, "frames that the killed one had pushed"


def test_a_task_that_fails_in_its_middle_is_computed_again(spark: SparkSession, tmp_path: Path) -> None:
    fails_once = FailsOnce(str(tmp_path / "failed"), at=70_000)
    df = wide_numbers(spark).mapInArrow(fails_once, "id long, text string")
    job = copied(tmp_path, df, slow=Slowed(200_000, tmp_path / "go"), window=1 << 30)
    fail_in_its_middle(job, tmp_path)
    bridge.wait_for_transfer(job, PATIENCE)
    seen = buffers(job)
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert result.statistics.restarts == 0
    assert sum(d.attempts for d in seen) >= 6, "five partitions, and one of them at least twice"
    assert sum(d.duplicates for d in seen) >= 1


def test_rows_that_differ_when_they_are_computed_again_are_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    fails_once = FailsOnce(str(tmp_path / "failed"), at=70_000, shift=True)
    df = wide_numbers(spark).mapInArrow(fails_once, "id long, text string")
    job = copied(tmp_path, df, slow=Slowed(200_000, tmp_path / "go"), window=1 << 30)
    fail_in_its_middle(job, tmp_path)
    with pytest.raises(JobFailedError, match="gave other rows when Spark computed it again"):
        job.wait(PATIENCE)


def rows_of_the_one_that_stops(job: RayJobHandle) -> None:
    """Wait until all other partitions, and some frames of that one, are transferred."""
    eventually("rows of the partition that stops", lambda: sum(d.rows for d in buffers(job)) > COUNT * 4 // 5)


def fail_in_its_middle(job: RayJobHandle, folder: Path) -> None:
    rows_of_the_one_that_stops(job)
    (folder / "failed.now").touch()
    eventually("its failure", (folder / "failed").exists)


class FailsOnce:
    """Stops once, in one partition, after some rows, until it is told to fail.

    The next time it does not stop, and gives other rows if it is told to.
    """

    def __init__(self, marker: str, at: int, *, shift: bool = False) -> None:
        self.marker = marker
        self.at = at
        self.shift = shift

    def __call__(self, batches: Any) -> Any:
        import pyarrow.compute as pc
        from pyspark import TaskContext

        task = TaskContext.get()
        assert task is not None
        chosen = task.partitionId() == 2
        executor = Path(f"{self.marker}.executor")
        again = executor.exists()
        rows = 0
        for batch in batches:
            for start in range(0, batch.num_rows, 10_000):
                piece = batch.slice(start, 10_000)
                if chosen and again and self.shift:
                    piece = piece.set_column(0, "id", pc.add(piece["id"], 1))
                yield piece
                rows += piece.num_rows
                if chosen and not again and rows >= self.at:
                    tell_executor(executor)
                    eventually("the word to fail", Path(f"{self.marker}.now").exists)
                    Path(self.marker).touch()
                    raise ValueError("no luck this time")
