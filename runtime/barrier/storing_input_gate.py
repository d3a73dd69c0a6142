"""`StoringInputGate`: aligned barriers for senders that can't be held back.

With credits a blocked channel is not read, so its sender stops. A sender without credits goes on. So this
gate reads every channel, and stores everything from a blocked one unseen, barriers and ends too. When the
alignment ends, the stored elements are handed in as if they had just arrived, before new input is read.
Elements of a channel that is blocked again are stored again.

When more is stored than the limit allows, the alignment is aborted with that reason and the data goes on.

What it must never do: let an element of a blocked channel through, or read new input while stored elements
wait. That would break the order of a channel.

The model is Flink's `CheckpointedInputGate` up to 1.10.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner
from penstock.runtime.barrier.checkpointed_input_gate import CheckpointedInputGate
from penstock.runtime.network.buffer_storage import BufferStorage, BufferStorageStatistics, StoredElement
from penstock.runtime.network.input_gate import InputGate
from penstock.runtime.record.element_codec import encode_element
from penstock.runtime.record.elements import Buffer, CheckpointBarrier, StreamElement
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason


def stored_size(element: StreamElement) -> int:
    """Bytes that an element counts for when it is stored: its payload, or the whole event.

    Example:
        >>> stored_size(Buffer(b"rows", 2)), stored_size(CheckpointBarrier(1, 0.0)) > 0
        (4, True)
    """
    return element.size if isinstance(element, Buffer) else len(encode_element(element))


class StoredChannels:
    """Which channels are blocked, while all of them are read.

    Attributes:
        was_released: Whether a channel was unblocked since this was reset: an alignment has ended.
    """

    def __init__(self) -> None:
        self.blocked: set[int] = set()
        self.was_released = False

    def block(self, channel: int) -> None:
        """Store what comes from this channel until it is unblocked."""
        self.blocked.add(channel)

    def unblock(self, channel: int) -> None:
        """Store nothing more from this channel."""
        self.blocked.discard(channel)
        self.was_released = True


class StoringInputGate(CheckpointedInputGate):
    """Reads blocked channels on and stores what comes from them; see the module's text.

    Args:
        handler: Aligns barriers; made for `channels`.
        channels: Which channels are blocked.
        storage: Keeps what comes from them.
        size_of: Bytes that an element counts for.
    """

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
        self._input_has_ended = False

    @property
    def blocked_channels(self) -> tuple[int, ...]:
        """Numbers of the blocked channels, in order."""
        return tuple(sorted(self._channels.blocked))

    @property
    def alignment_bytes(self) -> int:
        """Bytes that are stored because of the running alignment."""
        return self._storage.pending_bytes

    @property
    def is_finished(self) -> bool:
        """Whether the end of every channel has been handed to the task."""
        return self.gate.is_finished and self._storage.is_empty and not self._storage.pending_bytes

    def poll_next(self) -> tuple[int, StreamElement] | None:
        """Consume elements up to the next one that is for the task; may call the listener.

        Raises:
            StorageError: Elements could not be stored or read.
        """
        while (stored := self._next()) is not None:
            if stored.channel in self._channels.blocked:
                self._store(stored)
            elif self.process(stored.channel, stored.element):
                return stored.channel, stored.element
        return None

    def process(self, channel: int, element: StreamElement) -> bool:
        """Deal with an element that was consumed; whether it is for the task."""
        if self._input_has_ended and isinstance(element, CheckpointBarrier):
            return False
        is_for_task = super().process(channel, element)
        self._hand_in_if_released()
        return is_for_task

    def end_input(self) -> None:
        """No channel will deliver anything more: release all, and take no checkpoint of what is stored."""
        self._input_has_ended = True
        self._aligner.release()
        self._hand_in_if_released()

    def close(self) -> None:
        """Give back what the storage holds."""
        self._storage.close()

    def storage_statistics(self) -> BufferStorageStatistics:
        """Counters of what was stored."""
        return self._storage.statistics()

    def _next(self) -> StoredElement | None:
        while not self._storage.is_empty:
            if (stored := self._storage.poll()) is not None:
                return stored
        polled = self.gate.poll()
        if polled is None:
            return None
        channel, element = polled
        return StoredElement(channel, element, self._size_of(element))

    def _store(self, stored: StoredElement) -> None:
        self._storage.add(stored)
        if self._storage.is_full:
            self._aligner.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED)
            self._hand_in_if_released()

    def _hand_in_if_released(self) -> None:
        if self._channels.was_released:
            self._channels.was_released = False
            self._storage.roll_over()
