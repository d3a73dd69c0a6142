"""Only the columns that a job needs leave Spark."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc
import pytest
from pipelines.jobs import (
    Slowed,
    after_rows,
    assert_each_once,
    buffers,
    committed,
    environment,
    eventually,
    finish,
    kill_subtask,
    slow_release,
)
from pipelines.numbered import COUNT, WIDTH, wide_numbers
from pipelines.streams import AN_HOUR, ROWS, arrive, watched

from penstock import CollectSink, FileSink
from penstock.spark import from_spark, from_structured_streaming

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_a_killed_reader_gets_its_columns_again_and_no_other_column_leaves_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = environment(tmp_path)
    stream: Any = from_spark(env, wide_numbers(spark), id="rows").select("id")
    slow = stream.map_batches(Slowed(20_000, tmp_path / "go"), "arrow", id="slow")
    slow.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    after_rows(job, 20_000)
    kill_subtask(job, "rows", 0)
    eventually("all rows of Spark", lambda: sum(buffer.rows for buffer in buffers(job)) == COUNT)
    assert sum(buffer.bytes for buffer in buffers(job)) < COUNT * WIDTH / 10
    slow_release(tmp_path)
    result = finish(job)
    assert_each_once(tmp_path, COUNT)
    assert committed(tmp_path).schema.names == ["id"]
    assert result.statistics.restarts == 1
    (source,) = (o for o in job.report().graph.operators if o.is_source)
    assert source.name == "source(SparkSource), reads 1 of 2 columns"


def test_a_killed_reader_gets_its_rows_again_and_no_other_row_leaves_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    env = environment(tmp_path, parallelism=1)
    wanted = (pc.field("id") < COUNT // 4) & pc.starts_with(pc.field("text"), "1")
    stream: Any = from_spark(env, wide_numbers(spark), id="rows").filter(wanted).select("id")
    slow = stream.map_batches(Slowed(500, tmp_path / "go"), "arrow", id="slow")
    slow.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    expected = [number for number in range(COUNT // 4) if str(number).startswith("1")]
    eventually("these rows", lambda: sum(buffer.rows for buffer in buffers(job)) == len(expected))
    kill_subtask(job, "rows", 0)
    eventually("a restart", lambda: job.report().statistics.restarts == 1)
    assert sum(buffer.rows for buffer in buffers(job)) == len(expected)
    assert sum(buffer.bytes for buffer in buffers(job)) < len(expected) * WIDTH / 10
    slow_release(tmp_path)
    result = finish(job)
    assert committed(tmp_path).schema.names == ["id"]
    assert sorted(committed(tmp_path)["id"].to_pylist()) == expected
    assert result.statistics.restarts == 1
    (source,) = (o for o in job.report().graph.operators if o.is_source)
    assert source.name == "source(SparkSource), part of the filter in Spark"


def test_columns_are_chosen_by_place_whatever_their_names(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.range(3).selectExpr("id AS `a.b`", "id * 2 AS v", "id * 3 AS `V`", "id * 4 AS `x``y`")
    env, sinks = environment(tmp_path, parallelism=1), {}
    for number, names in enumerate((("V", "a.b"), ("x`y",), ("v", "a.b"))):
        sink = sinks[names] = CollectSink()
        from_spark(env, df, id=f"rows-{number}", batch_format="rows").select(*names).sink(
            f"out-{number}", sink
        )
    env.run(timeout=120)
    factor = {"a.b": 1, "v": 2, "V": 3, "x`y": 4}
    for names, sink in sinks.items():
        expected = [{name: number * factor[name] for name in names} for number in range(3)]
        assert sorted(sink.rows(), key=lambda row: list(row.values())) == expected


@pytest.mark.usefixtures("no_query_is_left")
@pytest.mark.long
def test_a_job_that_continues_a_query_may_need_other_columns(spark: SparkSession, tmp_path: Path) -> None:
    savepoint = None
    for number, column in enumerate(("two", "three")):
        arrive(tmp_path, number)
        df = watched(spark, tmp_path).selectExpr("id", "id * 2 AS two", "id * 3 AS three")
        env = environment(tmp_path, parallelism=1, every=AN_HOUR)
        stream: Any = from_structured_streaming(
            env, df, id="rows", checkpoint_location=str(tmp_path / "query")
        )
        stream.select(value=pc.field(column)).sink("out", FileSink.parquet(tmp_path / "out"))
        job: Any = env.submit(restore_from=savepoint)
        eventually("a commit", (tmp_path / "query" / "commits" / str(number)).exists)
        savepoint = job.stop()
        finish(job)
        eventually("the end of the query", lambda: not spark.streams.active)
    expected = [2 * one for one in range(ROWS)] + [3 * one for one in range(ROWS, 2 * ROWS)]
    assert sorted(committed(tmp_path)["value"].to_pylist()) == sorted(expected)
