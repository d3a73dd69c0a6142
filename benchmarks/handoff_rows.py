"""Rows of the transfer benchmark, and the actors and functions that make, push and count them."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import ray

from penstock.actors.client.cluster import join_existing

#: Rows of a batch.
BATCH = 100_000


def made(first: int, rows: int) -> pa.RecordBatch:
    """Return `rows` rows with ids from `first`."""
    ids = pa.array(np.arange(first, first + rows))
    text = pc.utf8_lpad(ids.cast(pa.string()), 12, "0")
    return pa.record_batch({"id": ids, "x": pc.multiply(ids.cast(pa.float64()), 0.5), "s": text})


@ray.remote(num_cpus=0)
class Counter:
    """Counts rows and sums their first column."""

    def __init__(self) -> None:
        self.rows = self.total = 0

    def add(self, data: Any) -> None:
        """Count the rows of an Arrow IPC stream or of an Arrow table."""
        found = pa.ipc.open_stream(data).read_all() if isinstance(data, bytes) else data
        self.rows += found.num_rows
        self.total += pc.sum(found["id"]).as_py() or 0

    def add_files(self, files: list[str]) -> None:
        """Count the rows of Parquet files."""
        for file in files:
            self.add(pq.read_table(file))

    def seen(self) -> tuple[int, int]:
        """Return the number of rows and their sum, and reset both."""
        seen = self.rows, self.total
        self.rows = self.total = 0
        return seen


@ray.remote(num_cpus=0)
class Maker:
    """Makes rows in its own process."""

    def table(self, first: int, rows: int) -> pa.Table:
        return pa.Table.from_batches([made(first, rows)])

    def parquet(self, folder: str, first: int, rows: int) -> None:
        """Write the rows to a file."""
        pq.write_table(pa.Table.from_batches([made(first, rows)]), f"{folder}/{first}.parquet")


class PlainPush:
    """Pushes the batches of each partition to an actor, with at most four unanswered calls."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Push the batches of one partition."""
        from pyspark import TaskContext

        join_existing(self.address)
        partition = TaskContext.get().partitionId()
        actor = ray.get_actor(f"counter-{partition % 2}", namespace="handoff")
        calls: list[Any] = []
        rows = 0
        for batch in batches:
            if len(calls) == 4:
                ray.get(calls.pop(0))
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            calls.append(actor.add.remote(sink.getvalue().to_pybytes()))
            rows += batch.num_rows
        ray.get(calls)
        yield pa.record_batch({"rows": [rows]})


class Making:
    """Makes `BATCH` rows for each row of its input, whose column `first` has the first id."""

    def __call__(self, pieces: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yield one Arrow batch for each row of the input."""
        for first in pieces["first"].to_pylist():
            yield made(first, BATCH)


def summed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Count and sum a batch like `Counter`, in a job; `at` is the monotonic time of the machine."""
    # Python objects would make Arrow import pandas, which takes longer than all the rows of a subtask.
    now = pa.py_buffer(struct.pack("d", time.monotonic()))
    columns = {
        "rows": pa.repeat(pc.count(batch["id"], mode="all"), 1),
        "total": pa.repeat(pc.sum(batch["id"]), 1),
        "at": pa.Array.from_buffers(pa.float64(), 1, [None, now]),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
