"""The end of a subtask.

The operators finish, and EndOfData goes downstream. No records follow, but transactions may still wait for
their commit. So the subtask waits until a checkpoint that began afterwards is complete, and all output is
committed. Then it *leaves*: it sends EndOfPartition. Without checkpoints it leaves at once. A leaving subtask
finishes when its receivers have consumed everything and all its senders have left.

The subtask does not wait for a receiver that has ended. A finished receiver is not started again, even if its
last answer was lost with its process. An unfinished one is restarted by the JobMaster together with this
subtask, even if this subtask has finished.

The operators of a chain end one after the other. If an operator waits for answers, each of these steps waits
until all answers have arrived. An operator that has ended must not end again after a restore. So no
checkpoint is taken between the first such end and EndOfData.

After the end of the data the operators emit nothing more. Processing-time timers that are still pending stay
in the snapshot.

When the job is stopped with a savepoint, the end of the data precedes the barrier. Events that coordinators
of operators sent before the savepoint are handled before the operators finish, and not at the barrier.
So an operator can still emit the results of an event.

A leaving subtask takes part in checkpoints but sends no barriers: nothing may follow EndOfPartition, which
receivers count as the barrier. A sender may need one more checkpoint before it can leave. Without
alignment, the sender may take a checkpoint before its end, and this subtask takes the same checkpoint after
the end.

A subtask that had ended when the restored checkpoint was taken emits no records again. Channels are new in
each attempt, so it sends the end of event time and of the data again, and leaves. Its sinks committed when
they were opened.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum

from penstock.runtime.operators.chain import OperatorChain, Work
from penstock.runtime.record.elements import END_OF_TIME, EndOfData, EndOfPartition, StreamStatus, Watermark
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.task.descriptor import SubtaskGateway
from penstock.runtime.task.outputs import SubtaskOutputs


class EventTime:
    """The event time of a subtask's operators; it never decreases, and no advance is repeated."""

    def __init__(self, chain: OperatorChain) -> None:
        self._chain = chain
        self._reached: Watermark | None = None

    def advance(self, watermark: Watermark | None, status: StreamStatus | None = None) -> Work:
        """Fire timers and windows up to a watermark and forward it; either argument may be `None`.

        The status `ACTIVE` goes before the watermark, `IDLE` after it.
        """
        if status is StreamStatus.ACTIVE:
            yield from self._chain.process_time(status)
        if watermark is not None and (self._reached is None or watermark > self._reached):
            self._reached = watermark
            yield from self._chain.process_time(watermark)
        if status is StreamStatus.IDLE:
            yield from self._chain.process_time(status)


class Phase(Enum):
    RUNNING = "running"
    ENDED = "waiting for a checkpoint that covers its end"
    LEAVING = "waiting for its receivers"
    FINISHED = "finished"


class EndOfInput:
    """Leads a subtask from the end of its input to its own end; see the module's docstring.

    Args:
        stop: Returns the id of the savepoint that stops the job; `None` when the data has ended by itself.
        deliver_before: Hands over the events that coordinators sent before a checkpoint.
    """

    def __init__(
        self,
        chain: OperatorChain,
        event_time: EventTime,
        outputs: SubtaskOutputs,
        gateway: SubtaskGateway,
        stop: Callable[[], int | None],
        deliver_before: Callable[[int], None],
        *,
        takes_checkpoints: bool,
    ) -> None:
        self._chain = chain
        self._event_time = event_time
        self._outputs = outputs
        self._gateway = gateway
        self._deliver_before = deliver_before
        self._takes_checkpoints = takes_checkpoints
        self._stop = stop
        self._first_checkpoint: int | None = None
        self._drained = False
        #: Whether operators are ending one by one; a checkpoint between two ends could not be restored.
        self.is_ending_operators = False
        self.phase = Phase.RUNNING

    @property
    def has_emitted_all(self) -> bool:
        """Whether the operators have reached the end of time and data; they then emit nothing more."""
        return self._drained

    @property
    def is_running(self) -> bool:
        return self.phase is Phase.RUNNING

    @property
    def is_leaving(self) -> bool:
        """Whether the subtask has sent EndOfPartition: all output is committed and nothing more is sent."""
        return self.phase in (Phase.LEAVING, Phase.FINISHED)

    def finish(self, drain: bool) -> Work:
        """Finish the operators and send the end of data, with all steps of `finish_in_steps` at once."""
        for work in self.finish_in_steps(drain):
            yield from work

    def finish_in_steps(self, drain: bool) -> Iterator[Work]:
        """Finish the operators one after the other, then send the end of data.

        With `drain`, event time advances to its end. Otherwise a savepoint stops the job, which may continue
        from the savepoint, so nothing may fire. The records of a step must have left before the next step
        begins.
        """
        savepoint_id = self._stop()
        if savepoint_id is not None:
            self._deliver_before(savepoint_id)
        if drain:
            yield self._event_time.advance(Watermark(END_OF_TIME))
            self.is_ending_operators = True
            yield from self._chain.end_in_steps()
            self.is_ending_operators = False
        else:
            # The savepoint's barrier follows the end of the data, after which nothing may be emitted.
            yield self._chain.prepare_snapshot_pre_barrier()
        self._outputs.broadcast_event(EndOfData(drain, savepoint_id))
        self.phase = Phase.ENDED
        self._drained = drain
        self._gateway.end_of_data()
        if not self._takes_checkpoints:
            self._leave()

    def finish_again(self, permit: CommitPermit | None) -> None:
        """Send the end of event time and data again, and leave.

        All subtasks of the attempt are open by now, so the checkpoint's output is committed and sinks may
        clean up.
        """
        if permit is not None:
            self._chain.notify_checkpoint_complete(permit)
        self._drained = True
        self._outputs.broadcast_event(Watermark(END_OF_TIME))
        self._outputs.broadcast_event(EndOfData(drain=True))
        self._leave()

    def checkpoint_taken(self, checkpoint_id: int) -> None:
        """Note that the state was taken; after the end, the subtask may leave with this checkpoint."""
        if self.phase is Phase.ENDED and self._first_checkpoint is None:
            self._first_checkpoint = checkpoint_id

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Leave if a checkpoint that is complete and committed covers the end."""
        first = self._first_checkpoint
        if self.phase is Phase.ENDED and first is not None and checkpoint_id >= first:
            self._leave()

    def try_to_finish(self, *, exhausted: bool) -> bool:
        """Finish if the subtask leaves and nothing is outstanding; return whether it finished."""
        if self.phase is Phase.LEAVING and exhausted and self._outputs.are_drained:
            self.phase = Phase.FINISHED
        return self.phase is Phase.FINISHED

    def _leave(self) -> None:
        self.phase = Phase.LEAVING
        self._outputs.broadcast_event(EndOfPartition())
