"""One subtask as a step function.

Who runs it calls `step()` again and again, in one thread, and hands in what happens outside through the other
methods, in the same thread. `step` does one piece of work of about ten milliseconds and says whether there is
more. The order within a step is the order of urgency: a batch that is under way, checkpoints that were asked
for, then one piece of input; and no input is taken while an output has no credit.

A checkpoint is taken only between batches, when no operator is in the middle of a call: nothing that has been
taken from a channel is then anywhere but in state or in an output. An aligned barrier is met exactly there,
because it stands between buffers; a source's trigger waits for that moment.

The end of the input: the operators finish, EndOfData goes downstream, and the subtask waits for a
checkpoint that began after that. Only when that checkpoint is complete, and everything it covers is
committed, EndOfPartition goes out and the subtask leaves, after every receiver has consumed what it was
sent. A job without checkpoints leaves at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason
from penstock.runtime.checkpoint.operator_snapshot import SubtaskSnapshotTask
from penstock.runtime.checkpoint.permit import permit_of_completed_checkpoint
from penstock.runtime.checkpoint.subtask_coordinator import SubtaskCheckpointCoordinator
from penstock.runtime.graph.execution_graph import OutputChannelSpec
from penstock.runtime.ports import AsyncRunner, Clock
from penstock.runtime.record.elements import (
    END_OF_TIME,
    Batch,
    CheckpointBarrier,
    EndOfData,
    EndOfPartition,
    Event,
    Watermark,
)
from penstock.runtime.task.gateway import SubtaskGateway
from penstock.runtime.task.slicing import BatchRemainder, SliceSizer
from penstock.runtime.task.statistics import SubtaskStatistics
from penstock.runtime.task.subtask_parts import SubtaskParts
from penstock.runtime.task.task_input import (
    BatchArrived,
    DataEnded,
    EventTimeAdvanced,
    InputProgress,
    Nothing,
    SideBatch,
)


class Phase(Enum):
    """Where a subtask is in its life."""

    RUNNING = "running"
    ENDED = "waiting for the checkpoint of its end"
    LEAVING = "waiting for its receivers"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class StepResult:
    """What one step left.

    Attributes:
        more: There is more to do right now.
        wake_at: Monotonic time at which to step again even if nothing happens; `None` for never.
        finished: The subtask has left; it is not stepped again.
    """

    more: bool
    wake_at: float | None = None
    finished: bool = False


_FINISHED = StepResult(more=False, finished=True)


class Subtask:
    """Runs one chain of operators; see the module's text.

    Args:
        parts: Operators, input and outputs, opened and restored (see `build_subtask`).
        gateway: What the subtask tells the world.
        runner: Runs asynchronous halves of checkpoints.
        clock: Time.
    """

    def __init__(
        self, parts: SubtaskParts, gateway: SubtaskGateway, runner: AsyncRunner, clock: Clock
    ) -> None:
        self._parts = parts
        self._chain = parts.chain
        self._input = parts.make_input()
        self._outputs = parts.outputs
        self._gateway = gateway
        self._clock = clock
        self._checkpoints = SubtaskCheckpointCoordinator(self, gateway, runner, clock)
        self._sizer = SliceSizer()
        self._work: Iterator[None] | None = None
        self._remainder: BatchRemainder | None = None
        self._after_batch: DataEnded | None = None
        self._triggers: deque[CheckpointBarrier] = deque()
        self._first_checkpoint_after_end: int | None = None
        self._completed_id = -1
        self._source_ready_at: float | None = None
        self._records_in = self._records_out = 0
        self._busy = self._backpressured = 0.0
        self._blocked_since: float | None = None
        self.phase = Phase.RUNNING
        if parts.network is not None:
            parts.network.gate.set_listener(self)

    # -- what happens outside ---------------------------------------------------------------------------

    def deliver(self, channel: int, first_sequence_number: int, elements: list[bytes]) -> None:
        """A frame arrived on an input channel."""
        network = self._parts.network
        if network is None:
            msg = f"{self._parts.location} has no input channels but was sent a frame on channel {channel}"
            raise ValueError(msg)
        network.gate.receive(channel, first_sequence_number, elements)
        self._report_consumed(channel)

    def frame_consumed(self, channel: OutputChannelSpec, first_sequence_number: int) -> None:
        """A receiver has consumed a frame that this subtask sent."""
        self._outputs.frame_consumed(channel, first_sequence_number)

    def trigger_checkpoint(self, barrier: CheckpointBarrier) -> None:
        """The JobMaster asks a source's subtask for a checkpoint; taken at the next batch boundary."""
        self._triggers.append(barrier)

    def notify_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: commit what it covers."""
        if self.phase in (Phase.LEAVING, Phase.FINISHED) or checkpoint_id <= self._completed_id:
            return
        self._completed_id = checkpoint_id
        for backend in self._parts.backends.values():
            backend.confirm(checkpoint_id)
        self._chain.checkpoint_completed(
            permit_of_completed_checkpoint(checkpoint_id, self._parts.descriptor.attempt)
        )
        first = self._first_checkpoint_after_end
        if self.phase is Phase.ENDED and first is not None and checkpoint_id >= first:
            self._leave()

    def notify_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was given up by the job."""
        self._checkpoints.notify_aborted(checkpoint_id)
        self._chain.checkpoint_aborted(checkpoint_id)

    def close(self) -> None:
        """Release everything; called once, in every case.

        Raises:
            OperatorError: An operator could not be closed; all others were.
        """
        self._checkpoints.close()
        self._work = None
        try:
            if self._parts.source is not None:
                self._parts.source.close()
        finally:
            self._chain.close()

    # -- the step -----------------------------------------------------------------------------------------

    def step(self) -> StepResult:
        """Do one piece of work.

        Raises:
            OperatorError: An operator failed.
            StreamCorruptError: The input breaks the protocol.
        """
        if self.phase is Phase.FINISHED:
            return _FINISHED
        begun = self._clock.monotonic()
        more = self._piece_of_work(begun)
        now = self._clock.monotonic()
        self._account(begun, now, worked=more)
        flush_at = self._outputs.flush_due(now)
        if self.phase is Phase.LEAVING and self._may_finish():
            self.phase = Phase.FINISHED
            return _FINISHED
        gap_at = None if self._parts.network is None else self._parts.network.gate.check_gaps(now)
        return StepResult(more, _earliest(flush_at, gap_at, None if more else self._source_ready_at))

    def _piece_of_work(self, begun: float) -> bool:
        if self._work is not None or self._remainder is not None:
            return self._outputs.are_available and self._go_on(begun)
        if self._triggers:
            self._checkpoint(self._triggers.popleft())
            return True
        if self.phase is not Phase.RUNNING and self._parts.network is None:
            return False
        if not self._outputs.are_available:
            return False
        return self._take(self._input.poll(self._sizer.rows), begun)

    def _take(self, progress: InputProgress, begun: float) -> bool:
        self._source_ready_at = None
        if self._parts.network is not None:
            for channel in self._parts.network.gate.take_progressed_channels():
                self._report_consumed(channel)
        if isinstance(progress, Nothing):
            self._source_ready_at = progress.ready_at
            return False
        if isinstance(progress, BatchArrived | DataEnded):
            self._emit_side(progress.side)
            if isinstance(progress, DataEnded):
                self._after_batch = progress
            self._begin_batch(progress.batch)
            return self._go_on(begun)
        if isinstance(progress, EventTimeAdvanced):
            self._work = self._advance_event_time(progress)
            return self._go_on(begun)
        return True

    def _begin_batch(self, batch: Batch | None) -> None:
        if batch is not None and len(batch):
            self._records_in += len(batch)
            self._remainder = BatchRemainder(batch)

    def _go_on(self, begun: float) -> bool:
        while True:
            if self._work is None:
                if self._remainder is None:
                    return self._end_of_batch()
                self._work = self._process_slice(self._remainder.take(self._sizer.rows))
                if self._remainder.is_empty:
                    self._remainder = None
            for _ in self._work:
                if not self._outputs.are_available:
                    return True
                if self._clock.monotonic() - begun > 0.01:
                    return True
            self._work = None
            if self._clock.monotonic() - begun > 0.01 and self._remainder is not None:
                return True

    def _process_slice(self, batch: Batch) -> Iterator[None]:
        begun = self._clock.monotonic()
        suspended = 0.0
        for _ in self._chain.process(batch):
            paused = self._clock.monotonic()
            yield
            suspended += self._clock.monotonic() - paused
        self._sizer.observe(len(batch), self._clock.monotonic() - begun - suspended)

    def _end_of_batch(self) -> bool:
        if self._after_batch is not None:
            ended, self._after_batch = self._after_batch, None
            self._work = self._end_data(ended.drain)
        return True

    def _advance_event_time(self, advanced: EventTimeAdvanced) -> Iterator[None]:
        if advanced.watermark is not None:
            yield from self._chain.process_watermark(advanced.watermark)
            self._outputs.broadcast_event(advanced.watermark)
        if advanced.status is not None:
            self._outputs.broadcast_event(advanced.status)

    # -- the end ------------------------------------------------------------------------------------------

    def _end_data(self, drain: bool) -> Iterator[None]:
        if drain:
            end_of_time = Watermark(END_OF_TIME)
            yield from self._chain.process_watermark(end_of_time)
            self._outputs.broadcast_event(end_of_time)
        yield from self._chain.end_of_data()
        self._outputs.broadcast_event(EndOfData(drain))
        self.phase = Phase.ENDED
        self._gateway.end_of_data()
        if not self._parts.takes_checkpoints:
            self._leave()

    def _leave(self) -> None:
        self.phase = Phase.LEAVING
        self._outputs.broadcast_event(EndOfPartition())

    def _may_finish(self) -> bool:
        return self._work is None and self._outputs.are_drained and self._input.is_exhausted

    # -- checkpoints --------------------------------------------------------------------------------------

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        """The input is aligned at this barrier (called by the barrier handler)."""
        self._checkpoint(barrier, start_delay, alignment_duration)

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """The input has given a checkpoint up (called by the barrier handler)."""
        self._checkpoints.abort_on_barrier(checkpoint_id, reason)

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Nothing of an operator waits in front of a barrier: batches are worked off before it."""

    def broadcast_event(self, event: Event) -> None:
        """Put an event on all outputs in one step."""
        self._outputs.broadcast_event(event)

    def snapshot_state(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half of a checkpoint."""
        return self._parts.snapshot(barrier)

    def _checkpoint(
        self, barrier: CheckpointBarrier, start_delay: float = 0.0, alignment_duration: float = 0.0
    ) -> None:
        if self.phase in (Phase.LEAVING, Phase.FINISHED):
            return
        taken = self._checkpoints.checkpoint_state(barrier, start_delay, alignment_duration)
        if taken and self.phase is Phase.ENDED and self._first_checkpoint_after_end is None:
            self._first_checkpoint_after_end = barrier.checkpoint_id

    # -- accounts -----------------------------------------------------------------------------------------

    def statistics(self) -> SubtaskStatistics:
        """Counters of this subtask."""
        sent = [s for edge in self._outputs.statistics() for s in edge]
        return SubtaskStatistics(
            records_in=self._records_in,
            records_out=self._outputs.records,
            bytes_out=sum(s.bytes for s in sent),
            buffers_out=sum(s.buffers for s in sent),
            busy_seconds=self._busy,
            backpressured_seconds=self._backpressured,
            slice_overruns=self._sizer.statistics().overruns,
            pickled_values=self._parts.pickled_values,
            operators=self._parts.operator_statistics(),
            checkpoints=self._checkpoints.statistics(),
        )

    def _emit_side(self, side: SideBatch | None) -> None:
        if side is not None:
            self._outputs.emit(self._parts.head_operator, side.tag, side.batch)

    def _report_consumed(self, channel: int) -> None:
        network = self._parts.network
        if network is not None:
            self._gateway.consumed(channel, network.gate.consumed(channel))

    def _account(self, begun: float, now: float, *, worked: bool) -> None:
        if worked:
            self._busy += now - begun
        if self._blocked_since is not None:
            self._backpressured += begun - self._blocked_since
            self._blocked_since = None
        if not self._outputs.are_available:
            self._blocked_since = now


def _earliest(*times: float | None) -> float | None:
    known = [t for t in times if t is not None]
    return min(known) if known else None
