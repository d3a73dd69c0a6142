"""Results of jobs as DataFrames: nothing lost, nothing twice, nothing changed."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipelines.jobs import PATIENCE, Slowed, after_rows, environment, finish, kill_subtask
from pipelines.programs import run_program

from penstock import bridge
from penstock.runtime import JobFailedError, NoRestart, PenstockError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "twice": row["id"] * 2}


def test_results_of_a_job_are_a_data_frame(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path)
    rows = bridge.from_spark(env, spark.range(0, 50_000, 1, 3))
    df = bridge.to_spark(env, rows.map(doubled), spark, timeout=PATIENCE)
    assert df.dtypes == [("id", "bigint"), ("twice", "bigint")]
    assert df.selectExpr("count(*)", "sum(id)", "sum(twice)").first() == (
        50_000,
        1_249_975_000,
        2_499_950_000,
    )
    assert df.rdd.getNumPartitions() >= 2
    df.unpersist()


def test_a_killed_subtask_leaves_nothing_twice_in_the_results(spark: SparkSession, tmp_path: Path) -> None:
    count = 200_000
    env = environment(tmp_path)
    stream: Any = bridge.from_spark(env, spark.range(0, count, 1, 4), id="rows", window=1 << 18)
    with bridge.SparkResults() as results:
        slow = stream.map_batches(Slowed(40_000, tmp_path / "go"), "arrow")
        slow.sink("out", results, disable_chaining=True)
        job: Any = env.submit()
        after_rows(job, 20_000, checkpoints=2)
        seen = results.to_dataframe(spark).count()
        kill_subtask(job, "out", 0)
        (tmp_path / "go").touch()
        assert finish(job).statistics.restarts == 1
        found = Counter(row.id for row in results.to_dataframe(spark).collect())
    assert 0 < seen < count, "what is committed can be read while the job runs"
    assert found == Counter(range(count))


def test_a_plain_session_gives_rows_and_has_results_without_raydp(tmp_path: Path) -> None:
    said = run_program("plain_session.py", tmp_path)
    assert "taken as it is: True local[2] False" in said, said
    assert "same types: True" in said
    assert "rows: 1000\n" in said
    assert "lost or changed: 0" in said


def test_released_results_are_named_as_such(spark: SparkSession) -> None:
    results = bridge.SparkResults(pa.schema({"a": pa.int64()}))
    assert results.to_dataframe(spark).collect() == []
    results.unpersist()
    with pytest.raises(PenstockError, match="has ended or has released them"):
        results.to_dataframe(spark)


def test_no_rows_and_no_schema_is_an_error_that_says_what_to_give(spark: SparkSession) -> None:
    with bridge.SparkResults() as results, pytest.raises(PenstockError, match="give SparkResults a schema="):
        results.to_dataframe(spark)


def test_rows_that_do_not_fit_the_schema_fail_the_job(spark: SparkSession, tmp_path: Path) -> None:
    env = environment(tmp_path, parallelism=1, restart=NoRestart())
    rows = env.from_collection("rows", [{"a": 1}, {"a": "one"}])
    with pytest.raises(JobFailedError, match=r"operator 'to-spark'.*which does not fit the schema"):
        bridge.to_spark(env, rows, spark, timeout=PATIENCE)


Kind: TypeAlias = "tuple[Any, list[Any], st.SearchStrategy[Any]]"


def leaf_kinds() -> list[Kind]:
    """Spark's types, each with values at its edges and with all that it can have."""
    from pyspark.sql import types as t

    first, last = datetime.fromisoformat("1971-01-01"), datetime.fromisoformat("2200-01-01")
    micro = timedelta(microseconds=1)
    instants = st.datetimes(first, last)
    text = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
    many = Decimal(10**19)

    def whole(bits: int) -> tuple[list[int], st.SearchStrategy[int]]:
        least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        return [least, most], st.integers(least, most)

    floats = [math.nan, -0.0, math.inf]
    return [
        (t.BooleanType(), [True, False], st.booleans()),
        (t.ByteType(), *whole(8)),
        (t.ShortType(), *whole(16)),
        (t.IntegerType(), *whole(32)),
        (t.LongType(), *whole(64)),
        (t.FloatType(), floats, st.floats(width=32)),
        (t.DoubleType(), [*floats, 5e-324], st.floats()),
        (t.StringType(), ["", "\0", "\U0001f600"], text),
        (t.BinaryType(), [bytearray(), bytearray(b"\0")], st.binary(max_size=6).map(bytearray)),
        (t.DateType(), [date(1, 1, 1), date(9999, 12, 31)], st.dates(date(1, 1, 1), date(9999, 12, 31))),
        (t.TimestampType(), [first, last - micro], instants),
        (t.TimestampNTZType(), [first, last - micro], instants),
        (
            t.DayTimeIntervalType(),
            [timedelta(-9_000), micro],
            st.timedeltas(timedelta(-9_000), timedelta(9_000)),
        ),
        (t.DecimalType(38, 18), [-many, Decimal("1e-18")], st.decimals(-many, many, places=18)),
        (t.DecimalType(5, 0), [Decimal(-99_999), Decimal(0)], st.integers(-99_999, 99_999).map(Decimal)),
    ]


