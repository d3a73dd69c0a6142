"""Input gates that handle a subtask's barriers: one stops blocked senders, the other stores their data.

`CheckpointedInputGate` sits between the channels and the task. Buffers, watermarks, statuses and ends go to
the task, barriers and cancellation markers to the barrier handler. The handler gets a barrier before any
element behind it is polled. It gets the end of a channel before the task, because the end may complete a
checkpoint. The gate does not read a blocked channel. So the channel's sender gets no credit and stops.
The sender's other receivers then get no more data, either. The model is Flink's class of the same name.

`StoringInputGate` reads every channel, so senders get credits during an alignment. It stores all elements of
a blocked channel unprocessed, including barriers and ends. After the alignment it reads the stored elements
before new input. Elements of a channel that is blocked again are stored again. If the stored bytes exceed the
limit, or an element can't be spilled, the gate aborts the alignment and releases the channels. After a number
of stored elements the gate returns with `has_more`, so that credits, timers and control messages don't wait.
The model is Flink's `CheckpointedInputGate` up to 1.10.

A gate must never let an element of a blocked channel through, lose an element, or read new input while
stored elements wait. That would break the order of a channel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner
from penstock.runtime.barrier.handler import (
    CheckpointBarrierHandler,
    CheckpointListener,
    always_ready,
)
from penstock.runtime.network.buffer_storage import BufferStorage, BufferStorageStatistics, StoredElement
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import EncodedElement, encode_element
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    StreamElement,
)
from penstock.runtime.snapshot.checkpoint_record import NOTHING_STORED, CheckpointFailureReason, StoredBytes


class CheckpointedInputGate:
    """Polls a gate and handles barriers; see the module's docstring."""

    def __init__(self, gate: InputGate, handler: CheckpointBarrierHandler) -> None:
        self.gate = gate
        self.handler = handler
        if handler.watches_arrivals:
            gate.watch_arrivals(handler)

    def set_listener(self, listener: CheckpointListener, is_ready: Callable[[], bool] = always_ready) -> None:
        self.handler.set_listener(listener, is_ready)

    def trigger_if_due(self) -> None:
        self.handler.trigger_if_due()

    def receive(self, channel: int, first_sequence_number: int, elements: Sequence[EncodedElement]) -> None:
        """Take a frame that arrived on a channel; may call the listener to begin an unaligned checkpoint."""
        self.gate.receive(channel, first_sequence_number, elements)

    def poll_next(self) -> tuple[int, StreamElement] | None:
        """Consume elements up to the next one for the task; may call the listener several times.

        Returns `None` when no unblocked channel has an element, or when the gate `has_more`.
        """
        while (polled := self.gate.poll()) is not None:
            if self.process(*polled):
                return polled
        return None

    def process(self, channel: int, element: StreamElement) -> bool:
        """Handle a consumed element; return whether it is for the task."""
        if isinstance(element, Buffer):
            return True
        if isinstance(element, CheckpointBarrier):
            self.handler.process_barrier(channel, element)
            return False
        if isinstance(element, CancelCheckpointMarker):
            self.handler.process_cancellation(channel, element)
            return False
        if isinstance(element, EndOfPartition):
            self.handler.process_end_of_partition(channel)
        return True

    def restore(self, channel: int, elements: Sequence[StreamElement]) -> None:
        self.gate.restore(channel, elements)

    @property
    def has_more(self) -> bool:
        return False

    @property
    def stored(self) -> StoredBytes:
        return NOTHING_STORED

    def storage_statistics(self) -> BufferStorageStatistics | None:
        return None

    def close(self) -> None: ...

    @property
    def is_finished(self) -> bool:
        return self.gate.is_finished

    def consumed(self, channel: int) -> int:
        """Sequence number of the channel's next element to consume."""
        return self.gate.consumed(channel)

    def take_progressed_channels(self) -> list[int]:
        return self.gate.take_progressed()

    def check_gaps(self, now: float) -> float | None:
        """Check for elements missing too long; return the monotonic time of the next check, if any."""
        return self.gate.check_gaps(now)


