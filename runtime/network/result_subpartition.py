"""The sending end of one channel: open buffer, queue, sequence numbers and credits.

Records gather in an *open* buffer. It is closed (encoded) when it is full, before an event, when nothing is
outstanding on the channel, and when the buffer timeout expires. Closed buffers and events wait in one queue,
so their order is the order of emission, and leave it as frames.

A channel without outstanding buffers sends at once, and then *rests* for a tenth of the timeout. A frame of
any size costs sender and receiver about a millisecond each; frames of a few records would keep both busy. A
record that follows a longer pause does not wait, because the channel no longer rests.

An element gets its sequence number when it leaves in a frame. Waiting elements belong to the sender and sent
ones to the receiver, so a checkpoint that captures in-flight data can tell them apart.

A credit lets one buffer, watermark or stream status be outstanding. Barriers, markers and ends of data need
no credit: they must reach a receiver even if it takes nothing else.

An unaligned barrier overtakes the waiting elements: it takes the next sequence number and leaves at once. The
overtaken elements are the sender's part of the checkpoint. They leave later with higher numbers, and the
receiver does not capture them. A waiting aligned barrier may become unaligned, and then overtakes elements,
too.

The open buffer holds rows, or Arrow batches of one schema. These leave as one batch, unless Arrow can't
concatenate their types. A batch that no longer fits closes the buffer and begins the next one. Only a batch
larger than a buffer is cut.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeAlias

import pyarrow as pa

from penstock.runtime.network.send_queue import BufferBudget, SendQueue
from penstock.runtime.record.elements import (
    ArrowBatch,
    Batch,
    Buffer,
    CheckpointBarrier,
    Event,
    RowBatch,
)


class OpenArrowBuffer:
    """Collects batches up to a number of rows or of bytes (before they are encoded)."""

    def __init__(self, max_rows: int = 256 * 1024, max_bytes: int = 4 * 1024 * 1024) -> None:
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._parts: list[ArrowBatch] = []
        self._rows = 0
        self._bytes = 0

    def __len__(self) -> int:
        return self._rows

    def add(self, batch: ArrowBatch) -> Iterator[ArrowBatch]:
        """Add a batch; yields the batches to encode now, in order."""
        size = batch.batch.nbytes
        most = self.rows_of(batch)
        for part in batch.slices(most):
            weight = size * len(part) // len(batch)
            if self._rows and not self._fits(part, weight):
                yield from self.take()
            self._parts.append(part)
            self._rows += len(part)
            self._bytes += weight
            if self._rows >= most:
                yield from self.take()

    def rows_of(self, batch: ArrowBatch) -> int:
        """Rows of a batch that fill a buffer; each piece carries the dictionaries of the whole batch."""
        columns = batch.batch.columns
        dictionaries = sum(c.dictionary.nbytes for c in columns if isinstance(c, pa.DictionaryArray))
        per_row = (batch.batch.nbytes - dictionaries) / len(batch)
        return max(1, min(self._max_rows, int(self._max_bytes / max(per_row, 1))))

    def take(self) -> list[ArrowBatch]:
        """Empty the buffer; returns one batch, several if their types can't be concatenated, or none."""
        parts = self._parts
        self._parts, self._rows, self._bytes = [], 0, 0
        return parts if len(parts) < 2 else _joined(parts)

    def _fits(self, part: ArrowBatch, weight: int) -> bool:
        first = self._parts[0]
        same = (part.timestamps is None) == (first.timestamps is None) and (
            part.batch.schema is first.batch.schema
            or part.batch.schema.equals(first.batch.schema, check_metadata=True)
        )
        return same and self._rows + len(part) <= self._max_rows and self._bytes + weight <= self._max_bytes


