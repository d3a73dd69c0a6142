"""`InputGate`: all incoming channels of a subtask, polled in turn.

Channels are numbered consecutively over all inputs of a subtask (see `InputChannelSpec`). Flink splits this
into input gates and a union of them; barriers are aligned over all channels in both.

Polling is fair and takes the same time for any number of channels. A queue holds the channels that have
something ready; the first one gives one element and goes to the back if it has more. A blocked channel drops
out of the queue when its turn comes, and returns when it is unblocked. So a channel is in the queue at most
once, and a channel that is ready and not blocked is always in it.

A barrier handler may watch arrivals: an unaligned checkpoint begins when a barrier arrives. It also captures
the elements that arrive later, up to the barrier of their channel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Protocol

from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.graph.execution_graph import InputChannelSpec
from penstock.runtime.network.input_channel import InputChannel, MissingElementsError
from penstock.runtime.ports import Clock
from penstock.runtime.record.element_codec import EncodedElement
from penstock.runtime.record.elements import CheckpointBarrier, StreamElement


class ArrivalWatcher(Protocol):
    """Receives elements when they arrive, before they are consumed."""

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Note that a barrier arrived while earlier elements are missing; it arrives again in order."""
        ...

    def elements_arrived(self, channel: int, elements: Sequence[StreamElement]) -> None: ...


class InputGate:
    """Polls channels in turn; see the module's docstring.

    Args:
        channels: The channels, numbered 0, 1, 2, ... in this order.
        gap_timeout: Seconds for which an element may be missing after later ones have arrived.
    """

    def __init__(self, channels: Iterable[InputChannel], gap_timeout: float = 30.0) -> None:
        self.channels = tuple(channels)
        if [channel.index for channel in self.channels] != list(range(len(self.channels))):
            msg = f"channels must be numbered 0, 1, 2, ..., not {[c.index for c in self.channels]}"
            raise ValueError(msg)
        self._gap_timeout = gap_timeout
        self._available: deque[InputChannel] = deque()
        self._is_queued = [False] * len(self.channels)
        self._blocked: set[int] = set()
        self._gaps: set[int] = set()
        self._progressed: set[int] = set()
        self._restored: deque[InputChannel] = deque()
        self._watcher: ArrivalWatcher | None = None

    @classmethod
    def of_specs(
        cls, specs: Sequence[InputChannelSpec], clock: Clock, gap_timeout: float = 30.0
    ) -> InputGate:
        return cls((InputChannel(spec.index, clock, str(spec.sender)) for spec in specs), gap_timeout)

    def __len__(self) -> int:
        return len(self.channels)

    @property
    def blocked_channels(self) -> tuple[int, ...]:
        return tuple(sorted(self._blocked))

    @property
    def is_finished(self) -> bool:
        return all(channel.has_ended for channel in self.channels)

    def watch_arrivals(self, watcher: ArrivalWatcher) -> None:
        """Set the watcher of arrivals; once, before anything has arrived."""
        self._watcher = watcher

    def waiting(self, channel: int) -> Sequence[StreamElement]:
        return self._channel(channel).waiting

    def restore(self, channel: int, elements: Sequence[StreamElement]) -> None:
        """Queue in-flight elements of a checkpoint before all others; call it before anything arrives."""
        restored = self._channel(channel)
        restored.restore(elements)
        if restored.has_restored:
            self._restored.append(restored)

    def receive(self, channel: int, first_sequence_number: int, elements: Sequence[EncodedElement]) -> None:
        """Take a frame that arrived on a channel; calls the watcher, if there is one."""
        receiving = self._channel(channel)
        arrived = receiving.receive(first_sequence_number, elements)
        if receiving.gap_since is not None:
            self._gaps.add(channel)
        self._enqueue_if_ready(receiving)
        if self._watcher is not None:
            for barrier in receiving.take_announced():
                self._watcher.barrier_announced(channel, barrier)
            if arrived:
                self._watcher.elements_arrived(channel, arrived)

    def poll(self) -> tuple[int, StreamElement] | None:
        """Consume one element of the channel whose turn it is; `None` when no channel is ready.

        The restored elements of all channels come first: after a restart at another parallelism, consecutive
        records may be on different channels.
        """
        if self._restored:
            return self._poll_restored()
        while self._available:
            channel = self._available.popleft()
            index = channel.index
            if index in self._blocked:
                self._is_queued[index] = False
                continue
            polled = channel.poll()
            assert polled is not None, "a channel in the queue has something ready"
            if channel.has_ready:
                self._available.append(channel)
            else:
                self._is_queued[index] = False
            self._progressed.add(index)
            return index, polled[1]
        return None

    def _poll_restored(self) -> tuple[int, StreamElement] | None:
        channel = self._restored[0]
        polled = channel.poll()
        assert polled is not None, "a channel with restored elements has something ready"
        if not channel.has_restored:
            self._restored.popleft()
            self._enqueue_if_ready(channel)
        return channel.index, polled[1]

    def block(self, channel: int) -> None:
        self._blocked.add(self._channel(channel).index)

    def unblock(self, channel: int) -> None:
        """Poll this channel again; does nothing when it is not blocked."""
        if channel in self._blocked:
            self._blocked.discard(channel)
            self._enqueue_if_ready(self.channels[channel])

    def consumed(self, channel: int) -> int:
        """Number of the next element to consume on a channel; all lower numbers are consumed."""
        return self._channel(channel).consumed

    def take_progressed(self) -> list[int]:
        """Return the channels from which elements were consumed since the last call, in ascending order.

        Restored elements don't count: they have no sequence numbers, and no sender waits for them.
        """
        if not self._progressed:
            return []
        progressed = sorted(self._progressed)
        self._progressed.clear()
        return progressed

    def check_gaps(self, now: float) -> float | None:
        """Fail when an element has been missing for too long; return the time of the next check, if any.

        Raises:
            MissingElementsError: A gap is too old; the message names channel, sender and number.
        """
        if not self._gaps:
            return None
        due: float | None = None
        for index in tuple(self._gaps):
            since = self.channels[index].gap_since
            if since is None:
                self._gaps.discard(index)
                continue
            if now >= since + self._gap_timeout:
                msg = (
                    f"{self.channels[index].describe_gap()}; it has been missing for {now - since:.1f} s "
                    f"(gap_timeout={self._gap_timeout:g} s). A call of the sender was lost: the job has to "
                    "restart from its last checkpoint."
                )
                raise MissingElementsError(msg)
            due = since + self._gap_timeout if due is None else min(due, since + self._gap_timeout)
        return due

    @property
    def reordered_elements(self) -> int:
        return sum(channel.reordered for channel in self.channels)

    @property
    def received_bytes(self) -> int:
        """Payload bytes of the buffers that have arrived on all channels, each counted once."""
        return sum(channel.received_bytes for channel in self.channels)

    def _channel(self, index: int) -> InputChannel:
        if 0 <= index < len(self.channels):
            return self.channels[index]
        msg = f"there is no input channel {index}; this subtask has {len(self.channels)}, numbered from 0"
        raise StreamCorruptError(msg)

    def _enqueue_if_ready(self, channel: InputChannel) -> None:
        index = channel.index
        if channel.has_restored:  # queued when these are consumed
            return
        if not self._is_queued[index] and channel.has_ready and index not in self._blocked:
            self._is_queued[index] = True
            self._available.append(channel)
