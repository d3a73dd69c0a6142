"""The speed of transfers from Spark into a job and back, compared with naive ways in the same run.

    python benchmarks/spark_handoff.py --json spark_handoff.json

The rows are a long, a double and a string of 12 characters. *In* starts when the actors or the job run, or
earlier if Spark's job begins before that. Executors and Python workers are up by then. *In* ends when two
actors or subtasks have counted the last row. *Out* starts when two actors or subtasks begin to make the rows,
and ends when Spark has aggregated them. Each transfer is checked by the sum of its rows. Ray Data's transfers
have rounds of their own, after all others. The *plain push* is the bare minimum: `mapInArrow` that pushes
batches to two actors and waits. *Driver grew* is the additional peak memory of the driver's two processes:
this one and its JVM, in which `toPandas` collects.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import ray
from handoff_rows import BATCH
from handoff_ways import PANDAS_IN, PANDAS_OUT, PUSH, SPARK_IN, SPARK_OUT, Handoff, Seen
from measure import Figures, machine, middle, options, rows_a_second, scratch, spread, table, versions

from penstock.cluster import start_local
from penstock.spark import spark_session

#: The directions of transfers.
_DIRECTIONS = ("in", "out")


def show(handoff: Handoff, figures: Figures) -> None:
    """Print the tables and keep the figures."""
    for direction, ways, base in (
        ("in", handoff.seen_in, PANDAS_IN),
        ("out", handoff.seen_out, PANDAS_OUT),
    ):
        if not ways:
            continue
        rows: list[Sequence[object]] = []
        for name, seen in ways.items():
            rate, against = middle(one.rate for one in seen), compared(ways, name, base)
            memory = middle(one.grown for one in seen) / 1e6
            rows.append(
                (name, rows_a_second(rate), f"{middle(against):.2f}", spread(against), f"{memory:.0f} MB")
            )
            figures.rates[f"{direction}, {name}"] = rate
            figures.details[f"{direction}, {name}, driver grew, MB"] = memory
        print(table([direction, "rows/s", f"x {base}", "all rounds", "driver grew"], rows), end="\n\n")
    pairs = {
        "from_spark_vs_to_pandas": (handoff.seen_in, SPARK_IN, PANDAS_IN),
        "from_spark_vs_plain_push": (handoff.seen_in, SPARK_IN, PUSH),
        "results_vs_create_data_frame": (handoff.seen_out, SPARK_OUT, PANDAS_OUT),
    }
    for name, (ways, ours, other) in pairs.items():
        if not ways:
            continue
        figures.ratios[name] = middle(compared(ways, ours, other))


def compared(ways: dict[str, list[Seen]], one: str, other: str) -> list[float]:
    """The ratio of the rate of `one` to the rate of `other`, in each round."""
    return [a.rate / b.rate for a, b in zip(ways[one], ways[other], strict=True)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure."""
    parser = options(__doc__, rows=5_000_000, rounds=3, warm_up=1)
    parser.add_argument("--only", nargs="+", choices=_DIRECTIONS, default=_DIRECTIONS)
    given = parser.parse_args(arguments)
    figures = Figures()
    if not ray.is_initialized():
        start_local(num_cpus=8)
    settings = {
        "spark.ray.raydp_spark_executor.actor.resource.cpu": 0.5,
        "spark.driver.memory": "4g",  # `createDataFrame` needs it for 20 M rows
    }
    with scratch() as folder:
        # `ray.data.from_spark` works in RayDP's fault-tolerant mode only.
        session = spark_session(
            "handoff", executors=1, cores=2, memory="2g", configs=settings, fault_tolerant=True
        )
        with session as spark:
            handoff = Handoff(spark, folder, given.rows // BATCH * BATCH)
            for _ in range(given.warm_up):
                handoff.run_round(*given.only)
            for seen in (handoff.seen_in, handoff.seen_out):
                seen.clear()
            for _ in range(given.rounds):
                handoff.run_round(*given.only)
            for _ in range(given.rounds):
                handoff.run_ray_data_round(*given.only)
        show(handoff, figures)
    print(f"{handoff.rows:,} rows, middle of {given.rounds} round(s). {machine().in_words()}")
    figures.write(given.json, versions())
    ray.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
