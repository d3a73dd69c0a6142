"""Pushes the Arrow batches of one partition into its receive buffer, in Spark's Python workers.

A task sends frames of a few megabytes, with at most four of them unacknowledged. The receive buffer
acknowledges when there is room, so a slow job makes the task wait, and with it Spark. The task ends only when
all its frames are acknowledged, because this process owns them until then.

Frame boundaries depend only on the rows and bytes of the batches. So another attempt that computes the same
rows cuts the same frames. That also holds behind steps of the job that run here (`source_steps.py`).
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa
import ray

from penstock.actors.client.cluster import join_existing
from penstock.actors.shared.actor_calls import answer_of
from penstock.actors.shared.system_ports import SystemClock
from penstock.bridge.arrow import cut, row_size, with_zeros_under_nulls
from penstock.bridge.receive_buffer_messages import (
    Frame,
    PushOutcome,
    TransferError,
    different_rows,
    find_buffer,
)
from penstock.runtime.operators.source_steps import StepsAtSource

#: Maximum number of unacknowledged frames of a task.
OUTSTANDING: Final = 4
#: Maximum bytes of a frame; the bytes of a batch's rows are estimated from their average.
FRAME_BYTES: Final = 4 * 1024 * 1024
#: Maximum rows of a frame.
FRAME_ROWS: Final = 131_072

#: Minimum rows of a batch for the steps of the job, unless its bytes are those of a frame. The steps cost as
#: much for a batch of few rows.
STEP_ROWS: Final = 65_536

#: Schema of a task's report, as a DDL string of Spark.
SUMMARY: Final = "partition int, buffer int, frames long, rows long"

_ARROW_SUMMARY: Final = pa.schema(
    [("partition", pa.int32()), ("buffer", pa.int32()), ("frames", pa.int64()), ("rows", pa.int64())]
)


@dataclass(frozen=True, slots=True)
class PushPartition:
    """The function for `DataFrame.mapInArrow`, sent to the Spark executors.

    Attributes:
        buffers: Names of the receive buffers; the first one assigns partitions.
        schema: The Arrow schema of all frames, serialised; columns are taken by position.
        run: Id of this attempt to transfer the epoch.
        steps: The job's steps that run here, pickled; empty for none.
    """

    address: str
    buffers: tuple[str, ...]
    schema: bytes
    epoch: int
    run: str
    job_id: str = ""
    steps: bytes = b""

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Push one partition, and return one row with its counts."""
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            msg = "this runs only in a Spark task"
            raise TransferError(msg)
        partition, attempt = task.partitionId(), task.taskAttemptId()
        join_existing(self.address)
        first = self._buffer(0)
        call = first.assign.remote(self.epoch, partition)
        coming = frames(self._rows(batches, partition))
        ready = list(islice(coming, 1))  # Spark computes a frame while the buffer is chosen
        try:
            index: int = answer_of(call, f"{self.buffers[0]}, asked which reader takes partition {partition}")
        except ray.exceptions.RayActorError as error:
            raise _job_ended() from error
        buffer = self._buffer(index) if index else first
        pusher = _Pusher(buffer, self, partition, attempt)
        for frame in chain(ready, coming):
            pusher.push(frame)
        pusher.settle(0)
        first.partition_done.remote(self.epoch, partition)
        yield pa.record_batch([[partition], [index], [pusher.frames], [pusher.rows]], schema=_ARROW_SUMMARY)

    def _rows(self, batches: Iterable[pa.RecordBatch], partition: int) -> Iterator[pa.RecordBatch | None]:
        """The batches with the columns of the job, and after its steps that run here; see `frames`."""
        rows = fitted(batches, pa.ipc.read_schema(pa.py_buffer(self.schema)))
        if not self.steps:
            return rows
        steps = pickle.loads(self.steps)  # from the program that built the graph
        at_source = StepsAtSource(steps, self.job_id, partition, SystemClock())
        found = (
            at_source.run_frames(frames(rows)) if at_source.has_event_time else at_source.run(joined(rows))
        )
        return (None if batch is None else with_zeros_under_nulls(batch) for batch in found)

    def _buffer(self, index: int) -> Any:
        try:
            return find_buffer(self.buffers[index])
        except ValueError as error:
            raise _job_ended() from error


