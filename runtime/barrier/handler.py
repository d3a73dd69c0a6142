"""Common parts of all barrier handlers.

A `CheckpointBarrierHandler` decides at the input of a subtask when a checkpoint begins there. It is called
with every barrier, cancellation marker and end of a channel *when it is consumed*, in the order of its
channel. It notifies a `CheckpointListener` to take a checkpoint or to abort one, once for each outcome.
Nothing that was consumed is then anywhere but in the task.

A handler has no channels, queues or bytes, only numbers of channels. A handler that `watches_arrivals` is
also called when elements arrive, because it acts ahead of the buffers that wait (`InputGate.receive`).

A barrier or marker of a checkpoint that is over or subsumed is late, not wrong, also when the ids of one
channel go backwards. It is counted and does nothing. An element on a channel after its end makes the stream
corrupt.

The model is Flink's `CheckpointBarrierHandler`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.runtime.config.semantics import Semantics
from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier, StreamElement
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason

#: The cause of an abort, where its reason says everything.
ALIGNMENT_ABORTED: Final = "the alignment was aborted"


class CheckpointListener(Protocol):
    """The task, as a barrier handler sees it."""

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> object:
        """Take this checkpoint now; the handler does not use the answer.

        Args:
            barrier: The first barrier of the checkpoint that arrived, as it was sent.
            start_delay: Seconds from the trigger at the coordinator to the first barrier here.
            alignment_duration: Seconds from the first barrier to the last; 0 for at least once, which holds
                no channel back meanwhile.
        """
        ...

    def abort(
        self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = ALIGNMENT_ABORTED
    ) -> None:
        """This checkpoint will not be triggered."""
        ...


def always_ready() -> bool:
    """For tasks that are never in the middle of a call when a handler is called."""
    return True


class ChannelBlocking(Protocol):
    """The input, as an aligning handler sees it."""

    def block(self, channel: int) -> None: ...

    def unblock(self, channel: int) -> None: ...


class InFlightInput(ChannelBlocking, Protocol):
    """The input, as a handler sees it that captures what is in flight."""

    def waiting(self, channel: int) -> Sequence[StreamElement]:
        """Elements of a channel that arrived in order and were not consumed, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class BarrierHandlerStatistics:
    """Counters of a barrier handler; durations in seconds.

    Attributes:
        latest_checkpoint_id: The newest checkpoint whose barrier or marker was consumed; -1 for none.
        triggered: Checkpoints that were triggered.
        aborted: Checkpoints that were aborted.
        ignored: Barriers and markers that came late or again.
        pending: Checkpoints that wait for barriers.
        start_delay: Of the last triggered checkpoint: from its trigger to the first barrier here.
        alignment_duration: Of the running alignment, or of the last one; 0 for at least once.
        blocked: Channels that an alignment holds back now.
        cancelled_alignments: Alignments that held channels back until a cancellation marker came.
    """

    latest_checkpoint_id: int
    triggered: int
    aborted: int
    ignored: int
    pending: int
    start_delay: float
    alignment_duration: float
    blocked: int = 0
    cancelled_alignments: int = 0