#: Maximum number of elements stored in one call: a few milliseconds of work.
MOST_STORED_AT_ONCE: Final = 32


def stored_size(element: StreamElement) -> int:
    """Bytes of a stored element: its payload, or the whole encoded event.

    Example:
        >>> from penstock.runtime.record.elements import CheckpointBarrier
        >>> stored_size(Buffer(b"rows", 2)), stored_size(CheckpointBarrier(1, 0.0)) > 0
        (4, True)
    """
    return element.size if isinstance(element, Buffer) else len(encode_element(element))


class StoredChannels:
    """Blocked channels of a `StoringInputGate`.

    `was_released` is true after a channel was unblocked, until the gate resets it.
    """

    def __init__(self) -> None:
        self.blocked: set[int] = set()
        self.was_released = False

    def block(self, channel: int) -> None:
        self.blocked.add(channel)

    def unblock(self, channel: int) -> None:
        self.blocked.discard(channel)
        self.was_released = True


class StoringInputGate(CheckpointedInputGate):
    """Reads blocked channels and stores their elements; see the module's docstring."""

    def __init__(
        self,
        gate: InputGate,
        handler: CheckpointBarrierAligner,
        channels: StoredChannels,
        storage: BufferStorage,
        size_of: Callable[[StreamElement], int] = stored_size,
    ) -> None:
        super().__init__(gate, handler)
        self._aligner = handler
        self._channels = channels
        self._storage = storage
        self._size_of = size_of
        self._has_more = False

    @property
    def blocked_channels(self) -> tuple[int, ...]:
        return tuple(sorted(self._channels.blocked))

    @property
    def stored(self) -> StoredBytes:
        """Bytes that the running alignment stores, and the part of them on disk."""
        return StoredBytes(self._storage.pending_bytes, self._storage.pending_spilled_bytes)

    @property
    def is_finished(self) -> bool:
        return self.gate.is_finished and self._storage.is_empty and not self._storage.pending_bytes

    def poll_next(self) -> tuple[int, StreamElement] | None:
        left, self._has_more = MOST_STORED_AT_ONCE, False
        while (taken := self._next()) is not None:
            channel, element, size = taken
            if channel not in self._channels.blocked:
                if self.process(channel, element):
                    return channel, element
                continue
            self._store(StoredElement(channel, element, self._size_of(element) if size is None else size))
            left -= 1
            if not left:
                self._has_more = True
                break
        return None

    @property
    def has_more(self) -> bool:
        """Whether the last `poll_next` returned early because it had stored many elements."""
        return self._has_more

    def process(self, channel: int, element: StreamElement) -> bool:
        is_for_task = super().process(channel, element)
        self._hand_in_if_released()
        return is_for_task

    def close(self) -> None:
        self._storage.close()

    def storage_statistics(self) -> BufferStorageStatistics:
        return self._storage.statistics()

    def _next(self) -> tuple[int, StreamElement, int | None] | None:
        """The next element with its channel, and its size if it comes from storage."""
        while not self._storage.is_empty:
            if (stored := self._storage.poll()) is not None:
                return stored.channel, stored.element, stored.size
        polled = self.gate.poll()
        return None if polled is None else (*polled, None)

    def _store(self, stored: StoredElement) -> None:
        storage = self._storage
        storage.add(stored)
        failure = storage.take_failure()
        if failure is not None:
            self._aligner.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED, failure)
        elif storage.is_full:
            kept = storage.pending_bytes + storage.rolled_bytes
            detail = (
                f"{kept:,} bytes were stored for this alignment and for interrupted earlier ones, more than "
                f"max_alignment_bytes={storage.max_bytes:,}. Raise the limit, or use unaligned checkpoints"
            )
            self._aligner.give_up(
                CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED, detail
            )
        self._hand_in_if_released()

    def _hand_in_if_released(self) -> None:
        if self._channels.was_released:
            self._channels.was_released = False
            self._storage.roll_over()
