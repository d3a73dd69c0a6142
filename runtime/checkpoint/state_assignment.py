"""Who gets which state of a completed checkpoint (Flink's `StateAssignmentOperation`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from penstock.runtime.checkpoint.channel_state_assignment import assign_channel_states
from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.checkpoint.operator_snapshot import decode_atoms
from penstock.runtime.checkpoint.snapshot import (
    FileHandle,
    OperatorState,
    StateHandle,
    SubtaskId,
)
from penstock.runtime.checkpoint.state_mismatch import StateMismatchError as StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.graph.job_graph import JobVertex
from penstock.runtime.state.redistribution import reassign_keyed, redistribute
from penstock.runtime.task.descriptor import OperatorRestore, TaskRestore


def assign_states(
    graph: ExecutionGraph,
    checkpoint: CompletedCheckpoint,
    read: Callable[[StateHandle], bytes],
) -> dict[SubtaskId, TaskRestore]:
    """Give every subtask of a graph its part of a checkpoint.

    Args:
        graph: The job that is to start.
        checkpoint: What it starts from.
        read: Reads the bytes behind a handle; blocks.

    Raises:
        StateMismatchError: An operator's state has no operator in the graph, or another number of key groups.
        CorruptSnapshotError: A file is damaged.
    """
    _check_known(graph, checkpoint)
    channels = assign_channel_states(graph, checkpoint)
    parts: dict[SubtaskId, dict[str, OperatorRestore]] = {s.id: {} for s in graph.subtasks}
    for vertex in graph.job.vertices:
        for operator in vertex.operators:
            state = checkpoint.operators.get(operator.id)
            if state is None:
                continue
            for index, restore in enumerate(_assign_operator(state, vertex, read)):
                parts[SubtaskId(vertex.id, index)][operator.id] = restore
    return {
        subtask: TaskRestore(
            checkpoint.checkpoint_id,
            checkpoint.attempt,
            operators,
            checkpoint.is_savepoint or checkpoint.location is not None,
            channels.get(subtask),
            checkpoint.location,
        )
        for subtask, operators in parts.items()
    }


def _check_known(graph: ExecutionGraph, checkpoint: CompletedCheckpoint) -> None:
    known = {operator.id for vertex in graph.job.vertices for operator in vertex.operators}
    lost = sorted(
        operator_id
        for operator_id, state in checkpoint.operators.items()
        if operator_id not in known and any(not s.is_empty for s in state.subtasks.values())
    )
    if lost:
        msg = (
            f"checkpoint {checkpoint.checkpoint_id} holds state of {', '.join(map(repr, lost))}, "
            "which the job does not have; give the operators their old ids again"
        )
        raise StateMismatchError(msg)


def _assign_operator(
    state: OperatorState, vertex: JobVertex, read: Callable[[StateHandle], bytes]
) -> Sequence[OperatorRestore]:
    has_keyed = any(s.keyed for s in state.subtasks.values())
    if has_keyed and state.max_parallelism != vertex.max_parallelism:
        msg = (
            f"operator {state.operator_id!r} was saved with max_parallelism={state.max_parallelism} and "
            f"can't be restored with {vertex.max_parallelism}: keys would change their key group"
        )
        raise StateMismatchError(msg)
    subtasks = [state.subtasks.get(index) for index in range(state.parallelism)]
    keyed = reassign_keyed(
        [() if s is None else s.keyed for s in subtasks],
        state.parallelism,
        vertex.parallelism,
        vertex.max_parallelism,
    )
    old_lists = [
        {}
        if s is None
        else {h.name: (h.mode, decode_atoms(read(h.state), _where(h.state))) for h in s.operator}
        for s in subtasks
    ]
    lists: Sequence[Mapping[str, Sequence[bytes]]] = redistribute(old_lists, vertex.parallelism)
    return [OperatorRestore(tuple(keyed[i]), lists[i]) for i in range(vertex.parallelism)]


def _where(handle: StateHandle) -> str:
    return handle.path if isinstance(handle, FileHandle) else "the checkpoint's metadata"
