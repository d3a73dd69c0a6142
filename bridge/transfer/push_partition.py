"""What runs in Spark's Python workers: push the Arrow batches of one partition into its depot.

A task sends frames of a few megabytes, with at most four of them not acknowledged. The depot acknowledges
when there is room, so a slow job makes the task wait, and with it Spark. The task ends only when all its
frames are acknowledged, because they belong to this process until then.

Frames are cut by rows and bytes of the batches alone, so that another attempt which computes the same rows
cuts them in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa
import ray

from penstock.actors.client.cluster import join_existing
from penstock.actors.shared.answers import answer_of
from penstock.actors.shared.names import NAMESPACE
from penstock.bridge.arrow.batch_pieces import cut, row_size
from penstock.bridge.receive_buffer.failure_texts import different_rows
from penstock.bridge.receive_buffer.messages import Frame, PushOutcome
from penstock.runtime.errors import PenstockError

#: Frames of a task that are sent and not acknowledged.
OUTSTANDING: Final = 4
#: A frame is sent when it has this many bytes or rows.
FRAME_BYTES: Final = 4 * 1024 * 1024
FRAME_ROWS: Final = 131_072

#: What each task reports, as Spark writes schemas: its partition, the depot, frames and rows.
SUMMARY: Final = "partition int, depot int, frames long, rows long"
_ARROW_SUMMARY: Final = pa.schema(
    [("partition", pa.int32()), ("depot", pa.int32()), ("frames", pa.int64()), ("rows", pa.int64())]
)


class HandOverError(PenstockError):
    """Rows can't be handed over; the message says why and what to do."""


@dataclass(frozen=True, slots=True)
class PushOrder:
    """Where the partitions go; travels to the Spark executors.

    Attributes:
        address: Of the Ray cluster.
        depots: Names of the depots; the first of them says which one takes a partition.
        schema: The Arrow schema that all frames have, serialised.
        epoch: Number of the epoch.
        run: Names this try to hand the epoch over.
    """

    address: str
    depots: tuple[str, ...]
    schema: bytes
    epoch: int
    run: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Push one partition; the function for `DataFrame.mapInArrow`."""
        from pyspark import TaskContext

        task = TaskContext.get()
        if task is None:
            msg = "this runs in a Spark task only"
            raise HandOverError(msg)
        partition, attempt = task.partitionId(), task.taskAttemptId()
        join_existing(self.address)
        dealer = self._depot(0)
        call = dealer.deal.remote(self.epoch, partition)
        coming = frames(batches, pa.ipc.read_schema(pa.py_buffer(self.schema)))
        ready = list(islice(coming, 1))  # Spark computes the first one while the dealer thinks
        try:
            index: int = answer_of(call, f"{self.depots[0]}, asked which reader takes partition {partition}")
        except ray.exceptions.RayActorError as error:
            raise _job_ended() from error
        depot = self._depot(index) if index else dealer
        pusher = _Pusher(depot, self, partition, attempt)
        for frame in chain(ready, coming):
            pusher.push(frame)
        pusher.settle(0)
        dealer.dealt_is_done.remote(self.epoch, partition)
        yield pa.record_batch([[partition], [index], [pusher.frames], [pusher.rows]], schema=_ARROW_SUMMARY)

    def _depot(self, index: int) -> Any:
        try:
            return _actor(self.depots[index])
        except ValueError as error:
            raise _job_ended() from error


@lru_cache(maxsize=256)
def _actor(name: str) -> Any:
    """A depot; no two have one name. A Python worker of Spark pushes many partitions, and asks once."""
    return ray.get_actor(name, namespace=NAMESPACE)


class _Pusher:
    """Keeps a few pushes under way."""

    def __init__(self, depot: Any, order: PushOrder, partition: int, attempt: int) -> None:
        self._depot = depot
        self._order = order
        self._partition = partition
        self._attempt = attempt
        self._outstanding: deque[Any] = deque()
        self.frames = self.rows = 0

    def push(self, frame: list[pa.RecordBatch]) -> None:
        """Send a frame, after waiting until few enough are under way."""
        self.settle(OUTSTANDING - 1)
        rows = sum(batch.num_rows for batch in frame)
        order = self._order
        self._outstanding.append(
            self._depot.push.remote(
                Frame(
                    order.epoch, order.run, self._partition, self._attempt, self.frames, rows, encoded(frame)
                )
            )
        )
        self.frames += 1
        self.rows += rows

    def settle(self, left: int) -> None:
        """Wait until at most `left` pushes are under way.

        The depot answers each one sooner or later: it ends with its job, and then the call fails.
        """
        while len(self._outstanding) > left:
            try:
                outcome: str = ray.get(self._outstanding.popleft())
            except ray.exceptions.RayActorError as error:
                raise _job_ended() from error
            if outcome == PushOutcome.DIFFERENT.value:
                raise HandOverError(different_rows(self._partition))
            if outcome not in (PushOutcome.ACCEPTED.value, PushOutcome.DUPLICATE.value):
                msg = f"partition {self._partition} was refused ({outcome}); the job says why"
                raise HandOverError(msg)


def frames(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[list[pa.RecordBatch]]:
    """Gather small batches, and cut large ones, into frames.

    Raises:
        HandOverError: A batch can't be cast to the schema.
    """
    gathered: list[pa.RecordBatch] = []
    size = 0.0
    rows = 0
    for whole in batches:
        fitted = _fitted(whole, schema)
        bytes_a_row = row_size(fitted)
        for batch in cut(fitted, FRAME_BYTES, FRAME_ROWS):
            more = batch.num_rows * bytes_a_row
            if gathered and (size + more > FRAME_BYTES or rows + batch.num_rows > FRAME_ROWS):
                yield gathered
                gathered, size, rows = [], 0.0, 0
            gathered.append(batch)
            size += more
            rows += batch.num_rows
    if gathered:
        yield gathered


def encoded(batches: list[pa.RecordBatch]) -> pa.Buffer:
    """Batches as an Arrow IPC stream.

    They are written twice, at first into nothing: a buffer that grows as it is filled takes twice as long or
    more as one that is made as large as it has to be.
    """
    counted = pa.MockOutputStream()
    _write(batches, counted)
    buffer = pa.allocate_buffer(counted.size())
    _write(batches, pa.FixedSizeBufferWriter(buffer))
    return buffer


def _write(batches: list[pa.RecordBatch], sink: pa.NativeFile) -> None:
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _fitted(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    if batch.schema.equals(schema):
        return batch
    try:
        return batch.cast(schema)
    except (pa.ArrowException, ValueError) as error:
        msg = (
            f"Spark gave columns {batch.schema.to_string()}, which can't be cast to those of the job: {error}"
        )
        raise HandOverError(msg) from error


def _job_ended() -> HandOverError:
    return HandOverError("the job that these rows were for has ended, or lost the process that holds them")
