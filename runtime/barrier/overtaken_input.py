"""`OvertakenInput`: everything that the states of an unaligned checkpoint do.

The states (`unaligned_states`) decide; this blocks channels, triggers, and persists what is in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from penstock.runtime.barrier.handler import InFlightInput
from penstock.runtime.barrier.unaligned_checkpoint import UnalignedCheckpoint
from penstock.runtime.network.channel_state import ChannelStateWriter, in_front_of
from penstock.runtime.record.elements import CheckpointBarrier, StreamElement


class OvertakenInput:
    """Acts for the states of one handler.

    Args:
        inputs: Blocks channels, and shows what waits in them.
        aligned_channels: Channels on which no barrier overtakes.
        is_ready: Whether the task can take a checkpoint at this moment.
        trigger: Tells the task to take a checkpoint: its barrier, and the monotonic time of its first sign.

    Attributes:
        aligned_channels: Channels on which no barrier overtakes.
        is_ready: Whether the task can take a checkpoint at this moment.
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
        """Consume nothing after a barrier until the trigger."""
        checkpoint.blocked.append(channel)
        self._inputs.block(channel)

    def release(self, checkpoint: UnalignedCheckpoint) -> None:
        """Nothing waits for the trigger of this checkpoint any more."""
        blocked, checkpoint.blocked = checkpoint.blocked, []
        for channel in blocked:
            self._inputs.unblock(channel)

    def trigger_aligned(self, checkpoint: UnalignedCheckpoint) -> None:
        """Every barrier was consumed: nothing of the checkpoint is in flight."""
        self.release(checkpoint)
        self._trigger(checkpoint.barrier, checkpoint.started_at)

    def trigger_unaligned(self, checkpoint: UnalignedCheckpoint) -> None:
        """Take the checkpoint now, and persist what waits in front of its barriers.

        The task is told first: the rest of the batch that it has taken stands in front of what waits.
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
        """Persist what has arrived in front of a barrier."""
        self._writer.add_input(checkpoint.id, channel, (element,))

    def finish(self, checkpoint: UnalignedCheckpoint) -> None:
        """Nothing more of the checkpoint can arrive."""
        self._writer.finish_input(checkpoint.id)

    def abort(self, checkpoint: UnalignedCheckpoint) -> None:
        """Forget what was persisted of a checkpoint whose abort is not reported."""
        self._writer.abort(checkpoint.id)