class _Pusher:
    def __init__(self, buffer: Any, target: PushPartition, partition: int, attempt: int) -> None:
        self._buffer = buffer
        self._target = target
        self._partition = partition
        self._attempt = attempt
        self._outstanding: deque[Any] = deque()
        self.frames = self.rows = 0

    def push(self, frame: list[pa.RecordBatch]) -> None:
        self.settle(OUTSTANDING - 1)
        rows = sum(batch.num_rows for batch in frame)
        target = self._target
        self._outstanding.append(
            self._buffer.push.remote(
                Frame(
                    target.epoch,
                    target.run,
                    self._partition,
                    self._attempt,
                    self.frames,
                    rows,
                    encoded(frame),
                )
            )
        )
        self.frames += 1
        self.rows += rows

    def settle(self, left: int) -> None:
        """Wait until at most `left` pushes are unacknowledged."""
        while len(self._outstanding) > left:
            try:
                outcome: PushOutcome = ray.get(self._outstanding.popleft())
            except ray.exceptions.RayActorError as error:
                raise _job_ended() from error
            if outcome is PushOutcome.DIFFERENT:
                raise TransferError(different_rows(self._partition))
            if outcome not in (PushOutcome.ACCEPTED, PushOutcome.DUPLICATE):
                msg = f"partition {self._partition} was refused ({outcome.value}); the job's error says why"
                raise TransferError(msg)


def frames(batches: Iterable[pa.RecordBatch | None]) -> Iterator[list[pa.RecordBatch]]:
    """Combine small batches and cut large batches into frames; all batches of a frame have one schema.

    `None` ends a frame.
    """
    gathered: list[pa.RecordBatch] = []
    size = 0.0
    rows = 0
    for whole in batches:
        if whole is None:
            if gathered:
                yield gathered
            gathered, size, rows = [], 0.0, 0
            continue
        bytes_a_row = row_size(whole)
        for batch in cut(whole, FRAME_BYTES, FRAME_ROWS):
            more = batch.num_rows * bytes_a_row
            is_full = size + more > FRAME_BYTES or rows + batch.num_rows > FRAME_ROWS
            if gathered and (is_full or not _are_alike(gathered[0], batch)):
                yield gathered
                gathered, size, rows = [], 0.0, 0
            gathered.append(batch)
            size += more
            rows += batch.num_rows
    if gathered:
        yield gathered


def joined(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches of one schema for the steps of the job."""
    waiting: list[pa.RecordBatch] = []
    size = rows = 0
    for batch in batches:
        waiting.append(batch)
        size += batch.get_total_buffer_size()
        rows += batch.num_rows
        if rows >= STEP_ROWS or size >= FRAME_BYTES:
            yield pa.concat_batches(waiting)
            waiting, size, rows = [], 0, 0
    if waiting:
        yield pa.concat_batches(waiting)


def _are_alike(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    return bool(one.schema.equals(other.schema, check_metadata=True))


def encoded(batches: list[pa.RecordBatch]) -> pa.Buffer:
    """Encode batches as an Arrow IPC stream; counts the bytes first, as a growing buffer is twice as slow."""
    counted = pa.MockOutputStream()
    _write(batches, counted)
    buffer = pa.allocate_buffer(counted.size())
    _write(batches, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _write(batches: list[pa.RecordBatch], sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def fitted(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Give the batches the names and types of the job's columns."""
    return (_fitted(batch, schema) for batch in batches)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    try:
        named = batch.rename_columns(schema.names)
        return named if named.schema.equals(schema) else named.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        msg = (
            f"Spark gave columns {batch.schema.to_string()}, which can't be cast to those of the job: {error}"
        )
        raise TransferError(msg) from error


def _job_ended() -> TransferError:
    return TransferError("the job that reads these rows has ended, or lost the process that holds them")