def _joined(parts: list[ArrowBatch]) -> list[ArrowBatch]:
    stamps = None
    if parts[0].timestamps is not None:
        stamps = pa.concat_arrays([part.timestamps for part in parts])
    if not parts[0].batch.num_columns:
        return parts
    schema = parts[0].batch.schema
    try:
        columns = [
            pa.concat_arrays(pieces) for pieces in zip(*(part.batch.columns for part in parts), strict=True)
        ]
    except pa.ArrowNotImplementedError:
        return parts
    return [ArrowBatch(pa.RecordBatch.from_arrays(columns, schema=schema), stamps)]


#: Hands a frame to the network: its first sequence number and its encoded elements.
SendFrame: TypeAlias = Callable[[int, list[bytes]], None]


class BatchEncoder(Protocol):
    """Encodes batches; a `BatchCodec`, or a wrapper of one."""

    def encode(self, batch: Batch) -> Buffer: ...


class _Sent(NamedTuple):
    """Size of a frame that is outstanding; the frame itself belongs to the receiver."""

    credits: int
    rows: int


@dataclass(frozen=True, slots=True)
class SubpartitionStatistics:
    """Counters of one sending channel.

    Attributes:
        buffers: Buffers that were closed, including those that wait for a credit.
        bytes: Encoded bytes sent.
        queued: Elements that wait for a credit.
        outstanding: Credits in use, for elements that the receiver has not consumed.
    """

    buffers: int
    bytes: int
    queued: int
    outstanding: int


