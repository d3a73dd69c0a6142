"""Streaming queries as sources, whatever dies: every row of every micro-batch is counted once.

A micro-batch that Spark has committed is in the job's results; one that it has not is not lost.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    buffers,
    eventually,
    finish,
    kill_executor,
    kill_subtask,
    tell_executor,
    wait_until,
)
from pipelines.streams import ROWS, arrive, committed_rows, ids, stop_queries, stream_into_table, watched

from penstock import JobFailedError
from penstock.cluster import RayJobHandle
from penstock.runtime.snapshot.checkpoint_record import CheckpointStatus
from penstock.testing import kill_process

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("no_query_is_left")

#: Bytes of a row where a fifth of a file is to be about a frame.
WIDE = 40_000


@pytest.fixture
def narrow_batches(spark: SparkSession) -> Any:
    """Spark hands rows on to Python in fifths of a file."""
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    had = spark.conf.get(key)
    spark.conf.set(key, ROWS // 5)
    yield
    spark.conf.set(key, had)


def test_micro_batches_survive_kills_of_subtask_master_query_and_executor(
    spark: SparkSession, tmp_path: Path, narrow_batches: None
) -> None:
    """Each while half of a micro-batch lies in the receive buffer and its task pushes the rest."""
    halfway = Halfway(tmp_path)
    (tmp_path / "incoming").mkdir()
    df = watched(spark, tmp_path).mapInArrow(halfway, "id long, padding string")
    job, table = stream_into_table(spark, tmp_path, df, query_restarts=100)
    come = Arrivals(job, tmp_path)

    come.half_of_the_next()
    kill_subtask(job, "rows")
    wait_until(job, "the second attempt", lambda report: report.statistics.attempt == 2)
    come.rest()

    come.half_of_the_next()
    master = job.report().master
    assert master is not None
    kill_process(master)
    come.rest()
    assert job.report().statistics.attempt == 3

    come.half_of_the_next()
    (given_up,) = (query.runId for query in spark.streams.active)
    halfway.broken.touch()
    halfway.hold.unlink()
    eventually("another run of the query", lambda: given_up not in {q.runId for q in spark.streams.active})
    halfway.broken.unlink()
    assert len(list(tmp_path.glob("raised *"))) >= 3, "as often as Spark tries a task"
    come.rest()

    come.half_of_the_next()
    (before,) = buffers(job)
    kill_executor(halfway.executor)
    come.rest()
    (after,) = buffers(job)
    assert after.attempts - after.partitions > before.attempts - before.partitions
    assert after.duplicates > before.duplicates, "what the killed executor had pushed"

    stop_queries(spark)
    result = finish(job)
    assert ids(table, spark) == Counter(range(4 * ROWS))
    assert result.statistics.restarts == 2


@pytest.mark.long
def test_spark_commits_a_micro_batch_only_when_a_checkpoint_covers_it_however_often_that_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A checkpoint dies with a subtask, the next one with the JobMaster: the third one is complete."""
    arrive(tmp_path, 0, 1)
    slow = Slowed(1.0, tmp_path / "go")  # far slower than the test waits
    job, table = stream_into_table(spark, tmp_path, watched(spark, tmp_path), slow=slow)
    wait_for_running_checkpoint(job, attempt=1)
    assert sum(d.epochs for d in buffers(job)) == 1, "the next one waits"
    kill_subtask(job, "slow")

    wait_for_running_checkpoint(job, attempt=2)
    master = job.report().master
    assert master is not None
    kill_process(master)
    assert not (tmp_path / "query" / "commits" / "0").exists()
    (tmp_path / "go").touch()

    eventually("the commit", (tmp_path / "query" / "commits" / "1").exists)
    stop_queries(spark)
    result = finish(job)
    assert ids(table, spark) == Counter(range(2 * ROWS))
    assert result.statistics.restarts == 2


