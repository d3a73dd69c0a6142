"""Streams of small files, and jobs that write what comes into a table.

The jobs take a checkpoint every hour: all that is committed here is committed by induced ones.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pipelines.jobs import Slowed, environment

from penstock.cluster import RayJobHandle
from penstock.spark import SparkTable, from_structured_streaming

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Of each file.
ROWS = 500
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
    stream: Any = from_structured_streaming(
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


def committed_rows(folder: Path) -> int:
    return sum(pq.read_metadata(file).num_rows for file in (folder / "table").glob("part-*"))


def stop_queries(spark: SparkSession) -> None:
    for query in spark.streams.active:
        query.stop()
