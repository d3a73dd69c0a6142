"""Tables that a job writes and Spark reads: committed rows, each once, at any moment."""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pipelines.jobs import PATIENCE, Slowed, after_rows, environment, eventually, finish, wait_until

from penstock import ConfigurationError, JobFailedError, JobStatus, PenstockError
from penstock.bridge.arrow import arrow_schema_of
from penstock.connectors import CommitPermit, ConnectorContext
from penstock.runtime.operators.sinks import SinkOperator
from penstock.spark import SparkTable, from_spark, wait_for_transfer
from penstock.testing import OperatorHarness

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT = 60_000
SCHEMA = pa.schema({"id": pa.int64()})


@dataclass(frozen=True)
class DiesBeforeCommit:
    """The table, in a process that dies between a pre-commit and its commit, once."""

    table: SparkTable
    marker: str

    def writer(self, context: ConnectorContext) -> Any:
        writer: Any = self.table.writer(context)
        commit, marker = writer.commit, Path(self.marker)

        def die_or_commit(committables: Sequence[Any], permit: CommitPermit) -> None:
            if not marker.exists():
                marker.write_text(repr(committables))
                eventually("a look at it", marker.with_name("looked").exists)
                os.kill(os.getpid(), signal.SIGKILL)
            commit(committables, permit)

        writer.commit = die_or_commit
        return writer


def named_table(spark: SparkSession, folder: Path, name: str, columns: str) -> SparkTable:
    """A new table of Spark's catalog, whose files are in the test's folder."""
    spark.sql(f"DROP TABLE IF EXISTS {name}")
    spark.sql(f"CREATE TABLE {name} ({columns}) USING parquet LOCATION '{folder}/table'")
    return SparkTable.of(spark, name)


def by_name(spark: SparkSession, name: str) -> Counter[int]:
    """The rows that Spark finds in a table of its catalog."""
    spark.catalog.refreshTable(name)
    return Counter(row.id for row in spark.table(name).select("id").collect())


def test_a_kill_between_pre_commit_and_commit_while_spark_reads(spark: SparkSession, tmp_path: Path) -> None:
    table = named_table(spark, tmp_path, "held", "id BIGINT")
    env = environment(tmp_path, parallelism=1)
    stream: Any = from_spark(env, spark.range(0, COUNT, 1, 3), id="rows")
    slow = stream.map_batches(Slowed(1_000, tmp_path / "go"), "arrow")
    slow.sink("out", DiesBeforeCommit(table, str(tmp_path / "died")))
    query = (
        spark.readStream.table("held")
        .writeStream.format("memory")
        .queryName("seen")
        .outputMode("append")
        .option("checkpointLocation", str(tmp_path / "query"))
        .start()
    )
    try:
        job: Any = env.submit()
        wait_for_transfer(job, PATIENCE)  # or its tasks would keep the executors from the reads
        eventually("a commit that is about to begin", (tmp_path / "died").exists)
        query.processAllAvailable()
        assert table.read(spark).count() == spark.table("seen").count() == 0, "it is prepared, not committed"
        assert not by_name(spark, "held")
        assert [name for name in os.listdir(tmp_path / "table") if name[0] in "._"]
        (tmp_path / "looked").touch()
        wait_until(job, "the second attempt", lambda report: report.statistics.attempt == 2)
        reads = [Counter(row.id for row in table.read(spark).collect())]
        after_rows(job, 2_000)
        reads.append(by_name(spark, "held"))
        (tmp_path / "go").touch()
        result = finish(job)
        query.processAllAvailable()
        streamed = Counter(row.id for row in spark.sql("SELECT id FROM seen").collect())
    finally:
        query.stop()
    assert result.statistics.restarts == 1
    for read in reads:
        assert set(read.values()) <= {1}, "no row twice, whatever the moment"
    assert Counter(row.id for row in table.read(spark).collect()) == Counter(range(COUNT))
    assert streamed == by_name(spark, "held") == Counter(range(COUNT))


@pytest.mark.long
def test_a_second_job_that_writes_the_same_table_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    table = SparkTable(tmp_path / "table", SCHEMA)
    env = environment(tmp_path, parallelism=1)
    rows: Any = env.from_collection("rows", [{"id": number} for number in range(COUNT)])
    rows.map_batches(Slowed(100, tmp_path / "go"), "arrow").sink("out", table)
    first: Any = env.submit()
    wait_until(first, "its run", lambda report: report.status is JobStatus.RUNNING)

    second = environment(tmp_path, parallelism=1)
    second.from_collection("rows", [{"id": -1}]).sink("mine", table)
    owned = (
        rf"operator 'mine' .*table {tmp_path / 'table'} is written by operator 'out' of job {first.job_id}, "
        "which has not ended; end that job first, or write to another path"
    )
    refused: Any = second.submit()
    with pytest.raises(JobFailedError, match=owned):
        finish(refused)
    assert refused.statistics().restarts == 0, "it says so at once"

    (tmp_path / "go").touch()
    finish(first)
    assert Counter(row.id for row in table.read(spark).collect()) == Counter(range(COUNT))
    # Its owner has ended: now it may be added to.
    third = environment(tmp_path, parallelism=1)
    third.from_collection("rows", [{"id": -1}]).sink("mine", table)
    third.run(timeout=PATIENCE, progress=False)
    assert table.read(spark).count() == COUNT + 1


