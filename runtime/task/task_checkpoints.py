"""A subtask as its checkpoints see it.

Between the barrier handler, which says when, and the `SubtaskCheckpointCoordinator`, which knows the steps,
stands the subtask with its work, its outputs and its end. What the two ask of it is here: nobody else takes a
checkpoint.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection

from penstock.runtime.checkpoint.channel_state.output_capture import InFlight, OutputCapture
from penstock.runtime.checkpoint.subtask.operator_snapshot import SubtaskSnapshotTask
from penstock.runtime.checkpoint.subtask.ports import CheckpointResponder
from penstock.runtime.checkpoint.subtask.statistics import SubtaskCheckpointStatistics
from penstock.runtime.checkpoint.subtask.subtask_checkpoint_coordinator import SubtaskCheckpointCoordinator
from penstock.runtime.network.result_partition import Overtaken
from penstock.runtime.ports import AsyncRunner, Clock
from penstock.runtime.record.elements import CheckpointBarrier, Event, SnapshotKind
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.permit import permit_of_completed_checkpoint
from penstock.runtime.task.end_of_input import EndOfInput, Phase
from penstock.runtime.task.subtask_parts import SubtaskParts
from penstock.runtime.task.work_in_progress import WorkInProgress


class TaskCheckpoints:
    """Takes, commits and gives up the checkpoints of one subtask; driven by the task thread alone.

    It is the `CheckpointListener` of the input, the `CheckpointedTask` of the coordinator, and the outputs
    in which barriers overtake.

    Args:
        parts: Operators, input and outputs.
        work: What the subtask is in the middle of.
        end: Where it is in its life.
        responder: Where acknowledgements and refusals go.
        runner: Runs asynchronous halves.
        clock: Time.
    """

    def __init__(
        self,
        parts: SubtaskParts,
        work: WorkInProgress,
        end: EndOfInput,
        responder: CheckpointResponder,
        runner: AsyncRunner,
        clock: Clock,
    ) -> None:
        self._parts = parts
        self._work = work
        self._end = end
        self._outputs = parts.outputs
        self._asked: deque[CheckpointBarrier] = deque()
        self._completed_id = -1
        self._is_closed = False
        self._is_deferred = False
        writer = parts.channel_state
        in_flight = None if writer is None else InFlight(OutputCapture(self, writer, parts.timers), writer)
        self._coordinator = SubtaskCheckpointCoordinator(self, responder, runner, clock, in_flight)

    # -- what the job says ---------------------------------------------------------------------------------

    def ask_for(self, barrier: CheckpointBarrier) -> None:
        """The JobMaster asks for a checkpoint; `take_asked` takes it when it can be taken.

        A request that comes twice is one; the second may come late, behind that for a newer checkpoint.
        """
        if barrier not in self._asked and not self._coordinator.has_dealt_with(barrier.checkpoint_id):
            self._asked.append(barrier)

    @property
    def asked(self) -> Collection[CheckpointBarrier]:
        """Checkpoints that were asked for and not taken yet, oldest first."""
        return self._asked

    def take_asked(self) -> bool:
        """Take the oldest checkpoint that was asked for, unless it has to wait; whether one was dealt with.

        One that never overtakes anything waits until no batch is under way. Whoever has channels waits until
        they have ended: a barrier may still come, and if it does, nothing needs to be done here, not even
        when the request comes after it.
        """
        if self._is_deferred and self.is_ready() and self._parts.network is not None:
            self._parts.network.gate.trigger_if_due()
            return True
        self.forget_past()
        if not self._asked:
            return False
        network = self._parts.network
        if self._is_induced:
            return self._take_marked()
        if network is None:
            if not (self._work.is_idle or self._asked[0].options.may_overtake):
                return False
            if self._ends_first(self._asked[0]):
                return True
        elif not network.is_exhausted:
            return False
        if not self.is_ready():
            return False
        self._take(self._asked.popleft(), is_input_empty=True)
        return True

    def forget_past(self) -> None:
        """Forget requests for checkpoints that were taken or given up meanwhile."""
        for barrier in [b for b in self._asked if self._coordinator.has_dealt_with(b.checkpoint_id)]:
            self._asked.remove(barrier)

    @property
    def _is_induced(self) -> bool:
        """Whether the reader says when a checkpoint is taken: not when its data has ended."""
        source = self._parts.source
        return source is not None and source.is_externally_induced and self._end.phase is Phase.RUNNING

    def _take_marked(self) -> bool:
        """Take the checkpoint whose mark the reader has met, if it was asked for; whether one was taken."""
        source = self._parts.source
        assert source is not None, "only a source has marks"
        if source.mark is None or not self._work.is_idle:
            return False
        marked = next((b for b in self._asked if b.checkpoint_id == source.mark), None)
        if marked is None:
            if any(b.checkpoint_id > source.mark for b in self._asked):
                source.mark = None  # the mark of a checkpoint that is past
            return False
        if self._ends_first(marked):
            return True
        self._forget_asked(marked.checkpoint_id)
        self._take(marked, is_input_empty=True)
        return True

    def _ends_first(self, barrier: CheckpointBarrier) -> bool:
        """The job is being stopped: the end of the data comes first, so nothing follows the barrier."""
        if barrier.options.kind is not SnapshotKind.SYNC_SAVEPOINT or not self._end.is_running:
            return False
        self._work.then(self._end.finish(barrier.options.drain))
        return True

    def _forget_asked(self, checkpoint_id: int) -> None:
        """A checkpoint was taken or given up: its mark stops the reader no longer."""
        self._asked = deque(b for b in self._asked if b.checkpoint_id != checkpoint_id)
        source = self._parts.source
        if source is not None and source.mark == checkpoint_id:
            source.mark = None

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: commit what it covers.

        Raises:
            OperatorError: A commit failed.
        """
        if checkpoint_id > self._completed_id:
            self._completed_id = checkpoint_id
            self._coordinator.notify_checkpoint_complete(checkpoint_id, is_running=self._end.may_send)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was given up by the job.

        Raises:
            OperatorError: An operator failed.
        """
        if self._is_induced:
            self._forget_asked(checkpoint_id)
        self._coordinator.notify_checkpoint_aborted(checkpoint_id)

    # -- what the barrier handler says ---------------------------------------------------------------------

    def is_ready(self) -> bool:
        """Whether a checkpoint can be taken now: what has begun is brought to its end, unless that is far.

        A source can't give the rest of a batch back, so it works off the whole of it.

        Raises:
            OperatorError: An operator failed.
        """
        self._is_deferred = not self._work.settle(whole_batch=self._parts.network is None)
        return not self._is_deferred

    def trigger(self, barrier: CheckpointBarrier, start_delay: float, alignment_duration: float) -> None:
        """The input is aligned at this barrier, or the barrier does not wait for that."""
        self._take(barrier, start_delay, alignment_duration)

    def abort(self, checkpoint_id: int, reason: CheckpointFailureReason) -> None:
        """The input has given a checkpoint up."""
        self._coordinator.abort_on_barrier(checkpoint_id, reason)

    # -- what the coordinator asks for ---------------------------------------------------------------------

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Make sure that no operator is in the middle of a call; `is_ready` has been asked before.

        Raises:
            OperatorError: An operator failed.
        """
        is_settled = self._work.settle(whole_batch=self._parts.network is None)
        assert is_settled, f"checkpoint {checkpoint_id} is taken in the middle of a call"

    def broadcast_event(self, event: Event) -> None:
        """Put an event on all outputs in one step, unless their end is behind them."""
        if self._end.may_send:
            self._outputs.broadcast_event(event)

    def broadcast_barrier(self, barrier: CheckpointBarrier) -> list[Overtaken]:
        """Put a barrier on all outputs in one step, unless their end is behind them; what it overtook."""
        return self._outputs.broadcast_barrier(barrier) if self._end.may_send else []

    def is_barrier_waiting(self, checkpoint_id: int) -> bool:
        """Whether a barrier waits in an output and could overtake what is before it."""
        return self._outputs.is_barrier_waiting(checkpoint_id)

    def turn_unaligned(self, checkpoint_id: int) -> list[Overtaken]:
        """Let barriers that wait in the outputs overtake; gives what they have overtaken."""
        return self._outputs.turn_unaligned(checkpoint_id)

    def capture_input(self, checkpoint_id: int) -> None:
        """What has been taken and was not begun, and what waits in the channels, is in flight.

        Raises:
            OperatorError: A record that has been taken can't be encoded again.
        """
        self._parts.capture_input(checkpoint_id, self._work.rest())

    def snapshot_state(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half of a checkpoint.

        Raises:
            OperatorError: An operator failed.
        """
        # The end that a stop with savepoint brings about is not the end of the job's input.
        stops = barrier.options.kind is SnapshotKind.SYNC_SAVEPOINT
        return self._parts.snapshot(barrier, ended=self._end.has_emitted_all and not stops)

    @property
    def is_closed(self) -> bool:
        """Whether the subtask was closed."""
        return self._is_closed

    def tell_operators_complete(self, checkpoint_id: int) -> None:
        """Commit what a checkpoint covers, and leave if it covers the end.

        Raises:
            OperatorError: A commit failed.
        """
        if self._parts.source is not None:
            self._parts.source.notify_checkpoint_complete(checkpoint_id)
        attempt = self._parts.descriptor.attempt
        self._parts.chain.notify_checkpoint_complete(permit_of_completed_checkpoint(checkpoint_id, attempt))
        self._end.notify_checkpoint_complete(checkpoint_id)

    def confirm_state(self, checkpoint_id: int) -> None:
        """Later checkpoints may name the files of this one again."""
        for backend in self._parts.backends.values():
            backend.confirm(checkpoint_id)

    def tell_operators_aborted(self, checkpoint_id: int) -> None:
        """Tell operators that a checkpoint was given up.

        Raises:
            OperatorError: An operator failed.
        """
        self._parts.chain.notify_checkpoint_aborted(checkpoint_id)

    def forget_state(self, checkpoint_id: int) -> None:
        """Nothing to forget: only files of checkpoints that were confirmed are named again."""

    # -- the rest ------------------------------------------------------------------------------------------

    def outputs_progressed(self) -> None:
        """Something may have left the outputs."""
        self._coordinator.outputs_progressed()

    def statistics(self) -> SubtaskCheckpointStatistics:
        """Counters."""
        return self._coordinator.statistics()

    def close(self) -> None:
        """Give up everything that runs beside the task."""
        self._is_closed = True
        self._coordinator.close()

    def _take(
        self,
        barrier: CheckpointBarrier,
        start_delay: float = 0.0,
        alignment_duration: float = 0.0,
        *,
        is_input_empty: bool = False,
    ) -> None:
        taken = self._coordinator.checkpoint_state(
            barrier, start_delay, alignment_duration, is_input_empty=is_input_empty
        )
        if taken:
            self._end.checkpoint_taken(barrier.checkpoint_id)
