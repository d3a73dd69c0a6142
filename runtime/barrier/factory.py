"""Which barrier handler a subtask gets: the one place where that is decided."""

from __future__ import annotations

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner
from penstock.runtime.barrier.handler import (
    ChannelBlocking,
    CheckpointBarrierHandler,
    EndOfPartitionPolicy,
)
from penstock.runtime.barrier.single_channel import SingleChannelBarrierHandler
from penstock.runtime.barrier.tracker import CheckpointBarrierTracker
from penstock.runtime.checkpoint.mode import CheckpointingMode
from penstock.runtime.ports import Clock


def create_barrier_handler(
    mode: CheckpointingMode,
    channels: int,
    inputs: ChannelBlocking,
    clock: Clock,
    end_of_partition: EndOfPartitionPolicy = EndOfPartitionPolicy.COUNTS_AS_BARRIER,
) -> CheckpointBarrierHandler:
    """Make the handler for one subtask; its listener is set afterwards.

    Args:
        mode: What checkpoints promise: `EXACTLY_ONCE` aligns, `AT_LEAST_ONCE` only counts.
        channels: Number of channels, over all inputs of the subtask.
        inputs: The subtask's input gate.
        clock: Time.
        end_of_partition: What the end of a channel means to a waiting checkpoint.

    Raises:
        ValueError: There are no channels (a source's subtask has no barrier handler).
    """
    aligns = mode is CheckpointingMode.EXACTLY_ONCE
    if channels == 1:
        return SingleChannelBarrierHandler(clock, ignores_old=aligns, end_of_partition=end_of_partition)
    if aligns:
        return CheckpointBarrierAligner(channels, inputs, clock, end_of_partition)
    return CheckpointBarrierTracker(channels, clock, end_of_partition)
