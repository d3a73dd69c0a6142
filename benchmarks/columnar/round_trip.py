"""Spark -> sums by key -> Spark: through a job in columns, and through pandas in the driver.

In both cases Spark generates the DataFrame during the measurement, at the same cost. Each round also measures
a few rows. Their time is the start-up time of the job and of Spark's tasks, and is subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from columnar import jobs
from columnar.work import Work

from penstock.aggregates import Count, Sum
from penstock.spark import from_spark, spark_session, to_spark

#: Spark's settings for both contenders.
SETTINGS = {
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "3g",
    "spark.driver.maxResultSize": "2g",
    "spark.ray.raydp_spark_executor.actor.resource.cpu": "0.5",
}

_KEYS = 1000
_PARTITIONS = 8

Sums = list[tuple[int, int]]


OURS, PANDAS = "from_spark, sums in a job, to_spark", "toPandas, groupby, createDataFrame"


def _ratios(name: str, target: str, target_with_start: str) -> tuple[tuple[str, str, str, str], ...]:
    return (
        (f"{name}_vs_pandas", OURS, PANDAS, target),
        (f"{name}_with_start_vs_pandas", f"{OURS}, with start", f"{PANDAS}, with start", target_with_start),
    )


class RoundTrip(Work):
    """Compares both ways, with all rows and with few rows."""

    ratios = _ratios("spark_round_trip", "at least 3", "")

    #: Columns of the DataFrame besides the key and the summed value, which neither way needs.
    others: ClassVar[Sequence[str]] = ()
    #: Rows are this much fewer, because `toPandas` holds all columns in the driver's memory.
    fewer: ClassVar[int] = 1

    def prepare(self) -> None:
        """Start Spark and warm up both ways; check that they return the same sums."""
        self.spark = spark_session("round-trip", executors=1, cores=2, memory="2g", configs={**SETTINGS})
        self.closing.callback(self.spark.stop)
        self.notes["Spark"] = f"Settings: {', '.join(f'`{k}={v}`' for k, v in SETTINGS.items())}."
        self.many, self.few = (
            self._frame(self._rows),
            self._frame(self._rows // 50),
        )
        for frame in (self.few, self.many):
            if self.through_columns(frame) != self.through_pandas(frame):
                raise RuntimeError("the sums of both ways differ")

    def run_round(self, number: int) -> None:
        """Measure both ways, in alternating order."""
        ways = [(OURS, self.through_columns), (PANDAS, self.through_pandas)]
        for name, way in ways if number % 2 else reversed(ways):
            start, whole = _seconds(way, self.few), _seconds(way, self.many)
            less = self._rows - self._rows // 50
            self.add(name, less / max(whole - start, 1e-3))
            self.add(f"{name}, with start", self._rows / whole)

    def through_columns(self, frame: Any) -> Sums:
        """Transfer rows from Spark's executors into a job, and its results back."""
        from pyspark.sql import functions as F

        rows = from_spark(jobs.environment(self.storage, 2), frame, id="rows")
        sums = rows.key_by("k").aggregate("sums", total=Sum("v"), rows=Count(), emit_every=60.0)
        results = to_spark(sums, self.spark)
        newest = results.groupBy("k").agg(F.max_by("total", "rows").alias("total"))
        found = sorted((row.k, row.total) for row in newest.collect())
        results.unpersist()
        return found

    def through_pandas(self, frame: Any) -> Sums:
        """Transfer rows into the driver's memory, and the results back."""
        summed = frame.toPandas().groupby("k", as_index=False)["v"].sum()
        back = self.spark.createDataFrame(summed)
        return sorted((row.k, row.v) for row in back.collect())

    def _frame(self, rows: int) -> Any:
        from pyspark.sql import functions as F

        return self.spark.range(0, rows, 1, _PARTITIONS).select(
            (F.col("id") * 7919 % _KEYS).alias("k"),
            (F.col("id") % 1013).alias("v"),
            *map(F.expr, self.others),
        )

    @property
    def _rows(self) -> int:
        return self.scale.round_trip_rows // self.fewer


class RoundTrip3(RoundTrip):
    """A third column: text of 12 characters."""

    ratios = _ratios("spark_round_trip_3_columns", "at least 2.2", "at least 1.8")
    others = ("lpad(id, 12, '0') AS text",)
    fewer = 2


class RoundTrip16(RoundTrip):
    """Ten more integers and four texts."""

    ratios = _ratios("spark_round_trip_16_columns", "at least 4", "at least 3")
    others = (
        *(f"id + {number} AS number{number}" for number in range(10)),
        *(f"lpad(id + {number}, 12, '0') AS text{number}" for number in range(4)),
    )
    fewer = 8


def _seconds(way: Callable[[Any], Sums], frame: Any) -> float:
    begun = time.monotonic()
    way(frame)
    return time.monotonic() - begun