@pytest.mark.long
def test_a_job_goes_on_from_a_savepoint_behind_the_micro_batch_that_spark_has_not_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Two readers, one of which may get nothing of a micro-batch; the query ends with its job."""
    arrive(tmp_path, 0, 1)
    job, table = stream_into_table(spark, tmp_path, watched(spark, tmp_path), parallelism=2)
    commit = tmp_path / "query" / "commits" / "1"
    eventually("two micro-batches", commit.exists)
    savepoint = job.stop()
    finish(job)
    eventually("the end of the query", lambda: not spark.streams.active)

    commit.unlink()  # as if its program had died in front of it: Spark will run this one again
    (commit.parent / ".1.crc").unlink(missing_ok=True)
    arrive(tmp_path, 2)
    job, _ = stream_into_table(
        spark, tmp_path, watched(spark, tmp_path), parallelism=2, restore_from=savepoint
    )
    eventually("the third micro-batch", (tmp_path / "query" / "commits" / "2").exists)
    assert commit.exists()
    assert sum(d.epochs for d in buffers(job)) == 2, "each receive buffer has got one, the third"
    kill_subtask(job, "rows")
    arrive(tmp_path, 3)
    eventually("one more", (tmp_path / "query" / "commits" / "3").exists)
    job.stop()
    assert finish(job).statistics.restarts == 1
    assert ids(table, spark) == Counter(range(4 * ROWS))

    stop_queries(spark)
    arrive(tmp_path, 4)
    job, _ = stream_into_table(spark, tmp_path, watched(spark, tmp_path), restore_from=savepoint)
    with pytest.raises(
        JobFailedError, match="with micro-batch 4, but the job's snapshot ends after micro-batch 1: Spark has"
    ):
        job.wait(PATIENCE)
    assert job.statistics().restarts == 0
    assert ids(table, spark) == Counter(range(4 * ROWS))


class Halfway:
    """Makes rows wide, and stops in the middle of each micro-batch while a file is there.

    By then some frames of the micro-batch are pushed. While another file is there it fails in that place.
    """

    def __init__(self, folder: Path) -> None:
        self.hold, self.broken, self.executor = folder / "hold", folder / "broken", folder / "executor"

    def __call__(self, batches: Any) -> Any:
        rows = 0
        for batch in batches:
            padding = pa.repeat("-" * WIDE, batch.num_rows)
            yield pa.record_batch({"id": batch["id"], "padding": padding})
            rows += batch.num_rows
            if rows == ROWS * 4 // 5:
                tell_executor(self.executor)
                eventually("the word to go on", lambda: not self.hold.exists())
                if self.broken.exists():
                    self.hold.with_name(f"raised {os.getpid()} {time.monotonic()}").touch()
                    raise ValueError("no luck right now")


class Arrivals:
    """Files that come one by one, each stopped when half of it is in the receive buffer."""

    def __init__(self, job: RayJobHandle, folder: Path) -> None:
        self.job = job
        self.folder = folder
        self.number = 0

    def half_of_the_next(self) -> None:
        (self.folder / "hold").touch()
        arrive(self.folder, self.number)
        come = self.number * ROWS
        self.number += 1
        eventually("half of a micro-batch", lambda: sum(d.rows for d in buffers(self.job)) > come)
        assert sum(d.epochs for d in buffers(self.job)) == self.number - 1, "it is not closed"

    def rest(self) -> None:
        (self.folder / "hold").unlink(missing_ok=True)
        eventually("its commit", (self.folder / "query" / "commits" / str(self.number - 1)).exists)
        assert committed_rows(self.folder) == self.number * ROWS


def wait_for_running_checkpoint(job: RayJobHandle, attempt: int) -> None:
    """Wait for one whose barrier stands before the slow operator."""
    running = CheckpointStatus.IN_PROGRESS
    wait_until(
        job,
        f"a checkpoint of attempt {attempt}",
        lambda report: any(c.status is running and c.attempt == attempt for c in report.checkpoint_history),
    )
