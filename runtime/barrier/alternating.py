"""Unaligned checkpoints and aligned snapshots in one job.

A savepoint must fit a changed graph, so it must not contain in-flight data. Nor must the checkpoint before a
rescale that turns a rebalance into a forward connection. Their barriers are always aligned. Aligned barriers
go to an aligner, the others to an unaligner. The side that handled the last barrier is active. A barrier for
the other side activates that side, and subsumes the pending checkpoint of the former side.

Unaligned barriers act on arrival, aligned ones on consumption. So an unaligned checkpoint that arrives during
the alignment of a savepoint subsumes the savepoint.

Ends of channels go to both sides, cancellations to the active side alone. This handler ignores barriers up to
the newest cancelled id, except those of pending checkpoints, because the other side does not know the id.

The model is the `AlternatingCheckpointBarrierHandler` of Flink 1.11. The barrier's options select the
side, as in Flink since 1.12.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from penstock.runtime.barrier.aligner import CheckpointBarrierAligner
from penstock.runtime.barrier.handler import (
    BarrierHandlerStatistics,
    CheckpointBarrierHandler,
    CheckpointListener,
    always_ready,
)
from penstock.runtime.barrier.unaligner import CheckpointBarrierUnaligner
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier, StreamElement
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason


class AlternatingBarrierHandler(CheckpointBarrierHandler):
    """Hands aligned barriers to one handler and unaligned ones to another; see the module's docstring."""

    def __init__(
        self,
        channels: int,
        clock: Clock,
        aligned: CheckpointBarrierAligner,
        unaligned: CheckpointBarrierUnaligner,
    ) -> None:
        super().__init__(channels, clock)
        self._aligned = aligned
        self._unaligned = unaligned
        self._active: CheckpointBarrierAligner | CheckpointBarrierUnaligner = aligned
        self._last_seen_id = -1
        self._cancelled_id = -1

    def set_listener(self, listener: CheckpointListener, is_ready: Callable[[], bool] = always_ready) -> None:
        self._aligned.set_listener(listener, is_ready)
        self._unaligned.set_listener(listener, is_ready)

    def trigger_if_due(self) -> None:
        self._unaligned.trigger_if_due()

    @property
    def watches_arrivals(self) -> bool:
        return True

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        if self._acts_at_once(barrier):
            self._unaligned.barrier_announced(channel, barrier)

    def elements_arrived(self, channel: int, elements: Sequence[StreamElement]) -> None:
        if not any(isinstance(element, CheckpointBarrier) for element in elements):
            self._unaligned.elements_arrived(channel, elements)
            return
        for element in elements:
            if not isinstance(element, CheckpointBarrier) or self._acts_at_once(element):
                self._unaligned.elements_arrived(channel, (element,))

    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Give a barrier to its side; an older or cancelled one is ignored."""
        self._check_open(channel, f"the barrier of checkpoint {barrier.checkpoint_id}")
        if self._activate(barrier):
            self._active.process_barrier(channel, barrier)

    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        self._cancelled_id = max(self._cancelled_id, marker.checkpoint_id)
        self._active.process_cancellation(channel, marker)

    def process_end_of_partition(self, channel: int) -> None:
        self._close(channel)
        self._aligned.process_end_of_partition(channel)
        self._unaligned.process_end_of_partition(channel)

    @property
    def latest_checkpoint_id(self) -> int:
        return self._active.latest_checkpoint_id

    @property
    def alignment_duration(self) -> float:
        return self._active.alignment_duration

    @property
    def pending(self) -> tuple[int, ...]:
        return self._active.pending

    @property
    def blocked(self) -> int:
        return self._aligned.blocked + self._unaligned.blocked

    def statistics(self) -> BarrierHandlerStatistics:
        """Sums of both sides; values that can't be added come from the active side."""
        one, other = self._aligned.statistics(), self._unaligned.statistics()
        return replace(
            self._active.statistics(),
            triggered=one.triggered + other.triggered,
            aborted=one.aborted + other.aborted,
            ignored=one.ignored + other.ignored + self._ignored,
            blocked=self.blocked,
            cancelled_alignments=one.cancelled_alignments + other.cancelled_alignments,
        )

    def _acts_at_once(self, barrier: CheckpointBarrier) -> bool:
        """Return whether a barrier acts on arrival; if so, activate its side."""
        return not _is_aligned(barrier) and self._activate(barrier)

    def _activate(self, barrier: CheckpointBarrier) -> bool:
        """Activate a barrier's side; return false for an ignored barrier."""
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id < self._last_seen_id or self._is_cancelled(checkpoint_id):
            self._ignored += 1
            return False
        self._last_seen_id = checkpoint_id
        former = self._active
        self._active = self._aligned if _is_aligned(barrier) else self._unaligned
        if former is not self._active:
            former.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        return True

    def _is_cancelled(self, checkpoint_id: int) -> bool:
        return checkpoint_id <= self._cancelled_id and checkpoint_id not in self._active.pending


def _is_aligned(barrier: CheckpointBarrier) -> bool:
    return barrier.options.kind.is_savepoint or not barrier.options.may_overtake
