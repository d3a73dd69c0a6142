"""Who gets which in-flight data of an unaligned checkpoint.

In-flight data is stored by number of channel, and a subtask's numbers depend on the parallelism of every
vertex that sends to it. So it goes back to where it was when the graph has the shape that it had.
"""

from __future__ import annotations

from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.checkpoint.snapshot import ChannelStateHandle, SubtaskId
from penstock.runtime.errors import StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph


def assign_channel_states(
    graph: ExecutionGraph, checkpoint: CompletedCheckpoint
) -> dict[SubtaskId, ChannelStateHandle]:
    """The in-flight data of every subtask that has any.

    Raises:
        StateMismatchError: There is in-flight data, and the graph has another shape than it had.
    """
    found: dict[SubtaskId, ChannelStateHandle] = {}
    for vertex in graph.job.vertices:
        state = checkpoint.operators.get(vertex.operators[0].id)
        for index, subtask in ({} if state is None else state.subtasks).items():
            if subtask.channels is not None:
                found[SubtaskId(vertex.id, index)] = subtask.channels
    stored = sum(
        subtask.channels is not None
        for state in checkpoint.operators.values()
        for subtask in state.subtasks.values()
    )
    if stored and (len(found) != stored or _is_rescaled(graph, checkpoint)):
        msg = (
            f"checkpoint {checkpoint.checkpoint_id} was taken unaligned and holds data in flight between "
            "subtasks, which fits only a job of the same operators with the same parallelism; start such a "
            "job from it, or from a savepoint, which holds none"
        )
        raise StateMismatchError(msg)
    return found


def _is_rescaled(graph: ExecutionGraph, checkpoint: CompletedCheckpoint) -> bool:
    return any(
        checkpoint.operators[operator.id].parallelism != vertex.parallelism
        for vertex in graph.job.vertices
        for operator in vertex.operators
        if operator.id in checkpoint.operators
    )
