"""What a subtask does with one checkpoint (Flink's `SubtaskCheckpointCoordinatorImpl`).

The steps, in this order and for these reasons:

0. An id that is not newer than the last one is out of order and is not taken. If it was never dealt with
   (messages to sources may overtake each other) it is declined, for nobody else would end it before its time.
1. An id that was aborted before its barrier came is not taken: a cancellation marker goes downstream so that
   nobody waits for a barrier that will not come.
2. Work that must be done in front of the barrier is done (it may still emit).
3. The barrier goes out on all channels in one step, before the state is taken: downstream can align
   meanwhile. An unaligned one overtakes what waits in the outputs, which is captured.
4. What is in flight in the inputs is captured, if the checkpoint is unaligned.
5. The state is taken: a short synchronous half here, the rest beside the task.
6. The coordinator is told: acknowledged when state and in-flight data are durable, or declined with the
   reason.

It must never acknowledge what is not durable, never take one id twice, and never leave a receiver waiting.
In-flight data of a checkpoint that is refused, aborted or fails is given up with it, so whoever captures need
not know.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, replace
from typing import Protocol

from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason
from penstock.runtime.checkpoint.operator_snapshot import SubtaskSnapshotTask
from penstock.runtime.checkpoint.output_capture import InFlight
from penstock.runtime.checkpoint.snapshot import ChannelStateHandle, CheckpointMetrics, SubtaskSnapshot
from penstock.runtime.ports import AsyncRunner, Cancellable, Clock
from penstock.runtime.record.elements import CancelCheckpointMarker, CheckpointBarrier, Event

#: How many abort notices of checkpoints that have not come yet are remembered.
MAX_RECORDED_ABORTED = 128


class CheckpointedTask(Protocol):
    """What the coordinator needs of its subtask."""

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Do what must happen in front of the barrier."""
        ...

    def broadcast_event(self, event: Event) -> None:
        """Put an event on all outputs in one step; barriers are sent by `OutputCapture` if there is one."""
        ...

    def capture_input(self, checkpoint_id: int) -> None:
        """Hand what is in flight in the inputs to the channel state writer."""
        ...

    def snapshot_state(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half."""
        ...


class CheckpointResponder(Protocol):
    """Where acknowledgements go."""

    def acknowledge(self, checkpoint_id: int, snapshot: SubtaskSnapshot, metrics: CheckpointMetrics) -> None:
        """The subtask's part is durable."""
        ...

    def decline(self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str) -> None:
        """The subtask can't take part."""
        ...


@dataclass(frozen=True, slots=True)
class SubtaskCheckpointStatistics:
    """Counters of a subtask's checkpoints.

    Attributes:
        taken: Checkpoints of which the synchronous half was done.
        acknowledged: Checkpoints that were acknowledged.
        declined: Checkpoints that were declined.
        running: Asynchronous halves that run now.
        remembered_aborts: Abort notices of checkpoints that have not come yet.
    """

    taken: int
    acknowledged: int
    declined: int
    running: int
    remembered_aborts: int


@dataclass(slots=True)
class _Running:
    task: SubtaskSnapshotTask
    metrics: CheckpointMetrics
    begun: float
    has_in_flight: bool
    work: Cancellable | None = None
    snapshot: SubtaskSnapshot | None = None


class SubtaskCheckpointCoordinator:
    """Takes the checkpoints of one subtask; driven by the task thread alone.

    Args:
        task: The subtask.
        responder: Where acknowledgements and refusals go.
        runner: Runs the asynchronous half; its callbacks come back in the task thread.
        clock: For durations.
        in_flight: For jobs whose checkpoints may be unaligned.
    """

    def __init__(
        self,
        task: CheckpointedTask,
        responder: CheckpointResponder,
        runner: AsyncRunner,
        clock: Clock,
        in_flight: InFlight | None = None,
    ) -> None:
        self._task = task
        self._responder = responder
        self._runner = runner
        self._clock = clock
        self._in_flight = in_flight
        self._last_id = -1
        self._aborted: OrderedDict[int, None] = OrderedDict()
        self._running: dict[int, _Running] = {}
        self._dealt_with: deque[int] = deque(maxlen=MAX_RECORDED_ABORTED)
        self._taken = self._acknowledged = self._declined = 0

    def checkpoint_state(
        self,
        barrier: CheckpointBarrier,
        start_delay: float = 0.0,
        alignment_duration: float = 0.0,
        *,
        is_input_empty: bool = False,
    ) -> bool:
        """Take a checkpoint; whether it was taken (not old, not aborted).

        Args:
            barrier: As it goes out.
            start_delay: Seconds from the trigger at the coordinator to the first barrier here.
            alignment_duration: Seconds from the first barrier to the last.
            is_input_empty: No barrier handler finishes the input part: nothing is in flight there.

        Raises:
            OperatorError: An operator failed.
        """
        checkpoint_id = barrier.checkpoint_id
        if checkpoint_id <= self._last_id:
            if checkpoint_id not in self._running:  # else it was asked for twice, and the first time counts
                self._give_up_in_flight(checkpoint_id)
            self._refuse_overtaken(checkpoint_id)
            return False
        self._last_id = checkpoint_id
        self._dealt_with.append(checkpoint_id)
        was_aborted = checkpoint_id in self._aborted
        self._forget_aborted()
        if was_aborted:
            self._give_up_in_flight(checkpoint_id)
            self._task.broadcast_event(CancelCheckpointMarker(checkpoint_id))
            return False
        begun = self._clock.monotonic()
        self._task.prepare_barrier(checkpoint_id)
        has_in_flight = self._send_barrier(barrier, is_input_empty=is_input_empty)
        snapshot = self._task.snapshot_state(barrier)
        now = self._clock.monotonic()
        self._taken += 1
        metrics = CheckpointMetrics(start_delay, alignment_duration, now - begun)
        self._finish_beside_the_task(_Running(snapshot, metrics, now, has_in_flight))
        return True

    def has_dealt_with(self, checkpoint_id: int) -> bool:
        """Whether this checkpoint was taken, refused or given up here."""
        return checkpoint_id in self._dealt_with

    def outputs_progressed(self) -> None:
        """Something may have left the outputs: aligned barriers that waited there, perhaps."""
        if self._in_flight is not None and self._in_flight.outputs.is_waiting:
            self._in_flight.outputs.barriers_may_have_left()

    def abort_on_barrier(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """The input gave a checkpoint up: decline it and let nobody downstream wait for it."""
        self._dealt_with.append(checkpoint_id)
        self._last_id = max(self._last_id, checkpoint_id)
        self._forget_aborted()
        self._give_up_running(checkpoint_id)
        self._decline(checkpoint_id, reason, "the alignment was given up")
        self._task.broadcast_event(CancelCheckpointMarker(checkpoint_id))

    def notify_aborted(self, checkpoint_id: int) -> None:
        """The job gave a checkpoint up: stop its asynchronous half, or remember not to take it."""
        if not self._give_up_running(checkpoint_id) and checkpoint_id > self._last_id:
            self._aborted[checkpoint_id] = None
            while len(self._aborted) > MAX_RECORDED_ABORTED:
                self._aborted.popitem(last=False)

    def close(self) -> None:
        """Give up everything that runs beside the task."""
        for checkpoint_id in tuple(self._running):
            self._give_up_running(checkpoint_id)
        if self._in_flight is not None:
            self._in_flight.outputs.close()
            self._in_flight.writer.close()

    def statistics(self) -> SubtaskCheckpointStatistics:
        """Counters."""
        return SubtaskCheckpointStatistics(
            self._taken, self._acknowledged, self._declined, len(self._running), len(self._aborted)
        )

    def _send_barrier(self, barrier: CheckpointBarrier, *, is_input_empty: bool) -> bool:
        """Send the barrier and capture what it passes; whether the checkpoint has in-flight data."""
        if self._in_flight is None:
            self._task.broadcast_event(barrier)
            return False
        has_in_flight = self._in_flight.outputs.begin(barrier)
        if barrier.options.unaligned:
            self._task.capture_input(barrier.checkpoint_id)
            if is_input_empty:
                self._in_flight.writer.finish_input(barrier.checkpoint_id)
        return has_in_flight

    def _finish_beside_the_task(self, running: _Running) -> None:
        checkpoint_id = running.task.checkpoint_id
        self._running[checkpoint_id] = running

        def written(snapshot: SubtaskSnapshot) -> None:
            if checkpoint_id not in self._running:
                return
            running.snapshot = snapshot
            if running.has_in_flight and self._in_flight is not None:
                # Asked for last, so nothing else can fail once the in-flight data has an owner.
                self._in_flight.writer.result(checkpoint_id, durable, failed)
            else:
                durable(None)

        def durable(channels: ChannelStateHandle | None) -> None:
            if self._running.pop(checkpoint_id, None) is not None:
                self._acknowledge(running, channels)

        def failed(error: BaseException) -> None:
            if self._give_up_running(checkpoint_id):
                reason = CheckpointFailureReason.CHECKPOINT_DECLINED
                self._decline(checkpoint_id, reason, f"{type(error).__name__}: {error}")

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
        """Stop what runs beside the task for a checkpoint and remove what it wrote; whether anything ran."""
        running = self._running.pop(checkpoint_id, None)
        self._give_up_in_flight(checkpoint_id)
        if running is None:
            return False
        must_remove = running.task.abandon()
        if running.work is not None:
            running.work.cancel()
        if must_remove:
            # Written, but the callback that says so has not come yet, and now never will.
            self._runner.run(running.task.remove, _nobody_waits, _nobody_waits)
        return True

    def _give_up_in_flight(self, checkpoint_id: int) -> None:
        if self._in_flight is not None:
            self._in_flight.outputs.abort(checkpoint_id)

    def _refuse_overtaken(self, checkpoint_id: int) -> None:
        if checkpoint_id in self._dealt_with:
            return
        self._dealt_with.append(checkpoint_id)
        detail = f"checkpoint {self._last_id} overtook it"
        self._decline(checkpoint_id, CheckpointFailureReason.CHECKPOINT_DECLINED_SUBSUMED, detail)

    def _forget_aborted(self) -> None:
        """Drop abort notices of checkpoints that can't come any more."""
        for known in [i for i in self._aborted if i <= self._last_id]:
            del self._aborted[known]


def _nobody_waits(_: object) -> None:
    """The outcome of a removal changes nothing."""
