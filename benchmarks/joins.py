"""Joins: whole jobs compared with other systems, and the operator alone with its checkpoints.

    python benchmarks/joins.py --json joins.json
    python benchmarks/joins.py --without-peers

Jobs of Penstock and of Flink's SQL at parallelism 1, and of Structured Streaming with `local[2]`, run the
join of `peers/interval_join.py`, one after another. Penstock and Flink take a checkpoint every second,
and Spark with each micro-batch. Each job runs twice, over different numbers of rows. A rate is the difference
in rows divided by the difference in time, so it excludes start and warm-up.

The operator alone runs in this process.

Both sides have an int64 key and an int64 payload. Timestamps are in order. In an interval join each row finds
about one match when it arrives. In an as-of join the state is one version of each key. The benchmark measures
the processor time of batches after the state has reached its full size. `stop` is the processor time of the
synchronous part of a snapshot, after a tenth of the state has arrived since the last one. Python's cycle
collector runs as in a subtask's process.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from measure import Figures, cluster, machine, options, scratch, table, versions
from peers.comparison import failures_of, rate_of, rates_of
from peers.environments import version_of
from peers.interval_join import Band
from peers.programs import settings_of

from penstock import DataStream
from penstock.actors.shared.cycle_collector import spare_loaded_modules
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch, Watermark
from penstock.testing import OperatorHarness

#: Name of each ratio, its numerator, its denominator and its target.
_RATIOS = (
    ("interval_join_vs_pyflink_sql", "Penstock, columns", "PyFlink SQL", "at least 8"),
    ("interval_join_vs_spark", "Penstock, columns", "Spark", "at least 10"),
    ("interval_join_rows_vs_pyflink_sql", "Penstock, rows", "PyFlink SQL", "at least 2"),
)

#: Microseconds from one row of a side to the next.
_STEP = 20


@dataclass(frozen=True)
class Work:
    """A join whose state holds about `state` rows, `state / 2` of each side."""

    how: str
    batch_format: str
    state: int
    batch_rows: int

    @property
    def band(self) -> float:
        """Seconds by which a row's match may be earlier or later."""
        return self.state / 2 * _STEP / 1e6

    def build(self, left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        how: Any = self.how
        batch_format: Any = self.batch_format
        return left.join(right, on="key", within=self.band, how=how, batch_format=batch_format)

    @property
    def keys(self) -> int:
        return max(1, self.state // 2)

    def batches(self) -> Iterator[tuple[int, Batch, int]]:
        """Yield side, batch, and the watermark after the batch; endless."""
        draws = np.random.default_rng(7)
        for number in count():
            start = number * self.batch_rows
            stamps = np.arange(start, start + self.batch_rows) * _STEP
            for side in (LEFT, RIGHT):
                columns = {
                    "key": draws.integers(0, self.keys, self.batch_rows),
                    "value" if side == LEFT else "other": np.arange(self.batch_rows) + number,
                }
                batch = pa.record_batch(columns)
                if self.batch_format == "arrow":
                    yield side, ArrowBatch(batch, pa.array(stamps)), int(stamps[0]) - 1
                else:
                    yield side, RowBatch(batch.to_pylist(), stamps.tolist()), int(stamps[0]) - 1


class Asof(Work):
    """A join with the newest right row of each of `state` keys."""

    def build(self, left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        batch_format: Any = self.batch_format
        return left.join_asof(right, on="key", batch_format=batch_format)

    @property
    def keys(self) -> int:
        return self.state


class Run:
    """Drives a join in this process."""

    def __init__(self, work: Work) -> None:
        self.harness = OperatorHarness.of(work.build)
        self.batches = work.batches()
        #: Rows of the input and of the output, and processor seconds, since the last `push` began.
        self.rows = self.outputs = 0
        self.seconds = 0.0

    def push(self, rows: int) -> None:
        """Reset the counters, and push at least `rows` rows."""
        self.rows = self.outputs = 0
        self.seconds = 0.0
        harness, chain = self.harness, self.harness._chain
        while self.rows < rows:
            side, batch, watermark = next(self.batches)
            begun = time.thread_time()
            for _ in chain.process(batch, side):
                pass
            for _ in chain.process_time(Watermark(watermark)):
                pass
            while harness._operator.flush_at is not None:
                for _ in chain.flush(0.0):
                    pass
            self.seconds += time.thread_time() - begun
            self.rows += len(batch)
            self.outputs += sum(map(len, harness._main))
            harness._main.clear()

    def stop(self) -> float:
        """Processor seconds of a snapshot's synchronous part, after a tenth of the state has arrived."""
        self.harness.complete_checkpoint(self.harness.snapshot())
        self.push(len_of_state(self.harness) // 10)
        backend = self.harness._backend
        assert backend is not None, "a join is keyed"
        begun = time.thread_time()
        backend.snapshot(2, 1)
        return time.thread_time() - begun


def len_of_state(harness: OperatorHarness) -> int:
    gauges = harness.statistics().gauges
    return int(gauges["rows_left"].total + gauges["rows_right"].total)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write."""
    sizes = {"side": 4_000_000, "row_side": 1_000_000, "event_rate": 50_000}
    parser = options(__doc__, rows=4_000_000, state=11_000_000, row_state=200_000, **sizes)
    parser.add_argument("--without-peers", action="store_true", help="measure the operator alone")
    parser.add_argument("--only-peers", action="store_true", help="measure whole jobs only")
    given = parser.parse_args(arguments)
    figures = Figures()
    if not given.without_peers:
        compare_jobs(given.side, given.row_side, given.event_rate, figures)
    if not given.only_peers:
        measure_operators(given.rows, given.state, given.row_state, figures)
    print(machine().in_words())
    peers = {} if given.without_peers else {"flink": version_of("flink"), "pyspark": version("pyspark")}
    figures.write(given.json, versions(**peers))
    return 0


def compare_jobs(side: int, row_side: int, event_rate: int, figures: Figures) -> None:
    """Measure whole jobs of Penstock, Flink and Spark."""
    band = Band.one_match(event_rate)
    sizes, row_sizes = (side // 2, 2 * side), (row_side, 2 * row_side)
    jobs = [(query, size) for query in ("source", "join") for size in sizes]
    with scratch() as folder:
        with cluster():
            band.own(2_000, "arrow", folder)  # starts processes of the cluster
            rates = {
                "Penstock, columns": rate_of(*(band.own(size, "arrow", folder) for size in sizes)),
                "Penstock, rows": rate_of(*(band.own(size, "rows", folder) for size in row_sizes)),
            }
        for name, run in (("PyFlink SQL", band.flink), ("Spark", band.spark)):
            ended = run(jobs, folder)
            for query, failure in failures_of(ended).items():
                print(f"{name} can't run {query}: {failure}", file=sys.stderr)
            rates |= {
                name if query == "join" else f"{name}, source": rate
                for query, rate in rates_of(ended).items()
            }
    lines = []
    for name, rate in rates.items():
        lines.append([name, *rate.shown()])
        if rate.rate is not None:
            figures.rates[name] = rate.rate
        if rate.by_core is not None:
            figures.rates[f"{name}, a second of a core"] = rate.by_core
    headings = ["interval join", "rows", "rows/s", "rows/s and core", "start"]
    print(table(headings, lines), end="\n\n")
    lines = []
    for name, above, below, least in _RATIOS:
        texts = ["", ""]
        for place, ending in enumerate(("", ", a second of a core")):
            if above + ending in figures.rates and below + ending in figures.rates:
                ratio = figures.rates[above + ending] / figures.rates[below + ending]
                figures.ratios[name + ending] = ratio
                texts[place] = f"{ratio:.2f}"
        lines.append([name, *texts, least])
    print(table(["ratio", "rows/s", "rows/s and core", "target"], lines), end="\n\n")
    print(
        f"{side:,} rows of each side in columns, {row_side:,} as rows; "
        f"{event_rate:,} rows per second of event time."
    )
    print("\n".join(map(settings_of, ("PyFlink SQL", "Spark"))), end="\n\n", flush=True)


def measure_operators(rows: int, state: int, row_state: int, figures: Figures) -> None:
    """Measure the operator alone."""
    works = [
        Work("inner", "arrow", state // 8, 1 << 14),
        Work("inner", "arrow", state, 1 << 14),
        Work("full", "arrow", state // 8, 1 << 14),
        Asof("as-of", "arrow", state // 110, 1 << 14),
        Asof("as-of", "arrow", state // 11, 1 << 14),
        Work("inner", "rows", row_state, 1 << 11),
    ]
    lines = []
    for work in works:
        run = Run(work)
        run.push(10 * work.state if isinstance(work, Asof) else work.state + work.state // 5)
        run.push(rows if work.batch_format == "arrow" else rows // 10)
        each, matches = run.seconds / run.rows, run.outputs / run.rows
        held, stop = len_of_state(run.harness), run.stop()
        run.harness.close()
        name = f"{work.how}, {work.batch_format}, {work.state:,} rows of state"
        figures.seconds[name], figures.seconds[f"{name}: stop"] = each, stop
        shown = [f"{matches:.2f}", f"{each * 1e9:.0f} ns", f"{stop * 1e3:.0f} ms"]
        lines.append([work.how, work.batch_format, f"{held:,}", *shown])
    print(table(["join", "format", "rows of state", "matches a row", "a row", "stop"], lines), end="\n\n")


if __name__ == "__main__":
    spare_loaded_modules()
    sys.exit(main())