@pytest.mark.long
def test_a_table_without_rows_and_schema_says_so(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"nothing is committed in .*give SparkTable a schema="):
        SparkTable(tmp_path / "none").read(spark)


@pytest.mark.long
def test_a_file_that_spark_can_not_read_is_not_taken_for_an_empty_table(
    spark: SparkSession, tmp_path: Path
) -> None:
    from py4j.protocol import Py4JJavaError

    damaged = tmp_path / "table" / "part-0.parquet"
    damaged.parent.mkdir()
    damaged.write_bytes(b"this is no Parquet file")
    with pytest.raises(Py4JJavaError, match=r"part-0\.parquet is not a Parquet file"):
        SparkTable(damaged.parent).read(spark)


def test_a_table_outlives_its_job_and_keeps_its_types(spark: SparkSession, tmp_path: Path) -> None:
    df = spark.sql(
        "SELECT id, timestamp_micros(id) AS at, array(id) ids, CAST(id AS decimal(20,3)) AS d, "
        "timestamp_seconds(-id * 10000000000) AS long_ago, DATE'0001-01-01' AS first, "
        "TIMESTAMP_NTZ'0001-01-01 00:00:00' AS wall, INTERVAL '1 02' DAY TO HOUR AS i FROM range(5)"
    )
    from pyspark.sql import functions as F

    plain = df.drop("i")
    kept = named_table(spark, tmp_path, "kept", ", ".join(f"{name} {kind}" for name, kind in plain.dtypes))
    old = {
        name: F.lit(None).cast(kind) for name, kind in plain.dtypes if name in ("long_ago", "first", "wall")
    }
    before = plain.withColumns({"id": plain.id - 5, **old})  # Spark itself asks before it writes old times
    before.write.insertInto("kept")
    assert spark.table("kept").count() == 5
    env = environment(tmp_path, parallelism=1)
    rows = from_spark(env, df)
    tables = [SparkTable(tmp_path / "without a name"), kept]
    rows.sink("out", tables[0])
    rows.map_batches(without_interval, "arrow").sink("kept", kept)
    env.run(timeout=PATIENCE, progress=False)
    for table, expected in zip(tables, [df.drop("i"), plain.union(before)], strict=True):
        again = table.read(spark).drop("i")
        assert again.dtypes == expected.dtypes
        assert sorted(again.collect(), key=by_id) == sorted(expected.collect(), key=by_id)
    # Parquet has numbers for intervals; the table knows its columns, and keeps to them.
    unnamed = tables[0]
    assert spark.read.parquet(str(unnamed.path)).select("i").dtypes == [("i", "bigint")]
    for told in (unnamed, SparkTable(unnamed.path, arrow_schema_of(df))):
        assert told.read(spark).select("i").dtypes == [("i", "interval day to second")]
        assert sorted(told.read(spark).collect()) == sorted(df.collect())
    with (
        OperatorHarness(SinkOperator(unnamed)) as harness,
        pytest.raises(PenstockError, match="column 'id' of type int64 can't hold 'x' of type str"),
    ):
        harness.push([{"id": "x"}])
    assert spark.table("kept").count() == 5, "what Spark knew of it before"
    assert by_name(spark, "kept") == Counter(range(-5, 5))
    assert sorted(spark.table("kept").collect(), key=by_id) == sorted(expected.collect(), key=by_id)


def without_interval(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.select([name for name in batch.schema.names if name != "i"])


def by_id(row: Any) -> int:
    return int(row.id)


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("VIEW odd AS SELECT 1 AS id", "it is a view"),
        ("TEMPORARY VIEW odd AS SELECT 1 AS id", "it is a view"),
        ("TABLE odd (id BIGINT) USING json LOCATION '{0}'", "its format is json"),
        ("TABLE odd (id BIGINT, day DATE) USING parquet PARTITIONED BY (day) LOCATION '{0}'", "partitions"),
        ("TABLE odd (id BIGINT) USING parquet CLUSTERED BY (id) INTO 2 BUCKETS LOCATION '{0}'", "buckets"),
        ("TABLE odd (id BIGINT, code VARCHAR(3)) USING parquet LOCATION '{0}'", r"VARCHAR in \['code'\]"),
        ("TABLE even (id BIGINT) USING parquet LOCATION '{0}'", r"finds no table 'odd'.*give SparkTable the"),
    ],
)
def test_a_name_of_anything_but_plain_parquet_files_is_refused(
    spark: SparkSession, tmp_path: Path, made: str, told: str
) -> None:
    what, name, *_ = made.removeprefix("TEMPORARY ").split()
    spark.sql(f"CREATE {made.format(tmp_path)}")
    try:
        with pytest.raises(ConfigurationError, match=told):
            SparkTable.of(spark, "odd")
    finally:
        spark.sql(f"DROP {what} {name}")
