"""Program: sums by user and second in Structured Streaming, from Kafka to Kafka.

Its argument is JSON: `servers`, `settings` of Spark, `jars` of its connector, `orders_per_trigger`, a
`folder` for checkpoints, and `jobs`. A job has a name and a number of orders. It reads `orders-COUNT` and
writes `NAME-COUNT`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from typing import Any

from report import Ended, busy_seconds

_SCHEMA = "id LONG, user STRING, amount LONG, weight DOUBLE, at LONG, paid BOOLEAN, note STRING"


def run(spark: Any, given: dict[str, Any], name: str, count: int) -> Ended:
    """Run a query to the end of its topic."""
    from pyspark.sql import functions as f

    kafka = {"kafka.bootstrap.servers": given["servers"]}
    reading = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": given["orders_per_trigger"]}
    begun, busy = time.monotonic(), busy_seconds()
    records = spark.readStream.format("kafka").options(**kafka, **reading, subscribe=f"orders-{count}").load()
    orders = records.select(f.from_json(f.col("value").cast("string"), _SCHEMA).alias("o")).select("o.*")
    moments = orders.withColumn("ts", f.timestamp_micros("at")).withWatermark("ts", "1 second")
    sums = moments.groupBy(f.window("ts", "1 second"), "user").agg(f.sum("amount").alias("total"))
    results = sums.select("user", f.unix_timestamp("window.start").alias("second"), "total")
    values = results.select(f.col("user").alias("key"), f.to_json(f.struct("*")).alias("value"))
    with tempfile.TemporaryDirectory(dir=given["folder"], ignore_cleanup_errors=True) as checkpoints:
        writing = {"topic": f"{name}-{count}", "checkpointLocation": checkpoints}
        writer = values.writeStream.format("kafka").options(**kafka, **writing).trigger(availableNow=True)
        writer.start().awaitTermination()
    return Ended(name, count, time.monotonic() - begun, busy_seconds() - busy)


def main(given: dict[str, Any]) -> None:
    """Run the jobs."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.config("spark.jars", ",".join(given["jars"]))
    for name, value in given["settings"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    for job in given["jobs"]:
        try:
            run(spark, given, *job).say()
        except Exception as error:  # a query that a peer can't run is also a result
            Ended(*job, failure=str(error)[:500]).say()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
