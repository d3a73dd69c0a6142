"""The speed of columns, compared with Spark Structured Streaming, bare pyarrow, pandas and rows.

    python benchmarks/columns.py --json columns.json
    python benchmarks/columns.py --only windows --rounds 1 --seconds 5

In each round the contenders of a workload run one after another. They read the same Parquet files, except in
`round_trip`, where Spark generates the rows. Penstock takes a checkpoint every second, and Spark with each
micro-batch; `checkpointing` also measures a job without checkpoints. Rates cover only the steady part,
without start-up and warm-up; only those that are named "with start" include the start.

Spark runs on `local[2]` in a process of its own, and in `round_trip` and `micro_batches` on the Ray cluster.
Its settings are printed. In a workload with Spark, the results are compared exactly before the first round.
`memory` is one job over many rows; it shows the memory of the job's processes.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack

from columnar.memory import Memory
from columnar.micro_batches import MicroBatches, MicroBatches6
from columnar.round_trip import RoundTrip, RoundTrip3, RoundTrip16
from columnar.work import Scale, Work
from columnar.works import AgainstRows, CheckpointingCost, KeyedSum, ManyKeys, Windows
from measure import Figures, cluster, machine, options, scratch, versions

#: The workloads, by their names for `--only`.
WORKS: dict[str, type[Work]] = {
    "keyed_sum": KeyedSum,
    "many_keys": ManyKeys,
    "windows": Windows,
    "rows": AgainstRows,
    "checkpointing": CheckpointingCost,
    "memory": Memory,
    "round_trip": RoundTrip,
    "round_trip_3_columns": RoundTrip3,
    "round_trip_16_columns": RoundTrip16,
    "micro_batches": MicroBatches,
    "micro_batches_6_columns": MicroBatches6,
}

#: CPUs that Ray may assign; Spark's executor requests some of them.
_CPUS = 8


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    parser = options(
        __doc__,
        rows=1_200_000_000,
        seconds=10.0,
        rounds=5,
        warm_up=2.0,
        spark_warm_up=8.0,
        round_trip_rows=20_000_000,
        memory_rows=200_000_000,
    )
    parser.add_argument("--only", nargs="+", choices=list(WORKS), help="some of the workloads")
    parser.add_argument(
        "--spark", action=argparse.BooleanOptionalAction, default=True, help="whether Spark takes part"
    )
    given = parser.parse_args(arguments)
    scale = Scale(
        given.rows,
        given.seconds,
        given.warm_up,
        given.spark_warm_up,
        given.round_trip_rows,
        given.memory_rows,
        given.spark,
    )
    figures = Figures()
    with scratch() as folder, cluster(_CPUS), ExitStack() as closing:
        chosen = given.only or [
            name
            for name, work in WORKS.items()
            if scale.with_spark or not issubclass(work, RoundTrip | MicroBatches)
        ]
        for name in chosen:
            (folder / name).mkdir()
            work = WORKS[name](folder / name, scale, closing)
            work.prepare()
            for number in range(given.rounds):
                work.run_round(number)
                print(f"{name}: round {number + 1} of {given.rounds}", file=sys.stderr, flush=True)
            print(f"**{name}**", end="\n\n")
            work.show(name, figures)
            sys.stdout.flush()
            shutil.rmtree(folder / name, ignore_errors=True)
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