class ResultSubpartition:
    """Outgoing side of one channel; driven by the task thread alone.

    Args:
        send: Hands a frame over; must not block.
        rest: Seconds between two buffers that leave because nothing is outstanding.
    """

    def __init__(
        self,
        codec: BatchEncoder,
        send: SendFrame,
        credits: int,
        budget: BufferBudget,
        rest: float = 0.0,
        arrow: OpenArrowBuffer | None = None,
    ) -> None:
        self._codec = codec
        self._send = send
        self._credits = credits
        self._budget = budget
        self._rest = rest
        self._rested_at = -math.inf
        self._rows: list[Any] = []
        self._timestamps: list[int] | None = None
        self._arrow = OpenArrowBuffer() if arrow is None else arrow
        self.queue = SendQueue()
        self.has_open_rows = False
        self._next_sequence_number = 0
        self._outstanding = 0
        self._in_flight: dict[int, _Sent] = {}
        self._is_given_up = False
        self._buffers = self._bytes = 0

    @property
    def buffer_rows(self) -> int:
        return self._budget.rows

    @property
    def is_available(self) -> bool:
        """Whether the sender may emit more: no closed buffer waits for a credit."""
        return not self.queue.buffers

    @property
    def is_drained(self) -> bool:
        return self._is_given_up or not (self.has_open_rows or self.queue or self._in_flight)

    def add_rows(self, rows: Sequence[Any], timestamps: Sequence[int] | None) -> None:
        if not rows:
            return
        if self._arrow or (self._rows and (timestamps is None) != (self._timestamps is None)):
            self._close()
        self._rows.extend(rows)
        self.has_open_rows = True
        if timestamps is not None:
            if self._timestamps is None:
                self._timestamps = []
            self._timestamps.extend(timestamps)
        self._budget.weigh_first(rows, self._codec.encode)
        while len(self._rows) >= (full := self._budget.rows):
            self._close_rows(full)
        if self.queue:
            self.send_queued()

    def add_arrow(self, batch: ArrowBatch) -> None:
        self._close_rows()
        self.has_open_rows = True
        for full in self._arrow.add(batch):
            self._enqueue_buffer(self._codec.encode(full))
        self.has_open_rows = bool(self._arrow)
        if self.queue:
            self.send_queued()

    def add_buffer(self, buffer: Buffer) -> None:
        """Queue a buffer that is already encoded (a broadcast encodes once for all channels)."""
        self._close()
        self._enqueue_buffer(buffer)
        self.send_queued()

    def add_event(self, event: Event) -> None:
        self._close()
        self.queue.add_event(event)
        self.send_queued()

    def overtake(self, barrier: CheckpointBarrier) -> list[bytes]:
        """Send a barrier ahead of all waiting elements; return the overtaken ones in order."""
        self.flush()
        overtaken = self.queue.captured()
        self._send_first(barrier)
        return overtaken

    def is_barrier_waiting(self, checkpoint_id: int) -> bool:
        return self.queue.has_barrier(checkpoint_id)

    def turn_unaligned(self, checkpoint_id: int) -> list[bytes] | None:
        """Let a checkpoint's waiting barrier overtake the elements in front of it; return these elements.

        `None` when the barrier has already left: the receiver captures the elements in front of it.
        """
        taken = self.queue.take_barrier(checkpoint_id)
        if taken is None:
            return None
        barrier, overtaken = taken
        self._send_first(replace(barrier, options=replace(barrier.options, unaligned=True)))
        return overtaken

    def restore(self, elements: Sequence[bytes]) -> None:
        """Queue the elements that the restored checkpoint's barrier had overtaken; `flush` sends them."""
        if self._next_sequence_number or self.queue or self.has_open_rows:
            msg = "in-flight elements must be restored before anything is sent"
            raise ValueError(msg)
        for data in elements:
            self.queue.add_restored(data)

    def flush(self) -> None:
        """Close the open buffer, even if it is not full, and send while there are credits."""
        self._close()
        self.send_queued()

    def flush_if_idle(self, now: float) -> float | None:
        """Send the open buffer when nothing is outstanding and the channel has rested.

        Returns the time of the next check if the channel still rests, else `None`.
        """
        if not self.has_open_rows or self._in_flight or self.queue:
            return None
        if now < self._rested_at:
            return self._rested_at
        self._rested_at = now + self._rest
        self.flush()
        return None

    def consumed(self, first_sequence_number: int, now: float) -> None:
        """Release the credits of the consumed frame that begins with this number.

        Elements that waited for these credits leave at once.
        """
        frame = self._in_flight.pop(first_sequence_number, None)
        if frame is None:
            return
        self._outstanding -= frame.credits
        self._budget.consumed(frame.rows, now, more=self._outstanding > 0 or bool(self.queue))
        self.send_queued()
        self.flush_if_idle(now)

    def give_up(self) -> None:
        """Handle the end of the receiver: sent and waiting elements are never consumed."""
        self._is_given_up = True

    def send_queued(self) -> None:
        while self.queue:
            frame = self.queue.take_frame(self._credits - self._outstanding)
            elements = frame.elements
            if not elements:
                return
            first = self._next_sequence_number
            self._next_sequence_number += len(elements)
            self._in_flight[first] = _Sent(frame.credits, frame.rows)
            self._outstanding += frame.credits
            self._bytes += sum(map(len, elements))
            self._send(first, elements)

    def statistics(self) -> SubpartitionStatistics:
        return SubpartitionStatistics(self._buffers, self._bytes, len(self.queue), self._outstanding)

    def _send_first(self, barrier: CheckpointBarrier) -> None:
        self.queue.put_first(barrier)
        self.send_queued()

    def _close(self) -> None:
        if not self.has_open_rows:
            return
        self._close_rows()
        self.has_open_rows = False
        for batch in self._arrow.take():
            self._enqueue_buffer(self._codec.encode(batch))

    def _close_rows(self, rows: int | None = None) -> None:
        if not self._rows:
            return
        if rows is None or rows == len(self._rows):
            batch = RowBatch(self._rows, self._timestamps)
            self._rows, self._timestamps = [], None
            self.has_open_rows = False
        else:
            stamps = self._timestamps
            batch = RowBatch(self._rows[:rows], None if stamps is None else stamps[:rows])
            self._rows = self._rows[rows:]
            self._timestamps = None if stamps is None else stamps[rows:]
        buffer = self._codec.encode(batch)
        self._budget.observe(buffer)
        self._enqueue_buffer(buffer)

    def _enqueue_buffer(self, buffer: Buffer) -> None:
        self.queue.add_buffer(buffer)
        self._buffers += 1
