"""`BarrierSender`: sends barriers and captures what they overtake in the outputs of a subtask.

An unaligned barrier leaves ahead of what waits in the outputs. That is captured at once, and the sender's
part of the in-flight data is complete. An aligned barrier waits in line. If it still waits when its timeout
has run out, it moves to the front, and what it overtakes then is captured. Until it has left, the checkpoint
may still grow and is not acknowledged; `send` returns that.

What it must never do: capture what left before the barrier (the receiver captures that), or hold a checkpoint
back whose barrier has left.

The model is Flink's aligned checkpoint timeout on the output side (FLINK-27251).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from penstock.runtime.checkpoint.channel_state.channel_state_writer import AsyncChannelStateWriter
from penstock.runtime.network.channel_state import ChannelStateWriter
from penstock.runtime.network.result_partition import Overtaken
from penstock.runtime.ports import Cancellable, TimerService
from penstock.runtime.record.elements import CheckpointBarrier


class BarrierOutputs(Protocol):
    """The outputs of a subtask, as far as barriers go through them."""

    def broadcast_barrier(self, barrier: CheckpointBarrier) -> list[Overtaken]:
        """Put a barrier on every channel in one step; what it has overtaken, if it is unaligned."""
        ...

    def is_barrier_waiting(self, checkpoint_id: int) -> bool:
        """Whether a barrier of this checkpoint waits somewhere that it could overtake."""
        ...

    def turn_unaligned(self, checkpoint_id: int) -> list[Overtaken]:
        """Let waiting barriers of a checkpoint overtake what is in front of them; gives that."""
        ...


@dataclass(frozen=True, slots=True)
class InFlight:
    """What a subtask needs for unaligned checkpoints, beside its operators.

    Attributes:
        sender: Sends barriers and captures what they overtake.
        writer: Makes in-flight data durable.
    """

    sender: BarrierSender
    writer: AsyncChannelStateWriter


class BarrierSender:
    """Sends barriers and captures what they overtake; driven by the task thread alone.

    Args:
        outputs: Where barriers go.
        timers: Run out for aligned barriers, in the task's thread.
    """

    def __init__(self, outputs: BarrierOutputs, writer: ChannelStateWriter, timers: TimerService) -> None:
        self._outputs = outputs
        self._writer = writer
        self._timers = timers
        self._waiting: dict[int, Cancellable] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether an aligned barrier with a timeout waits in the outputs."""
        return bool(self._waiting)

    def send(self, barrier: CheckpointBarrier) -> bool:
        """Send a barrier.

        Returns:
            Whether the checkpoint has in-flight data, or may get some: its result is to be asked for.
        """
        checkpoint_id, options = barrier.checkpoint_id, barrier.options
        overtaken = self._outputs.broadcast_barrier(barrier)
        if options.unaligned:
            self._writer.start(checkpoint_id)
            self._finish(checkpoint_id, overtaken)
            return True
        if options.aligned_timeout is None or not self._outputs.is_barrier_waiting(checkpoint_id):
            return False
        self._writer.start(checkpoint_id)
        self._writer.finish_input(checkpoint_id)
        self._waiting[checkpoint_id] = self._timers.call_later(
            options.aligned_timeout, lambda: self._turn_unaligned(checkpoint_id)
        )
        return True

    def barriers_may_have_left(self) -> None:
        """Look again whether the aligned barriers that waited have left by themselves."""
        for checkpoint_id in [i for i in self._waiting if not self._outputs.is_barrier_waiting(i)]:
            self._waiting.pop(checkpoint_id).cancel()
            self._finish(checkpoint_id, ())

    def abort(self, checkpoint_id: int) -> None:
        """The checkpoint was aborted; its barrier, if it still waits, goes out in its turn."""
        timer = self._waiting.pop(checkpoint_id, None)
        if timer is not None:
            timer.cancel()
        self._writer.abort(checkpoint_id)

    def close(self) -> None:
        """Give up everything that waits."""
        for timer in self._waiting.values():
            timer.cancel()
        self._waiting.clear()

    def _turn_unaligned(self, checkpoint_id: int) -> None:
        if self._waiting.pop(checkpoint_id, None) is not None:
            self._finish(checkpoint_id, self._outputs.turn_unaligned(checkpoint_id))

    def _finish(self, checkpoint_id: int, overtaken: Iterable[Overtaken]) -> None:
        for channel, elements in overtaken:
            if elements:
                self._writer.add_output(checkpoint_id, channel, elements)
        self._writer.finish_output(checkpoint_id)
