"""The parts of a subtask, and their part in a checkpoint.

`SubtaskParts` has the operators, the input, the outputs and the state of a subtask.

`SubtaskState` has the state that a checkpoint takes, and the effect of its completion or abortion.

The `SubtaskCheckpointCoordinator` calls it between two pieces of work; nothing here calls back. An unfinished
call of an operator is in no snapshot. So work is finished before the barrier goes out (`prepare_barrier`),
and pending slices become in-flight data (`capture_rest`).
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
        chain: The operators after the source or the channels.
        source: The source at the head of the chain, if there is one.
        network: The input channels, if there are any.
        files: Makes the place for one operator's files of one checkpoint.
        timers: Fired by `Subtask.step`.
        sent_events: Numbers the events that operators send to their coordinators.
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
        """Close the source, the operators and their state, and release what the input has stored.

        Raises:
            OperatorError: One of them can't be closed; all others are.
        """
        sources = () if self.source is None else (self.source.close,)
        inputs = () if self.network is None else (self.network.gate.close,)
        state = (backend.close for backend in self.backends.values())
        close_all(*sources, self.chain.close, *inputs, *state)


class SubtaskState:
    """The `CheckpointedState` of one subtask; driven by the task thread alone.

    Args:
        mail: Waiting events of operators' coordinators.
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
        return self._is_closed

    @property
    def stored(self) -> StoredBytes:
        network = self._parts.network
        return NOTHING_STORED if network is None else network.gate.stored

    def prepare_barrier(self, checkpoint_id: int) -> None:
        """Let operators emit records that belong before the barrier; none is in the middle of a call.

        `WorkInProgress.settle` was called before. After the end of the data nothing is emitted.
        """
        is_settled = self._work.settle()
        assert is_settled, f"checkpoint {checkpoint_id} is taken in the middle of a call"
        self._mail.deliver_before(checkpoint_id)
        if self._end.is_running and not self._is_closed:
            for _ in self._parts.chain.prepare_snapshot_pre_barrier():
                pass  # ignores credits: the barrier must not wait, and follows this output

    def capture_rest(self, checkpoint_id: int) -> None:
        parts, rest = self._parts, self._work.rest()
        if rest is None or parts.network is None or parts.in_flight is None:
            return
        try:
            buffer = parts.batches.encode(rest)
        except CodecError as error:
            raise located(parts.descriptor.locations[0], "keeping what it has not begun", error) from error
        parts.in_flight.writer.add_input(checkpoint_id, parts.network.last_channel, (buffer,))

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """Take the synchronous half of a checkpoint of all operators.

        Raises:
            OperatorError: An operator failed, or a value in its state can't be encoded.
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
        # A stop with savepoint ends the data, but not the job's input.
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
        """Commit the output that a checkpoint covers.

        Raises:
            OperatorError: A commit failed.
        """
        parts = self._parts
        if parts.source is not None:
            parts.source.notify_checkpoint_complete(checkpoint_id)
        permit = permit_of_completed_checkpoint(checkpoint_id, parts.descriptor.attempt)
        parts.chain.notify_checkpoint_complete(permit)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._parts.chain.notify_checkpoint_aborted(checkpoint_id)

    def confirm(self, checkpoint_id: int) -> None:
        for backend in self._parts.backends.values():
            backend.confirm(checkpoint_id)

    def forget(self, checkpoint_id: int) -> None:
        for backend in self._parts.backends.values():
            backend.forget(checkpoint_id)

    def close(self) -> None:
        """Close the operators; after this no state can be taken.

        Raises:
            OperatorError: An operator can't be closed; all others are.
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
