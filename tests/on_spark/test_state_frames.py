"""State as DataFrames: from Spark into a job's first state, and out of its savepoint again."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines.jobs import committed, environment, finish
from pipelines.streams import AN_HOUR, ROWS, arrive, watched

import penstock.state
from penstock import FileSink, GraphError
from penstock.runtime.checkpoint.recovery import open_snapshot
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.storage import open_location
from penstock.runtime.record.arrow_values import from_arrow
from penstock.runtime.state.key_groups import key_group_of
from penstock.spark import from_structured_streaming, read_state, write_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 60_000


def entries_of(url: str, operator: str, state: str = "reduce") -> dict[Any, Any]:
    table = penstock.state.read_state(url, operator, state)
    return dict(zip(from_arrow(table["key"]), from_arrow(table["value"]), strict=True))


def test_a_job_goes_on_from_what_spark_has_counted_and_spark_reads_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each of two micro-batches induces a checkpoint; the second one holds what has changed since."""
    before = spark.range(0, COUNT, 1, 4).selectExpr("concat('c', id % 1000) AS customer")
    totals = before.groupBy("customer").count()
    start = write_state(
        totals.selectExpr("customer AS key", "struct(customer AS _1, count AS _2) AS value"),
        tmp_path / "start",
        "total",
        parallelism=3,
    )

    arrive(tmp_path, 0, 1)
    env = environment(tmp_path, every=AN_HOUR, keep_after="always")
    new = from_structured_streaming(
        env,
        watched(spark, tmp_path),
        batch_format="rows",
        checkpoint_location=str(tmp_path / "query"),
        trigger={"availableNow": True},
    ).map(lambda row: (f"c{row['id'] % 700 + 600}", 1))
    counted = new.key_by(lambda pair: pair[0]).reduce("total", lambda a, b: (a[0], a[1] + b[1]))
    rows = counted.map(lambda pair: {"customer": pair[0], "count": pair[1]})
    rows.sink("out", FileSink.parquet(tmp_path / "out"))
    job: Any = env.submit(restore_from=start)
    finish(job)

    came = [f"c{i % 700 + 600}" for i in range(2 * ROWS)]
    expected = Counter({f"c{i}": COUNT // 1000 for i in range(1000)})
    expected.update(came)
    last: dict[str, int] = {}
    for row in committed(tmp_path).to_pylist():
        last[row["customer"]] = max(last.get(row["customer"], 0), row["count"])
    assert last == {key: expected[key] for key in came}

    (checkpoint,) = (tmp_path / "checkpoints" / job.job_id).glob("chk-*")
    written = open_snapshot(str(checkpoint), open_location).checkpoint.operators["total"].subtasks.values()
    assert all(len(handle.files) > 1 for subtask in written for handle in subtask.keyed), "by changes"
    read = read_state(spark, checkpoint, "total").selectExpr("key_group", "key", "value._1", "value._2")
    assert sorted(map(tuple, read.collect())) == sorted(
        (key_group_of(key, 128), key, key, n) for key, n in expected.items()
    )


@pytest.mark.long
def test_state_is_read_by_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    keys = [f"k{i}" for i in range(COUNT)]
    table = pa.table({"key": keys, "value": [{"n": i, "tags": ["a"] * (i % 3)} for i in range(COUNT)]})
    url = penstock.state.write_state(table, tmp_path / "s", "count", parallelism=4, max_parallelism=64)

    df = read_state(spark, url, "count")
    assert df.dtypes == [
        ("key_group", "int"),
        ("key", "string"),
        ("value", "struct<n:bigint,tags:array<string>>"),
    ]
    assert df.rdd.getNumPartitions() == 4
    sums = df.selectExpr("count(*)", "count(distinct key)", "sum(value.n)", "sum(size(value.tags))").first()
    assert sums == (COUNT, COUNT, COUNT * (COUNT - 1) // 2, sum(i % 3 for i in range(COUNT)))
    some = df.where("key IN ('k7', 'k59999')").collect()
    assert {row.key: row.key_group for row in some} == {k: key_group_of(k, 64) for k in ("k7", "k59999")}


@pytest.mark.long
def test_state_that_goes_through_spark_comes_back_as_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the parts of a state are of types that only fit together: structs and maps, nulls."""
    values = [None if i % 7 == 0 else {f"n{i % 5}": i} for i in range(500)]
    first = penstock.state.write_state(
        pa.table(
            {
                "key": pa.array(range(500)),
                "value": pa.array(
                    [None if v is None else list(v.items()) for v in values], pa.map_(pa.string(), pa.int64())
                ),
            }
        ),
        tmp_path / "first",
        "seen",
        "counts",
        parallelism=3,
    )
    assert entries_of(first, "seen", "counts") == dict(enumerate(values))
    df = read_state(spark, first, "seen", "counts")
    second = write_state(df, tmp_path / "second", "seen", "counts", base=first)
    assert entries_of(second, "seen", "counts") == dict(enumerate(values))
    layout = open_snapshot(second, open_location).checkpoint.operators["seen"]
    assert (layout.parallelism, sorted(layout.subtasks)) == (3, [0, 1, 2])


@pytest.mark.long
def test_what_losing_attempts_have_written_is_deleted(spark: SparkSession, tmp_path: Path) -> None:
    """Each partition fails once after it has written its first file."""
    failed = tmp_path / "failed"
    failed.mkdir()

    def fails_once(value: int) -> str:
        from pyspark import TaskContext

        mark = failed / str(TaskContext.get().partitionId())
        if value >= 0 and not mark.exists() and TaskContext.get().attemptNumber() == 0 and value % 50 == 49:
            mark.touch()
            raise RuntimeError("planned")
        return "x" * 100 + str(value)

    df = spark.range(0, 5_000, 1, 3).selectExpr("id AS key", "id AS value")
    url = write_state(df, tmp_path / "s", "long", value=fails_once, parallelism=2)
    assert [*failed.iterdir()], "a task has failed"
    assert entries_of(url, "long") == {i: "x" * 100 + str(i) for i in range(5_000)}
    named = {file.path for file in open_snapshot(url, open_location).checkpoint.files()} | {"metadata"}
    assert {path.name for path in Path(url).iterdir()} == named


@pytest.mark.long
def test_list_state_is_written_and_read(spark: SparkSession, tmp_path: Path) -> None:
    """Of a broadcast list each subtask has a copy, and one of them is read."""
    df = spark.createDataFrame([(1, "a"), (2, "b"), (3, None)], "n int, s string")
    values = df.selectExpr("struct(n, s) AS value")
    joined = write_state(values, tmp_path / "1", "rules", "all", kind="union", parallelism=2)
    url = write_state(values, tmp_path / "2", "rules", "each", kind="broadcast", base=joined)
    for name in ("all", "each"):
        back = read_state(spark, url, "rules", name).selectExpr("value.n", "value.s").collect()
        assert sorted(map(tuple, back)) == [(1, "a"), (2, "b"), (3, None)]


def test_bad_input_is_refused_and_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    twice = spark.createDataFrame([("a", 1), ("b", 2), ("a", 3)], "key string, value int")
    with pytest.raises(Exception, match="key 'a' is in several rows"):
        write_state(twice, tmp_path / "s", "count")
    assert [*(tmp_path / "s").iterdir()] == []
    with pytest.raises(GraphError, match="the DataFrame lacks 'key'"):
        write_state(twice.withColumnRenamed("key", "k"), tmp_path / "s", "count")
    for column, refused in (
        ("INTERVAL '3' YEAR", "column 'value' has type interval year, .*: cast it to INTERVAL MONTH"),
        ("make_interval(0, 1)", "column 'value' has type interval, .*: convert it to days"),
    ):
        with pytest.raises(GraphError, match=refused):
            write_state(spark.sql(f"SELECT 1 AS key, {column} AS value"), tmp_path / "types", "count")
    assert not (tmp_path / "types").exists()
    url = write_state(twice.where("value < 3"), tmp_path / "s", "count")
    with pytest.raises(ConfigurationError, match="no state 'hot' in this snapshot; it has: 'reduce'"):
        read_state(spark, url, "count", "hot")
    with pytest.raises(ConfigurationError, match="already holds a snapshot"):
        write_state(twice, url, "count")
