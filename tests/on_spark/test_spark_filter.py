"""Filters that leave the job for Spark keep the same rows there."""

from __future__ import annotations

from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deep import DEEP
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pipelines.drawn_filters import batches, filters

from penstock.bridge.spark_filter import conditions_of, spark_column
from penstock.runtime.operators.expressions import as_mask, compute

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: So that Spark does not ask about the calendar of old dates.
_CALENDAR = {"org.apache.spark.version": "3.5.0"}


def read(spark: SparkSession, folder: Path, rows: pa.RecordBatch) -> DataFrame:
    """The rows and their numbers as Spark reads them from a file with statistics by Arrow."""
    numbered = pa.Table.from_batches([rows]).append_column("number", pa.array(range(len(rows))))
    pq.write_table(numbered.replace_schema_metadata(_CALENDAR), folder / "rows.parquet")
    return spark.read.parquet(str(folder / "rows.parquet"))


@settings(
    deadline=None,
    max_examples=4 * DEEP,
    phases=(Phase.explicit, Phase.reuse, Phase.generate),  # shrinking needs hundreds of Spark jobs
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(batches(), st.lists(filters(), min_size=20, max_size=20))
def test_spark_keeps_the_rows_that_arrow_keeps(
    spark: SparkSession, tmp_path: Path, rows: pa.RecordBatch, wanted: list[pc.Expression]
) -> None:
    from pyspark.sql import functions as F

    df = read(spark, tmp_path, rows)
    translated = [conditions_of(each, rows.schema) for each in wanted]
    columns = [
        reduce(
            and_, [spark_column(one, lambda place: df[df.columns[place]]) for one in conditions], F.lit(True)
        )
        for conditions, _ in translated
    ]
    kept = list(zip(*df.sort("number").select(*columns).collect(), strict=True))
    for each, (conditions, are_all), found in zip(wanted, translated, kept, strict=True):
        (result,) = compute({"": each}, rows)
        expected = as_mask(result, "filter").to_pylist()
        if are_all:
            assert [bool(one) for one in found] == expected, (each, conditions)
        assert all(one for one, is_kept in zip(found, expected, strict=True) if is_kept), (each, conditions)
    # As a filter, Spark passes a condition on to the file, whose statistics know no NaN and no -0.0.
    numbers = {row.number for row in df.filter(columns[0]).select("number").collect()}
    assert numbers == {number for number, one in enumerate(kept[0]) if one}, translated[0]