class CheckpointBarrierHandler(ABC):
    """Decides when a checkpoint begins; see the module's docstring.

    Raises:
        ValueError: There are no channels.
    """

    def __init__(
        self,
        channels: int,
        clock: Clock,
        semantics: Semantics = Semantics.current(),
    ) -> None:
        if channels < 1:
            msg = f"a barrier handler needs at least one channel, not {channels}"
            raise ValueError(msg)
        self._channels = channels
        self._clock = clock
        self._semantics = semantics
        self._open = set(range(channels))
        self._listener: CheckpointListener | None = None
        self._is_ready: Callable[[], bool] = always_ready
        self._latest_id = -1
        self._triggered = self._aborted = self._ignored = self._cancelled_alignments = 0
        self._start_delay = self._alignment_duration = 0.0

    def set_listener(self, listener: CheckpointListener, is_ready: Callable[[], bool] = always_ready) -> None:
        """Set the task; once, before the first event.

        Args:
            is_ready: Whether it can take a checkpoint at this moment. Asked when a checkpoint is due ahead of
                its barriers. A task that is not ready calls `trigger_if_due` later.
        """
        self._listener = listener
        self._is_ready = is_ready

    def trigger_if_due(self) -> None:  # noqa: B027
        ...

    @abstractmethod
    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        """A barrier was consumed.

        Raises:
            StreamCorruptError: It breaks the protocol.
        """

    @abstractmethod
    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        """A cancellation marker was consumed; one of a checkpoint that is over does nothing."""

    @abstractmethod
    def process_end_of_partition(self, channel: int) -> None: ...

    @property
    def watches_arrivals(self) -> bool:
        """Whether this handler needs arrivals announced; most need only what is consumed."""
        return False

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:  # noqa: B027
        ...

    def elements_arrived(self, channel: int, elements: Sequence[StreamElement]) -> None:  # noqa: B027
        """Elements have arrived in order; they wait to be consumed."""

    @property
    def latest_checkpoint_id(self) -> int:
        return self._latest_id

    @property
    def alignment_duration(self) -> float:
        return self._alignment_duration

    @property
    def pending(self) -> tuple[int, ...]:
        return ()

    @property
    def blocked(self) -> int:
        return 0

    def statistics(self) -> BarrierHandlerStatistics:
        """Counters of this handler; any thread may ask."""
        return BarrierHandlerStatistics(
            latest_checkpoint_id=self._latest_id,
            triggered=self._triggered,
            aborted=self._aborted,
            ignored=self._ignored,
            pending=len(self.pending),
            start_delay=self._start_delay,
            alignment_duration=self.alignment_duration,
            blocked=self.blocked,
            cancelled_alignments=self._cancelled_alignments,
        )

    def _check_open(self, channel: int, what: str) -> None:
        if channel not in self._open:
            state = "has ended" if 0 <= channel < self._channels else "does not exist"
            msg = f"{what} came on channel {channel}, which {state}"
            raise StreamCorruptError(msg)

    def _close(self, channel: int) -> None:
        self._check_open(channel, "an end of partition")
        self._open.discard(channel)

    def _trigger(self, barrier: CheckpointBarrier, started_at: float, *, is_aligned: bool = True) -> None:
        """Notify the listener; whatever it asks of this handler must already be true.

        Args:
            started_at: Monotonic time of the first barrier.
            is_aligned: Whether channels were held back since then. Else there was no alignment to measure.
        """
        since_first = self._clock.monotonic() - started_at
        self._alignment_duration = since_first if is_aligned else 0.0
        # Clocks of two machines differ: a barrier may seem to come from the future.
        self._start_delay = max(0.0, self._clock.now() - barrier.timestamp - since_first)
        self._triggered += 1
        self._told().trigger(barrier, self._start_delay, self._alignment_duration)

    def _abort(
        self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = ALIGNMENT_ABORTED
    ) -> None:
        self._aborted += 1
        self._told().abort(checkpoint_id, reason, detail)

    def _told(self) -> CheckpointListener:
        if self._listener is None:
            msg = "the barrier handler has no listener: call set_listener before the first element"
            raise RuntimeError(msg)
        return self._listener


class BarrierCount:
    """Counts the barriers of one checkpoint, channel by channel.

    Attributes:
        started_at: Monotonic time of the first sign of the checkpoint.
        barrier: The first barrier that came, which a complete count triggers. `None` when the first sign was
            a cancellation, or the checkpoint was aborted; later barriers are only counted.

    Example:
        >>> count = BarrierCount(7, {0, 1}, 0.0, CheckpointBarrier(7, 0.0))
        >>> count.settle(0), count.is_complete, count.settle(0)
        (True, False, False)
        >>> count.settle(1), count.is_complete
        (True, True)
    """

    def __init__(
        self,
        checkpoint_id: int,
        channels: Iterable[int],
        started_at: float,
        barrier: CheckpointBarrier | None = None,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.started_at = started_at
        self.barrier = barrier
        self._owing = set(channels)

    @property
    def is_complete(self) -> bool:
        return not self._owing

    def settle(self, channel: int) -> bool:
        """A channel owes nothing any more; return whether it did until now."""
        if channel not in self._owing:
            return False
        self._owing.discard(channel)
        return True
