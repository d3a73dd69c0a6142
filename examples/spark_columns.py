"""Spark -> columns -> Spark: revenue by shop and minute, without turning any row into a Python object.

    pip install 'penstock[spark]'
    python examples/spark_columns.py

Spark generates sales. Its executors push them into a job as Arrow batches. The job drops returns, and adds up
the other sales by shop and minute of event time. Its sink returns the windows as Arrow batches, and Spark
finds the best minute of each shop. Then Spark computes all minutes by itself, and both results are compared.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock import Checkpointing, DataStream, PenstockError, StreamEnvironment, WatermarkStrategy
from penstock.aggregates import Count, Max, Sum
from penstock.spark import from_spark, spark_session, to_spark
from penstock.windows import TumblingEventTimeWindows

SHOPS = 20
#: Maximum seconds between Spark's partitions in event time: the whole period of the sales.
_APART = 3600.0


def make_sales(spark: SparkSession, count: int) -> DataFrame:
    """Sales of an hour; one sale in ten is a return, which has negative cents."""
    second = (F.col("id") * 3600 / count).cast("long") + 1_767_225_600
    cents = F.col("id") * 7919 % 9_999 + 1
    return spark.range(0, count, 1, 4).select(
        (F.col("id") * 31 % SHOPS).alias("shop"),
        F.timestamp_seconds(second).alias("at"),
        F.when(F.col("id") % 10 == 0, -cents).otherwise(cents).alias("cents"),
    )


def by_minute(sales: DataStream[Any]) -> DataStream[dict[str, Any]]:
    """Revenue of each shop and minute."""
    paid = sales.filter(pc.field("cents") > 0)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(_APART).with_timestamp_column("at")
    minutes = (
        paid.assign_timestamps_and_watermarks(strategy).key_by("shop").window(TumblingEventTimeWindows(60))
    )
    return minutes.aggregate("minutes", cents=Sum("cents"), sales=Count(), largest=Max("cents"))


def best(minutes: DataFrame) -> list[Any]:
    """The best minute of each shop."""
    start = F.col("window_start")
    ranked = minutes.groupBy("shop").agg(
        F.max_by(F.struct(start, "cents", "sales", "largest"), "cents").alias("best")
    )
    return ranked.select("shop", "best.*").orderBy("shop").collect()


def expected(sales: DataFrame) -> DataFrame:
    """The same minutes, by Spark alone."""
    minute = F.window("at", "1 minute").alias("minute")
    grouped = sales.where("cents > 0").groupBy("shop", minute)
    sums = F.sum("cents").alias("cents"), F.count("*").alias("sales"), F.max("cents").alias("largest")
    return grouped.agg(*sums).withColumn("window_start", F.col("minute.start"))


def run(spark: SparkSession, count: int, storage: str) -> bool:
    """Send the sales through the job; return whether the result equals Spark's."""
    sales = make_sales(spark, count)
    env = StreamEnvironment("minutes", parallelism=2, checkpointing=Checkpointing(every=1, storage=storage))
    minutes = to_spark(by_minute(from_spark(env, sales, id="sales")), spark)
    columns = ["shop", "window_start", "cents", "sales", "largest"]
    found, right = minutes.select(columns), expected(sales).select(columns)
    same = found.exceptAll(right).isEmpty() and right.exceptAll(found).isEmpty()
    for row in best(minutes)[:3]:
        print(f"shop {row.shop}: {row.cents / 100:,.2f} from {row.sales} sales at {row.window_start:%H:%M}")
    minutes.unpersist()
    return same


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--sales", type=int, default=1_000_000, metavar="N", help="default 1,000,000")
    given = parser.parse_args()
    share = {"spark.ray.raydp_spark_executor.actor.resource.cpu": 0.5}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="spark-columns-") as storage,
            spark_session("spark-columns", executors=1, cores=2, memory="600m", configs=share) as spark,
        ):
            same = run(spark, given.sales, storage)
    except PenstockError as error:
        print(f"spark_columns: {error}", file=sys.stderr)
        return 1
    print("the result equals Spark's" if same else "WRONG: the result differs from Spark's")
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
