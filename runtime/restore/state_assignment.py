"""Which subtask gets which state of a completed checkpoint (Flink's `StateAssignmentOperation`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from penstock.runtime.errors import StateMismatchError as StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.graph.job_graph import JobVertex, OperatorSpec
from penstock.runtime.operators.sinks.sink import COMMITTABLES
from penstock.runtime.operators.sources.source import SPLITS
from penstock.runtime.restore.channel_state_assignment import assign_channel_states
from penstock.runtime.restore.finished_subtasks import finished_on_restore, kept_after_the_end
from penstock.runtime.restore.task_restore import OperatorRestore, TaskRestore
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle, OperatorState, OperatorStateHandle, StateHandle
from penstock.runtime.snapshot.list_state import RAW, decode_atoms
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.state.redistribution import OldStates, own_parts, reassign_keyed, redistribute


def assign_states(
    graph: ExecutionGraph,
    checkpoint: CompletedCheckpoint,
    read: Callable[[StateHandle], bytes],
    *,
    allow_non_restored_state: bool = False,
) -> dict[SubtaskId, TaskRestore]:
    """Assign to every subtask of a graph its part of a checkpoint.

    Args:
        graph: The job that starts.
        checkpoint: The snapshot that it starts from.
        read: Reads the bytes behind a handle; blocks.
        allow_non_restored_state: Leave out the state of operators that the graph does not have.

    Raises:
        StateMismatchError: State has no operator in the graph, is of another kind than the operator, or has
            another number of key groups.
        CorruptSnapshotError: A file is damaged.
    """
    if not allow_non_restored_state:
        _check_known(graph, checkpoint)
    channels = assign_channel_states(graph, checkpoint)
    parts: dict[SubtaskId, dict[str, OperatorRestore]] = {s.id: {} for s in graph.subtasks}
    for vertex in graph.job.vertices:
        for operator in vertex.operators:
            state = checkpoint.operators.get(operator.id)
            if state is None:
                continue
            _check_kind(state, operator)
            for index, restore in enumerate(_assign_operator(state, vertex, operator, read)):
                parts[SubtaskId(vertex.id, index)][operator.id] = restore
    finished = finished_on_restore(graph, checkpoint.operators)
    return {
        subtask: TaskRestore(
            checkpoint.checkpoint_id,
            checkpoint.attempt,
            operators,
            checkpoint.is_savepoint or checkpoint.location is not None,
            channels.get(subtask),
            finished=subtask in finished,
            location=checkpoint.location,
        )
        for subtask, operators in parts.items()
    }


def unknown_operators(graph: ExecutionGraph, checkpoint: CompletedCheckpoint) -> tuple[str, ...]:
    """Ids of operators that have state in a checkpoint and are not in a graph, sorted."""
    known = {operator.id for vertex in graph.job.vertices for operator in vertex.operators}
    return tuple(
        sorted(
            operator_id
            for operator_id, state in checkpoint.operators.items()
            if operator_id not in known and any(not s.is_empty for s in state.subtasks.values())
        )
    )


def _check_known(graph: ExecutionGraph, checkpoint: CompletedCheckpoint) -> None:
    lost = unknown_operators(graph, checkpoint)
    if lost:
        known = (o.id for vertex in graph.job.vertices for o in vertex.operators if o.stateful)
        msg = (
            f"checkpoint {checkpoint.checkpoint_id} holds state of {', '.join(map(repr, lost))}, "
            "which the job does not have; give the operators their old ids again, or leave their state out "
            "with allow_non_restored_state=True. Operators of the job that have state: "
            f"{', '.join(map(repr, known)) or 'none'}"
        )
        raise StateMismatchError(msg)


def _check_kind(state: OperatorState, spec: OperatorSpec) -> None:
    """Refuse state under an id that now belongs to another kind of operator: it would be lost silently."""
    subtasks = state.subtasks.values()
    lists = {handle.name for s in subtasks for handle in s.operator}
    found = [
        what
        for what, is_there, fits in (
            ("keys with values", any(s.keyed for s in subtasks), spec.keyed),
            ("positions of a source", SPLITS in lists, spec.source is not None),
            ("transactions of a sink", COMMITTABLES in lists, spec.is_sink),
        )
        if is_there and not fits
    ]
    if found:
        where = "" if spec.defined_at is None else f" (defined at {spec.defined_at})"
        msg = (
            f"the state of operator {spec.id!r} holds {' and '.join(found)}, but {spec.name}{where} has no "
            "such state; the id belonged to another kind of operator. Give this one a new id"
        )
        raise StateMismatchError(msg)


def _assign_operator(
    state: OperatorState, vertex: JobVertex, operator: OperatorSpec, read: Callable[[StateHandle], bytes]
) -> Sequence[OperatorRestore]:
    has_keyed = any(s.keyed or s.raw_keyed for s in state.subtasks.values())
    if has_keyed and state.max_parallelism != vertex.max_parallelism:
        msg = (
            f"operator {state.operator_id!r} was saved with max_parallelism={state.max_parallelism} and "
            f"can't be restored with {vertex.max_parallelism}: keys would change their key group. Use "
            f"StreamEnvironment(max_parallelism={state.max_parallelism})"
        )
        raise StateMismatchError(msg)
    subtasks = [state.subtasks.get(index) for index in range(state.parallelism)]
    for index in state.finished:
        had = subtasks[index]
        subtasks[index] = None if had is None else kept_after_the_end(had, is_sink=operator.is_sink)
    keyed, raw_keyed = (
        reassign_keyed(handles, state.parallelism, vertex.parallelism, vertex.max_parallelism)
        for handles in (
            [() if s is None else s.keyed for s in subtasks],
            [() if s is None else s.raw_keyed for s in subtasks],
        )
    )

    def decoded(old: Sequence[tuple[OperatorStateHandle, ...]]) -> list[OldStates[bytes]]:
        return [
            {h.name: (h.mode, decode_atoms(read(h.state), _where(h.state))) for h in handles}
            for handles in old
        ]

    old_lists = decoded([() if s is None else s.operator for s in subtasks])
    lists = redistribute(old_lists, vertex.parallelism)
    unasked = own_parts(old_lists, lists)
    old_raw = decoded([() if s is None else s.raw_operator for s in subtasks])
    raw = redistribute(old_raw, vertex.parallelism)
    return [
        OperatorRestore(tuple(keyed[i]), lists[i], tuple(raw_keyed[i]), raw[i].get(RAW, ()), unasked[i])
        for i in range(vertex.parallelism)
    ]


def _where(handle: StateHandle) -> str:
    return handle.path if isinstance(handle, FileHandle) else "the checkpoint's metadata"
