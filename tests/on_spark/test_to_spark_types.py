"""Types on the way into a job and back: every value of every type comes back as it was, or is refused."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from pipelines.jobs import PATIENCE, environment
from pipelines.typed_frames import columns_in, columns_of, frames, schema_that_comes_back

from penstock import WatermarkStrategy
from penstock.bridge.arrow import arrow_schema_of
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.record.elements import ArrowBatch, BatchFormat
from penstock.spark import SparkResults, from_spark, to_spark
from penstock.testing import OperatorHarness
from penstock.windows import TimeWindow, TumblingEventTimeWindows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def long(zone: str, batch_format: BatchFormat, examples: int) -> Any:
    return pytest.param(zone, batch_format, examples, marks=[pytest.mark.long, pytest.mark.timeout(3_000)])


@pytest.mark.parametrize(
    ("zone", "batch_format", "examples"),
    [
        ("America/St_Johns", "rows", 1),
        ("GMT+5:45", "arrow", 1),  # no name that Python knows
        long("UTC", "arrow", 15),
        long("UTC", "rows", 1),
        long("America/St_Johns", "arrow", 15),
        long("America/St_Johns", "rows", 15),
        long("GMT+5:45", "rows", 15),
    ],
)
def test_rows_of_every_type_come_back_as_they_were(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    zone: str,
    batch_format: BatchFormat,
    examples: int,
) -> None:
    """Every example has all types with the values at their edges; what is drawn comes on top."""

    @settings(
        max_examples=examples,
        phases=[Phase.reuse, Phase.generate],  # each try to make a failing one smaller would be a job
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(frame=frames(local_times=batch_format == "rows" and zone != "UTC"))
    def there_and_back(frame: tuple[Any, list[tuple[Any, ...]]]) -> None:
        schema, rows = frame
        df = spark.createDataFrame(rows, schema)
        env = environment(tmp_path_factory.mktemp("types"), parallelism=1)
        stream = from_spark(env, df, batch_format=batch_format)
        if batch_format == "rows":
            back = to_spark(stream.map(itself), spark, schema=arrow_schema_of(df), timeout=PATIENCE)
        else:
            back = to_spark(stream, spark, timeout=PATIENCE)
        found, expected = columns_in(back), columns_of(rows, schema)
        back.unpersist()
        changed = {
            f"{field.name} {field.dataType.simpleString()}": (found[field.name], expected[field.name])
            for field in schema
            if found[field.name] != expected[field.name]
        }
        assert not changed
        assert back.schema == schema_that_comes_back(schema, columns_keep_not_null=batch_format == "rows")

    with session_setting(spark, "spark.sql.session.timeZone", zone):
        there_and_back()


def itself(row: Any) -> Any:
    return row


@contextmanager
def session_setting(spark: SparkSession, key: str, value: str) -> Iterator[None]:
    had = spark.conf.get(key)
    spark.conf.set(key, value)
    try:
        yield
    finally:
        spark.conf.set(key, str(had))


@pytest.mark.long
def test_times_of_windows_are_timestamps(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path, parallelism=1)
    strategy: WatermarkStrategy[datetime] = WatermarkStrategy.for_monotonous_timestamps()
    sales = env.from_collection("sales", [NOON]).assign_timestamps_and_watermarks(
        strategy.with_timestamp_assigner(itself)
    )
    counted = sales.key_by(hour_of).window(TumblingEventTimeWindows(60)).apply("counted", times_of)
    back = to_spark(counted, spark, timeout=PATIENCE)
    assert back.dtypes == [("start", "timestamp"), ("end", "timestamp")]
    noon = round(NOON.timestamp() * 1_000_000)
    assert back.selectExpr("unix_micros(start)", "unix_micros(end)").collect() == [(noon, noon + 60_000_000)]
    back.unpersist()


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


def hour_of(at: datetime) -> int:
    return at.hour


def times_of(hour: int, window: TimeWindow, moments: list[datetime]) -> Iterator[dict[str, datetime]]:
    yield {"start": window.start, "end": window.end}


@pytest.mark.long
def test_the_zone_of_the_session_travels_by_a_name_that_python_knows(spark: SparkSession) -> None:
    df = spark.sql("SELECT timestamp_seconds(0) AS at, TIMESTAMP_NTZ'1970-01-01 00:00:00' AS wall")
    for zone, known in [("Asia/Kolkata", "Asia/Kolkata"), ("PST", "America/Los_Angeles"), ("Z", "UTC")]:
        with session_setting(spark, "spark.sql.session.timeZone", zone):
            schema = arrow_schema_of(df)
        assert schema.field("at").type == pa.timestamp("us", known)
        assert schema.field("wall").type == pa.timestamp("us")


@pytest.mark.long
def test_char_far_times_and_a_column_without_a_type_travel(spark: SparkSession, tmp_path: Path) -> None:
    spark.sql(f"CREATE TABLE chars (c CHAR(5), v VARCHAR(7)) USING parquet LOCATION '{tmp_path / 'chars'}'")
    try:
        spark.sql("INSERT INTO chars VALUES ('ab', 'cd'), (NULL, NULL)")
        far = f"timestamp_micros({2**63 - 1}) AS at, timestamp_micros({-(2**63)}) AS before"
        df = spark.sql(
            f"SELECT *, {far}, date_from_unix_date({2**31 - 1}) AS day, NULL AS nothing FROM chars"
        )
        env = environment(tmp_path, parallelism=1)
        shown = from_spark(env, df).map_batches(shown_nothing, "arrow")
        back = to_spark(shown, spark, timeout=PATIENCE)
        numbers = "unix_micros(at)", "unix_micros(before)", "unix_date(day)"
        found = {tuple(row) for row in back.selectExpr("c", "v", *numbers, "nothing").collect()}
        unchanged = (2**63 - 1, -(2**63), 2**31 - 1, "null")
        assert found == {("ab   ", "cd", *unchanged), (None, None, *unchanged)}
        back.unpersist()
    finally:
        spark.sql("DROP TABLE chars")


def shown_nothing(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Its type in its place."""
    column = batch.schema.get_field_index("nothing")
    return batch.set_column(column, "nothing", pa.array([str(batch.schema.types[column])] * batch.num_rows))


def test_arrow_types_that_spark_would_misread_are_cast(spark: SparkSession, tmp_path: Path) -> None:
    """Silent corruption otherwise: empty strings, times of another year."""
    instant = datetime.fromisoformat("2024-05-06T07:08:09")
    results = SparkResults()
    with OperatorHarness(SinkOperator(results)) as harness:
        harness.push_batch(ArrowBatch(odd_types(instant)))
        harness.complete_checkpoint(harness.snapshot())
    df = results.to_dataframe(spark)
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
    results.unpersist()


def odd_types(instant: datetime) -> pa.RecordBatch:
    """A batch of types that Spark does not have."""
    return pa.record_batch(
        {
            "large": pa.array(["text"], pa.large_string()),
            "nanos": pa.array([instant], pa.timestamp("ns")),
            "word": pa.array(["often"]).dictionary_encode(),
            "unsigned": pa.array([2**32 - 1], pa.uint32()),
            "half": pa.array([0.5], pa.float32()).cast(pa.float16()),
            "fixed": pa.array([b"abcd"], pa.binary(4)),
            "lists": pa.array([["x"]], pa.large_list(pa.large_string())),
        }
    )
