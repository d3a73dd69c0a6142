"""The short way for a subtask with exactly one channel: nothing to align, nothing to count.

A barrier is the last one of its checkpoint at once, so it triggers and the channel is never blocked. So no
alignment is reported. The two modes differ in what they remember, as in Flink. An aligner takes only
checkpoints that are newer than the newest one seen. A tracker remembers nothing.
"""

from __future__ import annotations

from penstock.runtime.barrier.handler import CheckpointBarrierHandler, EndOfPartitionPolicy
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason


class SingleChannelBarrierHandler(CheckpointBarrierHandler):
    """Triggers with every barrier of the one channel.

    The end of the channel never has anything to do with a checkpoint here: none is ever pending.

    Args:
        ignores_old: Whether ids that are not newer than the newest one seen do nothing.
        end_of_partition: Kept for symmetry with handlers of several channels; both policies do the same.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        ignores_old: bool,
        end_of_partition: EndOfPartitionPolicy = EndOfPartitionPolicy.COUNTS_AS_BARRIER,
    ) -> None:
        super().__init__(1, clock, end_of_partition)
        self._ignores_old = ignores_old

    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Trigger the checkpoint, unless it is old and old ones are ignored.

        Raises:
            StreamCorruptError: The channel has ended.
        """
        self._check_open(channel, f"the barrier of checkpoint {barrier.checkpoint_id}")
        if self._is_wanted(barrier.checkpoint_id):
            self._trigger(barrier, self._clock.monotonic(), is_aligned=False)

    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        """Abort the checkpoint, unless it is old and old ones are ignored."""
        self._check_open(channel, f"the cancellation of checkpoint {marker.checkpoint_id}")
        if self._is_wanted(marker.checkpoint_id):
            self._abort(
                marker.checkpoint_id, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
            )

    def process_end_of_partition(self, channel: int) -> None:
        """Remember that the channel has ended.

        Raises:
            StreamCorruptError: It has ended before.
        """
        self._close(channel)

    def _is_wanted(self, checkpoint_id: int) -> bool:
        if self._ignores_old and checkpoint_id <= self._latest_id:
            self._ignored += 1
            return False
        self._latest_id = max(self._latest_id, checkpoint_id)
        return True
