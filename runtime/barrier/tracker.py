"""At least once: count barriers and let everything flow.

What it does: no channel is ever blocked. A checkpoint is triggered when its barrier was consumed on every
channel, while elements after the early barriers have been processed already. After a restore those are
processed again: nothing is lost, some records count twice. So there is no alignment, and none is reported,
however long the last barrier takes.

Several checkpoints may be pending. When one is complete, incomplete older ones are forgotten without an
abort. At most `MAX_PENDING` are remembered, and the oldest is forgotten first. A cancelled one is remembered
until all its barriers have come, so that these don't start it again.

What it must never do: trigger a checkpoint before its barrier has come on every open channel, trigger one
twice, or remember without a bound.

The model is Flink's `CheckpointBarrierTracker`. One thing is stricter: a barrier that is repeated on a
channel does not count for another channel; it is ignored.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.barrier.handler import BarrierCount, CheckpointBarrierHandler
from penstock.runtime.config.semantics import Semantics
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason

CANCELLED: Final = CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
#: How many incomplete checkpoints are remembered (Flink's `MAX_CHECKPOINTS_TO_TRACK`).
MAX_PENDING: Final = 50


class CheckpointBarrierTracker(CheckpointBarrierHandler):
    """Counts barriers over several channels; see the module's docstring.

    When the end of a channel aborts, an ended channel still owes barriers, so no later checkpoint triggers.
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
        counts = list(self._counts.values())  # in one step: another thread may ask
        return tuple(count.checkpoint_id for count in counts if count.barrier is not None)

    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Count a barrier. The last one triggers; one of an id that is neither pending nor new is ignored."""
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

        A marker of an id that is neither pending nor newer than all seen ones aborts only what is older.
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
        """The channel owes no barriers any more, or all pending checkpoints are aborted.

        Several checkpoints may become complete at once. All of them are triggered, oldest first: an older one
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
        """Report an abort, once; the barriers are still counted, so they don't start the checkpoint again."""
        if count.barrier is not None:
            count.barrier = None
            self._abort(count.checkpoint_id, reason)
