"""DataFrames of numbered rows: each row says which one it is."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = 400_000
#: Characters that follow the number in each row of `wide_numbers`.
WIDTH = 300


def numbers(spark: SparkSession, count: int = COUNT, partitions: int = 5) -> DataFrame:
    from pyspark.sql import functions as F

    return spark.range(0, count, 1, partitions).select("id", F.format_string("row %08d", "id").alias("text"))


def wide_numbers(spark: SparkSession) -> DataFrame:
    """Each of its five partitions is several frames."""
    from pyspark.sql import functions as F

    # Not `rpad`, which copies one character after the other.
    return spark.range(0, COUNT, 1, 5).select(
        "id", F.concat(F.col("id").cast("string"), F.lit("-" * WIDTH)).alias("text")
    )
