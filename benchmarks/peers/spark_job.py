"""Runs queries of Structured Streaming, one after another, in a process of its own.

Its argument is JSON. `folders` has the folder of Parquet files for each number of events. `jobs` has pairs of
a query and a number of events. `files_per_trigger` is the maximum number of files in a micro-batch. With
`join` the queries are interval joins. With `collect` the results are printed, else they are discarded.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import spark_queries
from nexmark_side_input import side_input
from report import Ended, busy_seconds


class Job:
    """Runs queries over Parquet files in one Spark session."""

    def __init__(self, spark: Any, given: dict[str, Any]) -> None:
        self._spark = spark
        self._given = given

    def _read(self, folder: Path, lateness: str, column: str) -> Any:
        schema = self._spark.read.parquet(str(folder)).schema
        reader = self._spark.readStream.schema(schema)
        files = reader.option("maxFilesPerTrigger", self._given["files_per_trigger"]).parquet(str(folder))
        return files.withWatermark(column, lateness)

    def _query(self, query: str, folder: Path) -> Any:
        if "join" in self._given:
            for side in ("lefts", "rights"):
                self._read(folder / side, "0 seconds", "ts").createOrReplaceTempView(side)
            return self._spark.sql(spark_queries.JOIN[query])
        self._read(folder, "4 seconds", "dateTime").createOrReplaceTempView("events")
        for name, view in spark_queries.VIEWS.items():
            self._spark.sql(view).createOrReplaceTempView(name)
        values = self._spark.createDataFrame(list(side_input().items()), "key long, value string")
        values.createOrReplaceTempView("side_input")
        return self._spark.sql(spark_queries.NEXMARK[query])

    def run(self, query: str, count: int) -> Ended:
        """Run a query to the end of the files."""
        rows: list[dict[str, Any]] = []
        folder = Path(self._given["folders"][str(count)])
        updated = spark_queries.UPDATES.get(query)
        begun, busy = time.monotonic(), busy_seconds()
        with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as checkpoints:
            writer = self._query(query, folder).writeStream.outputMode("update" if updated else "append")
            writer = writer.option("checkpointLocation", checkpoints).trigger(availableNow=True)
            if self._given.get("collect"):
                writer = writer.foreachBatch(
                    lambda frame, _: rows.extend(row.asDict() for row in frame.collect())
                )
            else:
                writer = writer.format("noop")
            writer.start().awaitTermination()
        seconds, busy = time.monotonic() - begun, busy_seconds() - busy
        if updated:
            rows = list({tuple(row[name] for name in updated): row for row in rows}.values())
        return Ended(query, count, seconds, busy, rows if self._given.get("collect") else None)


def main(given: dict[str, Any]) -> None:
    """Run the jobs."""
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    for name, value in spark_queries.SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    job = Job(spark, given)
    for query, count in given["jobs"]:
        try:
            job.run(query, count).say()
        except Exception as error:  # a query that a peer can't run is also a result
            Ended(query, count, failure=str(error)[:500]).say()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
