"""The keyed sum in Bytewax; run by its own Python (`python -m bytewax.run bytewax_flow:flow`).

The source emits batches, Bytewax saves the sum's state in its recovery store, and the sink drops records. Ten
times a second the sink writes `<seconds> <records> <processor seconds>` to the file `PENSTOCK_BENCH_OUT`. The
flow ends after `PENSTOCK_BENCH_SECONDS`.
"""

from __future__ import annotations

import os
import time
from typing import Any

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from workload import add, key_of, reading, with_key

BATCH = int(os.environ.get("PENSTOCK_BENCH_BATCH", "256"))


class Numbers(StatefulSourcePartition[int, int]):
    """Counts up in batches; resumes from the number in a snapshot."""

    def __init__(self, resumed: int | None) -> None:
        self._next = resumed or 0
        self._ends_at = time.monotonic() + float(os.environ["PENSTOCK_BENCH_SECONDS"])

    def next_batch(self) -> list[int]:
        """Return the next batch; ends after `PENSTOCK_BENCH_SECONDS`."""
        if time.monotonic() > self._ends_at:
            raise StopIteration
        first = self._next
        self._next = first + BATCH
        return list(map(reading, range(first, first + BATCH)))

    def snapshot(self) -> int:
        return self._next


class NumberSource(FixedPartitionedSource[int, int]):
    """A source of one partition."""

    def list_parts(self) -> list[str]:
        return ["numbers"]

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> Numbers:
        return Numbers(resume_state)


class CountingPartition(StatelessSinkPartition[Any]):
    """Counts and drops records; writes the count to the file ten times a second."""

    def __init__(self) -> None:
        self._records = 0
        self._tell_at = 0.0
        self._file = open(os.environ["PENSTOCK_BENCH_OUT"], "w", buffering=1)  # noqa: SIM115

    def write_batch(self, items: list[Any]) -> None:
        self._records += len(items)
        now = time.monotonic()
        if now >= self._tell_at:
            self._tell_at = now + 0.1
            self._file.write(f"{now} {self._records} {time.process_time()}\n")

    def close(self) -> None:
        self._file.close()


class CountingSink(DynamicSink[Any]):
    """A sink with one `CountingPartition` per worker."""

    def build(self, step_id: str, worker_index: int, worker_count: int) -> CountingPartition:
        return CountingPartition()


def running_sum(
    total: tuple[str, int] | None, pair: tuple[str, int]
) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the new sum twice: as the state and as the output."""
    total = pair if total is None else add(total, pair)
    return total, total


flow = Dataflow("keyed-sum")
numbers = op.input("numbers", flow, NumberSource())
pairs = op.map("with_key", numbers, with_key)
keyed = op.key_on("key", pairs, key_of)
sums = op.stateful_map("sum", keyed, running_sum)
op.output("discard", sums, CountingSink())
