"""What a subtask is made of: its operators, its input, its outputs and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.runtime.checkpoint.channel_state.channel_state_writer import AsyncChannelStateWriter
from penstock.runtime.checkpoint.subtask.operator_snapshot import (
    OperatorSnapshot,
    SubtaskSnapshotTask,
    encode_list_states,
)
from penstock.runtime.errors import CodecError, OperatorLocation
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.failure import operator_error
from penstock.runtime.operators.operator import ListState
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.source import SourceOperator
from penstock.runtime.record.batch_codec import BatchCodec
from penstock.runtime.record.elements import Batch, CheckpointBarrier, CheckpointOptions
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.permit import CommitPermit, permit_of_completed_checkpoint
from penstock.runtime.snapshot.state_files import StateFiles
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.task.closing import close_all
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.ends_only_input import EndsOnlyInput
from penstock.runtime.task.network_input import NetworkInput
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.source_input import SourceInput
from penstock.runtime.task.task_input import TaskInput
from penstock.runtime.task.timers import TaskTimers


@dataclass(frozen=True, slots=True)
class SubtaskParts:
    """Everything a `Subtask` drives, opened and restored.

    Attributes:
        descriptor: What was deployed.
        chain: The operators behind the source or the channels.
        outputs: The result partitions.
        source: The source at the head of the chain, if there is one.
        network: The input channels, if there are any.
        backends: Keyed state by operator id.
        values: Encodes list states.
        batches: Encodes and decodes buffers.
        files: Makes the place for one operator's files of one checkpoint.
        timers: Fired by whoever steps the subtask.
        channel_state: Takes in-flight data; `None` when no checkpoint of the job is unaligned.
    """

    descriptor: TaskDescriptor
    chain: OperatorChain
    outputs: SubtaskOutputs
    source: SourceOperator | None
    network: NetworkInput | None
    backends: Mapping[str, HeapKeyedStateBackend]
    values: ValueCodec
    batches: BatchCodec
    files: Callable[[int, CheckpointOptions, str], StateFiles]
    timers: TaskTimers
    channel_state: AsyncChannelStateWriter | None = None

    def make_input(self) -> TaskInput:
        """Where work comes from.

        Raises:
            ValueError: There is neither a source nor a channel.
        """
        if self.finished_before:
            return EndsOnlyInput(self.location, self.network)
        if self.network is not None:
            return self.network
        if self.source is None:
            msg = f"{self.descriptor.id} has neither a source nor channels"
            raise ValueError(msg)
        return SourceInput(self.source)

    def capture_input(self, checkpoint_id: int, half_done: Batch | None) -> None:
        """Hand what is in flight in the input to the channel state.

        Args:
            checkpoint_id: The checkpoint; unaligned.
            half_done: What has been taken from the last channel and was not begun.

        Raises:
            OperatorError: A record that has been taken can't be encoded again.
        """
        if self.network is None or self.channel_state is None:
            return
        if half_done is not None:
            try:
                buffer = self.batches.encode(half_done)
            except CodecError as error:
                raise operator_error(self.location, "keeping what it has not begun", error) from error
            self.channel_state.add_input(checkpoint_id, self.network.last_channel, (buffer,))
        self.network.gate.capture_waiting(checkpoint_id)

    @property
    def finished_before(self) -> bool:
        """Whether the subtask had finished in the restored checkpoint: its operators do not run again."""
        restore = self.descriptor.restore
        return restore is not None and restore.finished

    @property
    def restored_permit(self) -> CommitPermit | None:
        """The permit of the restored checkpoint; `None` on a fresh start."""
        restore = self.descriptor.restore
        return (
            None
            if restore is None
            else permit_of_completed_checkpoint(restore.checkpoint_id, restore.attempt)
        )

    @property
    def head_operator(self) -> str:
        """Id of the first operator."""
        return self.descriptor.subtask.vertex.operators[0].id

    @property
    def takes_checkpoints(self) -> bool:
        """Whether the job takes checkpoints."""
        return self.descriptor.config.checkpointing is not None

    @property
    def slice_duration(self) -> float:
        """Intended seconds of a piece of work."""
        return self.descriptor.config.slice_duration

    @property
    def location(self) -> OperatorLocation:
        """Where this subtask is, for errors."""
        return self._location(0)

    @property
    def pickled_values(self) -> int:
        """Values that only pickle could carry."""
        return self.values.statistics().pickled + self.batches.statistics().values.pickled

    def snapshot(self, barrier: CheckpointBarrier, *, ended: bool = False) -> SubtaskSnapshotTask:
        """The synchronous half of a checkpoint of all operators.

        Args:
            barrier: The checkpoint's.
            ended: The operators will emit nothing any more.

        Raises:
            OperatorError: An operator failed, or something in its state can't be encoded.
        """
        checkpoint_id, options = barrier.checkpoint_id, barrier.options
        lists = dict(self.chain.snapshot(checkpoint_id))
        if self.source is not None:
            lists[self.head_operator] = self.source.snapshot(checkpoint_id)
        raw = self.chain.snapshot_raw(checkpoint_id)
        operators = {}
        for index, spec in enumerate(self.descriptor.subtask.vertex.operators):
            try:
                snapshot = self._snapshot_of(spec.id, lists.get(spec.id, {}), barrier)
                operators[spec.id] = replace(snapshot, raw=raw[spec.id]) if spec.id in raw else snapshot
            except CodecError as error:
                raise operator_error(self._location(index), "keeping its state", error) from error
        return SubtaskSnapshotTask(
            checkpoint_id,
            operators,
            self.backends,
            lambda operator: self.files(checkpoint_id, options, operator),
            ended=ended,
        )

    def close(self) -> None:
        """Close the source and the operators.

        Raises:
            OperatorError: One of them could not be closed; all others were.
        """
        sources = () if self.source is None else (self.source.close,)
        close_all(*sources, self.chain.close)

    def _snapshot_of(
        self, operator: str, lists: Mapping[str, ListState], barrier: CheckpointBarrier
    ) -> OperatorSnapshot:
        backend = self.backends.get(operator)
        keyed = None
        if backend is not None:
            is_savepoint = barrier.options.kind.is_savepoint
            keyed = backend.snapshot(barrier.checkpoint_id, barrier.confirmed_id, self_contained=is_savepoint)
        return OperatorSnapshot(encode_list_states(lists, self.values), keyed)

    def _location(self, index: int) -> OperatorLocation:
        return self.descriptor.subtask.vertex.locations(self.descriptor.id.index)[index]

    def operator_statistics(self) -> dict[str, OperatorStatistics]:
        """Counters by operator id."""
        statistics = dict(self.chain.statistics().operators)
        if self.source is not None:
            statistics[self.head_operator] = self.source.statistics()
        return statistics
