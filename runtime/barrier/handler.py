"""Common parts of all barrier handlers.

A `CheckpointBarrierHandler` decides at the input of a subtask when a checkpoint begins there. It gets every
barrier, cancellation marker and end of a channel *when it is consumed*, in the order of its channel. For each
checkpoint it calls a `CheckpointListener` at most once to take it, and at most once to abort it. When a
checkpoint is taken, the task has processed every consumed element. A handler that `watches_arrivals` is also
called when elements arrive (`InputGate.receive`).

Barriers and markers of a checkpoint that has ended or was subsumed are ignored and counted, even if ids on
one channel decrease. Only `SingleChannelBarrierHandler` in at-least-once mode ignores none. A barrier, a
marker or a second end after the end of its channel is an error (`StreamCorruptError`).

The model is Flink's `CheckpointBarrierHandler`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier, StreamElement
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason

#: Default detail of an abort, for reasons that need no explanation.
ALIGNMENT_ABORTED: Final = "the alignment was aborted"


class CheckpointListener(Protocol):
    """The task's interface for barrier handlers."""

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> object:
        """Take this checkpoint now; the handler ignores the return value.

        Args:
            barrier: The checkpoint's first barrier.
            start_delay: Seconds from the coordinator's trigger to the first barrier here.
            alignment_duration: Seconds from the first barrier to this call; 0 if the handler never aligns.
        """
        ...

    def abort(
        self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = ALIGNMENT_ABORTED
    ) -> None:
        """Note that this checkpoint will not be triggered, or will never be complete."""
        ...


def always_ready() -> bool:
    """Return true: the default, for a task that can take a checkpoint at any time."""
    return True


class ChannelBlocking(Protocol):
    """The input's interface for aligning handlers."""

    def block(self, channel: int) -> None: ...

    def unblock(self, channel: int) -> None: ...


class InFlightInput(ChannelBlocking, Protocol):
    """The input's interface for handlers that capture in-flight data."""

    def waiting(self, channel: int) -> Sequence[StreamElement]:
        """Elements of a channel that arrived in order and are not consumed, oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class BarrierHandlerStatistics:
    """Counters of a barrier handler; durations in seconds.

    Attributes:
        latest_checkpoint_id: The newest checkpoint whose barrier or marker was consumed; -1 for none.
        triggered: Checkpoints that were triggered.
        aborted: Checkpoints that were aborted.
        ignored: Late and repeated barriers and markers.
        pending: Checkpoints that wait for barriers.
        start_delay: Time from the last checkpoint's trigger to its first barrier here.
        alignment_duration: Duration of the running or the last alignment; 0 for a handler that never aligns.
        blocked: Channels that an alignment blocks now.
        cancelled_alignments: Alignments with blocked channels that a cancellation marker ended.
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
    """Decides when a checkpoint begins; see the module's docstring."""

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
        """Set the task as the listener, once, before the first event.

        A task that is not ready for an unaligned checkpoint calls `trigger_if_due` later.
        """
        self._listener = listener
        self._is_ready = is_ready

    def trigger_if_due(self) -> None:  # noqa: B027
        ...

    @abstractmethod
    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Handle a barrier that was consumed."""

    @abstractmethod
    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        """Handle a cancellation marker that was consumed; a marker of an ended checkpoint is ignored."""

    @abstractmethod
    def process_end_of_partition(self, channel: int) -> None: ...

    @property
    def watches_arrivals(self) -> bool:
        """Whether the input announces arrivals to this handler."""
        return False

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:  # noqa: B027
        ...

    def elements_arrived(self, channel: int, elements: Sequence[StreamElement]) -> None:  # noqa: B027
        """Handle elements that have arrived in order and are not consumed yet."""

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
        """Counters of this handler; thread-safe."""
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
        """Call the listener, which may call this handler, so the handler's state must be up to date.

        `started_at` is the monotonic time of the first barrier. With `is_aligned`, the time since then is the
        duration of the alignment.
        """
        since_first = self._clock.monotonic() - started_at
        self._alignment_duration = since_first if is_aligned else 0.0
        # Clocks of two machines differ, so a barrier may seem to come from the future.
        self._start_delay = max(0.0, self._clock.now() - barrier.timestamp - since_first)
        self._triggered += 1
        self._required_listener().trigger(barrier, self._start_delay, self._alignment_duration)

    def _abort(
        self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = ALIGNMENT_ABORTED
    ) -> None:
        self._aborted += 1
        self._required_listener().abort(checkpoint_id, reason, detail)

    def _required_listener(self) -> CheckpointListener:
        if self._listener is None:
            msg = "the barrier handler has no listener: call set_listener before the first element"
            raise RuntimeError(msg)
        return self._listener


class BarrierCount:
    """Counts the barriers of one checkpoint, channel by channel.

    Attributes:
        started_at: Monotonic time of the first barrier or cancellation.
        barrier: The first barrier, passed to the trigger; `None` for an aborted checkpoint, whose barriers
            are only counted.

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
        """Stop waiting for a channel; return whether its barrier was missing until now."""
        if channel not in self._owing:
            return False
        self._owing.discard(channel)
        return True
