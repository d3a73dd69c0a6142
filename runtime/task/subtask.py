"""A subtask as a step function.

A driver calls `step()` repeatedly in one thread, and delivers external events through the other methods in
the same thread. `step` does one piece of work of about ten milliseconds and returns whether there is more.
Within a step the most urgent work comes first: timers, checkpoints that are due, a batch in progress, then
one piece of input. No input is taken while an output has no credit.

A checkpoint is taken only when no operator is in the middle of a call. Everything that was taken from a
channel is then in state, in an output, or in the rest of a batch. An aligned barrier always comes at such a
moment, because it stands between buffers. A source's trigger waits for such a moment. An unaligned barrier
comes between any two steps, with a delivery or a timer. It does not wait for credits
(`WorkInProgress.settle`), so a subtask with blocked outputs still handles it. It waits only for a call that
emits very many records.

`subtask_checkpoints` describes the path of a barrier, and `end_of_input` describes the end of a subtask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from penstock.runtime.barrier.handler import BarrierHandlerStatistics
from penstock.runtime.checkpoint.subtask_checkpoint_coordinator import SubtaskCheckpointCoordinator
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.graph.job_graph import DEAD_LETTERS
from penstock.runtime.operators.chain import Work
from penstock.runtime.operators.coordinator_host import EventOfCoordinator
from penstock.runtime.operators.source_watermarks import TimeChange, WatermarksAligned
from penstock.runtime.operators.user_code.failure import close_all
from penstock.runtime.ports import AsyncRunner, Clock
from penstock.runtime.record.element_codec import EncodedElement
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind, StreamStatus
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.runtime.task.descriptor import (
    EventForOperator,
    NotifyAborted,
    NotifyComplete,
    SubtaskControl,
    SubtaskGateway,
    TriggerCheckpoint,
)
from penstock.runtime.task.end_of_input import EndOfInput, EventTime, Phase
from penstock.runtime.task.output_samples import OutputEdge, OutputSample
from penstock.runtime.task.statistics import SubtaskStatistics
from penstock.runtime.task.subtask_checkpoints import (
    CoordinatorMail,
    RequestedCheckpoints,
    SubtaskParts,
    SubtaskState,
)
from penstock.runtime.task.task_input import NOTHING, BatchArrived, DataEnded, InputProgress, Nothing
from penstock.runtime.task.task_time import InputTime, TimeAccount
from penstock.runtime.task.work_in_progress import WorkInProgress
from penstock.runtime.time.durations import as_seconds

#: Seconds until the next poll of a source that has no data and returns no `ready_at`.
_SOURCE_PAUSE: Final = 0.05


@dataclass(frozen=True, slots=True)
class StepResult:
    """The state after one step.

    Attributes:
        wake_at: Monotonic time at which to step again even if nothing happens; `None` for never.
        finished: Whether the subtask has finished; it is not stepped again.
    """

    more: bool
    wake_at: float | None = None
    finished: bool = False


_FINISHED: Final = StepResult(more=False, finished=True)
_MORE: Final = StepResult(more=True)


class Subtask:
    """Runs one chain of operators; see the module's docstring."""

    def __init__(
        self, parts: SubtaskParts, gateway: SubtaskGateway, runner: AsyncRunner, clock: Clock
    ) -> None:
        self._parts = parts
        self._chain = parts.chain
        self._input = parts.input
        self._source = source = parts.source
        self._network = network = parts.network
        self._outputs = parts.outputs
        self._timers = parts.timers
        descriptor = parts.descriptor
        self._head_operator = descriptor.operators[0].id
        self._location = descriptor.locations[0]
        self._finished_before = descriptor.finished_before
        self._gateway = gateway
        self._clock = clock
        self._work = WorkInProgress(
            parts.chain,
            parts.outputs,
            clock,
            as_seconds(descriptor.config.advanced.slice_duration),
            whole_batches=network is None,
        )
        self._event_time = EventTime(parts.chain)
        self._input_time = InputTime()
        self._input_seconds = 0.0
        self._coordinator_mail = mail = CoordinatorMail(self._handle_event, parts.values)
        self._end = EndOfInput(
            parts.chain,
            self._event_time,
            parts.outputs,
            gateway,
            self._stop,
            mail.deliver_before,
            takes_checkpoints=descriptor.config.checkpointing is not None,
        )
        self._state = SubtaskState(parts, self._work, self._end, mail)
        self._checkpoints = SubtaskCheckpointCoordinator(
            self._state, parts.outputs, gateway, runner, clock, parts.in_flight
        )
        self._requests = RequestedCheckpoints(
            self._checkpoints, self._work, self._end, source, network, descriptor.assigned_id
        )
        self._attempt = descriptor.attempt
        self._source_ready_at: float | None = None
        #: Steps of the end of the data; each waits until the results of late answers have been emitted.
        self._ending: Iterator[Work] | None = None
        self._has_begun = False
        self._completed_id = -1
        self._last_event = 0
        self._records_in = 0
        self._time = TimeAccount()
        if network is not None:
            network.gate.set_listener(self._checkpoints, self._work.settle)

    @property
    def phase(self) -> Phase:
        return self._end.phase

    @property
    def stored_bytes(self) -> int:
        return self._state.stored.stored

    @property
    def blocked(self) -> int:
        network = self._network
        return 0 if network is None else network.gate.handler.blocked

    @property
    def barriers(self) -> BarrierHandlerStatistics | None:
        network = self._network
        return None if network is None else network.gate.handler.statistics()

    # -- external events ---------------------------------------------------------------------------------

    def deliver(self, channel: int, first_sequence_number: int, elements: Sequence[EncodedElement]) -> None:
        """Take a frame that arrived on an input channel; an unaligned checkpoint may begin with it.

        An unaligned barrier in the frame takes effect at once, and this subtask forwards it. So the driver
        keeps early frames until it knows the receivers.

        Raises:
            StreamCorruptError: The frame breaks the protocol.
            ValueError: The subtask has no input channels.
        """
        network = self._network
        if network is None:
            msg = f"{self._location} has no input channels but was sent a frame on channel {channel}"
            raise ValueError(msg)
        network.gate.receive(channel, first_sequence_number, elements)
        self._report_consumed(channel)

    def frame_consumed(self, channel: OutputChannelSpec, first_sequence_number: int) -> None:
        self._outputs.frame_consumed(channel, first_sequence_number, self._clock.monotonic())

    def receiver_gone(self, channel: OutputChannelSpec) -> None:
        """Note that a channel's receiver has ended; a subtask that leaves does not wait for it."""
        self._outputs.receiver_gone(channel)

    def control(self, message: SubtaskControl) -> None:
        """Carry out a message of the JobMaster.

        A message may arrive twice, because a call whose connection broke is repeated. Triggers and
        notifications are idempotent. An event that is not newer than the last one is dropped.

        Raises:
            ValueError: An event does not come from a coordinator, or its operator is not in this subtask.
        """
        match message:
            case TriggerCheckpoint(barrier):
                self.trigger_checkpoint(barrier)
            case EventForOperator(operator_id, number, event):
                if number > self._last_event:
                    self._last_event = number
                    self.operator_event(operator_id, event)
            case NotifyComplete(checkpoint_id):
                self.notify_checkpoint_complete(checkpoint_id)
            case NotifyAborted(checkpoint_id):
                self.notify_checkpoint_aborted(checkpoint_id)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """Add the JobMaster's request; a later step takes the checkpoint, between two batches.

        Only for subtasks that may receive no barrier: sources, and subtasks whose data has ended or whose
        senders have left.
        """
        self._requests.add(barrier)

    def operator_event(self, operator_id: str, event: Any) -> None:
        if isinstance(event, EventOfCoordinator):
            self._coordinator_mail.receive(operator_id, event)
            self._deliver_due()
            return
        if isinstance(event, WatermarksAligned):
            if self._source is not None and self._end.is_running:
                self._source.aligned(event)
            return
        msg = (
            f"{self._location} was sent {event!r:.80} for {operator_id!r}, "
            "which is not an event of a coordinator"
        )
        raise ValueError(msg)

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit the output that a completed checkpoint covers, and leave if it covers the end.

        A notice that is not newer than the last one does nothing.
        """
        if checkpoint_id <= self._completed_id:
            return
        self._completed_id = checkpoint_id
        if not self._end.is_leaving:
            permit = permit_of_completed_checkpoint(checkpoint_id, self._attempt)
            self._chain.notify_checkpoint_complete(permit)
        for backend in self._parts.backends.values():
            backend.confirm(checkpoint_id)
        self._end.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._requests.forget_aborted(checkpoint_id)
        self._checkpoints.notify_checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Release everything; called once, in every case. Raises the first failure, with notes of others."""
        close_all(self._checkpoints.close, self._work.close, self._state.close)

    # -- the step -----------------------------------------------------------------------------------------

    @property
    def is_taking_checkpoint(self) -> bool:
        """Whether a checkpoint is being written in another thread."""
        return self._checkpoints.is_running

    def step(self) -> StepResult:
        if self._end.phase is Phase.FINISHED:
            return _FINISHED
        begun = self._time.begun = self._clock.monotonic()
        self._input_seconds = self._input_time.begin(begun)
        self._source_ready_at = None
        if not self._has_begun:
            self._has_begun = True
            self._outputs.flush()  # in-flight data of the restored checkpoint
        self._timers.fire(begun)
        more = self._piece_of_work(begun)
        now = self._clock.monotonic()
        flush_at = self._outputs.flush_due(now)
        self._checkpoints.outputs_progressed()
        if self._coordinator_mail.waiting and self._deliver_due():
            more = True
        available = self._outputs.are_available
        self._time.step(begun=begun, now=now, worked=more, available=available)
        self._input_time.end(now, available=available)
        if self._end.try_to_finish(exhausted=self._input.is_exhausted):
            return _FINISHED
        gap_at = None if self._network is None else self._network.gate.check_gaps(now)
        # Without credits an operator can't emit, so the subtask waits for a credit.
        kept_at = self._flush_at if available else None
        tick_at = self._tick_at(now) if available else None
        wake_at = _earliest(flush_at, gap_at, kept_at, tick_at, self._source_ready_at, self._timers.next_at)
        if more and wake_at is None:
            return _MORE
        return StepResult(more, wake_at)

    def _piece_of_work(self, begun: float) -> bool:
        if self._take_awaited() or self._take_requested():
            return True
        if not self._work.is_idle:
            if not self._outputs.are_available:
                return False
            if self._work.is_held:
                return self._flush(begun)
            self._work.run(begun)
            return True
        if self._finished_before and self._end.phase is Phase.RUNNING:
            self._end.finish_again(self._parts.descriptor.restored_permit)
        if self._network is None and self._end.phase is not Phase.RUNNING:
            return False
        if not self._outputs.are_available:
            return False
        if self._flush(begun) or self._end_when_drained(begun):
            return True
        has_to_wait = self._ending is not None or (self._network is None and self._chain.room == 0)
        return self._take(NOTHING if has_to_wait else self._input.poll(self._work.slice_rows), begun)

    def _flush(self, begun: float) -> bool:
        """Let operators emit the records that they hold, if these are due; return whether they were due."""
        kept_at = self._flush_at
        if kept_at is None or kept_at > begun:
            return False
        self._work.first(self._chain.flush(begun))
        self._work.run(begun)
        return True

    def _end_data(self, ended: DataEnded) -> None:
        """Finish the operators after the current batch; with a drain, answers are awaited after each step.

        Meanwhile no input is taken: the barrier of a savepoint that stops the job may be next, and must
        follow the end of the data.
        """
        if self._chain.waits_for_answers and ended.drain:
            steps = self._ending = self._end.finish_in_steps(ended.drain)
            self._work.then(None for first in islice(steps, 1) for _ in first)
        else:
            self._work.then(self._end.finish(ended.drain))

    def _end_when_drained(self, begun: float) -> bool:
        if self._ending is None or not self._chain.is_drained:
            return False
        step = next(self._ending, None)
        self._work.takes_checkpoints = not self._end.is_ending_operators
        if step is None:
            self._ending = None
        else:
            self._work.then(step)
            self._work.run(begun)
        return True

    def _handle_event(self, operator_id: str, event: Any) -> None:
        """Hand an event over; the operators of a subtask that had finished before do not run again."""
        if not self._finished_before:
            self._chain.handle_event(operator_id, event)

    def _deliver_due(self) -> bool:
        """Deliver coordinators' events that wait for no checkpoint; return whether there were any."""
        return self._work.is_between_calls and self._coordinator_mail.deliver_due(self._checkpoints.is_past)

    def _stop(self) -> int | None:
        """Return the id of the savepoint that stops the job, if any; all earlier checkpoints have ended."""
        if self._network is not None:
            return self._network.savepoint_id
        oldest = next(iter(self._requests.waiting), None)
        is_stop = oldest is not None and oldest.options.kind is SnapshotKind.SYNC_SAVEPOINT
        return oldest.checkpoint_id if oldest is not None and is_stop else None

    def _take_awaited(self) -> bool:
        """Let the input trigger a checkpoint that waited for work; return whether the work has ended."""
        network = self._network
        if network is None or not self._work.is_awaited or not self._work.settle():
            return False
        network.gate.trigger_if_due()
        return True

    def _take_requested(self) -> bool:
        if self._source is None and not self._requests.waiting:
            return False  # only a source has marks
        barrier = self._requests.due()
        if barrier is None:
            return False
        stops = barrier.options.kind is SnapshotKind.SYNC_SAVEPOINT
        if stops and self._ending is not None:
            return False
        if stops and self._network is None and self._end.is_running:
            self._end_data(DataEnded(barrier.options.drain))
            return True
        if not self._work.settle():
            return False
        self._requests.remove(barrier.checkpoint_id)
        self._checkpoints.trigger(barrier, is_input_empty=True)
        return True

    def _take(self, progress: InputProgress, begun: float) -> bool:
        """Handle the input's progress; checkpoints that came with it were taken before."""
        if self._network is not None:
            for channel in self._network.gate.take_progressed_channels():
                self._report_consumed(channel)
        if isinstance(progress, BatchArrived):
            self._begin(progress)
        elif isinstance(progress, DataEnded):
            self._end_data(progress)
        elif isinstance(progress, TimeChange):
            self._work.then(self._event_time.advance(progress.watermark, progress.status))
        elif isinstance(progress, Nothing):
            if self._source is not None:
                pause = begun + _SOURCE_PAUSE
                self._source_ready_at = pause if progress.ready_at is None else progress.ready_at
            if not self._is_tick_due:
                return False
            self._work.then(self._time_passes())
        self._work.run(begun)
        return True

    @property
    def _flush_at(self) -> float | None:
        """Time at which an operator wants to emit held records; `None` after the end of the data."""
        at = self._chain.flush_at
        return at if at is not None and self._end.is_running else None

    @property
    def _is_tick_due(self) -> bool:
        at = self._tick_seconds
        return at is not None and at <= self._input_seconds

    @property
    def _tick_seconds(self) -> float | None:
        """The next time at which the source or an operator wants a tick, in seconds of the input time."""
        source = self._source
        at = self._chain.tick_at
        if source is not None:
            at = _earliest(source.tick_at, at)
        return at if at is not None and self._end.is_running else None

    def _tick_at(self, now: float) -> float | None:
        at = self._tick_seconds
        return None if at is None else self._input_time.monotonic_at(at, now)

    def _time_passes(self, then: TimeChange | None = None) -> Work:
        """Advance event time to `then`, if given, and tick the source and the operators."""
        if then is not None:
            yield from self._event_time.advance(then.watermark, then.status)
        source = self._source
        if source is not None:
            change = source.tick(self._input_seconds)
            yield from self._event_time.advance(change.watermark, change.status)
        yield from self._chain.tick(self._input_seconds)

    def _begin(self, progress: BatchArrived) -> None:
        if progress.dead_letters is not None:
            self._outputs.emit(self._head_operator, DEAD_LETTERS, progress.dead_letters)
        if progress.is_active_again:
            for _ in self._event_time.advance(None, StreamStatus.ACTIVE):
                pass  # operators emit nothing for it, and it must precede the records
        if progress.batch is not None:
            self._records_in += len(progress.batch)
            self._work.begin_batch(progress.batch, progress.input_index)
        then = progress.then
        if isinstance(then, DataEnded):
            self._end_data(then)
        elif then is not None or self._is_tick_due:
            self._work.then(self._time_passes(then), is_of_batch=then is not None)

    def sample_output(self, edge: OutputEdge, sample: OutputSample) -> Callable[[], None]:
        """Let a sample see the next records of an edge; return the function that ends it."""
        return self._outputs.sample(edge, sample)

    # -- statistics ---------------------------------------------------------------------------------------

    def statistics(self) -> SubtaskStatistics:
        """Counters of this subtask; callable from any thread."""
        edges = self._outputs.statistics()
        sent = [channel for edge in edges for channel in edge]
        network = self._network
        parts = self._parts
        now = self._clock.monotonic()
        busy, backpressured = self._time.until(now)
        return SubtaskStatistics(
            records_in=self._records_in,
            records_out=self._outputs.records,
            bytes_out=sum(channel.bytes for channel in sent),
            buffers_out=sum(channel.buffers for channel in sent),
            busy_seconds=busy,
            backpressured_seconds=backpressured,
            slice_overruns=self._work.slice_overruns,
            pickled_values=parts.values.pickled + parts.batches.pickled,
            reordered_elements=0 if network is None else network.gate.gate.reordered_elements,
            operators=self._chain.statistics(),
            checkpoints=self._checkpoints.statistics(),
            barriers=self.barriers,
            stored=None if network is None else network.gate.storage_statistics(),
            current_watermark=self._outputs.watermark,
            is_idle=self._outputs.is_idle,
            is_paused=self._source is not None and self._source.is_paused,
            bytes_in=0 if network is None else network.gate.gate.received_bytes,
            at=now,
            outputs=self._outputs.fills(edges),
        )

    def _report_consumed(self, channel: int) -> None:
        network = self._network
        if network is not None:
            self._gateway.consumed(channel, network.gate.consumed(channel))


def _earliest(*times: float | None) -> float | None:
    earliest = None
    for time in times:
        if time is not None and (earliest is None or time < earliest):
            earliest = time
    return earliest
