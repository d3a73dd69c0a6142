"""The rows of the transfer's benchmark, and what makes, pushes and counts them in other processes."""

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

#: Rows that are made, and sent to an actor, at once.
BATCH = 100_000


def made(first: int, rows: int) -> pa.RecordBatch:
    """Rows with these ids."""
    ids = pa.array(np.arange(first, first + rows))
    text = pc.utf8_lpad(ids.cast(pa.string()), 12, "0")
    return pa.record_batch({"id": ids, "x": pc.multiply(ids.cast(pa.float64()), 0.5), "s": text})


@ray.remote(num_cpus=0)
class Counter:
    """Counts rows and sums their first column."""

    def __init__(self) -> None:
        self.rows = self.total = 0

    def add(self, data: Any) -> None:
        """A batch as Arrow IPC, or an Arrow table."""
        found = pa.ipc.open_stream(data).read_all() if isinstance(data, bytes) else data
        self.rows += found.num_rows
        self.total += pc.sum(found["id"]).as_py() or 0

    def add_files(self, files: list[str]) -> None:
        """Rows of Parquet files."""
        for file in files:
            self.add(pq.read_table(file))

    def seen(self) -> tuple[int, int]:
        """Rows and sum; begins anew."""
        seen = self.rows, self.total
        self.rows = self.total = 0
        return seen


@ray.remote(num_cpus=0)
class Maker:
    """Has rows."""

    def table(self, first: int, rows: int) -> pa.Table:
        """Rows with these ids."""
        return pa.Table.from_batches([made(first, rows)])

    def parquet(self, folder: str, first: int, rows: int) -> None:
        """Rows with these ids, as a file."""
        pq.write_table(pa.Table.from_batches([made(first, rows)]), f"{folder}/{first}.parquet")


class PlainPush:
    """Pushes batches to the actors, four at a time."""

    def __init__(self, address: str) -> None:
        self.address = address

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One partition."""
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
    """Makes the rows of each piece."""

    def __call__(self, pieces: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields one Arrow batch for each piece."""
        for first in pieces["first"].to_pylist():
            yield made(first, BATCH)


def summed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The work of `Counter`, in a job, with times of a clock that all processes of a machine share."""
    # Python objects would make Arrow import pandas, which takes longer than all the rows of a subtask.
    now = pa.py_buffer(struct.pack("d", time.monotonic()))
    columns = {
        "rows": pa.repeat(pc.count(batch["id"], mode="all"), 1),
        "total": pa.repeat(pc.sum(batch["id"]), 1),
        "at": pa.Array.from_buffers(pa.float64(), 1, [None, now]),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
