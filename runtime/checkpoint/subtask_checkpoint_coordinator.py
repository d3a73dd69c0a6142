"""Carries out one subtask's part in checkpoints (Flink's `SubtaskCheckpointCoordinatorImpl`).

The steps, in this order and for these reasons:

0. A checkpoint that is not newer than the last one is not taken. It is declined, so that it does not time
   out, unless it was handled before. (Messages to sources may overtake each other.)
1. A checkpoint that was aborted before its barrier arrived is not taken. A cancellation marker goes
   downstream, so that receivers don't wait for the barrier.
2. Work that must precede the barrier is done. It may still emit.
3. The barrier goes out on all channels in one step, before the state is taken, so downstream can align
   meanwhile. An unaligned barrier overtakes the elements that wait in the outputs; they are captured.
4. The rest of the current input batch is captured, if the checkpoint is unaligned.
5. The state is taken: a short synchronous part here, an asynchronous part outside the task thread. A task
   whose operators are closed has no state and declines.
6. The checkpoint is acknowledged when state and in-flight data are durable, or declined with the reason.

In-flight data of a declined, aborted or failed checkpoint is discarded here, so the parts that capture it
need no notice.

The coordinator must never acknowledge state that is not durable, take a checkpoint twice, or leave a receiver
waiting.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.runtime.barrier.handler import ALIGNMENT_ABORTED
from penstock.runtime.checkpoint.channel_state_writer import BarrierOutputs, InFlight
from penstock.runtime.checkpoint.operator_snapshot import SubtaskSnapshotTask
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.error_text import error_text
from penstock.runtime.ports import AsyncRunner, Cancellable, Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier, Event
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointFailureReason,
    CheckpointMetrics,
    StoredBytes,
)
from penstock.runtime.snapshot.handles import ChannelStateHandle, SubtaskSnapshot


class CheckpointedState(Protocol):
    """The work and the state of a subtask. Its methods never call the coordinator."""

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Do the work that must precede the barrier; may still emit."""
        ...

    def capture_rest(self, checkpoint_id: int) -> None:
        """Hand the unprocessed rest of the current input batch to the channel state writer."""
        ...

    @property
    def is_closed(self) -> bool:
        """Whether the operators are closed, so that no state can be taken."""
        ...

    @property
    def stored(self) -> StoredBytes:
        """Bytes that the input has stored during the alignment that ends now."""
        ...

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask: ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None: ...

    def forget(self, checkpoint_id: int) -> None:
        """Make sure that no later checkpoint refers to the files of this one."""
        ...


class CheckpointedOutputs(BarrierOutputs, Protocol):
    def broadcast_event(self, event: Event) -> None:
        """Put an event on every channel in one step; ended channels drop it."""
        ...


class CheckpointResponder(Protocol):
    def acknowledge(
        self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics
    ) -> None: ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """Report that the subtask can't take part in a checkpoint; `detail` is for human readers."""
        ...


@dataclass(frozen=True, slots=True)
class SubtaskCheckpointStatistics:
    """Counters of a subtask's checkpoints.

    Attributes:
        taken: Checkpoints whose synchronous part was done.
        acknowledged: Checkpoints that were acknowledged.
        declined: Checkpoints that were declined.
        running: Asynchronous parts that are running.
        remembered_aborts: Abort notices for checkpoints whose barrier has not arrived yet.
    """

    taken: int
    acknowledged: int
    declined: int
    running: int
    remembered_aborts: int


#: Maximum number of remembered abort notices for checkpoints whose barrier has not arrived yet.
MAX_RECORDED_ABORTED = 128


@dataclass(slots=True)
class _Running:
    task: SubtaskSnapshotTask
    metrics: CheckpointMetrics
    begun: float
    has_in_flight: bool
    work: Cancellable | None = None
    snapshot: SubtaskSnapshot | None = None


