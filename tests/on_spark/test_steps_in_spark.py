"""Steps of a job that run in Spark's Python workers: the same answers, also when tasks and readers die."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.compute as pc
import pytest
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    after_rows,
    buffers,
    committed,
    environment,
    eventually,
    finish,
    kill_executor,
    kill_subtask,
    slow_release,
)
from pipelines.stops_once import StopsOnce
from pipelines.streams import AN_HOUR, ROWS, arrive, stop_queries, watched

from penstock import CollectSink, FileSink, WatermarkStrategy
from penstock.aggregates import Count, Max, Min, Sum
from penstock.runtime.operators.source_steps import FLUSH_ROWS
from penstock.spark import from_spark, from_structured_streaming, wait_for_transfer
from penstock.windows import SlidingEventTimeWindows, TumblingEventTimeWindows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows of each partition, so that a combiner there sends partial results before the end.
LONG = 2 * FLUSH_ROWS + 10_000


def readings(spark: SparkSession) -> DataFrame:
    """Rows with NaN, nulls and times with a zone; some partitions become empty."""
    return spark.range(0, 20_000, 1, 6).selectExpr(
        "id",
        "if(id % 11 = 0, NULL, concat('k', id % 7)) AS k",
        "CASE WHEN id % 13 = 0 THEN double('NaN') WHEN id % 5 = 0 THEN NULL ELSE id / 8 END AS x",
        "timestamp_seconds(1774744200 + id * 60) AS at",
        "rpad('', 200, 'x') AS unread",
    )


def test_moved_steps_give_the_answers_of_steps_in_the_job(spark: SparkSession, tmp_path: Path) -> None:
    """A step with a chain of its own, and all after it, run in the job."""
    found = []
    for number, options in enumerate(({}, {"start_new_chain": True})):
        env, sink = environment(tmp_path / str(number)), CollectSink()
        stream: Any = from_spark(env, readings(spark), id="rows")
        kept = stream.filter(
            pc.starts_with(pc.field("k"), "k") & (pc.field("id") < 9_000), id="kept", **options
        )
        days = kept.with_columns(
            id="days", day=pc.floor_temporal(pc.field("at"), unit="day"), i=pc.field("id") * 2
        )
        sums = days.key_by(["k", "day"]).aggregate(
            "sums",
            n=Count(),
            s=Sum("i"),
            least=Min("x"),
            largest=Max("x"),
            total=Sum("x"),
            emit_every=AN_HOUR,
        )
        sums.sink("out", sink)
        job: Any = env.submit()
        transferred = wait_for_transfer(job, PATIENCE)
        finish(job)
        names = {operator.id: operator.name for operator in job.report().graph.operators}
        newest = {
            (row["k"], row["day"]): list(map(repr, row.values()))
            for row in sorted(sink.rows(), key=lambda row: row["n"])
        }
        found.append((newest, sum(buffer.rows for buffer in transferred), names))
    (moved, few, names), (in_job, many, other_names) = found
    assert moved == in_job
    assert sum(int(row[2]) for row in moved.values()) == sum(1 for i in range(9_000) if i % 11)
    assert many == 9_000, "the part of the filter that Spark itself computes"
    assert few <= 6 * len(moved), "partial results"
    assert [id for id, name in names.items() if name.endswith(", in Spark") and id != "rows"] == [
        "kept",
        "days",
        "sums-combine",
    ]
    assert not [id for id, name in other_names.items() if name.endswith(", in Spark") and id != "rows"]


def events(spark: SparkSession, partitions: int) -> DataFrame:
    """Three hours of events in each partition; each is at most 40 seconds behind an earlier one."""
    return spark.range(0, partitions * 30_000, 1, partitions).selectExpr(
        "id",
        "if(id % 11 = 0, NULL, concat('k', id % 7)) AS k",
        "timestamp_micros(1774744200000000 + (id % 30000) * 360000 + (id * 7919) % 40000000) AS at",
    )


@pytest.mark.parametrize(("partitions", "bound"), [(1, 40), (4, 4 * 3600)])
@pytest.mark.parametrize(
    ("windows", "length", "slide"),
    [
        (TumblingEventTimeWindows(600), "600 seconds", "600 seconds"),
        (SlidingEventTimeWindows(1800, 600), "1800 seconds", "600 seconds"),
    ],
    ids=["tumbling", "sliding"],
)
def test_windows_of_moved_steps_are_those_of_spark(
    spark: SparkSession, tmp_path: Path, partitions: int, bound: int, windows: Any, length: str, slide: str
) -> None:
    """A reader may read several partitions, each of which begins anew: only a long bound keeps all rows."""
    df = events(spark, partitions)
    env, sink = environment(tmp_path), CollectSink()
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(bound).with_timestamp_column("at")
    timed = from_spark(env, df, id="rows").assign_timestamps_and_watermarks(strategy, id="time")
    kept = timed.filter(pc.field("id") >= 5, id="kept")
    sums = kept.key_by("k").window(windows).aggregate("sums", n=Count(), s=Sum("id"), top=Max("id"))
    sums.sink("out", sink)
    job: Any = env.submit()
    transferred = wait_for_transfer(job, PATIENCE)
    finish(job)
    report = job.report()
    names = {operator.id: operator.name for operator in report.graph.operators}
    assert [id for id, name in names.items() if name.endswith(", in Spark") and id != "rows"] == [
        "time",
        "kept",
        "sums-combine",
    ]
    assert report.statistics.operators["sums"].extra["late_records"] == 0
    assert sum(buffer.rows for buffer in transferred) < partitions * 30_000 / 8, "partial results"
    found = {
        (row["k"], row["window_start"].timestamp()): (row["n"], row["s"], row["top"]) for row in sink.rows()
    }
    assert len(found) == len(sink.rows()), "each window once"
    grouped = df.filter("id >= 5").selectExpr("k", "id", f"window(at, '{length}', '{slide}') AS w")
    of_spark = (
        grouped.groupBy("k", "w")
        .agg({"*": "count", "id": "sum"})
        .selectExpr("k", "unix_micros(w.start) / 1e6 AS start", "`count(1)` AS n", "`sum(id)` AS s")
    )
    expected = {(row["k"], row["start"]): (row["n"], row["s"]) for row in of_spark.collect()}
    assert {key: row[:2] for key, row in found.items()} == expected


@pytest.mark.long
def test_partial_windows_of_failed_tasks_killed_executors_and_killed_readers_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = 1 << 19  # of each partition: several frames
    stops = StopsOnce(tmp_path, at=rows // 2 + 50_000, partitions=(1, 2))
    df = spark.range(0, 4 * rows, 1, 4).mapInArrow(stops, "id long")
    env = environment(tmp_path)
    stream: Any = from_spark(env, df, id="rows").with_columns(
        k=pc.bit_wise_and(pc.field("id"), 15), at=pc.bit_wise_and(pc.field("id"), rows - 1) + 1_774_744_200
    )
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(rows).with_timestamp_column("at", unit="s")
    windows = (
        stream.assign_timestamps_and_watermarks(strategy)
        .key_by("k")
        .window(TumblingEventTimeWindows(100_000))
    )
    windows.aggregate("sums", s=Sum("id"), n=Count()).sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    eventually("partitions that stop", lambda: all(stops.executor(p).exists() for p in stops.partitions))
    after_rows(job, 64)
    kill_subtask(job, "rows", 0)
    kill_subtask(job, "sums", 1)
    stops.may_fail(1)
    eventually("a failure", stops.failed(1).exists)
    kill_executor(stops.executor(2))
    seen = wait_for_transfer(job, PATIENCE)
    stops.may_fail(2)
    result = finish(job)
    assert result.statistics.restarts >= 1
    assert sum(d.attempts for d in seen) >= 6
    assert sum(d.duplicates for d in seen) >= 2, "frames that the two had sent"
    assert sum(d.rows for d in seen) < rows, "partial results"
    ids = np.arange(4 * rows)
    starts = (ids % rows + 1_774_744_200) // 100_000 * 100_000
    expected = {
        (k, start): (len(of), int(of.sum()))
        for k in range(16)
        for start in np.unique(starts).tolist()
        if len(of := ids[(starts == start) & (ids % 16 == k)])
    }
    found = committed(tmp_path).to_pylist()
    assert len(found) == len(expected), "each window once"
    assert {
        (row["k"], int(row["window_start"].timestamp())): (row["n"], row["s"]) for row in found
    } == expected


@pytest.mark.long
def test_partial_sums_of_failed_tasks_killed_executors_and_killed_readers_count_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    stops = StopsOnce(tmp_path, at=FLUSH_ROWS + 50_000, partitions=(1, 2))
    df = spark.range(0, 4 * LONG, 1, 4).mapInArrow(stops, "id long")
    env = environment(tmp_path)
    stream: Any = from_spark(env, df, id="rows").with_columns(k=pc.bit_wise_and(pc.field("id"), 15))
    sums = stream.key_by("k").aggregate("sums", s=Sum("id"), n=Count(), emit_every=0.1)
    sums.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    eventually("partitions that stop", lambda: all(stops.executor(p).exists() for p in stops.partitions))
    eventually("partial sums", lambda: sum(d.rows for d in buffers(job)) >= 16 * 3)
    after_rows(job, 16)
    kill_subtask(job, "rows", 0)
    kill_subtask(job, "sums", 1)
    stops.may_fail(1)
    eventually("a failure", stops.failed(1).exists)
    kill_executor(stops.executor(2))
    seen = wait_for_transfer(job, PATIENCE)
    stops.may_fail(2)
    result = finish(job)
    assert result.statistics.restarts >= 1
    assert sum(d.attempts for d in seen) >= 6
    assert sum(d.duplicates for d in seen) >= 2, "partial sums that the two had sent"
    newest = {row["k"]: row for row in sorted(committed(tmp_path).to_pylist(), key=lambda row: row["n"])}
    ids = range(4 * LONG)
    assert {k: (row["n"], row["s"]) for k, row in newest.items()} == {
        k: (len(ids[k::16]), sum(ids[k::16])) for k in range(16)
    }


@pytest.mark.long
def test_a_killed_reader_gets_the_rows_of_moved_steps_again(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path)
    stream: Any = from_spark(env, spark.range(0, 400_000, 1, 5), id="rows")
    kept = stream.filter(pc.bit_wise_and(pc.field("id"), 3) == 1).select("id", twice=pc.field("id") * 2)
    slow = kept.map_batches(Slowed(4_000, tmp_path / "go"), "arrow", id="slow")
    slow.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit()
    after_rows(job, 5_000)
    kill_subtask(job, "rows", 0)
    eventually("a quarter of the rows", lambda: sum(d.rows for d in buffers(job)) == 100_000)
    slow_release(tmp_path)
    assert finish(job).statistics.restarts == 1
    assert sorted(committed(tmp_path)["twice"].to_pylist()) == [2 * i for i in range(1, 400_000, 4)]


@pytest.mark.usefixtures("no_query_is_left")
@pytest.mark.long
def test_filters_and_steps_of_micro_batches_run_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """A row that Spark's filter drops never reaches a receive buffer."""
    arrive(tmp_path, 0, 1, 2)
    env = environment(tmp_path, every=AN_HOUR)
    stream: Any = from_structured_streaming(
        env, watched(spark, tmp_path), id="rows", checkpoint_location=str(tmp_path / "query")
    )
    kept = stream.filter((pc.field("id") >= 100) & (pc.field("id") < 2 * ROWS), id="kept")
    kept.with_columns(k=pc.bit_wise_and(pc.field("id"), 3), id="keys").sink(
        "out", FileSink.parquet(tmp_path / "out")
    )
    job: Any = env.submit()
    eventually("three commits", (tmp_path / "query" / "commits" / "2").exists)
    assert sum(d.rows for d in buffers(job)) == 2 * ROWS - 100
    names = {operator.id: operator.name for operator in job.report().graph.operators}
    assert names["rows"].endswith("filter in Spark")
    assert names["keys"].endswith(", in Spark")
    stop_queries(spark)
    finish(job)
    assert sorted(committed(tmp_path)["id"].to_pylist()) == list(range(100, 2 * ROWS))
    assert set(committed(tmp_path)["k"].to_pylist()) == {0, 1, 2, 3}
