"""States of an input whose barriers may overtake data. The name of a waiting state says what ends it.

| state | next state |
| --- | --- |
| `WaitingForFirstBarrier` | one of the next two, when a barrier begins a checkpoint |
| `WaitingForAllBarriers` | `Aligned` when all are consumed; the next one when it turns unaligned |
| `WaitingForAlignedChannels` | `WaitingForLastBarriers` when the barriers of aligned channels are consumed |
| `WaitingForLastBarriers` | `InputComplete` when the last barrier has arrived |
| `Aligned`, `InputComplete` | `WaitingForFirstBarrier`, at once |

Every event is a method, which may update the facts about channels (`UnalignedCheckpoint`). Except for
`element_arrived`, it returns the next state, or `self`. The states block channels, trigger, and persist
in-flight data through `BarrierController`. A state may call the task and the channel state writer on entry.

A checkpoint is triggered once, on entering `Aligned` or `WaitingForLastBarriers`; neither leads to the other.
No channel stays blocked, because only the two states before the trigger block channels, and both triggers
release them. The handler releases the channels of an aborted checkpoint.

The models are Flink's `BarrierHandlerState` and its `Controller` (since 1.13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import ClassVar

from penstock.runtime.barrier.handler import InFlightInput
from penstock.runtime.network.channel_state import ChannelStateWriter, in_front_of
from penstock.runtime.ports import Cancellable
from penstock.runtime.record.elements import CheckpointBarrier, StreamElement


class UnalignedCheckpoint:
    """Facts about one checkpoint, by channel.

    Attributes:
        started_at: Monotonic time of the first barrier.
        unconsumed: Channels whose barrier or end is not consumed yet; they may hold data of the checkpoint.
        unarrived: Channels whose barrier or end has not arrived; more data of the checkpoint may arrive.
        blocked: Channels that are blocked behind their barrier until the trigger.
    """

    __slots__ = ("barrier", "blocked", "started_at", "unarrived", "unconsumed")

    def __init__(
        self,
        barrier: CheckpointBarrier,
        open_channels: Iterable[int],
        arriving: Iterable[int],
        started_at: float,
    ) -> None:
        self.barrier = barrier
        self.started_at = started_at
        self.unconsumed = set(open_channels)
        self.unarrived = set(arriving)
        self.blocked: list[int] = []

    @property
    def id(self) -> int:
        return self.barrier.checkpoint_id


class BarrierController:
    """Actions of one handler's states; barriers never overtake on `aligned_channels`."""

    def __init__(
        self,
        inputs: InFlightInput,
        writer: ChannelStateWriter,
        aligned_channels: Iterable[int],
        is_ready: Callable[[], bool],
        trigger: Callable[[CheckpointBarrier, float], None],
    ) -> None:
        self.aligned_channels = frozenset(aligned_channels)
        self.is_ready = is_ready
        self._inputs = inputs
        self._writer = writer
        self._trigger = trigger

    def block(self, checkpoint: UnalignedCheckpoint, channel: int) -> None:
        checkpoint.blocked.append(channel)
        self._inputs.block(channel)

    def release(self, checkpoint: UnalignedCheckpoint) -> None:
        blocked, checkpoint.blocked = checkpoint.blocked, []
        for channel in blocked:
            self._inputs.unblock(channel)

    def trigger_aligned(self, checkpoint: UnalignedCheckpoint) -> None:
        """Take the checkpoint after every barrier was consumed; its input has no in-flight data."""
        self.release(checkpoint)
        self._trigger(checkpoint.barrier, checkpoint.started_at)

    def trigger_unaligned(self, checkpoint: UnalignedCheckpoint) -> None:
        """Take the checkpoint now, and persist the waiting elements in front of its barriers.

        The task is called first, because the rest of its current batch comes before the waiting elements.
        """
        self.release(checkpoint)
        self._writer.start(checkpoint.id)
        options = replace(checkpoint.barrier.options, unaligned=True)
        self._trigger(replace(checkpoint.barrier, options=options), checkpoint.started_at)
        for channel in sorted(checkpoint.unconsumed):
            elements = in_front_of(checkpoint.id, self._inputs.waiting(channel))
            if elements:
                self._writer.add_input(checkpoint.id, channel, elements)

    def capture(self, checkpoint: UnalignedCheckpoint, channel: int, element: StreamElement) -> None:
        self._writer.add_input(checkpoint.id, channel, (element,))

    def finish(self, checkpoint: UnalignedCheckpoint) -> None:
        self._writer.finish_input(checkpoint.id)

    def abort(self, checkpoint: UnalignedCheckpoint) -> None:
        """Delete persisted data of a checkpoint that ends, unreported, because a newer one is cancelled."""
        self._writer.abort(checkpoint.id)


