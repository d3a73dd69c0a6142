"""DataFrames as sources: all rows arrive, each once, and Spark waits for a job that is slower."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines.jobs import (
    PATIENCE,
    Slowed,
    after_rows,
    assert_each_once,
    buffers,
    committed,
    copied,
    environment,
    eventually,
    finish,
    slow_release,
)
from pipelines.memory import LITTLE, driver_memory
from pipelines.numbered import COUNT, WIDTH, numbers, wide_numbers

from penstock import CollectSink, FileSink
from penstock.actors.client.collect import RayCollector
from penstock.spark import from_spark, to_spark, wait_for_transfer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.long
def test_rows_arrive_once_while_spark_waits_for_a_slow_job_and_covered_frames_are_released(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Back pressure: what waits is at most the window and what tasks have in progress."""
    window = 1 << 20
    # Two tasks at a time with at most four frames of 4 MB in progress.
    most = window + 8 * (9 << 19)
    job = copied(tmp_path, wide_numbers(spark), slow=Slowed(3_000, tmp_path / "go"), window=window)
    eventually(
        "receive buffers that are full", lambda: all(d.most_unread_bytes >= window for d in buffers(job))
    )
    after_rows(job, 10_000)
    before = buffers(job)
    assert not any(buffer.complete for buffer in before)
    assert sum(buffer.rows for buffer in before) < COUNT
    assert all(buffer.most_unread_bytes <= most for buffer in before)
    assert 3 * most < COUNT * WIDTH, "without back pressure one of the two receive buffers would hold more"
    eventually("frames that are released", lambda: any(d.held_bytes < d.bytes for d in buffers(job)))
    slow_release(tmp_path)
    finish(job)
    assert_each_once(tmp_path, COUNT)
    table = committed(tmp_path)
    assert table["text"].to_pylist() == [str(i) + "-" * WIDTH for i in table["id"].to_pylist()]


def test_rows_come_as_dicts_also_from_no_rows_and_from_fewer_partitions_than_readers(
    spark: SparkSession, tmp_path: Path
) -> None:
    from pyspark.sql import functions as F

    env = environment(tmp_path, parallelism=2)
    results = RayCollector()
    nothing = from_spark(env, numbers(spark).where(F.lit(False)), id="nothing", batch_format="rows")
    few = from_spark(env, numbers(spark, 3, partitions=1), id="few", batch_format="rows")
    nothing.union(few).map(lambda row: (row["id"], row["text"])).sink("out", CollectSink(results))
    env.run(timeout=PATIENCE, progress=False)
    assert sorted(results.rows()) == [(i, f"row {i:08d}") for i in range(3)]


@pytest.mark.long
def test_columns_of_any_name_travel(spark: SparkSession, tmp_path: Path) -> None:
    """A dot comes with Spark's own `sum((v * 0.5))`. Names that differ only in case can't come back."""
    names = ["sum((v * 0.5))", "a.b", "a`b", "`", "", " ", "日本", "_1", "_0"]
    rows = [tuple(range(at, at + len(names) + 2)) for at in (0, 100)]
    frame = spark.createDataFrame(rows, [f"c{place}" for place in range(len(names) + 2)])
    read = from_spark(
        environment(tmp_path, parallelism=1), frame.toDF(*names, "same", "SAME"), batch_format="rows"
    )
    back = to_spark(read.map(with_other_name), spark)
    assert back.columns == [*names, "same", "other"]
    assert sorted(map(tuple, back.collect())) == rows


def with_other_name(row: dict[str, Any]) -> dict[str, Any]:
    return {"other" if name == "SAME" else name: value for name, value in row.items()}


@pytest.mark.long  # in test_from_spark_recovery.py rows wait for a window, too
def test_a_partition_larger_than_the_memory_of_its_executor_streams_past_the_program(
    spark: SparkSession, tmp_path: Path
) -> None:
    """One partition of 700 MB, from an executor with a heap of 600, through a window of 8."""
    rows, window = 100_000, 8 << 20
    wide = spark.range(0, rows, 1, 1).selectExpr(
        "id", "concat(cast(id AS string), repeat('-', 7000)) AS text"
    )
    env = environment(tmp_path, parallelism=1)
    stream: Any = from_spark(env, wide, id="rows", window=window)
    narrow = stream.map_batches(NarrowedUntilTheLast(rows - 1, tmp_path / "go"), "arrow")
    narrow.sink("out", FileSink.parquet(tmp_path / "out"))
    with driver_memory(spark) as memory:
        job: Any = env.submit()
        (seen,) = wait_for_transfer(job, PATIENCE)
        slow_release(tmp_path)
        finish(job)
    assert_each_once(tmp_path, rows)
    assert seen.bytes > 700_000_000
    assert memory.most < LITTLE
    assert seen.partitions == 1
    assert seen.most_unread_bytes <= window + 5 * (5 << 20), "four frames under way, and one in hand"


class NarrowedUntilTheLast:
    """Lets ids through, and holds the last one until a file is there."""

    def __init__(self, last: int, release: Path) -> None:
        self.last = last
        self.release = str(release)

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.last in batch["id"].to_pylist():
            eventually("the release", Path(self.release).exists)
        return batch.select(["id"])
