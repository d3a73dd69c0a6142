"""Streaming queries as sources, and tables as sources of streaming queries: every row counted once.

The jobs take a checkpoint every hour: all that is committed here is committed by induced ones.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    depots,
    environment,
    eventually,
    finish,
    kill_executor,
    kill_subtask,
    tell_executor,
    wait_until,
)

from penstock import bridge
from penstock.actors import RayJobHandle, kill_process
from penstock.bridge import SparkTable
from penstock.bridge.from_structured_streaming import StreamingQuery
from penstock.bridge.hand_over import Depots
from penstock.bridge.spark_push import HandOverError
from penstock.runtime import GraphError, JobFailedError, StreamEnvironment
from penstock.runtime.checkpoint.coordinator_history import CheckpointStatus

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 500
#: Bytes of a row where a fifth of a file is to be about a frame.
WIDE = 40_000
AN_HOUR = 3_600.0


def arrive(folder: Path, *numbers: int) -> None:
    """Files of rows appear in a folder that a query watches."""
    incoming = folder / "incoming"
    incoming.mkdir(exist_ok=True)
    for number in numbers:
        table = pa.table({"id": range(number * ROWS, (number + 1) * ROWS)})
        pq.write_table(table, incoming / f"_{number:03d}.parquet")
        (incoming / f"_{number:03d}.parquet").rename(incoming / f"{number:03d}.parquet")


def watched(spark: SparkSession, folder: Path) -> DataFrame:
    """One file a micro-batch."""
    return (
        spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(folder / "incoming"))
    )


def stream_into_table(
    spark: SparkSession,
    folder: Path,
    df: DataFrame,
    *,
    slow: Slowed | None = None,
    every: float = AN_HOUR,
    parallelism: int = 1,
    location: str = "query",
    restore_from: str | None = None,
    **options: Any,
) -> tuple[RayJobHandle, SparkTable]:
    env = environment(folder, parallelism=parallelism, every=every)
    stream: Any = bridge.from_structured_streaming(
        env, df, id="rows", checkpoint_location=str(folder / location), **options
    )
    if slow is not None:
        stream = stream.map_batches(slow, "arrow", id="slow", start_new_chain=True)
    table = SparkTable(folder / "table", pa.schema({"id": pa.int64()}))
    stream.map_batches(only_ids, "arrow", id="ids").sink("out", table)
    job: Any = env.submit(restore_from=restore_from)
    return job, table


def only_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["id"])


def ids(table: SparkTable, spark: SparkSession) -> Counter[int]:
    return Counter(row.id for row in table.read(spark).collect())


def stop_queries(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()


@pytest.fixture
def narrow_batches(spark: SparkSession) -> Any:
    """Spark hands rows on to Python in fifths of a file."""
    key = "spark.sql.execution.arrow.maxRecordsPerBatch"
    had = spark.conf.get(key)
    spark.conf.set(key, ROWS // 5)
    yield
    spark.conf.set(key, had)


@pytest.fixture(autouse=True)
def _no_query_is_left(spark: SparkSession) -> Any:
    yield
    stop_queries(spark)


def test_a_query_that_ends_ends_the_job_and_periodic_checkpoints_do_when_they_are_to(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrive(tmp_path, 0, 1)
    once, df = {"availableNow": True}, watched(spark, tmp_path)
    job, table = stream_into_table(spark, tmp_path, df, trigger=once, induce=False, every=0.25)
    finish(job)
    assert ids(table, spark) == Counter(range(2 * ROWS))


def test_micro_batches_of_few_partitions_induce_checkpoints_of_many_readers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One of the two readers gets no rows of a micro-batch, and the last micro-batch has none for anybody."""
    arrive(tmp_path, 0, 1, 2)
    env = environment(tmp_path, parallelism=2, every=AN_HOUR)
    df = watched(spark, tmp_path).where(f"id < {2 * ROWS}").coalesce(1)
    location = str(tmp_path / "query")
    stream: Any = bridge.from_structured_streaming(env, df, id="rows", checkpoint_location=location)
    table = SparkTable(tmp_path / "table", pa.schema({"id": pa.int64()}))
    stream.sink("out", table)
    job: Any = env.submit()
    eventually("three commits", (tmp_path / "query" / "commits" / "2").exists)
    assert [d.rows for d in depots(job)] == [ROWS, ROWS], "each was dealt to the reader that had less"
    assert job.statistics().completed_checkpoints == 2, "one for each micro-batch with rows"
    assert committed_rows(tmp_path) == 2 * ROWS, "what Spark has committed can be seen"
    stop_queries(spark)
    finish(job)
    assert ids(table, spark) == Counter(range(2 * ROWS))


def test_micro_batches_survive_kills_of_subtask_master_query_and_executor(
    spark: SparkSession, tmp_path: Path, narrow_batches: None
) -> None:
    """Each while half of a micro-batch lies in the depot and its task pushes the rest."""
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
    (before,) = depots(job)
    kill_executor(halfway.executor)
    come.rest()
    (after,) = depots(job)
    assert after.attempts - after.partitions > before.attempts - before.partitions
    assert after.duplicates > before.duplicates, "what the killed executor had pushed"

    stop_queries(spark)
    result = finish(job)
    assert ids(table, spark) == Counter(range(4 * ROWS))
    assert result.statistics.restarts == 2


