"""`SubtaskParts`: the operators, the input, the outputs and the state of a subtask."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from penstock.runtime.checkpoint.channel_state.barrier_sender import BarrierSender, InFlight
from penstock.runtime.checkpoint.channel_state.channel_state_writer import AsyncChannelStateWriter
from penstock.runtime.errors import OperatorLocation
from penstock.runtime.graph.job_graph import OperatorSpec
from penstock.runtime.operators.chain.chain import OperatorChain
from penstock.runtime.operators.protocols import OperatorStatistics
from penstock.runtime.operators.sources.source import SourceOperator
from penstock.runtime.record.batch_codec import BatchCodec
from penstock.runtime.record.elements import CheckpointOptions
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.permit import CommitPermit, permit_of_completed_checkpoint
from penstock.runtime.snapshot.state_files import StateFiles
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.task.closing import close_all
from penstock.runtime.task.coordinator_mail import SentEvents
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
        chain: The operators after the source or the channels.
        source: The source at the head of the chain, if there is one.
        network: The input channels, if there are any.
        backends: Keyed state by operator id.
        values: Encodes list states.
        batches: Encodes and decodes buffers.
        files: Makes the place for one operator's files of one checkpoint.
        timers: Fired by `Subtask.step`.
        sent_events: Numbers the events that operators send to their coordinators.
        channel_state: Takes in-flight data; `None` when no checkpoint of the job is unaligned.
    """

    descriptor: TaskDescriptor
    chain: OperatorChain
    outputs: SubtaskOutputs
    source: SourceOperator | None
    network: NetworkInput | None
    backends: Mapping[str, KeyedStateBackend]
    values: ValueCodec
    batches: BatchCodec
    files: Callable[[int, CheckpointOptions, str], StateFiles]
    timers: TaskTimers
    sent_events: SentEvents
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

    def make_in_flight(self) -> InFlight | None:
        """What unaligned checkpoints need; `None` when no checkpoint of the job is unaligned."""
        writer = self.channel_state
        return None if writer is None else InFlight(BarrierSender(self.outputs, writer, self.timers), writer)

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
        return self.operators[0].id

    @property
    def takes_checkpoints(self) -> bool:
        """Whether the job takes checkpoints."""
        return self.descriptor.config.checkpointing is not None

    @property
    def max_raw_bytes(self) -> int | None:
        """Most bytes of raw state of one operator."""
        checkpointing = self.descriptor.config.checkpointing
        return None if checkpointing is None else checkpointing.max_raw_state_bytes

    @property
    def slice_duration(self) -> float:
        """Intended seconds of a piece of work."""
        return self.descriptor.config.slice_duration

    @property
    def location(self) -> OperatorLocation:
        """Where this subtask is, for errors."""
        return self.locations[0]

    @property
    def operators(self) -> Sequence[OperatorSpec]:
        """The operators as they were deployed, the source among them."""
        return self.descriptor.subtask.vertex.operators

    @property
    def locations(self) -> Sequence[OperatorLocation]:
        """Where the operators are, in their order, for errors."""
        return self.descriptor.subtask.vertex.locations(self.descriptor.id.index)

    @property
    def pickled_values(self) -> int:
        """Values that only pickle could carry."""
        return self.values.statistics().pickled + self.batches.statistics().values.pickled

    def close(self) -> None:
        """Close the source, the operators and their state, and give back what the input has stored.

        Raises:
            OperatorError: One of them could not be closed; all others were.
        """
        sources = () if self.source is None else (self.source.close,)
        inputs = () if self.network is None else (self.network.gate.close,)
        state = (backend.close for backend in self.backends.values())
        close_all(*sources, self.chain.close, *inputs, *state)

    def operator_statistics(self) -> dict[str, OperatorStatistics]:
        """Counters by operator id."""
        statistics = dict(self.chain.statistics().operators)
        if self.source is not None:
            statistics[self.head_operator] = self.source.statistics()
        return statistics
