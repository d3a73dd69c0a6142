"""A program with a plain Spark session, without RayDP, there and back; see test_to_spark.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray
from pipelines.jobs import PATIENCE, environment

from penstock import DeploymentError, NoRestart, PenstockError
from penstock.bridge.session.spark_options import find_java, use_java
from penstock.cluster import start_local
from penstock.spark import SparkTable, from_spark, spark_session, to_spark

COUNT = 1_000


def plain_session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("plain")
    settings = {
        "spark.ui.enabled": False,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.session.timeZone": "America/New_York",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def doubled(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.set_column(0, "id", pc.multiply(batch["id"], 2))


def only_ids(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select(["id"])


def start_without_java() -> None:
    """The cluster has none on its path, this program has one again."""
    had = os.environ["PATH"]
    os.environ["PATH"] = str(Path(sys.executable).parent)
    start_local(num_cpus=4)
    os.environ["PATH"] = had


def refused_by_the_cluster() -> None:
    try:
        spark_session("no java")
    except DeploymentError as error:
        print("refused:", error)


def main(folder: Path) -> None:
    use_java(find_java(os.environ), os.environ)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    start_without_java()
    plain = plain_session()
    spark = spark_session(existing=plain)
    print("taken as it is:", spark is plain, spark.sparkContext.master, "raydp" in sys.modules)
    df = spark.range(0, COUNT, 1, 4).selectExpr(
        "id", "timestamp_seconds(id * 100000) AS at", "map(cast(id AS string), array(id, NULL)) AS m"
    )
    env = environment(folder, restart=NoRestart())
    rows = from_spark(env, df).map_batches(doubled, "arrow")
    table = SparkTable(folder / "table", pa.schema({"id": pa.int64()}))
    rows.map_batches(only_ids, "arrow").sink("table", table)
    back = to_spark(rows, spark, timeout=PATIENCE)
    print("same types:", back.dtypes == df.dtypes)
    expected = df.selectExpr("id * 2 AS id", "at", "m")
    print("rows:", back.count())
    print("lost or changed:", len(differing(expected, back)))
    back.unpersist()
    refused_by_the_cluster()
    ray.shutdown()
    print("outlived the cluster:", table.read(spark).distinct().count())
    spark.stop()
    try:
        to_spark(rows, spark)
    except PenstockError as error:
        print("told:", error)


def differing(one: Any, other: Any) -> list[Any]:
    ours, theirs = (sorted(frame.collect(), key=lambda row: row.id) for frame in (one, other))
    return [pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1]]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
