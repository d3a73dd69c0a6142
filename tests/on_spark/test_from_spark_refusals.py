"""DataFrames whose rows can't be transferred: the error names the operator or the column."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines.jobs import PATIENCE, copied, environment
from pipelines.numbered import numbers, wide_numbers

from penstock import FileSink, GraphError, JobFailedError
from penstock.bridge.arrow import arrow_schema_of
from penstock.spark import from_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CAST = "which Arrow can't carry from Spark: cast it to INTERVAL MONTH and that to INT, or to STRING"


def test_a_function_that_fails_in_spark_fails_the_job_with_its_reason(
    spark: SparkSession, tmp_path: Path
) -> None:
    df = numbers(spark, 100, partitions=1).mapInArrow(raise_always, "id long, text string")
    job = copied(tmp_path, df)
    with pytest.raises(JobFailedError, match=r"operator 'rows'.*ValueError: no luck with these rows"):
        job.wait(PATIENCE)
    assert job.statistics().restarts == 0


@pytest.mark.long
def test_rows_that_no_checkpoint_covers_and_that_exceed_the_limit_on_disk_fail_the_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    """No checkpoint comes, so the receive buffers must hold all that was read."""
    env = environment(tmp_path, every=600)
    rows = from_spark(env, wide_numbers(spark), id="rows", window=1 << 16, max_disk_bytes=1 << 20)
    rows.sink("out", FileSink.parquet(tmp_path / "out"))
    job = env.submit()
    with pytest.raises(JobFailedError) as caught:
        job.wait(PATIENCE)
    message = str(caught.value)
    assert "operator 'rows'" in message
    assert "rows from Spark that no checkpoint covers fill " in message
    assert "max_disk_bytes=1,048,576 allows no more. Take checkpoints more often" in message
    assert job.statistics().restarts == 0
    assert list((tmp_path / "out").glob("[!._]*")) == []


@pytest.mark.parametrize(
    ("column", "refused"),
    [
        ("named_struct('age', INTERVAL '3' YEAR)", rf"column 'c\.age' has type interval year, {_CAST}"),
        ("array(INTERVAL '3' MONTH)", rf"column 'c\[\]' has type interval month, {_CAST}"),
        ("map('a', INTERVAL '2' YEAR)", rf"column 'c\.value' has type interval year, {_CAST}"),
        (
            "make_interval(0, 1)",
            "column 'c' has type interval, .*: convert it to days, to seconds or to text",
        ),
        (
            "array(make_interval(0, 1))",
            r"column 'c(\[\])?' has type .*interval.*, which .*: convert",
        ),
    ],
)
def test_a_type_that_can_not_travel_is_refused_by_name(
    spark: SparkSession, tmp_path: Path, column: str, refused: str
) -> None:
    """The way back: tests/bridge/test_readable_types.py."""
    df = spark.sql(f"SELECT 1 AS id, {column} AS c")
    with pytest.raises(GraphError, match=refused):
        from_spark(environment(tmp_path), df)


@pytest.mark.long
def test_the_casts_that_a_refusal_names_help(spark: SparkSession) -> None:
    df = spark.sql(
        "SELECT CAST(CAST(a AS INTERVAL MONTH) AS INT) AS months, CAST(a AS STRING) AS text "
        "FROM (SELECT INTERVAL '1-2' YEAR TO MONTH AS a)"
    )
    assert arrow_schema_of(df).types == [pa.int32(), pa.string()]
    assert df.first() == (14, "INTERVAL '1-2' YEAR TO MONTH")


@pytest.mark.long
def test_a_user_defined_type_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.ml.linalg import Vectors

    df = spark.createDataFrame([(1, Vectors.dense([0.5]))], ["id", "features"])
    with pytest.raises(GraphError, match=r"column 'features' has type vector, .*: convert it to plain"):
        from_spark(environment(tmp_path), df)


def raise_always(batches: Any) -> Any:
    raise ValueError("no luck with these rows")
    yield from batches
