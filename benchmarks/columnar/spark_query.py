"""Spark's part of `columns.py`: one query of Structured Streaming, in a process of its own.

The program takes a `Query` as JSON, and prints one line of JSON: figures of the steady part, and settings.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROCKS = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"

#: Settings of every query.
SETTINGS = {
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "4g",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

#: Settings of some queries.
OF_WORK = {
    "many_keys": {
        "spark.sql.streaming.stateStore.providerClass": _ROCKS,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.streaming.stateStore.rocksdb.blockCacheSizeMB": "512",
    }
}


@dataclass(frozen=True)
class Query:
    """The query to run.

    Attributes:
        work: `keyed_sum`, `many_keys` or `windows`.
        files: The folder of the Parquet files.
        folder: The folder of the checkpoints.
        files_per_trigger: Maximum files in a micro-batch.
        warm_up: Minimum seconds of the warm-up.
        warm_rows: Minimum rows of the warm-up.
        seconds: Length of the steady part; 0 runs to the end of the files.
        results: Folder for the sums, as Parquet files; `None` drops them.
    """

    work: str
    files: str
    folder: str
    files_per_trigger: int
    warm_up: float = 0.0
    warm_rows: int = 0
    seconds: float = 0.0
    results: str | None = None


def main(query: Query) -> None:
    """Run the query, and print its figures."""
    from pyspark.sql import SparkSession

    settings = {**SETTINGS, **OF_WORK.get(query.work, {})}
    builder: Any = SparkSession.builder
    builder = builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    schema = spark.read.parquet(str(next(Path(query.files).iterdir()))).schema
    read = spark.readStream.schema(schema).option("maxFilesPerTrigger", query.files_per_trigger)
    summed = sums(query.work, read.parquet(query.files))
    writer = summed.writeStream.outputMode("update").option("checkpointLocation", f"{query.folder}/query")
    if query.results is None:
        writer = writer.format("noop")
    else:
        results = query.results
        writer = writer.foreachBatch(lambda frame, number: frame.write.parquet(f"{results}/{number}"))
    running = writer.trigger(availableNow=True).start()
    counted = steady(running, query)
    rows = sum(batch["numInputRows"] for batch in counted)
    seconds = sum(batch["durationMs"]["triggerExecution"] for batch in counted) / 1000
    said = {
        "rate": rows / seconds if seconds else 0.0,
        "rows": rows,
        "seconds": seconds,
        "batches": len(counted),
        "settings": {**settings, "maxFilesPerTrigger": str(query.files_per_trigger)},
    }
    print(json.dumps(said))


def sums(work: str, rows: DataFrame) -> DataFrame:
    """Build the query."""
    from pyspark.sql import functions as F

    total = F.sum("v").alias("total")
    if work != "windows":
        return rows.groupBy("k").agg(total)
    minute = F.window("ts", "1 minute").alias("minute")
    minutes = rows.withWatermark("ts", "5 seconds").groupBy("k", minute).agg(total)
    return minutes.select("k", F.col("minute.start").alias("window_start"), "total")


def steady(running: Any, query: Query) -> list[dict[str, Any]]:
    """The batches after the warm-up, for `query.seconds` seconds or up to the end."""
    while running.isActive:
        if query.seconds:
            counted = _counted(running.recentProgress, query)
            if sum(batch["durationMs"]["triggerExecution"] for batch in counted) > 1000 * query.seconds:
                running.stop()
                return counted
        time.sleep(0.5)
    running.awaitTermination()
    return _counted(running.recentProgress, query)


def _counted(progress: list[dict[str, Any]], query: Query) -> list[dict[str, Any]]:
    """The batches after the warm-up, which has at least one batch."""
    seconds, rows = 0.0, 0
    batches = [batch for batch in progress if batch["numInputRows"]]
    for number, batch in enumerate(batches):
        if number and seconds >= query.warm_up and rows >= query.warm_rows:
            return batches[number:]
        seconds += batch["durationMs"]["triggerExecution"] / 1000
        rows += batch["numInputRows"]
    return []


if __name__ == "__main__":
    main(Query(**json.loads(sys.argv[1])))
