"""Streaming queries as sources, and tables as sources of streaming queries: every row counted once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines.jobs import buffers, environment, eventually, finish
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

from penstock.spark import SparkTable, from_structured_streaming

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.usefixtures("no_query_is_left")


def test_micro_batches_of_few_partitions_induce_checkpoints_of_many_readers(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One of the two readers gets no rows of a micro-batch, and the last micro-batch has none for anybody."""
    arrive(tmp_path, 0, 1, 2)
    env = environment(tmp_path, parallelism=2, every=AN_HOUR)
    df = watched(spark, tmp_path).where(f"id < {2 * ROWS}").coalesce(1)
    location = str(tmp_path / "query")
    stream: Any = from_structured_streaming(env, df, id="rows", checkpoint_location=location)
    table = SparkTable(tmp_path / "table", pa.schema({"id": pa.int64()}))
    stream.sink("out", table)
    job: Any = env.submit()
    eventually("three commits", (tmp_path / "query" / "commits" / "2").exists)
    # Which reader got which is open: a receive buffer that does not answer within two seconds gets none.
    assert sum(d.rows for d in buffers(job)) == 2 * ROWS
    assert job.statistics().completed_checkpoints == 3, "one for each micro-batch, with rows or without"
    assert committed_rows(tmp_path) == 2 * ROWS, "what Spark has committed can be seen"
    stop_queries(spark)
    finish(job)
    assert ids(table, spark) == Counter(range(2 * ROWS))


@pytest.mark.long
def test_a_query_that_ends_ends_the_job_periodic_checkpoints_do_and_spark_reads_the_table_as_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    arrive(tmp_path, 0, 1)
    once, df = {"availableNow": True}, watched(spark, tmp_path)
    job, table = stream_into_table(spark, tmp_path, df, trigger=once, induce=False, every=0.25)
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
