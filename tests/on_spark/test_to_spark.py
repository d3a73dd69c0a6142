"""Results of jobs as DataFrames: nothing lost, nothing twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines.jobs import PATIENCE, Slowed, after_rows, environment, eventually, finish, kill_subtask
from pipelines.memory import LITTLE, driver_memory
from ray.util import list_named_actors

from penstock import PenstockError
from penstock.spark import SparkResults, from_spark, to_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


#: Characters of a row that is to take memory.
WIDTH = 8_000


def doubled(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "twice": row["id"] * 2}


def widened(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column("text", pa.repeat("-" * WIDTH, batch.num_rows))


def holders() -> set[str]:
    """The actors that hold rows for Spark."""
    return {a["name"] for a in list_named_actors(all_namespaces=True) if a["name"].startswith("blocks:")}


def test_results_of_a_job_are_a_data_frame_that_goes_past_the_program(
    spark: SparkSession, tmp_path: Path
) -> None:
    """280 MB of them."""
    env = environment(tmp_path)
    rows = from_spark(env, spark.range(0, 35_000, 1, 3))
    with driver_memory(spark) as memory:
        df = to_spark(rows.map(doubled).map_batches(widened, "arrow"), spark, timeout=PATIENCE)
        sums = df.selectExpr("count(*)", "sum(id)", "sum(twice)", "sum(length(text))").first()
    assert df.dtypes == [("id", "bigint"), ("twice", "bigint"), ("text", "string")]
    assert sums == (35_000, 612_482_500, 1_224_965_000, 35_000 * WIDTH)
    assert memory.most < LITTLE
    assert df.rdd.getNumPartitions() >= 2
    (held,) = holders()
    df.unpersist()
    eventually("the end of the rows", lambda: held not in holders())


def test_a_killed_subtask_leaves_nothing_twice_in_the_results(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python workers read the same rows where RayDP has no function for the JVM."""
    count = 200_000
    env = environment(tmp_path)
    stream: Any = from_spark(env, spark.range(0, count, 1, 4), id="rows", window=1 << 18)
    with SparkResults(pa.schema({"id": pa.int64()})) as results:
        slow = stream.map_batches(Slowed(2_000, tmp_path / "go"), "arrow")
        slow.sink("out", results, disable_chaining=True)
        job: Any = env.submit()
        after_rows(job, 2_000)
        eventually("rows that are committed", lambda: results.to_dataframe(spark).count() > 0)
        seen = results.to_dataframe(spark).count()
        kill_subtask(job, "out", 0)
        (tmp_path / "go").touch()
        assert finish(job).statistics.restarts == 1
        found = Counter(row.id for row in results.to_dataframe(spark).collect())
        assert to_spark(job, spark).count() == count
        monkeypatch.delattr("raydp.spark.dataset._convert_by_rdd")
        assert results.to_dataframe(spark).selectExpr("sum(id)").first() == (count * (count - 1) // 2,)
    with pytest.raises(PenstockError, match="has ended or has released them"):
        results.to_dataframe(spark)
    assert 0 < seen < count, "what is committed can be read while the job runs"
    assert found == Counter(range(count))


@pytest.mark.long
def test_released_results_are_named_as_such(spark: SparkSession) -> None:
    results = SparkResults(pa.schema({"a": pa.int64()}))
    assert results.to_dataframe(spark).collect() == []
    results.unpersist()
    with pytest.raises(PenstockError, match="has ended or has released them"):
        results.to_dataframe(spark)


@pytest.mark.long
def test_no_rows_and_no_schema_is_an_error_that_says_what_to_give(spark: SparkSession) -> None:
    with SparkResults() as results, pytest.raises(PenstockError, match="give SparkResults a schema="):
        results.to_dataframe(spark)


@pytest.mark.long
@pytest.mark.parametrize("batch_format", ["arrow", "rows"])
def test_a_result_without_rows_has_the_columns_that_it_came_with(
    spark: SparkSession, tmp_path: Path, batch_format: str
) -> None:
    columns = "id bigint, word string, at timestamp, price decimal(9,2), parts array<int>"
    empty = spark.createDataFrame([(1, "a", None, None, None)], columns)
    env = environment(tmp_path)
    rows = from_spark(env, empty, batch_format=batch_format)
    kept = rows.filter(lambda row: row["id"] > 1).union(rows.filter(lambda row: row["id"] > 2))
    df = to_spark(kept, spark, timeout=PATIENCE)
    assert (df.dtypes, df.count()) == (empty.dtypes, 0)
    df.unpersist()
    changed = rows.map(doubled).filter(lambda row: row["id"] > 1)
    with pytest.raises(PenstockError, match="give SparkResults a schema="):
        to_spark(changed, spark, timeout=PATIENCE)


@pytest.mark.long
def test_results_are_those_of_the_newest_run(spark: SparkSession, tmp_path: Path) -> None:
    with SparkResults() as results:
        env = environment(tmp_path)
        env.from_collection("in", [{"id": 1}, {"id": 2}]).sink("out", results)
        counts = []
        for _ in range(2):
            env.run(progress=False, timeout=PATIENCE)
            counts.append(results.to_dataframe(spark).count())
    assert counts == [2, 2]
