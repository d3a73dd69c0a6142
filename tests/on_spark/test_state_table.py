"""The state of a running job as a DataFrame whose rows are those of the newest checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines.jobs import environment, eventually
from pipelines.streams import AN_HOUR

import penstock.state
from penstock import CollectSink, GeneratorSource, JobStatus, RestoreError, StreamEnvironment
from penstock.bridge.state_table import ReadNewest, newest_checkpoint
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.state_parts import Conversion, StateQuery
from penstock.spark import state_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from penstock.cluster import RayJobHandle


def endless(folder: Path, every: float = AN_HOUR) -> RayJobHandle:
    """Start a job that counts twelve keys for ever."""
    env = environment(folder, every=every, keep_after="always")
    events = env.from_source("events", GeneratorSource(lambda i: (f"k{i % 12}", 1), rate=2_000))
    counted = events.key_by(lambda event: event[0]).reduce("count", lambda a, b: (a[0], a[1] + b[1]))
    counted.sink("out", CollectSink())
    job: Any = env.submit()
    eventually("the job runs", lambda: job.status() is JobStatus.RUNNING)
    return job  # type: ignore[no-any-return]


def counts(df: DataFrame) -> tuple[set[int], dict[str, int]]:
    """The checkpoints of the rows, and the count of each key."""
    rows = df.collect()
    found = {row.key: row["count"] for row in rows}
    assert len(found) == len(rows), "each key once"
    return {row.checkpoint for row in rows}, found


def saved(path: str) -> dict[str, int]:
    table = penstock.state.read_state(path, "count")
    return {row["key"]: row["value"]["_2"] for row in table.to_pylist()}


def test_each_action_reads_the_newest_checkpoint_while_the_job_runs(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = endless(tmp_path)
    try:
        first = job.checkpoint()
        table = state_table(spark, job, "count")
        assert table.dtypes == [
            ("key_group", "int"),
            ("key", "string"),
            ("value", "struct<_1:string,_2:bigint>"),
            ("checkpoint", "bigint"),
        ]
        # Views and DataFrames made of the table are as new as itself.
        table.createOrReplaceTempView("live")
        live = spark.sql("SELECT key, value._2 AS `count`, checkpoint FROM live")
        before = saved(first.path)
        assert len(before) == 12
        assert counts(live) == ({first.checkpoint_id}, before)

        job.rescale({"count": 3})
        second = job.checkpoint()
        later = saved(second.path)
        assert sum(later.values()) > sum(before.values())
        assert counts(live) == ({second.checkpoint_id}, later)
    finally:
        job.cancel()
        job.ends_within(60)


@pytest.mark.long
def test_a_checkpoint_that_is_deleted_while_it_is_read_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = endless(tmp_path)
    try:
        with pytest.raises(RestoreError, match="has left no checkpoint"):
            state_table(spark, job, "count")
        job.checkpoint()
        with pytest.raises(
            ConfigurationError, match=r"no state of operator 'total'; it has state of: .*'count'"
        ):
            state_table(spark, job, "total")
        folder = f"{tmp_path}/checkpoints/{job.job_id}"
        schema = penstock.state.read_state(folder, "count").schema
        query = StateQuery(folder, "count", "reduce", Conversion())
        read = ReadNewest(query, schema.append(pa.field("checkpoint", pa.int64())), 1, "", "", "")
        named = newest_checkpoint(folder)
        assert sum(batch.num_rows for batch in read.rows(*named, 0)) == 12

        job.checkpoint(full=True)
        with pytest.raises(RestoreError, match=r"has deleted .*chk-.* while it was read.*retain="):
            list(read.rows(*named, 0))
    finally:
        job.cancel()
        job.ends_within(60)


@pytest.mark.long
def test_a_job_without_checkpoints_has_no_table(spark: SparkSession) -> None:
    env = StreamEnvironment("unsaved")
    env.from_collection("events", [1]).sink("out", CollectSink())
    job = env.submit()
    job.wait(60)
    with pytest.raises(ConfigurationError, match="takes no checkpoints"):
        state_table(spark, job, "count")
