"""`CheckpointedInputGate`: the input of a subtask with the barriers taken out.

It stands between the channels and the task. Buffers, watermarks, statuses and ends go on to the task.
Barriers and cancellation markers go to the barrier handler and stay here. The handler gets a barrier before
anything behind it is polled. It gets the end of a channel before the task does, because the end may complete
a checkpoint.

The model is Flink's class of the same name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from penstock.runtime.barrier.handler import (
    BarrierHandlerStatistics,
    CheckpointBarrierHandler,
    CheckpointListener,
    always_ready,
)
from penstock.runtime.network.buffer_storage import BufferStorageStatistics
from penstock.runtime.network.input_gate import InputGate, InputGateStatistics
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    StreamElement,
)
from penstock.runtime.snapshot.metrics import NOTHING_STORED, StoredBytes


@dataclass(frozen=True, slots=True)
class CheckpointedInputGateStatistics:
    """Counters of a subtask's input."""

    gate: InputGateStatistics
    barriers: BarrierHandlerStatistics


class CheckpointedInputGate:
    """Polls a gate and deals with barriers; see the module's text.

    Args:
        handler: Decides when checkpoints begin; made for this gate (see `create_barrier_handler`).
    """

    def __init__(self, gate: InputGate, handler: CheckpointBarrierHandler) -> None:
        self.gate = gate
        self.handler = handler
        if handler.watches_arrivals:
            gate.watch_arrivals(handler)

    def set_listener(self, listener: CheckpointListener, is_ready: Callable[[], bool] = always_ready) -> None:
        """Set the task, and how to ask whether it can take a checkpoint; once, before the first element."""
        self.handler.set_listener(listener, is_ready)

    def trigger_if_due(self) -> None:
        """The task can take a checkpoint now, after it could not."""
        self.handler.trigger_if_due()

    def receive(self, channel: int, first_sequence_number: int, elements: Sequence[bytes]) -> None:
        """Take a frame that arrived on a channel; nothing of it is consumed yet.

        An unaligned checkpoint may begin here and call the listener, so call this only where the task can
        take a snapshot.

        Raises:
            StreamCorruptError: There is no such channel, or the frame breaks the protocol.
        """
        self.gate.receive(channel, first_sequence_number, elements)

    def poll_next(self) -> tuple[int, StreamElement] | None:
        """Consume elements up to the next one that is for the task.

        May call the listener, any number of times, before it returns.

        Returns:
            The channel and a `Buffer`, `Watermark`, `StreamStatus`, `EndOfData` or `EndOfPartition`; `None`
            when nothing is there on channels that are not blocked, or when it `has_more`.

        Raises:
            StreamCorruptError: The barriers break the protocol.
        """
        while (polled := self.gate.poll()) is not None:
            if self.process(*polled):
                return polled
        return None

    def process(self, channel: int, element: StreamElement) -> bool:
        """Deal with an element that was consumed; whether it is for the task.

        Raises:
            StreamCorruptError: The barriers break the protocol.
        """
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
        """Put elements in front of a channel that were in flight when the restored checkpoint was taken.

        Raises:
            StreamCorruptError: There is no such channel.
            ValueError: Something has arrived already.
        """
        self.gate.restore(channel, elements)

    @property
    def has_more(self) -> bool:
        """Whether `poll_next` returned `None` only to let the task do something else."""
        return False

    @property
    def stored(self) -> StoredBytes:
        """What is stored because of the running alignment."""
        return NOTHING_STORED

    def storage_statistics(self) -> BufferStorageStatistics | None:
        """Counters of what was stored; `None` when blocked channels are held."""
        return None

    def close(self) -> None:
        """Give back what was stored and not consumed."""

    @property
    def is_finished(self) -> bool:
        """Whether the end of every channel has been consumed."""
        return self.gate.is_finished

    def consumed(self, channel: int) -> int:
        """Number of the next element to be consumed on a channel: calls below it are answered."""
        return self.gate.consumed(channel)

    def take_progressed_channels(self) -> list[int]:
        """Channels that have consumed something since the last call, barriers included."""
        return self.gate.take_progressed()

    def check_gaps(self, now: float) -> float | None:
        """Fail when an element has been missing for too long; else say when to ask again.

        Args:
            now: Monotonic seconds.

        Raises:
            MissingElementsError: A gap is too old.
        """
        return self.gate.check_gaps(now)

    def statistics(self) -> CheckpointedInputGateStatistics:
        """Counters of the channels and of the barrier handler."""
        return CheckpointedInputGateStatistics(self.gate.statistics(), self.handler.statistics())
