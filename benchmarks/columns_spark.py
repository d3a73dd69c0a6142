"""Spark's part of `columns.py`: a keyed sum of Parquet files by Structured Streaming, in this process.

Prints one line of JSON: the rate of its steady batches, and the sums at the end.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def main(files: str, folder: str) -> None:
    """Run it once over all files."""
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    schema = spark.read.parquet(files).schema
    stream = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(files)
    with tempfile.TemporaryDirectory(dir=folder) as checkpoints:
        query = (
            stream.groupBy("k")
            .sum("v")
            .writeStream.outputMode("update")
            .format("memory")
            .queryName("sums")
            .option("checkpointLocation", str(Path(checkpoints) / "query"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        batches = [p for p in query.recentProgress if p["numInputRows"]]
    # The first batches compile and warm up.
    counted = batches[len(batches) // 3 :]
    rows = sum(p["numInputRows"] for p in counted)
    seconds = sum(p["durationMs"]["triggerExecution"] for p in counted) / 1000
    sums = {
        row["k"]: row["t"] for row in spark.sql("select k, max(`sum(v)`) t from sums group by k").collect()
    }
    print(json.dumps({"rate": rows / seconds, "sums": sums}))


if __name__ == "__main__":
    main(*sys.argv[1:])
