"""Streaming queries that a job can't read: refused before it starts, or its failure says why."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from pipelines.jobs import PATIENCE, environment, eventually, finish
from pipelines.streams import (
    AN_HOUR,
    ROWS,
    arrive,
    committed_rows,
    ids,
    stop_queries,
    stream_into_table,
    watched,
)
from ray.util import list_named_actors

from penstock import CollectSink, GraphError, JobFailedError, StreamEnvironment
from penstock.actors.client.collect import RayCollector
from penstock.actors.shared.registry import NAMESPACE, start_actor
from penstock.bridge.from_structured_streaming import StreamingQuery
from penstock.bridge.receive_buffer_messages import buffer_prefix, rendezvous_name
from penstock.bridge.transfer_service import JobBuffers, Rendezvous
from penstock.spark import from_spark, from_structured_streaming

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("no_query_is_left")


def test_a_file_of_another_schema_fails_the_job_and_another_job_goes_on_behind_what_was_committed(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrive(tmp_path, 0)
    wrong = tmp_path / "incoming" / "001.parquet"
    pq.write_table(pa.table({"id": ["not a number"]}), wrong)
    os.utime(wrong, (2e9, 2e9))  # the newest file comes last
    df = watched(spark, tmp_path)
    job, table = stream_into_table(spark, tmp_path, df, query_restarts=0)
    what = r"operator 'rows'.*001\.parquet.*\[id\].*bigint.*are committed and stay\. Fix the cause, and start"
    with pytest.raises(JobFailedError, match=what):
        job.wait(PATIENCE)
    assert job.statistics().restarts == 0
    assert ids(table, spark) == Counter(range(ROWS))

    eventually("the end of the first job's master", lambda: job.report().master is None)
    arrive(tmp_path, 1)
    job, table = stream_into_table(
        spark,
        tmp_path,
        watched(spark, tmp_path),
        trigger={"availableNow": True},
        restore_from=str(tmp_path / "checkpoints" / job.job_id),
    )
    finish(job)
    assert ids(table, spark) == Counter(range(2 * ROWS))


@pytest.mark.long
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
            match=r"'rows'.*micro-batch 0 has columns \(id bigint\), .*\(id bigint not null\); build the job",
        ):
            job.wait(PATIENCE)
    finally:
        spark.conf.unset(promise)
    assert committed_rows(tmp_path) == 0


@pytest.mark.long
def test_a_buffer_that_dies_between_micro_batches_fails_the_job_and_ends_its_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """The other receive buffer lives: to its reader this is no end of the stream."""
    arrive(tmp_path, 0)
    job, table = stream_into_table(spark, tmp_path, watched(spark, tmp_path), parallelism=2)
    eventually("a micro-batch", (tmp_path / "query" / "commits" / "0").exists)
    names = (actor["name"] for actor in list_named_actors(all_namespaces=True))
    buffer = next(name for name in names if name.startswith(buffer_prefix(job.job_id)))
    ray.kill(ray.get_actor(buffer, namespace=NAMESPACE))
    with pytest.raises(
        JobFailedError, match="the process that holds the rows between Spark and the job died"
    ):
        job.wait(PATIENCE)
    eventually("the end of the query", lambda: not spark.streams.active)
    assert job.statistics().restarts == 0
    assert ids(table, spark) == Counter(range(ROWS))


@pytest.mark.long
def test_a_query_whose_look_at_its_job_fails_does_not_run_on(spark: SparkSession, tmp_path: Path) -> None:
    """It is given an actor that is no receive buffer."""
    (tmp_path / "incoming").mkdir()
    query = StreamingQuery(watched(spark, tmp_path), "rows", str(tmp_path / "query"), {}, restarts=0)
    no_buffer = start_actor(Rendezvous, rendezvous_name("a rendezvous"), num_cpus=0)
    end = query._run_once(JobBuffers("no-job", ("a rendezvous",), (no_buffer,), "", b""))
    assert end.failure == "Spark failed: 'ActorHandle' object has no attribute 'statistics'"
    assert not spark.streams.active


@pytest.mark.long
def test_a_second_job_of_the_same_stream_is_refused_at_once_and_the_first_one_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrive(tmp_path, 0)
    env, location = environment(tmp_path, parallelism=1, every=AN_HOUR), tmp_path / "query"
    stream = from_structured_streaming(
        env, watched(spark, tmp_path), id="rows", batch_format="rows", checkpoint_location=str(location)
    )
    results = RayCollector()
    stream.sink("out", CollectSink(results))
    first: Any = env.submit()
    eventually("a micro-batch", (location / "commits" / "0").exists)
    second: Any = env.submit()
    with pytest.raises(JobFailedError, match=rf"is read by job {first.job_id}; make a DataFrame for each"):
        second.wait(PATIENCE)
    arrive(tmp_path, 1)
    eventually("another one", (location / "commits" / "1").exists)
    stop_queries(spark)
    finish(first)
    assert sorted(row["id"] for row in results.rows()) == list(range(2 * ROWS))


@pytest.mark.long
def test_a_job_without_checkpoints_and_frames_of_the_other_kind_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrive(tmp_path, 0)
    streaming = watched(spark, tmp_path)
    with pytest.raises(GraphError, match="this job takes none: give the StreamEnvironment checkpointing="):
        from_structured_streaming(StreamEnvironment("x"), streaming, checkpoint_location="/tmp/x")
    with pytest.raises(GraphError, match="is a stream; use from_structured_streaming"):
        from_spark(environment(tmp_path), streaming)
    with pytest.raises(GraphError, match="is not a stream; use from_spark"):
        from_structured_streaming(environment(tmp_path), spark.range(1), checkpoint_location="/tmp/x")