class SubtaskCheckpointCoordinator:
    """The `CheckpointListener` of one subtask's input; only the task thread calls it."""

    def __init__(
        self,
        state: CheckpointedState,
        outputs: CheckpointedOutputs,
        responder: CheckpointResponder,
        runner: AsyncRunner,
        clock: Clock,
        in_flight: InFlight | None = None,
        *,
        max_recorded_aborted: int = MAX_RECORDED_ABORTED,
        semantics: Semantics = Semantics.current(),
    ) -> None:
        self._max_recorded_aborted = max_recorded_aborted
        self._semantics = semantics
        self._state = state
        self._outputs = outputs
        self._responder = responder
        self._runner = runner
        self._clock = clock
        self._in_flight = in_flight
        self._last_id = -1
        self._aborted: OrderedDict[int, None] = OrderedDict()
        self._running: dict[int, _Running] = {}
        self._dealt_with: deque[int] = deque(maxlen=MAX_RECORDED_ABORTED)
        self._taken = self._acknowledged = self._declined = 0

    def trigger(
        self,
        barrier: CheckpointBarrier,
        start_delay: float = 0.0,
        alignment_duration: float = 0.0,
        *,
        is_input_empty: bool = False,
    ) -> bool:
        """Take a checkpoint; return false if it is old or aborted, or the operators are closed.

        Args:
            start_delay: Seconds from the trigger at the coordinator to the first barrier here.
            alignment_duration: Seconds for which barriers were aligned.
            is_input_empty: Whether the input has no in-flight data, because it is a source or has ended.
        """
        checkpoint_id, stored = barrier.checkpoint_id, self._state.stored
        if checkpoint_id <= self._last_id:
            self._aborted.pop(checkpoint_id, None)
            self._refuse_overtaken(checkpoint_id)
            return False
        self._last_id = checkpoint_id
        self._dealt_with.append(checkpoint_id)
        if checkpoint_id in self._aborted:
            del self._aborted[checkpoint_id]
            self._give_up_in_flight(checkpoint_id)
            self._outputs.broadcast_event(CancelCheckpointMarker(checkpoint_id))
            return False
        begun = self._clock.monotonic()
        self._state.prepare_barrier(checkpoint_id)
        has_in_flight = self._send_barrier(barrier, is_input_empty=is_input_empty)
        if self._state.is_closed:
            reason = CheckpointFailureReason.CHECKPOINT_DECLINED_TASK_CLOSING
            self._decline(checkpoint_id, reason, "its operators are closed")
            self._give_up_in_flight(checkpoint_id)
            return False
        snapshot = self._take_snapshot(barrier)
        now = self._clock.monotonic()
        self._taken += 1
        metrics = CheckpointMetrics(
            start_delay,
            alignment_duration,
            now - begun,
            stored_bytes=stored.stored,
            spilled_bytes=stored.spilled,
        )
        self._finish_beside_the_task(_Running(snapshot, metrics, now, has_in_flight))
        return True

    @property
    def is_running(self) -> bool:
        """Whether an asynchronous part is running."""
        return bool(self._running)

    def has_dealt_with(self, checkpoint_id: int) -> bool:
        return checkpoint_id in self._dealt_with

    def is_past(self, checkpoint_id: int) -> bool:
        """Whether this checkpoint was taken here, or never will be."""
        return checkpoint_id <= self._last_id or checkpoint_id in self._aborted

    def outputs_progressed(self) -> None:
        """Handle elements that left the outputs, perhaps with waiting aligned barriers."""
        if self._in_flight is not None and self._in_flight.sender.is_waiting:
            self._in_flight.sender.barriers_may_have_left()

    def abort(
        self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str = ALIGNMENT_ABORTED
    ) -> None:
        self._dealt_with.append(checkpoint_id)
        self._last_id = max(self._last_id, checkpoint_id)
        for known in [i for i in self._aborted if i < self._last_id]:
            del self._aborted[known]
        self._give_up_running(checkpoint_id)
        self._decline(checkpoint_id, reason, detail)
        self._outputs.broadcast_event(CancelCheckpointMarker(checkpoint_id))

    def notify_checkpoint_aborted(self, checkpoint_id: int, *, is_running: bool = True) -> None:
        """Stop the asynchronous part of an aborted checkpoint, or remember not to take the checkpoint.

        Without `is_running` the task has ended, and no barrier of the checkpoint can arrive.
        """
        if is_running:
            if checkpoint_id <= self._last_id:
                self._give_up_running(checkpoint_id)
            else:
                # The checkpoint has not begun. The channel state writer is left alone: an older checkpoint
                # may still begin in it.
                self._aborted[checkpoint_id] = None
                while len(self._aborted) > self._max_recorded_aborted:
                    self._aborted.popitem(last=False)
            self._state.notify_checkpoint_aborted(checkpoint_id)
        self._state.forget(checkpoint_id)

    def close(self) -> None:
        for checkpoint_id in tuple(self._running):
            self._give_up_running(checkpoint_id)
        if self._in_flight is not None:
            self._in_flight.sender.close()
            self._in_flight.writer.close()

    def statistics(self) -> SubtaskCheckpointStatistics:
        return SubtaskCheckpointStatistics(
            self._taken, self._acknowledged, self._declined, len(self._running), len(self._aborted)
        )

    def _send_barrier(self, barrier: CheckpointBarrier, *, is_input_empty: bool) -> bool:
        """Send the barrier, capture overtaken elements; return whether there may be in-flight data."""
        if self._in_flight is None:
            self._outputs.broadcast_event(barrier)
            return False
        has_in_flight = self._in_flight.sender.send(barrier)
        if barrier.options.unaligned:
            self._state.capture_rest(barrier.checkpoint_id)
            if is_input_empty:
                self._in_flight.writer.finish_input(barrier.checkpoint_id)
        return has_in_flight

    def _take_snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        try:
            return self._state.snapshot(barrier)
        except BaseException:
            self._give_up_in_flight(barrier.checkpoint_id)
            raise

    def _finish_beside_the_task(self, running: _Running) -> None:
        checkpoint_id = running.task.checkpoint_id
        self._running[checkpoint_id] = running

        def written(snapshot: SubtaskSnapshot) -> None:
            if checkpoint_id not in self._running:
                return
            running.snapshot = snapshot
            if running.has_in_flight and self._in_flight is not None:
                # Requested last: once the in-flight data is durable, nothing else may fail.
                self._in_flight.writer.result(checkpoint_id, durable, failed)
            else:
                durable(None)

        def durable(channels: ChannelStateHandle | None) -> None:
            if self._running.pop(checkpoint_id, None) is not None:
                self._acknowledge(running, channels)

        def failed(error: BaseException) -> None:
            running.task.failed(error)
            if self._give_up_running(checkpoint_id):
                reason = CheckpointFailureReason.CHECKPOINT_DECLINED
                self._decline(checkpoint_id, reason, error_text(error))

        running.work = self._runner.run(running.task.run, written, failed)

    def _acknowledge(self, running: _Running, channels: ChannelStateHandle | None) -> None:
        assert running.snapshot is not None, "acknowledged before it was written"
        running.task.apply(running.snapshot)
        self._acknowledged += 1
        snapshot = running.snapshot.with_channels(channels)
        in_flight = 0 if channels is None else channels.state.size
        measured = replace(
            running.metrics,
            async_duration=self._clock.monotonic() - running.begun,
            written_bytes=running.task.written_bytes + in_flight,
            full_bytes=sum(h.size for s in snapshot.operators.values() for h in s.handles()),
            in_flight_bytes=in_flight,
        )
        self._responder.acknowledge(running.task.checkpoint_id, snapshot, measured)

    def _decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        self._declined += 1
        self._responder.decline(checkpoint_id, reason, detail)

    def _give_up_running(self, checkpoint_id: int) -> bool:
        """Stop the asynchronous part and remove its files; return whether it was running."""
        running = self._running.pop(checkpoint_id, None)
        must_remove = running is not None and running.task.abandon()
        self._give_up_in_flight(checkpoint_id)
        if running is None:
            return False
        if running.work is not None:
            running.work.cancel()
        if must_remove:
            # The files are written, but the cancelled callback will never report them.
            self._runner.run(running.task.remove, _ignore_outcome, _ignore_outcome)
        return True

    def _give_up_in_flight(self, checkpoint_id: int) -> None:
        if self._in_flight is not None:
            self._in_flight.sender.abort(checkpoint_id)

    def _refuse_overtaken(self, checkpoint_id: int) -> None:
        if checkpoint_id in self._dealt_with:
            return  # it may still run: a repeated request must not disturb it
        self._dealt_with.append(checkpoint_id)
        self._give_up_in_flight(checkpoint_id)
        if not self._semantics.declines_overtaken:
            return
        detail = f"checkpoint {self._last_id} overtook it"
        self._decline(checkpoint_id, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, detail)


def _ignore_outcome(_: object) -> None:
    """Ignore the outcome of a removal."""
