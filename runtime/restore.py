"""Restoring a job from a snapshot: states, in-flight data, and finished subtasks.

`assign_states` assigns the states of a completed checkpoint to subtasks (Flink's `StateAssignmentOperation`).

`assign_channel_states`: in the same graph, in-flight data of an unaligned checkpoint returns to the subtask
that captured it. In a changed graph, all of it becomes input of the receivers. Each receiver gets the handles
of all data on its exchanges, and takes its part. The part is chosen by key group, or on a rebalance by the
number of a channel's old receiver (`penstock.runtime.task.channel_restore`). The model is Flink's rescaling
of unaligned checkpoints (FLINK-19801).

`state_changes` predicts, for each state, the effect of the rules in `runtime/state/known_states.py` and
`runtime/operators/operator_state.py`. States that are first requested at run time are not known yet.

Finished subtasks (FLIP-147). A subtask that has processed the end of its data acknowledges checkpoints as
*ended*: its operators emit nothing more after the barrier. After a restore these operators must not run
again, because they would emit their last records twice. So the checkpoint names the finished subtasks of each
operator.

A subtask counts as finished only if all its senders have finished. With aligned barriers this is always so.
With at-least-once, a subtask may consume the end of a channel after the barrier and before its snapshot. The
restored sender sends again, so this subtask runs again.

Three rules for a graph that differs from the checkpoint's, after Flink's `VertexFinishedStateChecker`:

* All operators of a chain have finished, or none. A new operator in a finished chain would get no input.
* All senders of a finished operator have finished.
* A partly finished operator at another parallelism runs in all subtasks. The state of its finished subtasks
  is not redistributed, because its effect was emitted; see `kept_after_the_end`.

Unlike in Flink, a checkpoint keeps the state of finished subtasks. So a partly finished operator with union
list state loses no state and needs no refusal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph, ExecutionSubtask
from penstock.runtime.graph.job_graph import JobVertex, OperatorSpec
from penstock.runtime.operators.sinks import COMMITTABLES
from penstock.runtime.operators.source_operator import SPLITS
from penstock.runtime.snapshot.completed_checkpoint import (
    ChannelRestore,
    CompletedCheckpoint,
    OperatorRestore,
    TaskRestore,
)
from penstock.runtime.snapshot.handles import (
    ChannelStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SavedState,
    StateHandle,
    place_of,
)
from penstock.runtime.snapshot.ids import EdgeId, SubtaskId
from penstock.runtime.snapshot.metadata import RAW, decode_atoms
from penstock.runtime.state.key_groups import OldStates, own_parts, reassign_keyed, redistribute
from penstock.runtime.state.known_states import StateInfo, states_in


def assign_channel_states(
    graph: ExecutionGraph, checkpoint: CompletedCheckpoint
) -> dict[SubtaskId, ChannelRestore]:
    """Assign the in-flight data; subtasks without any have no entry."""
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
                now = f"now has a {spec.partitioner.partitioning.value!r} exchange there"
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


def state_changes(graph: ExecutionGraph, checkpoint: CompletedCheckpoint) -> str | None:
    """A warning that names added, dropped and renamed states; `None` without any."""
    changes = [
        f"operator {operator.id!r}: {change}"
        for vertex in graph.job.vertices
        for operator in vertex.operators
        if operator.id in checkpoint.operators
        for change in _changes(operator.states, checkpoint.operators[operator.id])
    ]
    return "; ".join(changes) or None


def saved_states(state: OperatorState) -> dict[str, SavedState]:
    return states_in(handle for subtask in state.subtasks.values() for handle in subtask.keyed)


def saved_lists(state: OperatorState) -> dict[str, OperatorStateHandle]:
    return {handle.name: handle for subtask in state.subtasks.values() for handle in subtask.operator}


def _changes(declared: tuple[StateInfo, ...], state: OperatorState) -> Iterator[str]:
    keyed = saved_states(state)
    if keyed:  # a snapshot without keyed entries names no keyed states
        yield from _changes_of_kind([info for info in declared if info.is_keyed], keyed)
    lists = [info for info in declared if not info.is_keyed]
    yield from _changes_of_kind(lists, saved_lists(state))


def _changes_of_kind(
    declared: Sequence[StateInfo], saved: Mapping[str, SavedState] | Mapping[str, OperatorStateHandle]
) -> Iterator[str]:
    renamed = {info.renamed_from: info for info in declared if info.name not in saved}
    for info in declared:
        if info.name in saved:
            continue
        if info.renamed_from in saved:
            yield f"state {info.name!r} takes over the entries saved as {info.renamed_from!r}"
        else:
            yield f"state {info.name!r} is new and begins empty"
    known = {info.name for info in declared}
    for state in saved.values():
        if state.is_declared and state.name not in known and state.name not in renamed:
            yield (
                f"state {state.name!r} of the snapshot is no longer declared. It stays in every checkpoint, "
                "and is used only if a function asks for it by its name"
            )


def finished_in_checkpoint(graph: ExecutionGraph, ended: Iterable[SubtaskId]) -> frozenset[SubtaskId]:
    """The ended subtasks whose senders have all finished.

    `ended` subtasks have finished, or acknowledged the checkpoint as ended.
    """
    candidates, finished = frozenset(ended), set[SubtaskId]()
    for subtask in graph.subtasks:  # sources first
        if subtask.id in candidates and finished.issuperset(_senders(subtask)):
            finished.add(subtask.id)
    return frozenset(finished)


def finished_on_restore(
    graph: ExecutionGraph, operators: Mapping[str, OperatorState]
) -> frozenset[SubtaskId]:
    """The subtasks of a job that do not run again after a restore from these states.

    Raises:
        StateMismatchError: The graph breaks a rule of this module.
    """
    finished: set[SubtaskId] = set()
    senders: dict[str, list[ExecutionSubtask]] = {}
    for subtask in graph.subtasks:
        senders.setdefault(subtask.id.vertex, []).append(subtask)
    for vertex in graph.job.vertices:
        indices = _finished_indices(vertex, operators)
        mine = [subtask for subtask in senders[vertex.id] if subtask.id.index in indices]
        if all(finished.issuperset(_senders(subtask)) for subtask in mine):
            finished.update(subtask.id for subtask in mine)
        elif len(mine) == vertex.parallelism:
            running = sorted({str(s) for subtask in mine for s in _senders(subtask) if s not in finished})
            msg = (
                f"operator {vertex.id!r} had finished when the checkpoint was taken and does not run again, "
                f"so it would lose the records of senders that run: {', '.join(running[:3])}. "
                "Let the new part of the job send to operators with new ids instead"
            )
            raise StateMismatchError(msg)
    return frozenset(finished)


def kept_after_the_end(state: OperatorSubtaskState, *, is_sink: bool) -> OperatorSubtaskState:
    """The part of a finished subtask's state that is still needed.

    This part has transactions of a sink, which must be committed, and lists that every subtask sees.
    """

    def concerns_others(handle: OperatorStateHandle) -> bool:
        return is_sink or handle.mode is not RedistributionMode.SPLIT_DISTRIBUTE

    return OperatorSubtaskState(
        operator=tuple(filter(concerns_others, state.operator)),
        raw_operator=tuple(filter(concerns_others, state.raw_operator)),
    )


def _finished_indices(vertex: JobVertex, operators: Mapping[str, OperatorState]) -> frozenset[int]:
    all_indices, no_indices = frozenset(range(vertex.parallelism)), frozenset[int]()
    by_operator = dict.fromkeys((spec.id for spec in vertex.operators), no_indices)
    for operator in by_operator:
        state = operators.get(operator)
        if state is not None and state.is_fully_finished:
            by_operator[operator] = all_indices
        elif state is not None and state.parallelism == vertex.parallelism:
            by_operator[operator] = state.finished
    kinds = set(by_operator.values())
    if len(kinds) > 1 and all_indices in kinds:
        done = [operator for operator, indices in by_operator.items() if indices == all_indices]
        others = [operator for operator, indices in by_operator.items() if indices != all_indices]
        msg = (
            f"{', '.join(map(repr, done))} had finished when the checkpoint was taken and will not run "
            f"again, but {', '.join(map(repr, others))} in the same chain had not and would get no input. "
            "Start from a snapshot in which all operators of the chain have finished, or none"
        )
        raise StateMismatchError(msg)
    return frozenset.intersection(*kinds)


def _senders(subtask: ExecutionSubtask) -> frozenset[SubtaskId]:
    return frozenset(channel.sender for channel in subtask.inputs)


def assign_states(
    graph: ExecutionGraph,
    checkpoint: CompletedCheckpoint,
    read: Callable[[StateHandle], bytes],
    *,
    allow_non_restored_state: bool = False,
) -> dict[SubtaskId, TaskRestore]:
    """Assign to every subtask of a graph its part of a checkpoint.

    Args:
        read: Reads the bytes of a handle; blocks.
        allow_non_restored_state: Skip the state of operators that the graph does not have.

    Raises:
        StateMismatchError: State has no operator in the graph, belongs to another kind of operator, or was
            saved with another number of key groups.
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
    """Refuse state whose id now belongs to another kind of operator, which would lose it silently."""
    subtasks = state.subtasks.values()
    lists = {handle.name for s in subtasks for handle in s.operator}
    found = [
        what
        for what, is_there, fits in (
            ("keys with values", any(s.keyed for s in subtasks), spec.keyed),
            ("positions of a source", SPLITS in lists, spec.source is not None),
            ("transactions of a sink", COMMITTABLES in lists, spec.has_transactions),
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
        subtasks[index] = None if had is None else kept_after_the_end(had, is_sink=operator.has_transactions)
    keyed, raw_keyed = (
        reassign_keyed(handles, state.parallelism, vertex.parallelism, vertex.max_parallelism)
        for handles in (
            [() if s is None else s.keyed for s in subtasks],
            [() if s is None else s.raw_keyed for s in subtasks],
        )
    )

    def decoded(old: Sequence[tuple[OperatorStateHandle, ...]]) -> list[OldStates[bytes]]:
        return [
            {h.name: (h.mode, decode_atoms(read(h.state), place_of(h.state))) for h in handles}
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
