"""The speed of columns: a keyed sum of Parquet files, beside Spark Structured Streaming and bare pyarrow.

    python benchmarks/columns.py --json columns.json

All contenders read the same files, `k` of 1,000 keys and `v`, both 64-bit integers. Penstock and Spark take a
checkpoint every second. Spark runs on `local[2]` in a process of its own, after a warm-up. Its batches are
one file, which is about a second of work, with `spark.sql.shuffle.partitions=2` and update mode. A rate is
that of the steady part; start-up does not count. The sums that each contender ends with are compared exactly,
on a smaller set of files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import (
    Figures,
    Steady,
    call,
    cluster,
    machine,
    middle,
    options,
    rows_a_second,
    scratch,
    spread,
    steady,
    table,
    versions,
)

from penstock.actors import RayCollector
from penstock.runtime import (
    Checkpointing,
    CollectSink,
    DataStream,
    FileSource,
    StreamEnvironment,
    Sum,
)
from penstock.runtime.io.connectors.discard_sink import DiscardSink

ARROW, SPARK = "bare pyarrow, one thread", "Spark Structured Streaming, local[2]"
ONE, TWO, ROWS = "penstock, columns 1x1", "penstock, columns 2x2", "penstock, rows 1x1"

#: Ratio, the contender above, the one below, and what it has to be.
RATIOS = [
    ("keyed_sum_vs_spark_streaming", ONE, SPARK, "at least 3"),
    ("keyed_sum_2x2_vs_spark_streaming", TWO, SPARK, ""),
    ("keyed_sum_vs_bare_pyarrow", ONE, ARROW, "at least 0.7"),
    ("columns_vs_rows", ONE, ROWS, "at least 10"),
]

#: Rows of a file.
_ROWS = 4_000_000


def write_files(folder: Path, files: int, keys: int) -> None:
    """Files of the same content; those behind the first are links."""
    folder.mkdir()
    draws = np.random.default_rng(7)
    rows = {"k": draws.integers(0, keys, _ROWS), "v": draws.integers(0, 1000, _ROWS)}
    first = folder / "part-000.parquet"
    pq.write_table(pa.table(rows), first, row_group_size=1 << 20)
    for number in range(1, files):
        os.link(first, folder / f"part-{number:03}.parquet")


def sums_of(stream: DataStream[object]) -> DataStream[dict[str, int]]:
    """The work of Penstock's contenders."""
    return stream.key_by("k").aggregate("sums", total=Sum("v"))


def columns(files: Path, storage: Path, parallelism: int) -> StreamEnvironment:
    """Columns from end to end; watch operator `sums-combine`."""
    env = _environment(storage, parallelism)
    sums_of(env.from_source("files", FileSource.parquet(str(files), format="arrow"))).sink(
        "discard", DiscardSink()
    )
    return env


def rows(files: Path, storage: Path) -> StreamEnvironment:
    """The same on dicts, by a reduce; watch operator `sums`."""
    env = _environment(storage, 1)
    (
        env.from_source("files", FileSource.parquet(str(files)))
        .key_by("k")
        .reduce("sums", lambda a, b: {"k": a["k"], "v": a["v"] + b["v"]})
        .sink("discard", DiscardSink())
    )
    return env


def bare_sums(folder: Path, count: int) -> dict[int, int]:
    """A keyed sum in one thread of pyarrow, batch by batch."""
    totals: dict[int, int] = {}
    left = count
    for path in sorted(folder.iterdir()):
        for batch in pq.ParquetFile(path).iter_batches(65_536, use_threads=False):
            grouped = pa.table(batch).group_by("k", use_threads=False).aggregate([("v", "sum")])
            for key, value in zip(
                grouped.column("k").to_pylist(), grouped.column("v_sum").to_pylist(), strict=True
            ):
                totals[key] = totals.get(key, 0) + value
            left -= batch.num_rows
            if left <= 0:
                return totals
    return totals


def spark_rates(files: Path, folder: Path) -> tuple[float, dict[int, int]]:
    """Spark's rate in its steady batches, and the sums it ends with; in a process of its own."""
    command = [sys.executable, str(Path(__file__).with_name("columns_spark.py")), str(files), str(folder)]
    said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    found = json.loads(said.splitlines()[-1])
    return found["rate"], {int(key): total for key, total in found["sums"].items()}


def penstock_sums(files: Path, storage: Path) -> dict[int, int]:
    """The sums that Penstock's job ends with."""
    results = RayCollector()
    env = _environment(storage, 2)
    sums_of(env.from_source("files", FileSource.parquet(str(files), format="arrow"))).sink(
        "results", CollectSink(results)
    )
    env.run()
    newest: dict[int, int] = {}
    for row in results.rows():  # values are not negative, so the largest sum is the newest
        newest[row["k"]] = max(newest.get(row["k"], 0), row["total"])
    return newest


def _environment(storage: Path, parallelism: int) -> StreamEnvironment:
    return StreamEnvironment(
        "columns", parallelism=parallelism, checkpointing=Checkpointing(every=1.0, storage=str(storage))
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(__doc__, files=50, seconds=8.0, rounds=3, warm_up=2.0)
    parser.add_argument("--without-spark", action="store_true", help="leave Spark out")
    given = parser.parse_args(arguments)
    rates: dict[str, list[float]] = {}
    figures = Figures()

    def add(name: str, rate: float) -> None:
        rates.setdefault(name, []).append(rate)

    def add_steady(name: str, run: Steady) -> None:
        add(name, run.rate)

    with scratch() as folder, cluster():
        files, few = folder / "files", folder / "few"
        write_files(files, given.files, 1000)
        write_files(few, 3, 1000)
        right = bare_sums(few, 3 * _ROWS)
        assert penstock_sums(few, folder / "checkpoints") == right, "Penstock's sums differ"
        for _ in range(given.rounds):
            storage = folder / "checkpoints"
            add(ARROW, call(5 * _ROWS, lambda count: bare_sums(files, count)).rate)
            watched = given.warm_up, given.seconds
            add_steady(ONE, steady(columns(files, storage, 1), "sums-combine", *watched))
            add_steady(TWO, steady(columns(files, storage, 2), "sums-combine", *watched))
            add_steady(ROWS, steady(rows(files, storage), "sums", *watched))
            if not given.without_spark:
                _, found = spark_rates(few, folder)
                assert found == right, "Spark's sums differ"
                add(SPARK, spark_rates(files, folder)[0])
    lines = []
    for name, above, below, target in RATIOS:
        if above in rates and below in rates:
            ratios = [a / b for a, b in zip(rates[above], rates[below], strict=True)]
            figures.ratios[name] = middle(ratios)
            lines.append([name, f"{middle(ratios):.2f}", target, spread(ratios)])
    figures.rates = {name: middle(each) for name, each in rates.items()}
    figures.details["rates"] = rates
    print(machine().in_words(), end="\n\n")
    print(
        table(["contender", "rows/s"], [[n, rows_a_second(r)] for n, r in figures.rates.items()]), end="\n\n"
    )
    print(table(["ratio", "median", "target", "all rounds"], lines))
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
