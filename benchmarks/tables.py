"""Tables: batches of columns into a Delta table, compared with the library that writes the same batches.

    python benchmarks/tables.py --json tables.json

In each round both contenders write the same Arrow batches to new tables, in turn, in this process.
`DeltaSink` runs with its writer and committer, without a job around it. Each contender commits once.
The figures are seconds of wall-clock time, the median of all rounds. `write_deltalake` uses several threads;
one subtask of a sink uses one, and Arrow's threads.
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

from penstock.delta import DeltaSink
from penstock.operators import ArrowBatch
from penstock.runtime.operators.committed_sink import CommitterOperator, StagingOperator
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
    sink = DeltaSink(folder, given[0].schema)
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
    pairs = zip(runs["write_deltalake"], runs["DeltaSink"], strict=True)
    ratio = middle([library / sink for library, sink in pairs])
    figures = Figures(
        seconds={name: middle(each) for name, each in runs.items()},
        ratios={"delta_sink_vs_write_deltalake": ratio},
        details={"seconds": runs},
    )
    lines = [[name, f"{middle(each):.2f}", spread(each)] for name, each in runs.items()]
    print(table(["contender", "seconds", "all rounds"], lines), end="\n\n")
    print(f"delta_sink_vs_write_deltalake: {ratio:.2f} (target {TARGET}), {given.records:,} records.")
    print(machine().in_words())
    figures.write(given.json, versions(deltalake=version("deltalake")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
