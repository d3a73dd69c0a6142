"""What a subtask is made of: its operators, its input, its outputs and its state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.runtime.checkpoint.operator_snapshot import (
    OperatorSnapshot,
    SubtaskSnapshotTask,
    encode_list_states,
)
from penstock.runtime.checkpoint.state_files import StateFiles
from penstock.runtime.errors import OperatorLocation
from penstock.runtime.operators.chain import OperatorChain
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.source import SourceOperator
from penstock.runtime.record.batch_codec import BatchCodec
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.task.network_input import NetworkInput
from penstock.runtime.task.outputs import SubtaskOutputs
from penstock.runtime.task.source_input import SourceInput
from penstock.runtime.task.task_input import TaskInput


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
    """

    descriptor: TaskDescriptor
    chain: OperatorChain
    outputs: SubtaskOutputs
    source: SourceOperator | None
    network: NetworkInput | None
    backends: Mapping[str, HeapKeyedStateBackend]
    values: ValueCodec
    batches: BatchCodec
    files: Callable[[int, str], StateFiles]

    def make_input(self) -> TaskInput:
        """Where work comes from."""
        if self.network is not None:
            return self.network
        if self.source is None:
            msg = f"{self.descriptor.id} has neither a source nor channels"
            raise ValueError(msg)
        return SourceInput(self.source)

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
        vertex = self.descriptor.subtask.vertex
        return OperatorLocation(
            vertex.operators[0].id,
            self.descriptor.id.index,
            vertex.parallelism,
            vertex.operators[0].defined_at,
        )

    @property
    def pickled_values(self) -> int:
        """Values that only pickle could carry."""
        return self.values.statistics().pickled + self.batches.statistics().values.pickled

    def snapshot(self, barrier: CheckpointBarrier) -> SubtaskSnapshotTask:
        """The synchronous half of a checkpoint of all operators."""
        checkpoint_id = barrier.checkpoint_id
        lists = dict(self.chain.snapshot(checkpoint_id))
        if self.source is not None:
            lists[self.head_operator] = self.source.snapshot()
        operators = {}
        for spec in self.descriptor.subtask.vertex.operators:
            backend = self.backends.get(spec.id)
            operators[spec.id] = OperatorSnapshot(
                encode_list_states(lists.get(spec.id, {}), self.values),
                None if backend is None else backend.snapshot(checkpoint_id, barrier.confirmed_id),
            )
        return SubtaskSnapshotTask(
            checkpoint_id, operators, self.backends, lambda operator: self.files(checkpoint_id, operator)
        )

    def close(self) -> None:
        """Close the source and the operators.

        Raises:
            OperatorError: One of them could not be closed; all others were.
        """
        try:
            if self.source is not None:
                self.source.close()
        finally:
            self.chain.close()

    def operator_statistics(self) -> dict[str, OperatorStatistics]:
        """Counters by operator id."""
        statistics = dict(self.chain.statistics().operators)
        if self.source is not None:
            statistics[self.head_operator] = self.source.statistics()
        return statistics
