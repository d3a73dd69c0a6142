"""Types on the way into a job and back: every value of every type comes back as it was, or is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from pipelines.jobs import PATIENCE, environment
from pipelines.typed_frames import comparable, frames

from penstock import bridge
from penstock.runtime import JobFailedError, NoRestart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(("zone", "examples"), [("UTC", 2), ("America/St_Johns", 1)])
def test_rows_of_every_type_come_back_as_they_were(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory, zone: str, examples: int
) -> None:
    """Every example has all types with the values at their edges; what is drawn comes on top."""

    @settings(max_examples=examples, suppress_health_check=list(HealthCheck), deadline=None)
    @given(frame=frames())
    def there_and_back(frame: tuple[Any, list[tuple[Any, ...]]]) -> None:
        schema, rows = frame
        df = spark.createDataFrame(rows, schema)
        env = environment(tmp_path_factory.mktemp("types"), parallelism=2)
        back = bridge.to_spark(env, bridge.from_spark(env, df), spark, timeout=PATIENCE)
        assert [(f.name, f.dataType.simpleString()) for f in back.schema] == [
            (f.name, f.dataType.simpleString()) for f in df.schema
        ]
        # A shuffle of so many columns takes longer than all the rest.
        expected = [comparable(row) for row in sorted(df.collect(), key=lambda row: row.row)]
        found = [comparable(row) for row in sorted(back.collect(), key=lambda row: row.row)]
        back.unpersist()
        assert found == expected
        assert len(found) == len(rows)

    with session_setting(spark, "spark.sql.session.timeZone", zone):
        there_and_back()


@contextmanager
def session_setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    had = spark.conf.get(key)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, str(had))


def test_char_columns_become_strings_and_one_without_a_type_is_refused_on_the_way_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.sql(f"CREATE TABLE chars (c CHAR(5), v VARCHAR(7)) USING parquet LOCATION '{tmp_path / 'chars'}'")
    try:
        spark.sql("INSERT INTO chars VALUES ('ab', 'cd'), (NULL, NULL)")
        df = spark.sql("SELECT *, NULL AS nothing FROM chars")
        env = environment(tmp_path, parallelism=1)
        shown = bridge.from_spark(env, df, format="rows").map(shown_nothing)
        schema = pa.schema(
            [(name, pa.string()) for name in ("c", "v", "nothing")]
        )  # the nulls may come first
        back = bridge.to_spark(env, shown, spark, schema=schema, timeout=PATIENCE)
        assert {tuple(row) for row in back.collect()} == {("ab   ", "cd", "None"), (None, None, "None")}
        back.unpersist()

        env = environment(tmp_path, parallelism=1, restart=NoRestart())
        rows = bridge.from_spark(env, df)
        with pytest.raises(JobFailedError, match=r"column 'nothing' holds nothing but nulls.*: cast it, or"):
            bridge.to_spark(env, rows, spark, timeout=PATIENCE)
    finally:
        spark.sql("DROP TABLE chars")


def shown_nothing(row: dict[str, Any]) -> dict[str, Any]:
    return {"c": row["c"], "v": row["v"], "nothing": repr(row["nothing"])}


def test_arrow_types_that_spark_would_misread_are_cast(spark: SparkSession, tmp_path: Path) -> None:
    """Silent corruption otherwise: empty strings, times of another year."""
    instant = datetime.fromisoformat("2024-05-06T07:08:09")
    env = environment(tmp_path, parallelism=1)
    odd = env.from_collection("rows", [{"n": 1}]).map_batches(OddTypes(instant), "arrow")
    df = bridge.to_spark(env, odd, spark, timeout=PATIENCE)
    row = df.first()
    assert row is not None
    assert row.asDict() == {
        "large": "text",
        "nanos": instant,
        "word": "often",
        "unsigned": 2**32 - 1,
        "half": 0.5,
        "fixed": bytearray(b"abcd"),
        "lists": ["x"],
    }
    df.unpersist()


class OddTypes:
    """Gives a batch of types that Spark does not have."""

    def __init__(self, instant: datetime) -> None:
        self.instant = instant

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return pa.record_batch(
            {
                "large": pa.array(["text"], pa.large_string()),
                "nanos": pa.array([self.instant], pa.timestamp("ns")),
                "word": pa.array(["often"]).dictionary_encode(),
                "unsigned": pa.array([2**32 - 1], pa.uint32()),
                "half": pa.array([0.5], pa.float32()).cast(pa.float16()),
                "fixed": pa.array([b"abcd"], pa.binary(4)),
                "lists": pa.array([["x"]], pa.large_list(pa.large_string())),
            }
        )
