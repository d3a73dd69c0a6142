"""Which subtask gets which in-flight data of an unaligned checkpoint.

While the job has the same shape, in-flight data goes back to the subtask that captured it, receiver or
sender. When the shape has changed, all of it becomes input of the receivers. Each receiver gets the handles
of everything that was in flight on its exchanges. It takes its part by key group (or by number, on a
rebalance). See `penstock.runtime.task.channel_restore`.

The model is Flink's rescaling of unaligned checkpoints (FLINK-19801).
"""

from __future__ import annotations

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.restore.task_restore import ChannelRestore
from penstock.runtime.snapshot.channel_id import EdgeId
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import ChannelStateHandle
from penstock.runtime.snapshot.subtask_id import SubtaskId


def assign_channel_states(
    graph: ExecutionGraph, checkpoint: CompletedCheckpoint
) -> dict[SubtaskId, ChannelRestore]:
    """Assign the in-flight data; subtasks without any have no entry.

    Raises:
        StateMismatchError: Data was in flight on an exchange that the job no longer has, or that now sends
            records to given subtasks.
    """
    own: dict[SubtaskId, ChannelStateHandle] = {}
    for vertex in graph.job.vertices:
        state = checkpoint.operators.get(vertex.operators[0].id)
        for index, subtask in ({} if state is None else state.subtasks).items():
            if subtask.channels is not None:
                own[SubtaskId(vertex.id, index)] = subtask.channels
    stored = [
        subtask.channels
        for state in checkpoint.operators.values()
        for _, subtask in sorted(state.subtasks.items())
        if subtask.channels is not None
    ]
    _check_edges(graph, checkpoint, stored)
    if len(own) == len(stored) and not _is_rescaled(graph, checkpoint):
        return {subtask: ChannelRestore((handle,)) for subtask, handle in own.items()}
    rescaled = {}
    for subtask_spec in graph.subtasks:
        edges = {channel.edge for channel in subtask_spec.inputs}
        handles = tuple(handle for handle in stored if not edges.isdisjoint(handle.edges))
        if handles:
            rescaled[subtask_spec.id] = ChannelRestore(handles, is_rescaled=True)
    return rescaled


def _check_edges(
    graph: ExecutionGraph, checkpoint: CompletedCheckpoint, stored: list[ChannelStateHandle]
) -> None:
    known = {spec.edge: spec for subtask in graph.subtasks for spec in subtask.inputs}
    needed: dict[EdgeId, None] = dict.fromkeys(edge for handle in stored for edge in handle.edges)
    for edge in needed:
        spec = known.get(edge)
        if spec is None or not spec.can_be_redistributed:
            now = "has no such exchange now"
            if spec is not None:
                now = f"now exchanges by {spec.partitioner.partitioning.value!r}"
            msg = (
                f"checkpoint {checkpoint.checkpoint_id} was taken unaligned and holds records in flight "
                f"between {edge.source_operator!r} and {edge.target_operator!r}; the job {now}. Start the "
                "changed job from a savepoint, which holds nothing in flight"
            )
            raise StateMismatchError(msg)


def _is_rescaled(graph: ExecutionGraph, checkpoint: CompletedCheckpoint) -> bool:
    return any(
        checkpoint.operators[operator.id].parallelism != vertex.parallelism
        for vertex in graph.job.vertices
        for operator in vertex.operators
        if operator.id in checkpoint.operators
    )
