"""States of an input whose barriers may overtake: one small class a state, named by what it waits for.

| state | next state |
| --- | --- |
| `WaitingForFirstBarrier` | one of the next two, when a barrier begins a checkpoint |
| `WaitingForAllBarriers` | `Aligned` when all were consumed; the next one when it turns unaligned |
| `WaitingForAlignedChannels` | `WaitingForLastBarriers` when those channels have consumed theirs |
| `WaitingForLastBarriers` | `InputComplete` when the last one has arrived |
| `Aligned`, `InputComplete` | `WaitingForFirstBarrier`, at once |

Every event is a method that returns the next state, `self` for none. It changes facts about channels
(`UnalignedCheckpoint`). `OvertakenInput` acts for the states: it blocks channels, triggers, and persists what
is in flight. The task and the channel state are notified when a state is entered.

Why a checkpoint is triggered once: each trigger stands in `enter` of a state from which no way leads back to
a state before it. Why no channel stays blocked: only the two states before the trigger block, and both
triggers release. A checkpoint that is aborted is released by the handler.

The model is Flink's `BarrierHandlerState` and its implementations (since 1.13).
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

    Arrival and consumption are counted apart. A channel that has not consumed its barrier still has data of
    the checkpoint in front. A channel whose barrier has not arrived will get more of it.

    Attributes:
        started_at: Monotonic time of the first sign.
        unconsumed: Channels that have not consumed their barrier or end.
        unarrived: Channels whose barrier, or end, has not arrived.
        blocked: Channels that wait after their barrier for the trigger.
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


class OvertakenInput:
    """Acts for the states of one handler.

    Args:
        aligned_channels: Channels on which no barrier overtakes.
        trigger: Makes the task take a checkpoint: its barrier, and the monotonic time of its first sign.
    """

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
        """Every barrier was consumed: nothing of the checkpoint is in flight."""
        self.release(checkpoint)
        self._trigger(checkpoint.barrier, checkpoint.started_at)

    def trigger_unaligned(self, checkpoint: UnalignedCheckpoint) -> None:
        """Take the checkpoint now, and persist what waits in front of its barriers.

        The task is notified first: the rest of the batch that it has taken stands in front of what waits.
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
        """Forget what was persisted of a checkpoint whose abort is not reported."""
        self._writer.abort(checkpoint.id)


class BarrierState:
    """Base of the states: by default an event does nothing."""

    checkpoint: UnalignedCheckpoint | None = None
    is_triggered: ClassVar[bool] = False

    def enter(self) -> BarrierState:
        """Act on entering the state; return the state that follows at once."""
        return self

    def leave(self) -> None: ...

    def barrier_consumed(self, channel: int) -> BarrierState:
        return self

    def barrier_arrived(self, channel: int) -> BarrierState:
        """Nothing more of the checkpoint can arrive on a channel: its barrier, or its end, is there."""
        return self

    def end_consumed(self, channel: int) -> BarrierState:
        return self

    def element_arrived(self, channel: int, element: StreamElement) -> None:
        """Data has arrived in front of whatever comes next on its channel."""

    def turn_unaligned(self) -> BarrierState:
        """The timeout has run out, here or at a sender: wait only for channels that can't be overtaken."""
        return self

    def trigger_if_due(self) -> BarrierState:
        return self


class WaitingForFirstBarrier(BarrierState):
    """No checkpoint runs."""


class _BeforeTheTrigger(BarrierState):
    checkpoint: UnalignedCheckpoint

    def __init__(self, checkpoint: UnalignedCheckpoint, inputs: OvertakenInput) -> None:
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
        """The channel holds nothing more, so there is nothing to block."""
        self.checkpoint.unconsumed.discard(channel)
        return self.trigger_if_due()


class WaitingForAllBarriers(_BeforeTheTrigger):
    """Aligned: the checkpoint begins when every channel has consumed its barrier, or turns unaligned.

    Args:
        timer: Turns it unaligned when it runs out; `None` when only a sender can.
    """

    def __init__(
        self, checkpoint: UnalignedCheckpoint, inputs: OvertakenInput, timer: Cancellable | None = None
    ) -> None:
        super().__init__(checkpoint, inputs)
        self._timer = timer

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def turn_unaligned(self) -> BarrierState:
        """Wait only for channels that can't be overtaken; blocked ones stay so."""
        return WaitingForAlignedChannels(self.checkpoint, self._inputs)

    def trigger_if_due(self) -> BarrierState:
        """Trigger when no barrier is missing and the task is ready."""
        if self.checkpoint.unconsumed or not self._inputs.is_ready():
            return self
        return Aligned(self.checkpoint, self._inputs)


class WaitingForAlignedChannels(_BeforeTheTrigger):
    """Unaligned: the checkpoint begins when the channels that can't be overtaken consumed their barriers.

    Usually there are none, and this state ends as soon as the task can take a checkpoint.
    """

    def trigger_if_due(self) -> BarrierState:
        """Trigger when none of those channels is missing and the task is ready."""
        if self.checkpoint.unconsumed & self._inputs.aligned_channels or not self._inputs.is_ready():
            return self
        return WaitingForLastBarriers(self.checkpoint, self._inputs)


class WaitingForLastBarriers(BarrierState):
    """The task has taken the checkpoint; what arrives in front of a missing barrier belongs to it."""

    checkpoint: UnalignedCheckpoint
    is_triggered = True

    def __init__(self, checkpoint: UnalignedCheckpoint, inputs: OvertakenInput) -> None:
        self.checkpoint = checkpoint
        self._inputs = inputs

    def enter(self) -> BarrierState:
        self._inputs.trigger_unaligned(self.checkpoint)
        return self._complete_or_wait()

    def barrier_consumed(self, channel: int) -> BarrierState:
        return self.barrier_arrived(channel)

    def barrier_arrived(self, channel: int) -> BarrierState:
        """Capture nothing more on this channel; with the last one the input part is complete."""
        self.checkpoint.unarrived.discard(channel)
        return self._complete_or_wait()

    def element_arrived(self, channel: int, element: StreamElement) -> None:
        """Capture it, unless it stands after the barrier."""
        if channel in self.checkpoint.unarrived:
            self._inputs.capture(self.checkpoint, channel, element)

    def _complete_or_wait(self) -> BarrierState:
        if self.checkpoint.unarrived:
            return self
        return InputComplete(self.checkpoint, self._inputs)


class Aligned(BarrierState):
    """Every barrier was consumed: triggers, and nothing is in flight."""

    def __init__(self, taken: UnalignedCheckpoint, inputs: OvertakenInput) -> None:
        self._taken = taken
        self._inputs = inputs

    def enter(self) -> BarrierState:
        self._inputs.trigger_aligned(self._taken)
        return WaitingForFirstBarrier()


class InputComplete(BarrierState):
    """Every barrier has arrived: what is in flight is complete."""

    def __init__(self, taken: UnalignedCheckpoint, inputs: OvertakenInput) -> None:
        self._taken = taken
        self._inputs = inputs

    def enter(self) -> BarrierState:
        self._inputs.finish(self._taken)
        return WaitingForFirstBarrier()
