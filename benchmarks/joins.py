"""Interval joins: nanoseconds a row of the operator alone, and how long a checkpoint stops its task.

    python benchmarks/joins.py --json joins.json

Both sides have an int64 key and an int64 payload. Timestamps are in order, and each row matches about one row
of the other side. The processor time of the batches counts after the state has reached its full size. `stop`
is the synchronous half of a snapshot, after a tenth of the state came since the last one.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import numpy as np
import pyarrow as pa
from measure import Figures, machine, options, table, versions

from penstock import DataStream
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.testing import OperatorHarness

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
        """Seconds to both sides."""
        return self.state / 2 * _STEP / 1e6

    def build(self, left: DataStream[Any], right: DataStream[Any]) -> DataStream[Any]:
        how: Any = self.how
        batch_format: Any = self.batch_format
        return left.join(right, on="key", within=self.band, how=how, batch_format=batch_format)

    def batches(self) -> Iterator[tuple[int, Batch, int]]:
        """Side, batch, and the watermark behind it, without end."""
        draws = np.random.default_rng(7)
        keys = max(1, self.state // 2)
        for number in count():
            start = number * self.batch_rows
            stamps = np.arange(start, start + self.batch_rows) * _STEP
            for side in (LEFT, RIGHT):
                columns = {
                    "key": draws.integers(0, keys, self.batch_rows),
                    "value" if side == LEFT else "other": np.arange(self.batch_rows) + number,
                }
                batch = pa.record_batch(columns)
                if self.batch_format == "arrow":
                    yield side, ArrowBatch(batch, pa.array(stamps)), int(stamps[0]) - 1
                else:
                    yield side, RowBatch(batch.to_pylist(), stamps.tolist()), int(stamps[0]) - 1


class Run:
    """Drives a join in this process."""

    def __init__(self, work: Work) -> None:
        self.harness = OperatorHarness.of(work.build)
        self.batches = work.batches()
        #: Rows of the input and of the output, and processor seconds.
        self.rows = self.outputs = 0
        self.seconds = 0.0

    def push(self, rows: int) -> None:
        """Push at least so many rows; count anew."""
        self.rows = self.outputs = 0
        self.seconds = 0.0
        harness, chain = self.harness, self.harness._chain
        while self.rows < rows:
            side, batch, watermark = next(self.batches)
            begun = time.thread_time()
            for _ in chain.process(batch, side):
                pass
            harness.push_watermark(watermark)
            while harness._operator.flush_at is not None:
                harness.flush()
            self.seconds += time.thread_time() - begun
            self.rows += len(batch)
            self.outputs += sum(map(len, harness._main))
            harness._main.clear()

    def stop(self) -> float:
        """Seconds of the synchronous half of a snapshot, after a tenth of the state has come."""
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
    given = options(__doc__, rows=4_000_000, state=11_000_000, row_state=200_000).parse_args(arguments)
    works = [
        Work("inner", "arrow", given.state // 8, 1 << 14),
        Work("inner", "arrow", given.state, 1 << 14),
        Work("full", "arrow", given.state // 8, 1 << 14),
        Work("inner", "rows", given.row_state, 1 << 11),
    ]
    figures, lines = Figures(), []
    for work in works:
        run = Run(work)
        run.push(work.state + work.state // 5)
        run.push(given.rows if work.batch_format == "arrow" else given.rows // 10)
        each, matches = run.seconds / run.rows, run.outputs / run.rows
        state, stop = len_of_state(run.harness), run.stop()
        run.harness.close()
        name = f"{work.how}, {work.batch_format}, {work.state:,} rows of state"
        figures.seconds[name], figures.seconds[f"{name}: stop"] = each, stop
        shown = [f"{matches:.2f}", f"{each * 1e9:.0f} ns", f"{stop * 1e3:.0f} ms"]
        lines.append([work.how, work.batch_format, f"{state:,}", *shown])
    print(table(["join", "format", "rows of state", "matches a row", "a row", "stop"], lines), end="\n\n")
    print(machine().in_words())
    figures.write(given.json, versions())
    return 0


if __name__ == "__main__":
    sys.exit(main())
