"""Aligned while that is quick, unaligned when it is not.

A checkpoint begins aligned: channels whose barrier was consumed are blocked, and nothing is persisted. It
turns unaligned when its alignment takes longer than the `aligned_timeout` in its barrier. So it does when an
unaligned copy of its barrier arrives: the timeout of a sender has run out. It is then triggered at once, and
what waits in front of the missing barriers is captured.

The alignment begins with the first sign of the barrier, when it arrives behind data or even ahead of it.
Under back pressure the time from arrival to consumption is what the timeout is about. It counts on this
machine's clock, so clocks of different machines need not agree.

The model is Flink's aligned checkpoint timeout (FLINK-19680 and its followers).
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.runtime.barrier.handler import EndOfPartitionPolicy, InFlightInput
from penstock.runtime.barrier.unaligned_checkpoint import UnalignedCheckpoint
from penstock.runtime.barrier.unaligned_states import BarrierState, WaitingForAllBarriers
from penstock.runtime.barrier.unaligner import CheckpointBarrierUnaligner
from penstock.runtime.network.channel_state import ChannelStateWriter
from penstock.runtime.ports import Clock, TimerService


class AlignedWithTimeoutBarrierHandler(CheckpointBarrierUnaligner):
    """Aligns, and turns unaligned when that takes too long; see the module's text.

    A barrier without `aligned_timeout` stays aligned until an unaligned copy of it arrives.

    Args:
        inputs: Blocks channels, and shows what waits in them.
        timers: Ends an alignment that takes too long, in the task's thread, between two pieces of work.
        end_of_partition: What the end of a channel means to a checkpoint that is not complete.
        aligned_channels: Channels on which no barrier overtakes.
    """

    def __init__(
        self,
        channels: int,
        inputs: InFlightInput,
        writer: ChannelStateWriter,
        clock: Clock,
        timers: TimerService,
        end_of_partition: EndOfPartitionPolicy = EndOfPartitionPolicy.COUNTS_AS_BARRIER,
        aligned_channels: Iterable[int] = (),
    ) -> None:
        super().__init__(channels, inputs, writer, clock, end_of_partition, aligned_channels)
        self._timers = timers

    def _first_state(self, checkpoint: UnalignedCheckpoint) -> BarrierState:
        """Aligned, unless the timeout of a sender has run out already."""
        options = checkpoint.barrier.options
        if options.unaligned:
            return super()._first_state(checkpoint)
        timer = None
        if options.aligned_timeout is not None:
            timer = self._timers.call_later(options.aligned_timeout, self._turn_unaligned)
        return WaitingForAllBarriers(checkpoint, self._inputs, timer)
