"""Handlers for aligned barriers: exactly once over several channels, and both modes over one channel.

The first barrier of a checkpoint begins an alignment. When its barrier is consumed, a channel is blocked, so
no element behind the barrier is processed. The last barrier releases all channels and triggers the
checkpoint.

Why it is right: at the trigger exactly the elements in front of the barriers have been processed, on every
channel. That is a consistent cut: Chandy and Lamport's snapshot with empty channels.

One alignment runs at a time. A barrier of a newer checkpoint subsumes the running one, because its channel
will never deliver the older barrier. A cancellation of the running or of a newer checkpoint ends the
alignment. Only the cancelled id is reported, because the sender has already abandoned the older checkpoint.

What it must never do: leave a channel blocked when no alignment runs, or trigger a checkpoint after it was
aborted, subsumed or taken.

The model is Flink's `CheckpointBarrierAligner`. Ends of channels count as barriers since Flink 1.14
(FLIP-147).
"""

from __future__ import annotations

from penstock.runtime.barrier.handler import (
    ALIGNMENT_ABORTED,
    BarrierCount,
    ChannelBlocking,
    CheckpointBarrierHandler,
)
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason


class CheckpointBarrierAligner(CheckpointBarrierHandler):
    """Aligns barriers over several channels; see the module's docstring."""

    def __init__(
        self,
        channels: int,
        inputs: ChannelBlocking,
        clock: Clock,
        semantics: Semantics = Semantics.current(),
    ) -> None:
        super().__init__(channels, clock, semantics)
        self._inputs = inputs
        self._alignment: BarrierCount | None = None
        self._blocked: list[int] = []

    @property
    def alignment_duration(self) -> float:
        """Seconds of the running alignment so far, or else of the last one."""
        running = self._alignment
        return self._alignment_duration if running is None else self._clock.monotonic() - running.started_at

    @property
    def pending(self) -> tuple[int, ...]:
        running = self._alignment
        return () if running is None else (running.checkpoint_id,)

    @property
    def blocked(self) -> int:
        return len(self._blocked)

    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Begin, continue, complete or replace an alignment; a barrier of an old checkpoint is ignored."""
        self._check_open(channel, f"the barrier of checkpoint {barrier.checkpoint_id}")
        running = self._alignment
        if running is not None and barrier.checkpoint_id == running.checkpoint_id:
            self._settle(running, channel)
        elif barrier.checkpoint_id > self._latest_id:
            self.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
            self._latest_id = barrier.checkpoint_id
            self._alignment = BarrierCount(
                barrier.checkpoint_id, self._open, self._clock.monotonic(), barrier
            )
            self._settle(self._alignment, channel)
        else:
            self._ignored += 1

    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        """Abort the marker's checkpoint and end a running alignment; ignore markers of ended checkpoints."""
        self._check_open(channel, f"the cancellation of checkpoint {marker.checkpoint_id}")
        cancelled = marker.checkpoint_id
        if cancelled <= self._latest_id and cancelled not in self.pending:
            self._ignored += 1
            return
        self._cancelled_alignments += bool(self._blocked)
        self._end_alignment()
        self._latest_id = cancelled
        self._abort(cancelled, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER)

    def process_end_of_partition(self, channel: int) -> None:
        """Stop waiting for barriers of this channel; may complete or abort the running alignment."""
        self._close(channel)
        running = self._alignment
        if running is None:
            return
        if self._semantics.end_counts_as_barrier:
            running.settle(channel)
            self._trigger_if_complete(running)
            return
        self.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM)

    def give_up(self, reason: CheckpointFailureReason, detail: str = ALIGNMENT_ABORTED) -> None:
        running = self._alignment
        if running is not None:
            self._end_alignment()
            self._abort(running.checkpoint_id, reason, detail)

    def _settle(self, running: BarrierCount, channel: int) -> None:
        if not running.settle(channel):
            msg = (
                f"channel {channel} delivered the barrier of checkpoint {running.checkpoint_id} twice; "
                "the channel was blocked after the first barrier, so it should have delivered nothing"
            )
            raise StreamCorruptError(msg)
        if not running.is_complete:
            self._inputs.block(channel)
            self._blocked.append(channel)
        self._trigger_if_complete(running)

    def _trigger_if_complete(self, running: BarrierCount) -> None:
        if running.is_complete:
            assert running.barrier is not None, "an alignment begins with a barrier"
            self._end_alignment()
            self._trigger(running.barrier, running.started_at)

    def _end_alignment(self) -> None:
        if self._alignment is not None:
            self._alignment_duration = self._clock.monotonic() - self._alignment.started_at
        self._alignment = None
        blocked, self._blocked = self._blocked, []
        for channel in blocked:
            self._inputs.unblock(channel)


class SingleChannelBarrierHandler(CheckpointBarrierHandler):
    """Triggers a checkpoint at every barrier of its only channel, and reports no alignment.

    With `ignores_old`, as in Flink's exactly-once mode, it ignores ids up to the newest one seen.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        ignores_old: bool,
    ) -> None:
        super().__init__(1, clock)
        self._ignores_old = ignores_old

    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        self._check_open(channel, f"the barrier of checkpoint {barrier.checkpoint_id}")
        if self._is_wanted(barrier.checkpoint_id):
            self._trigger(barrier, self._clock.monotonic(), is_aligned=False)

    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        self._check_open(channel, f"the cancellation of checkpoint {marker.checkpoint_id}")
        if self._is_wanted(marker.checkpoint_id):
            self._abort(
                marker.checkpoint_id, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER
            )

    def process_end_of_partition(self, channel: int) -> None:
        self._close(channel)

    def _is_wanted(self, checkpoint_id: int) -> bool:
        if self._ignores_old and checkpoint_id <= self._latest_id:
            self._ignored += 1
            return False
        self._latest_id = max(self._latest_id, checkpoint_id)
        return True
