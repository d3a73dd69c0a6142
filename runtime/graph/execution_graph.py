"""The execution graph: every subtask of a job graph with its numbered channels.

A subtask numbers its input channels consecutively, over all edges and all sending subtasks. An outgoing
channel names the receiving subtask and that subtask's number for the channel. A frame needs no other address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.runtime.graph.aligned_edges import edges_to_align
from penstock.runtime.graph.job_graph import (
    JobEdge,
    JobGraph,
    JobVertex,
    Partitioner,
    Partitioning,
    with_parallelism,
)
from penstock.runtime.snapshot.ids import ChannelId, EdgeId, SubtaskId


@dataclass(frozen=True, slots=True)
class InputChannelSpec:
    """One incoming channel of a subtask.

    Attributes:
        gate: Number of the edge among the receiver's input edges.
        forced_aligned: Whether barriers overtake no records although in-flight data could be redistributed;
            see `edges_to_align`.
    """

    index: int
    gate: int
    sender: SubtaskId
    edge: EdgeId
    partitioner: Partitioner
    forced_aligned: bool = False

    @property
    def can_be_redistributed(self) -> bool:
        """Whether in-flight data may go to another subtask after a restart."""
        return self.partitioner.partitioning.can_be_redistributed

    @property
    def supports_unaligned(self) -> bool:
        return self.can_be_redistributed and not self.forced_aligned


@dataclass(frozen=True, slots=True)
class OutputChannelSpec:
    """One outgoing channel: the receiving subtask and its number for the channel."""

    receiver: SubtaskId
    channel: int


@dataclass(frozen=True, slots=True)
class ResultPartitionSpec:
    """The output of a subtask on one edge.

    Attributes:
        tag: Name of a side output; `None` for the main output.
        channels: One for each receiving subtask, in order; a forward edge has one channel.
    """

    operator: str
    tag: str | None
    partitioner: Partitioner
    max_parallelism: int
    channels: tuple[OutputChannelSpec, ...]
    edge: EdgeId
    forced_aligned: bool = False

    @property
    def supports_unaligned(self) -> bool:
        return self.partitioner.partitioning.can_be_redistributed and not self.forced_aligned


@dataclass(frozen=True, slots=True)
class ExecutionSubtask:
    id: SubtaskId
    vertex: JobVertex
    inputs: tuple[InputChannelSpec, ...]
    outputs: tuple[ResultPartitionSpec, ...]

    @property
    def input_ids(self) -> tuple[ChannelId, ...]:
        return tuple(ChannelId(spec.edge, spec.sender.index, self.id.index) for spec in self.inputs)

    @property
    def output_ids(self) -> dict[OutputChannelSpec, ChannelId]:
        return {
            channel: ChannelId(partition.edge, self.id.index, channel.receiver.index)
            for partition in self.outputs
            for channel in partition.channels
        }


@dataclass(frozen=True, slots=True)
class ExecutionGraph:
    """All subtasks of a job, sources first."""

    job: JobGraph
    subtasks: tuple[ExecutionSubtask, ...]

    def subtask(self, subtask_id: SubtaskId) -> ExecutionSubtask:
        for subtask in self.subtasks:
            if subtask.id == subtask_id:
                return subtask
        raise KeyError(subtask_id)


class CurrentGraph:
    """A job at its current parallelism; a rescale changes only this object.

    Attributes:
        parallelism: Parallelism of the vertices that were rescaled since the job was submitted.
        subtasks: All subtasks, sources first.
        senders: The subtasks that send to each subtask.
    """

    def __init__(self, submitted: ExecutionGraph) -> None:
        self._submitted = submitted.job
        self.parallelism: Mapping[str, int] = {}
        self._lay_out(submitted)

    @property
    def job(self) -> JobGraph:
        return self.execution.job

    def rescale(self, parallelism: Mapping[str, int]) -> None:
        """Give these vertices this parallelism, and all others that of the submitted job.

        No subtask may run meanwhile.
        """
        if parallelism != self.parallelism:
            self._lay_out(build_execution_graph(with_parallelism(self._submitted, parallelism)))
            self.parallelism = parallelism

    def job_at(self, parallelism: Mapping[str, int]) -> JobGraph:
        """The job with some vertices at another parallelism; the others keep their current parallelism."""
        return with_parallelism(self._submitted, {**self.parallelism, **parallelism})

    def subtask(self, subtask: SubtaskId) -> ExecutionSubtask:
        return self._by_id[subtask]

    def _lay_out(self, execution: ExecutionGraph) -> None:
        self.execution = execution
        self._by_id = {subtask.id: subtask for subtask in execution.subtasks}
        self.subtasks = tuple(self._by_id)
        self.senders = {
            subtask.id: frozenset(channel.sender for channel in subtask.inputs)
            for subtask in execution.subtasks
        }


def build_execution_graph(job: JobGraph) -> ExecutionGraph:
    inputs: dict[SubtaskId, list[InputChannelSpec]] = {
        SubtaskId(v.id, i): [] for v in job.vertices for i in range(v.parallelism)
    }
    outputs: dict[SubtaskId, list[ResultPartitionSpec]] = {subtask: [] for subtask in inputs}
    gates: Counter[str] = Counter()
    alike: Counter[EdgeId] = Counter()
    aligned = edges_to_align(job)
    for position, edge in enumerate(job.edges):
        gate = gates[edge.target_vertex]
        gates[edge.target_vertex] += 1
        receiver = job.vertex(edge.target_vertex)
        edge_id = EdgeId(edge.source_operator, edge.tag, receiver.operators[0].id, edge.input_index)
        alike[edge_id] += 1
        edge_id = replace(edge_id, copy=alike[edge_id] - 1)
        forced = position in aligned and edge.partitioner.partitioning.can_be_redistributed
        for sender_id, channels in _connect(job, edge, edge_id, gate, inputs, forced_aligned=forced):
            outputs[sender_id].append(
                ResultPartitionSpec(
                    edge.source_operator,
                    edge.tag,
                    edge.partitioner,
                    receiver.max_parallelism,
                    channels,
                    edge_id,
                    forced,
                )
            )
    subtasks = tuple(
        ExecutionSubtask(subtask_id, job.vertex(subtask_id.vertex), tuple(inputs[subtask_id]), tuple(outs))
        for subtask_id, outs in outputs.items()
    )
    return ExecutionGraph(job, subtasks)


def _connect(
    job: JobGraph,
    edge: JobEdge,
    edge_id: EdgeId,
    gate: int,
    inputs: dict[SubtaskId, list[InputChannelSpec]],
    *,
    forced_aligned: bool,
) -> Iterator[tuple[SubtaskId, tuple[OutputChannelSpec, ...]]]:
    """Add the channels of one edge to its receivers; yield each sender with its ends of the channels."""
    sender, receiver = job.vertex(edge.source_vertex), job.vertex(edge.target_vertex)
    forward = edge.partitioner.partitioning is Partitioning.FORWARD
    if forward and sender.parallelism != receiver.parallelism:
        between = f"{sender.parallelism} and {receiver.parallelism} subtasks"
        msg = f"forward edge {sender.id} -> {receiver.id} between {between}"
        raise ValueError(msg)
    for i in range(sender.parallelism):
        sender_id = SubtaskId(sender.id, i)
        channels = []
        for j in [i] if forward else range(receiver.parallelism):
            receiver_id = SubtaskId(receiver.id, j)
            incoming = inputs[receiver_id]
            channels.append(OutputChannelSpec(receiver_id, len(incoming)))
            incoming.append(
                InputChannelSpec(len(incoming), gate, sender_id, edge_id, edge.partitioner, forced_aligned)
            )
        yield sender_id, tuple(channels)
