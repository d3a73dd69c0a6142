"""The parts of a subtask, and what a checkpoint takes of them.

`SubtaskParts`: the operators, the input, the outputs and the state of a subtask.

`SubtaskState`: what a checkpoint takes of a subtask, and what its completion or abortion means there.

The `SubtaskCheckpointCoordinator` asks it between two pieces of work; nothing here calls back. What an
operator is in the middle of is in no snapshot. So work is finished before the barrier goes out
(`prepare_barrier`), and what was not begun becomes in-flight data (`capture_rest`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.runtime.checkpoint.channel_state_writer import InFlight
from penstock.runtime.checkpoint.operator_snapshot import (
    OperatorSnapshot,
    SubtaskSnapshotTask,
    encode_list_states,
)
from penstock.runtime.errors import CodecError
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.operator import SavedList
from penstock.runtime.operators.sources.source import SourceOperator
from penstock.runtime.operators.user_code.failure import located
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.checkpoint_record import NOTHING_STORED, StoredBytes
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.runtime.snapshot.metadata import StateFiles
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.task.closing import close_all
from penstock.runtime.task.coordinator_mail import CoordinatorMail, SentEvents
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.end_of_input import EndOfInput
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.task_input import NetworkInput, TaskInput
from penstock.runtime.task.task_time import TaskTimers
from penstock.runtime.task.work_in_progress import WorkInProgress


@dataclass(frozen=True, slots=True)
class SubtaskParts:
    """Everything a `Subtask` drives, opened and restored.

    Attributes:
        descriptor: What was deployed.
        chain: The operators after the source or the channels.
        source: The source at the head of the chain, if there is one.
        network: The input channels, if there are any.
        input: Where work comes from.
        backends: Keyed state by operator id.
        values: Encodes list states.
        batches: Encodes and decodes buffers.
        files: Makes the place for one operator's files of one checkpoint.
        timers: Fired by `Subtask.step`.
        sent_events: Numbers the events that operators send to their coordinators.
        in_flight: What unaligned checkpoints need; `None` when no checkpoint of the job is unaligned.
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
        """Close the source, the operators and their state, and give back what the input has stored.

        Raises:
            OperatorError: One of them could not be closed; all others were.
        """
        sources = () if self.source is None else (self.source.close,)
        inputs = () if self.network is None else (self.network.gate.close,)
        state = (backend.close for backend in self.backends.values())
        close_all(*sources, self.chain.close, *inputs, *state)


class SubtaskState:
    """The `CheckpointedState` of one subtask; driven by the task thread alone.

    Args:
        parts: Operators, keyed state and codecs.
        work: What the subtask is in the middle of.
        end: Says whether the operators will emit anything more; waits for a checkpoint taken after that.
        mail: Events of operators' coordinators that wait for their turn.
    """

    def __init__(
        self, parts: SubtaskParts, work: WorkInProgress, end: EndOfInput, mail: CoordinatorMail
    ) -> None:
        self._parts = parts
        self._mail = mail
        self._work = work
        self._end = end
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the operators are closed, so that there is no state to take."""
        return self._is_closed

    @property
    def stored(self) -> StoredBytes:
        """What the running alignment has stored of blocked channels."""
        network = self._parts.network
        return NOTHING_STORED if network is None else network.gate.stored

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Let operators handle and emit what belongs in front of the barrier.

        None of them is in the middle of a call.

        `WorkInProgress.settle` was asked before. After the end of the data nothing is emitted any more.

        Raises:
            OperatorError: An operator failed.
        """
        is_settled = self._work.settle()
        assert is_settled, f"checkpoint {checkpoint_id} is taken in the middle of a call"
        self._mail.deliver_before(checkpoint_id)
        if self._end.is_running and not self._is_closed:
            for _ in self._parts.chain.prepare_snapshot_pre_barrier():
                pass  # credits are not asked: the barrier must not wait, and it goes out behind this

    def capture_rest(self, checkpoint_id: int) -> None:
        """The rows of a batch that were not begun are in flight, in front of what waits in their channel.

        Raises:
            OperatorError: A record that has been taken can't be encoded again.
        """
        parts, rest = self._parts, self._work.rest()
        if rest is None or parts.network is None or parts.in_flight is None:
            return
        try:
            buffer = parts.batches.encode(rest)
        except CodecError as error:
            raise located(parts.descriptor.locations[0], "keeping what it has not begun", error) from error
        parts.in_flight.writer.add_input(checkpoint_id, parts.network.last_channel, (buffer,))

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half of a checkpoint of all operators.

        Raises:
            OperatorError: An operator failed, or something in its state can't be encoded.
        """
        parts, checkpoint_id = self._parts, barrier.checkpoint_id
        lists = dict(parts.chain.snapshot(checkpoint_id))
        if parts.source is not None:
            lists[parts.descriptor.operators[0].id] = parts.source.snapshot(checkpoint_id)
        raw = parts.chain.snapshot_raw(checkpoint_id)
        operators = {}
        for spec, location in zip(parts.descriptor.operators, parts.descriptor.locations, strict=True):
            try:
                snapshot = self._snapshot_of(spec.id, lists.get(spec.id, {}), barrier)
                operators[spec.id] = replace(snapshot, raw=raw[spec.id]) if spec.id in raw else snapshot
            except CodecError as error:
                raise located(location, "keeping its state", error) from error
        # The end that a stop with savepoint brings about is not the end of the job's input.
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

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Commit what a checkpoint covers.

        Raises:
            OperatorError: A commit failed.
        """
        parts = self._parts
        if parts.source is not None:
            parts.source.notify_checkpoint_complete(checkpoint_id)
        permit = permit_of_completed_checkpoint(checkpoint_id, parts.descriptor.attempt)
        parts.chain.notify_checkpoint_complete(permit)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """Notify operators that a checkpoint was aborted.

        Raises:
            OperatorError: An operator failed.
        """
        self._parts.chain.notify_checkpoint_aborted(checkpoint_id)

    def confirm(self, checkpoint_id: int) -> None:
        """The files of a completed checkpoint may be named by later ones."""
        for backend in self._parts.backends.values():
            backend.confirm(checkpoint_id)

    def forget(self, checkpoint_id: int) -> None:
        """No later checkpoint names the files of this one."""
        for backend in self._parts.backends.values():
            backend.forget(checkpoint_id)

    def close(self) -> None:
        """Close the operators: there is no state to take any more.

        Raises:
            OperatorError: An operator could not be closed; all others were.
        """
        self._is_closed = True
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
