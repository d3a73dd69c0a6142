"""Checkpoints in a subtask: the requests of the JobMaster, and the state that a checkpoint takes.

**The path of a barrier.** Calls go in one direction; no step calls an earlier step.

1. `CheckpointedInputGate` takes a barrier out of a channel and passes it to the barrier handler.
2. The `CheckpointBarrierHandler` waits for all barriers if they are aligned, else for the first one. It keeps
   the blocked channels and the missing barriers. It asks `WorkInProgress.settle` whether the task can take a
   checkpoint, then notifies step 3. For a request of the JobMaster, `Subtask` makes both calls.
3. `SubtaskCheckpointCoordinator` decides whether the checkpoint is taken, and takes it step by step. It keeps
   the handled checkpoints, and those that are being written.
4. `BarrierSender` sends the barrier through `SubtaskOutputs` and captures what it overtakes. `SubtaskState`
   provides the rest of a batch and the state of the operators. Other threads write all of this.
5. `CheckpointResponder` receives the acknowledgement when state and in-flight data are durable, or a refusal.

The handler itself captures the data in the input channels, after step 3 has returned. So the rest of a batch,
which step 4 captures, precedes that data in its channel. An abort comes from the JobMaster and goes to step
3. A completion goes directly to the operators, because no step of that checkpoint is in progress any more.

**Requests** go only to subtasks that may receive no barrier: sources, and subtasks whose data has ended or
whose senders have all left. A request waits here until its checkpoint can be taken:

* A source takes the checkpoint between two batches. If the barrier may overtake, the subtask processes the
  rest of the batch at once, and does not wait for credits.
* A source whose reader decides the moment of a checkpoint (by a *mark* in its data) waits for that mark. At
  the mark of an aborted checkpoint, a reader stops until the notice of the abort has arrived. The mark of a
  checkpoint that has ended, or is from before a restart, stops no reader. A reader reads up to an awaited
  mark, even if it is far ahead of its alignment group.
* A subtask with channels waits until they have ended. If the barrier comes after all, the request is dropped.
* A stop with a savepoint waits for the end of the data, so that nothing follows the barrier.

**State.** An unfinished call of an operator is in no snapshot. So work is finished before the barrier goes
out (`prepare_barrier`), and pending slices become in-flight data (`capture_rest`).

**Events** between a subtask's operators and their coordinators keep their order relative to its checkpoints.
A coordinator takes its part of a checkpoint before the barrier reaches the subtask. An event that it sends
afterwards names the checkpoint that it follows. The event waits here until the subtask has taken its part of
that checkpoint, or will never take it. Right before the subtask takes its part of a newer checkpoint, it
handles all older events, because the coordinator sent them before that checkpoint.

Events are delivered while no operator is in the middle of a call. Their order also holds for a source, which
takes a checkpoint at the next batch boundary, not at the request.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from penstock.runtime.checkpoint.channel_state_writer import InFlight
from penstock.runtime.checkpoint.operator_snapshot import (
    OperatorSnapshot,
    SubtaskSnapshotTask,
    encode_list_states,
)
from penstock.runtime.checkpoint.subtask_checkpoint_coordinator import (
    MAX_RECORDED_ABORTED,
    SubtaskCheckpointCoordinator,
)
from penstock.runtime.errors import CodecError
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.coordinator_host import EventOfCoordinator, EventOfSubtask
from penstock.runtime.operators.operator import SavedList
from penstock.runtime.operators.source_operator import SourceOperator
from penstock.runtime.operators.user_code.failure import close_all, error_at
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import NOTHING_STORED, StoredBytes
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.end_of_input import EndOfInput
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.task_input import NetworkInput, TaskInput
from penstock.runtime.task.task_time import TaskTimers
from penstock.runtime.task.work_in_progress import WorkInProgress


class SentEvents:
    def __init__(self, send: Callable[[str, Any], None], codec: ValueCodec) -> None:
        self._send = send
        self._codec = codec
        self._sent: dict[str, int] = {}

    def sender_of(self, operator_id: str, *, is_counted: bool = True) -> Callable[[Any], None]:
        """Return the function that sends an operator's events.

        Checkpoints don't hold events sent without `is_counted`: a restored reader sends its requests again.
        """
        sent = 0
        if is_counted:
            self._sent[operator_id] = 0

        def send(event: Any) -> None:
            nonlocal sent
            try:
                data = self._codec.dumps(event)
            except CodecError as error:
                msg = f"an event can't be sent to the coordinator: {error}"
                raise CodecError(msg) from error
            sent += 1
            if is_counted:
                self._sent[operator_id] = sent
            self._send(operator_id, EventOfSubtask(sent, data))

        return send

    @property
    def counts(self) -> Mapping[str, int]:
        """Number of sent events that checkpoints hold, by operator id."""
        return dict(self._sent)


class CoordinatorMail:
    """Holds events of coordinators until their turn; driven by the task thread alone.

    Attributes:
        waiting: Events whose turn has not come, by operator id; no entry is empty.
    """

    def __init__(self, deliver: Callable[[str, Any], None], codec: ValueCodec) -> None:
        self._deliver = deliver
        self._codec = codec
        self.waiting: dict[str, deque[EventOfCoordinator]] = {}

    def receive(self, operator_id: str, event: EventOfCoordinator) -> None:
        self.waiting.setdefault(operator_id, deque()).append(event)

    def deliver_due(self, is_past: Callable[[int], bool]) -> bool:
        """Deliver events that wait for no checkpoint; return whether there were any.

        `is_past` returns whether this subtask has taken a checkpoint, or will never take it.
        """
        return self._deliver_where(lambda event: event.after < 0 or is_past(event.after))

    def deliver_before(self, checkpoint_id: int) -> None:
        """Deliver the events that were sent before a checkpoint, just before it is taken."""
        self._deliver_where(lambda event: event.after < checkpoint_id)

    def close(self) -> None:
        self.waiting.clear()

    def _deliver_where(self, is_due: Callable[[EventOfCoordinator], bool]) -> bool:
        found = False
        for operator_id, events in list(self.waiting.items()):
            while events and is_due(events[0]):
                found = True
                self._deliver(operator_id, self._decoded(operator_id, events.popleft()))
            if not events:
                self.waiting.pop(operator_id, None)
        return found

    def _decoded(self, operator_id: str, event: EventOfCoordinator) -> Any:
        try:
            return self._codec.loads(event.data)
        except CodecError as error:
            msg = (
                f"an event of the coordinator of operator {operator_id!r} can't be read: {error}. Send plain "
                "values, or objects of classes that every node can import"
            )
            raise CodecError(msg) from error


class RequestedCheckpoints:
    """Requests that have not been handled yet; driven by the task thread alone."""

    def __init__(
        self,
        checkpoints: SubtaskCheckpointCoordinator,
        work: WorkInProgress,
        end: EndOfInput,
        source: SourceOperator | None,
        network: NetworkInput | None,
        assigned_id: int = -1,
    ) -> None:
        self._checkpoints = checkpoints
        self._assigned_id = assigned_id
        self._work = work
        self._end = end
        self._source = source
        self._network = network
        self._waiting: deque[CheckpointBarrier] = deque()
        #: Aborted checkpoints whose marks may still come.
        self._aborted: deque[int] = deque(maxlen=MAX_RECORDED_ABORTED)

    @property
    def waiting(self) -> Sequence[CheckpointBarrier]:
        """Requests that have not been handled yet, oldest first; always the same object."""
        return self._waiting

    def add(self, barrier: CheckpointBarrier) -> None:
        """Add a request of the JobMaster.

        A repeated request counts once. It may arrive late, after the request for a newer checkpoint.
        """
        checkpoint_id = barrier.checkpoint_id
        is_past = checkpoint_id in self._aborted or self._checkpoints.has_dealt_with(checkpoint_id)
        if barrier not in self._waiting and not is_past:
            self._waiting.append(barrier)

    def forget_aborted(self, checkpoint_id: int) -> None:
        """Forget an aborted checkpoint, so that a reader that waits at its mark continues.

        Other subtasks keep the request: handling it sends the cancellation downstream.
        """
        if self._is_induced:
            self._aborted.append(checkpoint_id)
            self.remove(checkpoint_id)

    def due(self) -> CheckpointBarrier | None:
        """Return the oldest request whose checkpoint can be taken now; `remove` it afterwards."""
        for barrier in [b for b in self._waiting if self._checkpoints.has_dealt_with(b.checkpoint_id)]:
            self._waiting.remove(barrier)
        self._clear_past_mark()
        is_induced = self._is_induced
        if self._source is not None:
            self._source.await_mark(is_awaited=is_induced and bool(self._waiting))
        if not self._waiting:
            return None
        if is_induced:
            return self._marked()
        oldest = self._waiting[0]
        if self._network is None:
            return oldest if self._work.is_idle or oldest.options.may_overtake else None
        return oldest if self._network.is_exhausted else None

    def remove(self, checkpoint_id: int) -> None:
        """Drop the request of a checkpoint, and its mark, so that the reader continues."""
        for barrier in [b for b in self._waiting if b.checkpoint_id == checkpoint_id]:
            self._waiting.remove(barrier)
        if self._source is not None and self._source.mark == checkpoint_id:
            self._source.mark = None

    @property
    def _is_induced(self) -> bool:
        """Whether the reader decides the moment of a checkpoint; `False` after the end of its data."""
        return self._source is not None and self._source.is_externally_induced and self._end.is_running

    def _marked(self) -> CheckpointBarrier | None:
        """Return the request whose mark the reader has met."""
        source = self._source
        assert source is not None, "only a source has marks"
        mark = source.mark
        if mark is None or not self._work.is_idle:
            return None
        marked = next((b for b in self._waiting if b.checkpoint_id == mark), None)
        if marked is None and any(b.checkpoint_id > mark for b in self._waiting):
            source.mark = None  # the mark of a checkpoint that has ended
        return marked

    def _clear_past_mark(self) -> None:
        """Clear a mark whose checkpoint has ended, so that it does not stop the reader."""
        source = self._source
        if source is None or source.mark is None:
            return
        is_past = source.mark <= self._assigned_id or source.mark in self._aborted
        if is_past or self._checkpoints.has_dealt_with(source.mark):
            source.mark = None


@dataclass(frozen=True, slots=True)
class SubtaskParts:
    """All parts that a `Subtask` drives, opened and restored.

    Attributes:
        source: The source at the head of the chain, if there is one.
        files: Makes the `StateFiles` of one operator for one checkpoint.
        in_flight: Parts for unaligned checkpoints; `None` when no checkpoint of the job is unaligned.
    """

    descriptor: TaskDescriptor
    chain: OperatorChain
    outputs: SubtaskOutputs
    source: SourceOperator | None
    network: NetworkInput | None
    input: TaskInput
    backends: Mapping[str, KeyedStateBackend]
    values: ValueCodec
    batches: BatchCodec
    files: Callable[[int, CheckpointOptions, str], StateFiles]
    timers: TaskTimers
    sent_events: SentEvents
    in_flight: InFlight | None = None

    def close(self) -> None:
        """Close all operators and their state, even if one fails; release what the input has stored."""
        inputs = () if self.network is None else (self.network.gate.close,)
        state = (backend.close for backend in self.backends.values())
        close_all(self.chain.close, *inputs, *state)


class SubtaskState:
    """The `CheckpointedState` of one subtask; driven by the task thread alone."""

    def __init__(
        self, parts: SubtaskParts, work: WorkInProgress, end: EndOfInput, mail: CoordinatorMail
    ) -> None:
        self._parts = parts
        self._mail = mail
        self._work = work
        self._end = end
        self.is_closed = False

    @property
    def stored(self) -> StoredBytes:
        network = self._parts.network
        return NOTHING_STORED if network is None else network.gate.stored

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Let operators emit the records that belong before the barrier.

        No operator is in the middle of a call, because `WorkInProgress.settle` has been called. After the end
        of the data nothing is emitted.
        """
        is_settled = self._work.settle()
        assert is_settled, f"checkpoint {checkpoint_id} is taken in the middle of a call"
        self._mail.deliver_before(checkpoint_id)
        if self._end.is_running and not self.is_closed:
            for _ in self._parts.chain.prepare_snapshot_pre_barrier():
                pass  # ignores credits: the barrier must not wait, and follows this output

    def capture_rest(self, checkpoint_id: int) -> None:
        parts, rest = self._parts, self._work.rest()
        if rest is None or parts.network is None or parts.in_flight is None:
            return
        try:
            buffer = parts.batches.encode(rest)
        except CodecError as error:
            raise error_at(parts.descriptor.locations[0], "storing the rest of a batch", error) from error
        parts.in_flight.writer.add_input(checkpoint_id, parts.network.last_channel, (buffer,))

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """Take the synchronous part of a checkpoint of all operators."""
        parts, checkpoint_id = self._parts, barrier.checkpoint_id
        lists = parts.chain.snapshot(checkpoint_id)
        raw = parts.chain.snapshot_raw(checkpoint_id)
        operators = {}
        for spec, location in zip(parts.descriptor.operators, parts.descriptor.locations, strict=True):
            try:
                snapshot = self._snapshot_of(spec.id, lists.get(spec.id, {}), barrier)
                operators[spec.id] = replace(snapshot, raw=raw[spec.id]) if spec.id in raw else snapshot
            except CodecError as error:
                raise error_at(location, "saving its state", error) from error
        # A stop with a savepoint ends the data of this run, but not the job's input.
        stops = barrier.options.kind is SnapshotKind.SYNC_SAVEPOINT
        self._end.checkpoint_taken(checkpoint_id)
        return SubtaskSnapshotTask(
            checkpoint_id,
            operators,
            parts.backends,
            lambda operator: parts.files(checkpoint_id, barrier.options, operator),
            ended=self._end.has_emitted_all and not stops,
            events=parts.sent_events.counts,
            max_raw_bytes=parts.descriptor.config.advanced.max_raw_state_bytes,
        )

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._parts.chain.notify_checkpoint_aborted(checkpoint_id)

    def forget(self, checkpoint_id: int) -> None:
        for backend in self._parts.backends.values():
            backend.forget(checkpoint_id)

    def close(self) -> None:
        """Close the operators; after this no state can be taken."""
        self.is_closed = True
        self._mail.close()
        self._parts.close()

    def _snapshot_of(
        self, operator: str, lists: Mapping[str, SavedList], barrier: CheckpointBarrier
    ) -> OperatorSnapshot:
        backend = self._parts.backends.get(operator)
        keyed = None
        if backend is not None:
            is_savepoint = barrier.options.kind.is_savepoint
            keyed = backend.snapshot(barrier.checkpoint_id, barrier.confirmed_id, self_contained=is_savepoint)
        return OperatorSnapshot(encode_list_states(lists, self._parts.values), keyed)