def test_spark_commits_a_micro_batch_only_when_a_checkpoint_covers_it_however_often_that_fails(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A checkpoint dies with a subtask, the next one with the JobMaster: the third one is complete."""
    arrive(tmp_path, 0, 1)
    slow = Slowed(1.0, tmp_path / "go")  # far slower than the test waits
    job, table = stream_into_table(spark, tmp_path, watched(spark, tmp_path), slow=slow)
    wait_for_running_checkpoint(job, attempt=1)
    assert sum(d.epochs for d in depots(job)) == 1, "the next one waits"
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
    assert sum(d.epochs for d in depots(job)) == 2, "each depot has got one, the third"
    kill_subtask(job, "rows")
    arrive(tmp_path, 3)
    eventually("one more", (tmp_path / "query" / "commits" / "3").exists)
    job.stop()
    assert finish(job).statistics.restarts == 1
    assert ids(table, spark) == Counter(range(4 * ROWS))

    eventually("the end of the query", lambda: not spark.streams.active)
    job, _ = stream_into_table(
        spark, tmp_path, watched(spark, tmp_path), location="other", restore_from=savepoint, query_restarts=0
    )
    with pytest.raises(JobFailedError, match=r"hands over micro-batch 0, and the job has later ones"):
        job.wait(PATIENCE)
    assert ids(table, spark) == Counter(range(4 * ROWS))


def test_a_file_of_another_schema_fails_the_job_and_another_job_goes_on_behind_what_was_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrive(tmp_path, 0)
    wrong = tmp_path / "incoming" / "001.parquet"
    pq.write_table(pa.table({"id": ["not a number"]}), wrong)
    os.utime(wrong, (2e9, 2e9))  # the newest file comes last
    df = watched(spark, tmp_path)
    job, table = stream_into_table(spark, tmp_path, df, query_restarts=0)
    with pytest.raises(JobFailedError, match=r"operator 'rows'.*001\.parquet.*\[id\], Expected: bigint"):
        job.wait(PATIENCE)
    assert job.statistics().restarts == 0
    assert ids(table, spark) == Counter(range(ROWS))

    eventually("the end of the first job's master", lambda: job.report().master is None)
    arrive(tmp_path, 1)
    once = {"availableNow": True}
    job, table = stream_into_table(spark, tmp_path, watched(spark, tmp_path), trigger=once)
    finish(job)
    assert ids(table, spark) == Counter(range(2 * ROWS))


def test_micro_batches_of_other_columns_than_the_job_was_built_for_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark makes columns of files nullable when it reads them, whatever the stream had promised."""
    promise = "spark.sql.streaming.fileSource.schema.forceNullable"
    spark.conf.set(promise, False)
    try:
        arrive(tmp_path, 0)
        df = spark.readStream.schema("id long NOT NULL").parquet(str(tmp_path / "incoming"))
        job, _ = stream_into_table(spark, tmp_path, df, query_restarts=0)
        with pytest.raises(
            JobFailedError,
            match=r"operator 'rows'.*micro-batch 0 has columns \(id bigint\), .*\(id bigint not null\)",
        ):
            job.wait(PATIENCE)
    finally:
        spark.conf.unset(promise)
    assert committed_rows(tmp_path) == 0

    query = StreamingQuery(watched(spark, tmp_path), "rows", str(tmp_path / "other"), {}, restarts=0)
    nowhere = Depots("no job", (), (), "", b"")
    with pytest.raises(
        HandOverError, match=r"micro-batch 7 has columns \(id string not null\).*for \(id bigint\); build"
    ):
        query._hand_over(nowhere, spark.sql("SELECT 'not a number' AS id"), 7)


def test_spark_to_penstock_to_spark_as_streams(spark: SparkSession, tmp_path: Path) -> None:
    arrive(tmp_path, 0, 1)
    job, table = stream_into_table(spark, tmp_path, watched(spark, tmp_path), trigger={"availableNow": True})
    query = (
        table.read_stream(spark)
        .writeStream.format("memory")
        .queryName("back")
        .option("checkpointLocation", str(tmp_path / "back"))
        .start()
    )
    finish(job)
    query.processAllAvailable()
    query.stop()
    assert spark.sql("SELECT count(*), count(DISTINCT id), sum(id) FROM back").first() == (
        1000,
        1000,
        499_500,
    )


def test_a_job_without_checkpoints_and_frames_of_the_other_kind_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrive(tmp_path, 0)
    streaming = watched(spark, tmp_path)
    with pytest.raises(GraphError, match="this job takes none: give the StreamEnvironment checkpointing="):
        bridge.from_structured_streaming(StreamEnvironment("x"), streaming, checkpoint_location="/tmp/x")
    with pytest.raises(GraphError, match="is a stream; use from_structured_streaming"):
        bridge.from_spark(environment(tmp_path), streaming)
    with pytest.raises(GraphError, match="is no stream; use from_spark"):
        bridge.from_structured_streaming(environment(tmp_path), spark.range(1), checkpoint_location="/tmp/x")


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
    """Files that come one by one, each stopped when half of it is in the depot."""

    def __init__(self, job: RayJobHandle, folder: Path) -> None:
        self.job = job
        self.folder = folder
        self.number = 0

    def half_of_the_next(self) -> None:
        (self.folder / "hold").touch()
        arrive(self.folder, self.number)
        come = self.number * ROWS
        self.number += 1
        eventually("half of a micro-batch", lambda: sum(d.rows for d in depots(self.job)) > come)
        assert sum(d.epochs for d in depots(self.job)) == self.number - 1, "it is not closed"

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


def committed_rows(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in (folder / "table").glob("part-*"))