class BarrierState:
    """Base of the states: by default an event does nothing."""

    checkpoint: UnalignedCheckpoint | None = None
    is_triggered: ClassVar[bool] = False

    def enter(self) -> BarrierState:
        """Act on entering the state; return the next state, or `self`."""
        return self

    def leave(self) -> None: ...

    def barrier_consumed(self, channel: int) -> BarrierState:
        return self

    def barrier_arrived(self, channel: int) -> BarrierState:
        """Handle the arrival of a channel's barrier or end, after which no data of the checkpoint arrives."""
        return self

    def end_consumed(self, channel: int) -> BarrierState:
        return self

    def element_arrived(self, channel: int, element: StreamElement) -> None:
        """Handle an element that has arrived in order."""

    def turn_unaligned(self) -> BarrierState:
        """Handle an expired timeout, here or at a sender: wait only for aligned channels."""
        return self

    def trigger_if_due(self) -> BarrierState:
        return self


class WaitingForFirstBarrier(BarrierState):
    """No checkpoint runs."""


class _BeforeTheTrigger(BarrierState):
    checkpoint: UnalignedCheckpoint

    def __init__(self, checkpoint: UnalignedCheckpoint, inputs: BarrierController) -> None:
        self.checkpoint = checkpoint
        self._inputs = inputs

    def barrier_consumed(self, channel: int) -> BarrierState:
        if channel in self.checkpoint.unconsumed:
            self.checkpoint.unconsumed.discard(channel)
            self._inputs.block(self.checkpoint, channel)
        self.checkpoint.unarrived.discard(channel)
        return self.trigger_if_due()

    def barrier_arrived(self, channel: int) -> BarrierState:
        self.checkpoint.unarrived.discard(channel)
        return self

    def end_consumed(self, channel: int) -> BarrierState:
        """Stop waiting for an ended channel; it has no more elements to block."""
        self.checkpoint.unconsumed.discard(channel)
        return self.trigger_if_due()


class WaitingForAllBarriers(_BeforeTheTrigger):
    """Aligned: the checkpoint begins when all barriers are consumed, unless it turns unaligned first.

    Without a `timer`, only a sender's timeout counts.
    """

    def __init__(
        self, checkpoint: UnalignedCheckpoint, inputs: BarrierController, timer: Cancellable | None = None
    ) -> None:
        super().__init__(checkpoint, inputs)
        self._timer = timer

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def turn_unaligned(self) -> BarrierState:
        return WaitingForAlignedChannels(self.checkpoint, self._inputs)

    def trigger_if_due(self) -> BarrierState:
        if self.checkpoint.unconsumed or not self._inputs.is_ready():
            return self
        return Aligned(self.checkpoint, self._inputs)


class WaitingForAlignedChannels(_BeforeTheTrigger):
    """Unaligned: the checkpoint begins when the barriers of the aligned channels are consumed.

    Usually no channel is aligned, and this state ends as soon as the task can take a checkpoint.
    """

    def trigger_if_due(self) -> BarrierState:
        if self.checkpoint.unconsumed & self._inputs.aligned_channels or not self._inputs.is_ready():
            return self
        return WaitingForLastBarriers(self.checkpoint, self._inputs)


class WaitingForLastBarriers(BarrierState):
    """The task has taken the checkpoint; elements that arrive in front of missing barriers belong to it."""

    checkpoint: UnalignedCheckpoint
    is_triggered = True

    def __init__(self, checkpoint: UnalignedCheckpoint, inputs: BarrierController) -> None:
        self.checkpoint = checkpoint
        self._inputs = inputs

    def enter(self) -> BarrierState:
        self._inputs.trigger_unaligned(self.checkpoint)
        return self._complete_or_wait()

    def barrier_consumed(self, channel: int) -> BarrierState:
        return self.barrier_arrived(channel)

    def barrier_arrived(self, channel: int) -> BarrierState:
        """Capture no more elements of this channel; the last channel completes the input part."""
        self.checkpoint.unarrived.discard(channel)
        return self._complete_or_wait()

    def element_arrived(self, channel: int, element: StreamElement) -> None:
        """Capture the element, unless it is behind the barrier."""
        if channel in self.checkpoint.unarrived:
            self._inputs.capture(self.checkpoint, channel, element)

    def _complete_or_wait(self) -> BarrierState:
        if self.checkpoint.unarrived:
            return self
        return InputComplete(self.checkpoint, self._inputs)


class Aligned(BarrierState):
    """Every barrier was consumed, and no input data is in flight: triggers the checkpoint."""

    def __init__(self, taken: UnalignedCheckpoint, inputs: BarrierController) -> None:
        self._taken = taken
        self._inputs = inputs

    def enter(self) -> BarrierState:
        self._inputs.trigger_aligned(self._taken)
        return WaitingForFirstBarrier()


class InputComplete(BarrierState):
    """Every barrier has arrived: the in-flight data is complete."""

    def __init__(self, taken: UnalignedCheckpoint, inputs: BarrierController) -> None:
        self._taken = taken
        self._inputs = inputs

    def enter(self) -> BarrierState:
        self._inputs.finish(self._taken)
        return WaitingForFirstBarrier()
