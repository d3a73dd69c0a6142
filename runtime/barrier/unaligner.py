"""Exactly once without waiting: a barrier overtakes the data in front of it, and that data is persisted.

What it does: the first sign of a checkpoint's barrier, on any channel, triggers the checkpoint when it
*arrives*, whatever waits to be consumed. What waits in front of a barrier then, and what arrives in front of
one later, becomes channel state of the checkpoint. It is still handed to the task in its order.

Why it is right: per channel, what was consumed before the snapshot and what was persisted, one after the
other, are exactly the elements in front of the barrier. A restored task consumes the persisted part first. So
the cut is the one that aligned barriers would have made, only that a part of it lies in channels.

How a barrier overtakes: the sender gives it the next sequence number and sends it ahead of everything that it
has not sent yet (which the sender captures). So a barrier's number is its position, and the input part is
complete when every channel has all elements up to its barrier *in order*. The barrier itself may come before
some of them, as frames do: then it is announced, which triggers, and they are captured when they come.

Channels that must be aligned: in-flight data of a forward or broadcast exchange can't be dealt out to another
number of subtasks. Their barriers stay where they are, and the checkpoint waits until they were consumed on
all of them. Until then a channel whose barrier was consumed is blocked, whichever it is: nothing behind a
barrier may reach the task before its snapshot. In the same way it waits for a task that is in the middle of
a call and says so.

What it must never do: capture an element that was consumed before the snapshot or stands behind the barrier,
capture one twice, leave a channel blocked when no checkpoint waits, or report a checkpoint as complete while
something of it may still arrive.

What acts when: barriers act on arrival, cancellations on consumption, and ends on consumption too, except
that a channel whose end has arrived owes no barrier (under `COUNTS_AS_BARRIER`). A checkpoint that was
triggered may be aborted as long as it is not complete; a complete one stays.

The model is Flink's `CheckpointBarrierUnaligner` (FLIP-76).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.runtime.barrier.handler import (
    CheckpointBarrierHandler,
    EndOfPartitionPolicy,
    InFlightInput,
)
from penstock.runtime.barrier.unaligned_checkpoint import UnalignedCheckpoint
from penstock.runtime.network.channel_state import ChannelStateWriter, in_front_of, is_captured
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import (
    CancelCheckpointMarker,
    CheckpointBarrier,
    EndOfPartition,
    StreamElement,
)
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason


class CheckpointBarrierUnaligner(CheckpointBarrierHandler):
    """Triggers with the first barrier and captures what it overtakes; see the module's text.

    Args:
        channels: Number of channels.
        inputs: Blocks channels, and shows what waits in them.
        writer: Takes what is captured. The task starts nothing and finishes nothing of the input part; it
            aborts what it is told to abort.
        clock: Time.
        end_of_partition: What the end of a channel means to a checkpoint that is not complete.
        aligned_channels: Channels on which no barrier overtakes.
    """

    def __init__(
        self,
        channels: int,
        inputs: InFlightInput,
        writer: ChannelStateWriter,
        clock: Clock,
        end_of_partition: EndOfPartitionPolicy = EndOfPartitionPolicy.COUNTS_AS_BARRIER,
        aligned_channels: Iterable[int] = (),
    ) -> None:
        super().__init__(channels, clock, end_of_partition)
        self._inputs = inputs
        self._writer = writer
        self._aligned_channels = frozenset(aligned_channels)
        self._running: UnalignedCheckpoint | None = None
        self._newest_id = -1
        self._unended = set(range(channels))

    @property
    def watches_arrivals(self) -> bool:
        """True: a checkpoint begins when a barrier arrives."""
        return True

    @property
    def pending(self) -> tuple[int, ...]:
        """The checkpoint that is not complete, if there is one."""
        return () if self._running is None else (self._running.id,)

    # -- arrivals -----------------------------------------------------------------------------------------

    def barrier_announced(self, channel: int, barrier: CheckpointBarrier) -> None:
        """Begin a checkpoint ahead of what stands in front of its barrier and has not even arrived."""
        self._announce(barrier)

    def elements_arrived(self, channel: int, elements: Sequence[StreamElement]) -> None:
        """Begin checkpoints, and capture what arrives in front of a barrier that has not arrived."""
        for element in elements:
            if isinstance(element, CheckpointBarrier):
                if not element.options.kind.is_savepoint:
                    self._announce(element)
                    self._barrier_arrived(channel, element.checkpoint_id)
            elif isinstance(element, EndOfPartition):
                self._end_arrived(channel)
            elif is_captured(element):
                running = self._running
                if running is not None and self._captures(running, channel):
                    self._writer.add_input(running.id, channel, (element,))

    def trigger_if_due(self) -> None:
        """Take the checkpoint that has begun, if it waits for nothing but the task."""
        if self._running is not None:
            self._trigger_if_due(self._running)

    # -- consumption --------------------------------------------------------------------------------------

    def process_barrier(self, channel: int, barrier: CheckpointBarrier) -> None:
        """The task has worked off what stood in front of this barrier.

        Raises:
            StreamCorruptError: The channel has ended.
        """
        self._check_open(channel, f"the barrier of checkpoint {barrier.checkpoint_id}")
        checkpoint_id = barrier.checkpoint_id
        self._latest_id = max(self._latest_id, checkpoint_id)
        running = self._running
        if checkpoint_id > self._newest_id:  # nobody told us of its arrival
            running = self._begin(barrier)
        if running is None or running.id != checkpoint_id:
            return
        if channel in running.unconsumed:
            running.unconsumed.discard(channel)
            if not running.is_triggered:
                running.blocked.append(channel)
                self._inputs.block(channel)
        self._barrier_arrived(channel, checkpoint_id)
        self._trigger_if_due(running)

    def process_cancellation(self, channel: int, marker: CancelCheckpointMarker) -> None:
        """Abort this checkpoint if it is the running one or newer; one that is complete stays complete.

        A running checkpoint that is older than the cancelled one ends with it, and is not reported.
        """
        self._check_open(channel, f"the cancellation of checkpoint {marker.checkpoint_id}")
        cancelled, running = marker.checkpoint_id, self._running
        self._latest_id = max(self._latest_id, cancelled)
        is_running = running is not None and running.id == cancelled
        if cancelled <= self._newest_id and not is_running:
            self._ignored += 1
            return
        if running is not None:
            self._end(running)
            if running.is_triggered and not is_running:
                self._writer.abort(running.id)
        self._newest_id = cancelled
        self._abort(cancelled, CheckpointFailureReason.CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER)

    def process_end_of_partition(self, channel: int) -> None:
        """The channel owes no barriers any more; a checkpoint that is not complete goes on or is given up.

        Raises:
            StreamCorruptError: The channel has ended before.
        """
        self._close(channel)
        self._end_arrived(channel)
        running = self._running
        if running is None:
            return
        if self._policy is EndOfPartitionPolicy.ABORTS:
            self.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_INPUT_END_OF_STREAM)
            return
        running.unconsumed.discard(channel)
        self._trigger_if_due(running)

    def give_up(self, reason: CheckpointFailureReason) -> None:
        """Give up the checkpoint that is not complete, if there is one, and say so."""
        running = self._running
        if running is not None:
            self._end(running)
            self._abort(running.id, reason)

    # -- the course of a checkpoint -----------------------------------------------------------------------

    def _begun(self, running: UnalignedCheckpoint) -> None:
        """Decide how a checkpoint begins; here it is unaligned from the first moment on."""
        running.is_unaligned = True

    def _announce(self, barrier: CheckpointBarrier) -> None:
        running = self._running
        if barrier.checkpoint_id > self._newest_id:
            self._trigger_if_due(self._begin(barrier))
        elif running is None or running.id != barrier.checkpoint_id:
            self._ignored += 1
        elif barrier.options.unaligned:
            self._turn_unaligned(running)

    def _begin(self, barrier: CheckpointBarrier) -> UnalignedCheckpoint:
        self.give_up(CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED)
        counts = self._policy is EndOfPartitionPolicy.COUNTS_AS_BARRIER
        arriving = self._unended if counts else self._open
        running = UnalignedCheckpoint(barrier, self._open, arriving, self._clock.monotonic())
        self._newest_id = barrier.checkpoint_id
        self._running = running
        self._begun(running)
        return running

    def _turn_unaligned(self, running: UnalignedCheckpoint) -> None:
        """Wait no longer for barriers that may overtake."""
        if running is self._running and not running.is_triggered:
            running.is_unaligned = True
            self._trigger_if_due(running)

    def _trigger_if_due(self, running: UnalignedCheckpoint) -> None:
        waits_for = running.unconsumed
        if running.is_unaligned:
            waits_for = waits_for & self._aligned_channels
        if running.is_triggered or waits_for or not self._is_ready():
            return
        running.is_triggered = True
        self._release(running)
        barrier = running.barrier
        if not running.is_unaligned:
            self._running = None
            self._trigger(barrier, running.started_at)
            return
        self._writer.start(running.id)
        if not barrier.options.unaligned:
            barrier = replace(barrier, options=replace(barrier.options, unaligned=True))
        self._trigger(barrier, running.started_at)
        self._capture_waiting(running)
        self._finish_if_complete(running)

    def _capture_waiting(self, running: UnalignedCheckpoint) -> None:
        """Persist what waits in front of the barriers; what comes later is captured when it arrives."""
        for channel in sorted(running.unconsumed):
            elements = in_front_of(running.id, self._inputs.waiting(channel))
            if elements:
                self._writer.add_input(running.id, channel, elements)

    def _captures(self, running: UnalignedCheckpoint, channel: int) -> bool:
        return running.is_triggered and channel in running.unarrived

    def _barrier_arrived(self, channel: int, checkpoint_id: int) -> None:
        running = self._running
        if running is not None and running.id == checkpoint_id:
            running.unarrived.discard(channel)
            self._finish_if_complete(running)

    def _end_arrived(self, channel: int) -> None:
        self._unended.discard(channel)
        running = self._running
        if running is not None and self._policy is EndOfPartitionPolicy.COUNTS_AS_BARRIER:
            running.unarrived.discard(channel)
            self._finish_if_complete(running)

    def _finish_if_complete(self, running: UnalignedCheckpoint) -> None:
        if running is self._running and running.is_complete:
            self._end(running)
            self._writer.finish_input(running.id)

    def _end(self, running: UnalignedCheckpoint) -> None:
        self._alignment_duration = self._clock.monotonic() - running.started_at
        self._running = None
        self._release(running)

    def _release(self, running: UnalignedCheckpoint) -> None:
        """Nothing waits for the trigger any more."""
        if running.timer is not None:
            running.timer.cancel()
            running.timer = None
        blocked, running.blocked = running.blocked, []
        for channel in blocked:
            self._inputs.unblock(channel)
