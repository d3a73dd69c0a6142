"""Tables: columns into Delta and Iceberg tables, compared with the libraries that write them, and with Spark.

    python benchmarks/tables.py --records 20000000 --copies --json tables.json

**Library.** In each round both contenders write the same Arrow batches to new tables, in turn, in this
process. `DeltaSink` and `IcebergSink` run with writer and committer, without a job around them. Each
contender commits once. The libraries use several threads; a subtask of a sink uses one, and those of Arrow.
The catalog of Iceberg is a SQLite database.

**Spark**, with `--copies`. A job with two subtasks on Ray copies Parquet files to new tables. So does a
Structured Streaming query of a session with two cores. Cluster and session run already, and each has copied a
few rows before. The times include the start of the job, and of the query. Spark needs the jars of
`make table-jars`; without them it is left out.

The figures are seconds of wall-clock time, the median of all rounds.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from measure import Figures, cluster, machine, middle, options, scratch, spread, table, versions
from pyiceberg.catalog import load_catalog

from penstock import Checkpointing, FileSource, JobStatus, StreamEnvironment
from penstock.delta import DeltaSink
from penstock.iceberg import IcebergSink
from penstock.operators import ArrowBatch
from penstock.runtime.operators.committed_sink import CommitterOperator, HasCommitter, StagingOperator
from penstock.testing import OperatorHarness

BATCH_ROWS = 65_536

#: Ratios of rates.
TARGETS = {
    "delta_sink_vs_write_deltalake": 0.8,
    "vs_pyiceberg_append": 0.8,
    "vs_spark_structured_streaming": 3.0,
}


def batches(rows: int) -> list[pa.RecordBatch]:
    draws = np.random.default_rng(7)
    users = pa.array([f"user-{number}" for number in range(10_000)])
    made = []
    for first in range(0, rows, BATCH_ROWS):
        count = min(BATCH_ROWS, rows - first)
        made.append(
            pa.record_batch(
                {
                    "id": pa.array(np.arange(first, first + count)),
                    "user": users.take(pa.array(draws.integers(0, 10_000, count))),
                    "amount": pa.array(draws.random(count) * 1_000),
                    "quantity": pa.array(draws.integers(1, 100, count)),
                    "paid": pa.array(draws.random(count) < 0.5),
                }
            )
        )
    return made


def by_library(folder: Path, given: Sequence[pa.RecordBatch]) -> None:
    reader = pa.RecordBatchReader.from_batches(given[0].schema, given)
    write_deltalake(folder, reader, mode="append")


def by_sink(folder: Path, given: Sequence[pa.RecordBatch]) -> None:
    write_and_commit(DeltaSink(folder, given[0].schema), given)


def write_and_commit(sink: HasCommitter, given: Sequence[pa.RecordBatch]) -> None:
    with (
        OperatorHarness(StagingOperator(sink)) as writer,
        OperatorHarness(CommitterOperator(sink)) as committer,
    ):
        for batch in given:
            writer.push_batch(ArrowBatch(batch))
        writer.snapshot()
        committer.push(writer.outputs)
        committer.complete_checkpoint(committer.snapshot())


def catalog_in(folder: Path) -> dict[str, str]:
    folder.mkdir()
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}


def iceberg_by_library(folder: Path, given: Sequence[pa.RecordBatch]) -> int:
    catalog = load_catalog("default", **catalog_in(folder))
    catalog.create_namespace("shop")
    table = catalog.create_table("shop.orders", given[0].schema)
    table.append(pa.Table.from_batches(given))
    return table.scan().count()


def iceberg_by_sink(folder: Path, given: Sequence[pa.RecordBatch]) -> int:
    settings = catalog_in(folder)
    write_and_commit(IcebergSink("shop.orders", given[0].schema, catalog=settings), given)
    return load_catalog("default", **settings).load_table("shop.orders").scan().count()


def compare_iceberg(folder: Path, given: Sequence[pa.RecordBatch], rounds: int) -> dict[str, list[float]]:
    """The seconds of both contenders in each round."""
    contenders = {"IcebergSink": iceberg_by_sink, "pyiceberg append": iceberg_by_library}
    runs: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(rounds):
        for name, work in contenders.items():
            place = folder / f"{name}-{number}"
            before = time.perf_counter()
            count = work(place, given)
            runs[name].append(time.perf_counter() - before)
            assert count == sum(batch.num_rows for batch in given)
            shutil.rmtree(place)
    return runs


def by_job(files: Path, place: Path) -> None:
    """Copy Parquet files in a job on the running cluster."""
    env = StreamEnvironment(
        "tables",
        parallelism=2,
        checkpointing=Checkpointing(every=10, storage=str(place.with_name(f"{place.name}-checkpoints"))),
    )
    env.from_source("files", FileSource.parquet(files, batch_format="arrow")).sink("table", DeltaSink(place))
    result = env.submit().wait()
    assert result.status is JobStatus.FINISHED, result


def by_spark(spark: Any, files: Path, place: Path) -> None:
    """Copy Parquet files by Structured Streaming."""
    rows = spark.readStream.schema(spark.read.parquet(str(files)).schema).parquet(str(files))
    checkpoints = str(place.with_name(f"{place.name}-checkpoints"))
    writer = rows.writeStream.format("delta").option("checkpointLocation", checkpoints)
    writer.trigger(availableNow=True).start(str(place)).awaitTermination()


def check(place: Path, records: int) -> None:
    """Read the ids of a table: each number below `records` once."""
    ids = DeltaTable(place).to_pyarrow_table(columns=["id"]).column("id").to_numpy()
    assert len(ids) == records, len(ids)
    assert np.array_equal(np.sort(ids), np.arange(records))


@contextmanager
def spark_session() -> Iterator[Any]:
    """A local session with the jars of Delta; `None` without them."""
    jars = Path(sys.prefix) / "table_jars"
    if not (jars / ".ready").exists():
        print("Spark is left out: `make table-jars` fetches its jars", file=sys.stderr)
        yield None
        return
    from pyspark.sql import SparkSession

    from penstock.bridge.session.spark_options import find_java, use_java

    use_java(find_java(os.environ), os.environ)
    builder: Any = SparkSession.builder.master("local[2]").appName("tables")
    settings = {
        "spark.jars": ",".join(map(str, sorted(jars.glob("*.jar")))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "4g",
        "spark.ui.enabled": False,
        "spark.ui.showConsoleProgress": False,
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    try:
        yield spark
    finally:
        spark.stop()


def write_files(folder: Path, rows: Sequence[pa.RecordBatch]) -> Path:
    """Write the batches to files of about a million rows."""
    folder.mkdir()
    for first in range(0, len(rows), 16):
        table = pa.Table.from_batches(rows[first : first + 16])
        pq.write_table(table, folder / f"{first:05}.parquet")
    return folder


def compare_with_spark(
    rows: Sequence[pa.RecordBatch], records: int, rounds: int, folder: Path
) -> dict[str, list[float]]:
    """Seconds of each contender that copies files, by round."""
    few = write_files(folder / "few", rows[:1])
    files = write_files(folder / "files", rows)
    runs: dict[str, list[float]] = {"job": []}
    with cluster(), spark_session() as spark:
        works: dict[str, Callable[[Path, Path], None]] = {"job": by_job}
        if spark is not None:
            works["Spark"] = partial(by_spark, spark)
            runs["Spark"] = []
        for name, work in works.items():
            work(few, folder / f"{name}-few")
        for number in range(rounds):
            for name, work in works.items():
                place = folder / f"{name}-{number}"
                before = time.perf_counter()
                work(files, place)
                runs[name].append(time.perf_counter() - before)
                check(place, records)
    return runs


CONTENDERS: dict[str, Callable[[Path, Sequence[pa.RecordBatch]], None]] = {
    "DeltaSink": by_sink,
    "write_deltalake": by_library,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(__doc__, records=4_000_000, rounds=3)
    parser.add_argument(
        "--copies", action="store_true", help="also copy Parquet files, in a job and by Spark"
    )
    given = parser.parse_args(arguments)
    rows = batches(given.records)
    runs: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with scratch() as folder:
        for number in range(given.rounds):
            for name, work in CONTENDERS.items():
                place = folder / f"{name}-{number}"
                before = time.perf_counter()
                work(place, rows)
                runs[name].append(time.perf_counter() - before)
                check(place, given.records)
                shutil.rmtree(place)
        runs |= compare_iceberg(folder, rows, given.rounds)
        copies = compare_with_spark(rows, given.records, given.rounds, folder) if given.copies else {}
    pairs = zip(runs["write_deltalake"], runs["DeltaSink"], strict=True)
    ratio = middle([library / sink for library, sink in pairs])
    runs |= copies
    pairs = zip(runs["pyiceberg append"], runs["IcebergSink"], strict=True)
    iceberg = middle([library / sink for library, sink in pairs])
    ratios = {"delta_sink_vs_write_deltalake": ratio, "vs_pyiceberg_append": iceberg}
    if "Spark" in copies:
        rounds = zip(copies["Spark"], copies["job"], strict=True)
        ratios["vs_spark_structured_streaming"] = middle([spark / job for spark, job in rounds])
    figures = Figures(
        seconds={name: middle(each) for name, each in runs.items()},
        ratios=ratios,
        details={"seconds": runs},
    )
    lines = [[name, f"{middle(each):.2f}", spread(each)] for name, each in runs.items()]
    print(table(["contender", "seconds", "all rounds"], lines), end="\n\n")
    for name, reached in ratios.items():
        print(f"{name}: {reached:.2f} (target {TARGETS[name]}), {given.records:,} records.")
    print(machine().in_words())
    figures.write(given.json, versions(deltalake=version("deltalake"), pyiceberg=version("pyiceberg")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
