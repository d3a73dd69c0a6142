"""At least once: counts barriers and blocks no channel.

A checkpoint is triggered when its barrier has been consumed on every channel. Elements behind the early
barriers have been processed by then. After a restore they are processed again: no record is lost, and some
count twice.

Several checkpoints may be pending. A complete checkpoint drops incomplete older ones without an abort. At
most the newest `MAX_PENDING` are kept. Late barriers don't start a cancelled checkpoint again, because only
an id above the latest one starts a checkpoint.

What it must never do: trigger a checkpoint twice, or before its barrier was consumed on every open channel.
It must keep a bounded number of checkpoints.

The model is Flink's `CheckpointBarrierTracker`. Unlike in Flink, a repeated barrier of one channel does not
count for another channel.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.barrier.handler import BarrierCount, CheckpointBarrierHandler
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason

CANCELLED: Final = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
#: Maximum number of incomplete checkpoints (Flink's `MAX_CHECKPOINTS_TO_TRACK`).
MAX_PENDING: Final = 50


class CheckpointBarrierTracker(CheckpointBarrierHandler):
    """Counts barriers over several channels; see the module's docstring.

    Unless the end of a channel counts as a barrier, no checkpoint is triggered after a channel's end.
    """

    def __init__(
        self,
        channels: int,
        clock: Clock,
        semantics: Semantics = Semantics.current(),
    ) -> None:
        super().__init__(channels, clock, semantics)
        # Only ids above all earlier ones are added, so the order of the dict is the order of ids.
        self._counts: dict[int, BarrierCount] = {}

    @property
    def pending(self) -> tuple[int, ...]:
        counts = list(self._counts.values())  # in one step, because another thread may call this
        return tuple(count.checkpoint_id for count in counts if count.barrier is not None)

    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Count a barrier; the last one triggers the checkpoint. Ignore barriers of ended checkpoints."""
        self._check_open(channel, f"the barrier of checkpoint {barrier.checkpoint_id}")
        count = self._counts.get(barrier.checkpoint_id)
        if count is None:
            if barrier.checkpoint_id <= self._latest_id:
                self._ignored += 1
                return
            count = self._begin(barrier.checkpoint_id, barrier)
        self._settle(count, channel)

    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        """Abort this checkpoint and all older ones, each once.

        A marker of an ended checkpoint aborts only older ones.
        """
        self._check_open(channel, f"the cancellation of checkpoint {marker.checkpoint_id}")
        self._abort_older_than(marker.checkpoint_id)
        count = self._counts.get(marker.checkpoint_id)
        if count is None:
            if marker.checkpoint_id <= self._latest_id:
                self._ignored += 1
                return
            count = self._begin(marker.checkpoint_id, None)
            self._abort(marker.checkpoint_id, CANCELLED)
        else:
            self._abort_pending(count, CANCELLED)
        self._settle(count, channel)

    def process_end_of_partition(self, channel: int) -> None:
        """Stop waiting for the channel, or abort all pending checkpoints.

        Several checkpoints may become complete at once. All are triggered, oldest first, because an older one
        may be a savepoint, which a newer checkpoint does not replace.
        """
        self._close(channel)
        if self._semantics.end_counts_as_barrier:
            for count in list(self._counts.values()):
                if count.settle(channel):
                    self._finish_if_complete(count)
            return
        counts, self._counts = self._counts, {}
        for count in counts.values():
            self._abort_pending(count, CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM)

    def _begin(self, checkpoint_id: int, barrier: CheckpointBarrier | None) -> BarrierCount:
        counts_all = not self._semantics.end_counts_as_barrier
        owing = range(self._channels) if counts_all else self._open
        count = BarrierCount(checkpoint_id, owing, self._clock.monotonic(), barrier)
        self._latest_id = checkpoint_id
        self._counts[checkpoint_id] = count
        if len(self._counts) > MAX_PENDING:
            del self._counts[next(iter(self._counts))]
        return count

    def _settle(self, count: BarrierCount, channel: int) -> None:
        if count.settle(channel):
            self._finish_if_complete(count)
        else:
            self._ignored += 1

    def _finish_if_complete(self, count: BarrierCount) -> None:
        if not count.is_complete:
            return
        self._forget_up_to(count.checkpoint_id)
        if count.barrier is not None:
            self._trigger(count.barrier, count.started_at, is_aligned=False)

    def _forget_up_to(self, checkpoint_id: int) -> None:
        for pending in [pending for pending in self._counts if pending <= checkpoint_id]:
            del self._counts[pending]

    def _abort_older_than(self, checkpoint_id: int) -> None:
        for count in [count for count in self._counts.values() if count.checkpoint_id < checkpoint_id]:
            del self._counts[count.checkpoint_id]
            self._abort_pending(count, CANCELLED)

    def _abort_pending(self, count: BarrierCount, reason: CheckpointFailureReason) -> None:
        """Report an abort once, and keep counting the barriers that still arrive."""
        if count.barrier is not None:
            count.barrier = None
            self._abort(count.checkpoint_id, reason)
