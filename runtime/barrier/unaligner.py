"""Barriers that overtake: at once, or after a timeout.

Exactly once without waiting: a barrier overtakes the data in front of it, and that data is persisted. The
first sign of a checkpoint's barrier, on any channel, triggers the checkpoint when it *arrives*. What waits in
front of a barrier then, and what arrives in front of one later, becomes channel state of the checkpoint. The
task still gets it, in its order.

Why it is right: on each channel, the elements in front of the barrier are those consumed before the snapshot,
and then the persisted ones. A restored task consumes the persisted part first. So the cut is the one that
aligned barriers make, with a part of it in channels.

How a barrier overtakes: the sender gives it the next sequence number and sends it ahead of what waits. It
captures what waits. So the number of a barrier is its position. The input part is complete when every channel
has all elements up to its barrier *in order*. A frame may bring the barrier before some of them: then it is
announced, which triggers, and they are captured when they arrive.

Channels that must be aligned: in-flight data of a forward or broadcast exchange can't be redistributed to
another number of subtasks. Their barriers stay in line, and the checkpoint waits until these channels have
consumed them. Until then every channel whose barrier was consumed is blocked: nothing after a barrier may
reach the task before its snapshot. A checkpoint waits in the same way for a task that is in the middle of a
call.

Barriers act on arrival; cancellations and ends act on consumption. One exception: a channel whose end has
arrived owes no barrier (under `COUNTS_AS_BARRIER`). A triggered checkpoint may be aborted until it is
complete; a complete one stays.

What it must never do:

* capture an element that was consumed before the snapshot, or stands after the barrier, or was captured;
* leave a channel blocked when no checkpoint waits;
* finish the input part of a checkpoint that still waits for elements.

With a timeout a checkpoint begins aligned: channels whose barrier was consumed are blocked, and nothing is
persisted. It turns unaligned when its alignment takes longer than the `aligned_timeout` in its barrier. An
unaligned copy of its barrier does the same: the timeout of a sender has run out. It is then triggered at
once, and what waits in front of the missing barriers is captured. The alignment begins with the first sign of
the barrier, so the timeout includes the time from arrival to consumption. It counts on this machine's clock.

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
    BarrierState,
    OvertakenInput,
    UnalignedCheckpoint,
    WaitingForAlignedChannels,
    WaitingForAllBarriers,
    WaitingForFirstBarrier,
)
from penstock.runtime.config.semantics import Semantics
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
    """Triggers with the first barrier and captures what it overtakes; see the module's docstring.

    It decides which checkpoint an event belongs to; its state decides the effect of the event.

    Args:
        writer: Takes what is captured. The handler starts and finishes the input part of a checkpoint; the
            task aborts on the listener's call.
        aligned_channels: Channels on which no barrier overtakes.
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
        self._inputs = OvertakenInput(
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
        """Begin a checkpoint ahead of the elements in front of its barrier, which have not even arrived."""
        if barrier.checkpoint_id > self._newest_id:
            self._begin(barrier)
            self._go_to(self._state.trigger_if_due())
        elif not self._runs(barrier.checkpoint_id):
            self._ignored += 1
        elif barrier.options.unaligned:
            self._turn_unaligned()

    def elements_arrived(self, channel: int, elements: Sequence[StreamElement]) -> None:
        """Begin checkpoints, and capture what arrives in front of a barrier that has not arrived."""
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
        """Abort this checkpoint if it is the running one or newer; one that is complete stays complete.

        A running checkpoint that is older than the cancelled one ends with it, and is not reported.
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
        """Abort the checkpoint that is not complete, if there is one, and report it."""
        running = self._end()
        if running is not None:
            self._abort(running.id, reason)

    # -- the course of a checkpoint -----------------------------------------------------------------------

    def _first_state(self, checkpoint: UnalignedCheckpoint) -> BarrierState:
        """Decide how a checkpoint begins; here it is unaligned from the first moment on."""
        return WaitingForAlignedChannels(checkpoint, self._inputs)

    def _runs(self, checkpoint_id: int) -> bool:
        return checkpoint_id in self.pending

    def _begin(self, barrier: CheckpointBarrier) -> None:
        """Wait for a new checkpoint; the caller checks whether it is due already."""
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
        """Abandon the checkpoint that is not complete, and return it."""
        running = self._state.checkpoint
        if running is not None:
            self._go_to(WaitingForFirstBarrier())
            self._inputs.release(running)
        return running

    def _go_to(self, state: BarrierState) -> None:
        """Change the state first, then act: whatever the task asks meanwhile is answered from the new one."""
        while state is not self._state:
            left, self._state = self._state, state
            left.leave()
            if left.checkpoint is not None and state.checkpoint is None:
                self._alignment_duration = self._clock.monotonic() - left.checkpoint.started_at
            state = state.enter()


class AlignedWithTimeoutBarrierHandler(CheckpointBarrierUnaligner):
    """Aligns, and turns unaligned when that takes too long; see the module's docstring.

    A barrier without `aligned_timeout` stays aligned until an unaligned copy of it arrives.

    Args:
        timers: Ends an alignment that takes too long, in the task's thread, between two pieces of work.
        aligned_channels: Channels on which no barrier overtakes.
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
        """Aligned, unless the timeout of a sender has run out already."""
        options = checkpoint.barrier.options
        if options.unaligned:
            return super()._first_state(checkpoint)
        timer = None
        if options.aligned_timeout is not None:
            timer = self._timers.call_later(options.aligned_timeout, self._turn_unaligned)
        return WaitingForAllBarriers(checkpoint, self._inputs, timer)