def leaf_types() -> st.SearchStrategy[tuple[Any, st.SearchStrategy[Any]]]:
    """One of them."""
    return st.sampled_from([(kind, values) for kind, _, values in leaf_kinds()])


def nested(inner: st.SearchStrategy[tuple[Any, Any]]) -> st.SearchStrategy[tuple[Any, Any]]:
    from pyspark.sql import types as t

    def struct(parts: list[tuple[Any, Any]]) -> tuple[Any, Any]:
        kind = t.StructType([t.StructField(f"f{i}", part) for i, (part, _) in enumerate(parts)])
        return kind, st.tuples(*(st.none() | values for _, values in parts))

    arrays = inner.map(lambda e: (t.ArrayType(e[0]), st.lists(st.none() | e[1], max_size=3)))
    structs = st.lists(inner, min_size=1, max_size=3).map(struct)
    keys = st.text("abc", max_size=3)
    maps = inner.map(
        lambda e: (t.MapType(t.StringType(), e[0]), st.dictionaries(keys, st.none() | e[1], max_size=3))
    )
    return arrays | structs | maps


def every_column(kind: Any, values: list[Any]) -> list[tuple[Any, list[Any]]]:
    """Columns in which a type stands plain, and in everything that can hold it."""
    from pyspark.sql import types as t

    def struct(inner: Any) -> Any:
        return t.StructType([t.StructField("f", inner), t.StructField("g", t.ByteType())])

    deep = t.ArrayType(struct(t.MapType(t.StringType(), kind)))
    columns = [
        (kind, values),
        (t.ArrayType(kind), [[value, None, value] for value in values]),
        (struct(kind), [(value, 1) for value in values]),
        (t.MapType(t.StringType(), kind), [{"k": value, "": None} for value in values]),
        (deep, [[({"k": value}, None), None] for value in values]),
    ]
    if isinstance(kind, t.LongType | t.StringType | t.DateType | t.DecimalType):
        columns.append((t.MapType(kind, t.ByteType()), [{value: 1} for value in values]))
    return columns


@st.composite
def frames(draw: st.DrawFn) -> tuple[Any, list[tuple[Any, ...]]]:
    """A schema with every type, plain and nested, and some that are nested at random; and rows for it."""
    from pyspark.sql import types as t

    schema = t.StructType([t.StructField("row", t.LongType(), nullable=False)])
    columns: list[list[Any]] = []
    for kind, edges, values in leaf_kinds():
        cells = [*edges, *draw(st.lists(values, min_size=1, max_size=3))]
        for column, found in every_column(kind, cells):
            schema.add(f"c{len(columns)}", column)
            columns.append(found)
    for kind, values in draw(st.lists(st.recursive(leaf_types(), nested, max_leaves=4), max_size=5)):
        schema.add(f"c{len(columns)}", kind)
        columns.append(draw(st.lists(values, min_size=1, max_size=3)))
    # The last row holds nothing but nulls; a shorter column begins again.
    longest = max(map(len, columns))
    rows = [(i, *(cells[i % len(cells)] for cells in columns)) for i in range(longest)]
    return schema, [*rows, (longest, *(None for _ in columns))]


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


def comparable(value: Any) -> Any:
    """A value that equals another one of the same content: NaN equals NaN here, and 0.0 is not -0.0."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1.0, value))
    if isinstance(value, dict):
        return sorted((key, comparable(item)) for key, item in value.items())
    if isinstance(value, tuple | list):
        return [comparable(item) for item in value]
    return value


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
