"""Barriers that overtake in-flight data: at once, or after a timeout.

A barrier overtakes the data in front of it, which is persisted. The first barrier of a checkpoint triggers it
when the barrier *arrives*, on any channel. Unconsumed data in front of a barrier, on any channel, becomes
channel state of the checkpoint. This includes data that arrives later. The task still processes it in order.

This is correct because each element in front of a channel's barrier is either consumed before the snapshot
or persisted. A restored task consumes the persisted elements first. So the cut is the same as with aligned
barriers, except that a part of it lies in channels.

*Overtaking.* The sender gives the barrier the next sequence number, sends it ahead of its waiting elements,
and captures these. So the number of a barrier is its position. A frame may bring the barrier before some of
the elements in front of it. The announcement of the barrier then triggers the checkpoint. The input captures
these elements when they arrive. The input part is complete when every channel has all elements up to its
barrier *in order*.

*Aligned channels.* In-flight data of some exchanges, such as forward and broadcast, can't be redistributed to
another number of subtasks. Barriers of these channels do not overtake, and the checkpoint waits until they
are consumed. Until then every channel whose barrier has been consumed is blocked, because no element after a
barrier may reach the task before its snapshot. A checkpoint waits in the same way for a task that is in the
middle of a call.

*Timeout.* The checkpoint begins aligned: it blocks channels whose barrier is consumed, and persists nothing.
It turns unaligned when its alignment takes longer than the barrier's `aligned_timeout`. An unaligned copy of
its barrier, from a sender whose timeout has expired, has the same effect. The time counts from the arrival of
the first barrier, by this machine's clock.

Barriers act on arrival, cancellations and ends on consumption. An end that counts as a barrier acts on
arrival, too. A triggered checkpoint may be aborted until it is complete.

What it must never do:

* capture an element twice, one consumed before the snapshot, or one after the barrier;
* leave a channel blocked when no checkpoint waits;
* finish the input part of a checkpoint that still waits for elements.

The models are Flink's `CheckpointBarrierUnaligner` (FLIP-76) and its aligned checkpoint timeout
(FLINK-19680).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from penstock.runtime.barrier.handler import (
    CheckpointBarrierHandler,
    InFlightInput,
)
from penstock.runtime.barrier.unaligned_states import (
    BarrierController,
    BarrierState,
    UnalignedCheckpoint,
    WaitingForAlignedChannels,
    WaitingForAllBarriers,
    WaitingForFirstBarrier,
)
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.network.channel_state import ChannelStateWriter, is_captured
from penstock.runtime.ports import Clock, TimerService
from penstock.runtime.record.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    StreamElement,
)
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason


class CheckpointBarrierUnaligner(CheckpointBarrierHandler):
    """Triggers at the first barrier and captures the data that it overtakes; see the module's docstring.

    The handler finds the checkpoint of an event; the current `BarrierState` decides the effect. The handler
    starts and finishes the input part in `writer`. The task aborts it in `CheckpointListener.abort`; the
    handler aborts it only for a checkpoint that ends unreported.
    """

    def __init__(
        self,
        channels: int,
        inputs: InFlightInput,
        writer: ChannelStateWriter,
        clock: Clock,
        semantics: Semantics = Semantics.current(),
        aligned_channels: Iterable[int] = (),
    ) -> None:
        super().__init__(channels, clock, semantics)
        self._inputs = BarrierController(
            inputs, writer, aligned_channels, lambda: self._is_ready(), self._trigger
        )
        self._state: BarrierState = WaitingForFirstBarrier()
        self._newest_id = -1
        self._unended = set(range(channels))

    @property
    def watches_arrivals(self) -> bool:
        return True

    @property
    def pending(self) -> tuple[int, ...]:
        running = self._state.checkpoint
        return () if running is None else (running.id,)

    @property
    def blocked(self) -> int:
        running = self._state.checkpoint
        return 0 if running is None else len(running.blocked)

    # -- arrivals -----------------------------------------------------------------------------------------

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Begin a checkpoint or turn it unaligned; elements in front of the barrier may still be missing."""
        if barrier.checkpoint_id > self._newest_id:
            self._begin(barrier)
            self._go_to(self._state.trigger_if_due())
        elif not self._runs(barrier.checkpoint_id):
            self._ignored += 1
        elif barrier.options.unaligned:
            self._turn_unaligned()

    def elements_arrived(self, channel: int, elements: Sequence[StreamElement]) -> None:
        """Begin checkpoints, and capture elements in front of barriers that have not arrived."""
        for element in elements:
            if isinstance(element, CheckpointBarrier):
                if not element.options.kind.is_savepoint:
                    self.barrier_announced(channel, element)
                    if self._runs(element.checkpoint_id):
                        self._go_to(self._state.barrier_arrived(channel))
            elif isinstance(element, EndOfPartition):
                self._end_arrived(channel)
            elif is_captured(element):
                self._state.element_arrived(channel, element)

    def trigger_if_due(self) -> None:
        self._go_to(self._state.trigger_if_due())

    # -- consumption --------------------------------------------------------------------------------------

    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        self._check_open(channel, f"the barrier of checkpoint {barrier.checkpoint_id}")
        self._latest_id = max(self._latest_id, barrier.checkpoint_id)
        if barrier.checkpoint_id > self._newest_id:  # its arrival was not announced
            self._begin(barrier)
        if self._runs(barrier.checkpoint_id):
            self._go_to(self._state.barrier_consumed(channel))

    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        """Abort the marker's checkpoint if it is the running one or newer.

        An older running checkpoint also ends, without a report.
        """
        self._check_open(channel, f"the cancellation of checkpoint {marker.checkpoint_id}")
        cancelled = marker.checkpoint_id
        self._latest_id = max(self._latest_id, cancelled)
        if cancelled <= self._newest_id and not self._runs(cancelled):
            self._ignored += 1
            return
        self._cancelled_alignments += bool(self.blocked)
        was_triggered, running = self._state.is_triggered, self._end()
        if running is not None and was_triggered and running.id != cancelled:
            self._inputs.abort(running)
        self._newest_id = cancelled
        self._abort(cancelled, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER)

    def process_end_of_partition(self, channel: int) -> None:
        self._close(channel)
        self._end_arrived(channel)
        if not self._semantics.end_counts_as_barrier:
            self.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM)
        else:
            self._go_to(self._state.end_consumed(channel))

    def give_up(self, reason: CheckpointFailureReason) -> None:
        """Abort and report the running checkpoint, if any."""
        running = self._end()
        if running is not None:
            self._abort(running.id, reason)

    # -- phases of a checkpoint --------------------------------------------------------------------------

    def _first_state(self, checkpoint: UnalignedCheckpoint) -> BarrierState:
        return WaitingForAlignedChannels(checkpoint, self._inputs)

    def _runs(self, checkpoint_id: int) -> bool:
        return checkpoint_id in self.pending

    def _begin(self, barrier: CheckpointBarrier) -> None:
        """Begin to wait for a new checkpoint; the caller checks whether it is due already."""
        self.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        counts = self._semantics.end_counts_as_barrier
        arriving = self._unended if counts else self._open
        checkpoint = UnalignedCheckpoint(barrier, self._open, arriving, self._clock.monotonic())
        self._newest_id = barrier.checkpoint_id
        self._go_to(self._first_state(checkpoint))

    def _turn_unaligned(self) -> None:
        self._go_to(self._state.turn_unaligned())
        self._go_to(self._state.trigger_if_due())

    def _end_arrived(self, channel: int) -> None:
        self._unended.discard(channel)
        if self._semantics.end_counts_as_barrier:
            self._go_to(self._state.barrier_arrived(channel))

    def _end(self) -> UnalignedCheckpoint | None:
        """Abandon the running checkpoint and return it."""
        running = self._state.checkpoint
        if running is not None:
            self._go_to(WaitingForFirstBarrier())
            self._inputs.release(running)
        return running

    def _go_to(self, state: BarrierState) -> None:
        """Change the state first, then act, so that calls from the task see the new state."""
        while state is not self._state:
            left, self._state = self._state, state
            left.leave()
            if left.checkpoint is not None and state.checkpoint is None:
                self._alignment_duration = self._clock.monotonic() - left.checkpoint.started_at
            state = state.enter()


class AlignedWithTimeoutBarrierHandler(CheckpointBarrierUnaligner):
    """Aligns, and turns unaligned after a timeout; `timers` runs the timeout in the task's thread.

    Without `aligned_timeout`, only an unaligned copy of the barrier turns the checkpoint unaligned.
    """

    def __init__(
        self,
        channels: int,
        inputs: InFlightInput,
        writer: ChannelStateWriter,
        clock: Clock,
        timers: TimerService,
        semantics: Semantics = Semantics.current(),
        aligned_channels: Iterable[int] = (),
    ) -> None:
        super().__init__(channels, inputs, writer, clock, semantics, aligned_channels)
        self._timers = timers

    def _first_state(self, checkpoint: UnalignedCheckpoint) -> BarrierState:
        """Begin aligned, unless a sender's timeout has expired already."""
        options = checkpoint.barrier.options
        if options.unaligned:
            return super()._first_state(checkpoint)
        timer = None
        if options.aligned_timeout is not None:
            timer = self._timers.call_later(options.aligned_timeout, self._turn_unaligned)
        return WaitingForAllBarriers(checkpoint, self._inputs, timer)
