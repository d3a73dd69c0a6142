"""Tables: batches of columns into Delta and Iceberg tables, compared with the libraries that write the same.

    python benchmarks/tables.py --json tables.json

In each round both contenders write the same Arrow batches to new tables, in turn, in this process.
`DeltaSink` and `IcebergSink` run with writer and committer, without a job around them. Each contender commits
once. The catalog of Iceberg is a SQLite database.
The figures are seconds of wall-clock time, the median of all rounds. The libraries use several threads; one
subtask of a sink uses one, and Arrow's threads.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from measure import Figures, machine, middle, options, scratch, spread, table, versions
from pyiceberg.catalog import load_catalog

from penstock.delta import DeltaSink
from penstock.iceberg import IcebergSink
from penstock.operators import ArrowBatch
from penstock.runtime.operators.committed_sink import CommitterOperator, HasCommitter, StagingOperator
from penstock.testing import OperatorHarness

BATCH_ROWS = 65_536

#: The sink against the library, as a ratio of rates.
TARGET = 0.8


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


CONTENDERS: dict[str, Callable[[Path, Sequence[pa.RecordBatch]], None]] = {
    "DeltaSink": by_sink,
    "write_deltalake": by_library,
}


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
            before = time.perf_counter()
            count = work(folder / f"{name}-{number}", given)
            runs[name].append(time.perf_counter() - before)
            assert count == sum(batch.num_rows for batch in given)
    return runs


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    given = options(__doc__, records=4_000_000, rounds=3).parse_args(arguments)
    rows = batches(given.records)
    runs: dict[str, list[float]] = {name: [] for name in CONTENDERS}
    with scratch() as folder:
        for number in range(given.rounds):
            for name, work in CONTENDERS.items():
                place = folder / f"{name}-{number}"
                before = time.perf_counter()
                work(place, rows)
                runs[name].append(time.perf_counter() - before)
                assert DeltaTable(place).count() == given.records
        runs |= compare_iceberg(folder, rows, given.rounds)
    pairs = zip(runs["write_deltalake"], runs["DeltaSink"], strict=True)
    ratio = middle([library / sink for library, sink in pairs])
    pairs = zip(runs["pyiceberg append"], runs["IcebergSink"], strict=True)
    iceberg_ratio = middle([library / sink for library, sink in pairs])
    figures = Figures(
        seconds={name: middle(each) for name, each in runs.items()},
        ratios={"delta_sink_vs_write_deltalake": ratio, "vs_pyiceberg_append": iceberg_ratio},
        details={"seconds": runs},
    )
    lines = [[name, f"{middle(each):.2f}", spread(each)] for name, each in runs.items()]
    print(table(["contender", "seconds", "all rounds"], lines), end="\n\n")
    print(f"delta_sink_vs_write_deltalake: {ratio:.2f} (target {TARGET}), {given.records:,} records.")
    print(f"vs_pyiceberg_append: {iceberg_ratio:.2f} (target {TARGET}).")
    print(machine().in_words())
    figures.write(given.json, versions(deltalake=version("deltalake"), pyiceberg=version("pyiceberg")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
