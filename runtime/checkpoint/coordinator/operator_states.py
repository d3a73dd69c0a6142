"""What a complete checkpoint holds: acknowledgements, turned into the states of operators.

The last state of a finished subtask is carried from checkpoint to checkpoint. A restart needs
its empty list of splits and its last transactions. Which subtasks have finished is written down as
well (`finished_subtasks.py`). Nothing is read or written here; `carried_state.py` copies files that need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.restore.finished_subtasks import finished_in_checkpoint
from penstock.runtime.snapshot.completed_checkpoint import CarriedState, CompletedCheckpoint
from penstock.runtime.snapshot.completed_statistics import CompletedCheckpointStatistics
from penstock.runtime.snapshot.handles import (
    OperatorState,
    OperatorSubtaskState,
    StateHandle,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.subtask_id import SubtaskId


def completed_checkpoint(
    pending: PendingCheckpoint,
    graph: ExecutionGraph,
    previous: CompletedCheckpoint | None,
    completed_at: float,
    statistics: CompletedCheckpointStatistics,
) -> CompletedCheckpoint:
    """The value of a fully acknowledged checkpoint, before anything of it is written.

    Args:
        pending: What was acknowledged.
        previous: The newest completed checkpoint, or the snapshot that the job began with.
        completed_at: Wall-clock seconds.
        statistics: Written with it.
    """
    known = {} if previous is None else previous.operators
    finished = pending.plan.finished
    operators = collect_states(graph, pending.snapshots, finished, known)
    carried = _carried(graph, finished, known)
    return CompletedCheckpoint(
        pending.checkpoint_id,
        pending.attempt,
        pending.kind,
        with_coordinators(graph, operators, pending.coordinator_states),
        pending.triggered_at,
        completed_at,
        location=pending.location,
        master_states=pending.master_states,
        carried=CarriedState(carried, previous.location) if carried and previous is not None else None,
        statistics=statistics,
        drained=pending.drained,
    )


def collect_states(
    graph: ExecutionGraph,
    snapshots: Mapping[SubtaskId, SubtaskSnapshot | None],
    finished: Iterable[SubtaskId],
    previous: Mapping[str, OperatorState],
) -> dict[str, OperatorState]:
    """Turn snapshots of subtasks into the states of operators; finished subtasks keep their last one.

    Args:
        snapshots: What the subtasks of the plan acknowledged.
        finished: The plan's finished subtasks.
        previous: The states of the snapshot before this one.
    """
    gone = tuple(finished)
    ended = [subtask for subtask, snapshot in snapshots.items() if snapshot is not None and snapshot.ended]
    done: dict[str, set[int]] = {}
    for subtask in finished_in_checkpoint(graph, [*gone, *ended]):
        done.setdefault(subtask.vertex, set()).add(subtask.index)
    parts: dict[str, dict[int, OperatorSubtaskState]] = {}
    for subtask, snapshot in snapshots.items():
        for operator, state in (snapshot.operators if snapshot is not None else {}).items():
            parts.setdefault(operator, {})[subtask.index] = state
    for operator, indices in _carried(graph, gone, previous).items():
        # What was in flight at its last checkpoint has been consumed since, or it would not be finished.
        kept = previous[operator].subtasks
        parts.setdefault(operator, {}).update({i: replace(kept[i], channels=None) for i in indices})
    return {
        spec.id: OperatorState(
            spec.id,
            vertex.parallelism,
            vertex.max_parallelism,
            dict(sorted(parts.get(spec.id, {}).items())),
            frozenset(done.get(vertex.id, ())),
        )
        for vertex in graph.job.vertices
        for spec in vertex.operators
        if spec.id in parts or vertex.id in done
    }


def _carried(
    graph: ExecutionGraph, finished: Iterable[SubtaskId], previous: Mapping[str, OperatorState]
) -> dict[str, tuple[int, ...]]:
    """Indices of the finished subtasks whose last state is carried forward, by operator id."""
    carried: dict[str, list[int]] = {}
    for subtask in finished:
        vertex = graph.job.vertex(subtask.vertex)
        for spec in vertex.operators:
            before = previous.get(spec.id)
            same = before is not None and before.parallelism == vertex.parallelism
            if before is not None and same and subtask.index in before.subtasks:
                carried.setdefault(spec.id, []).append(subtask.index)
    return {operator: tuple(indices) for operator, indices in carried.items()}


def with_coordinators(
    graph: ExecutionGraph, operators: Mapping[str, OperatorState], coordinators: Mapping[str, StateHandle]
) -> dict[str, OperatorState]:
    """The states of operators with those of their coordinators added."""
    states = dict(operators)
    for vertex in graph.job.vertices:
        for spec in vertex.operators:
            if spec.id in coordinators:
                state = states.get(spec.id) or OperatorState(
                    spec.id, vertex.parallelism, vertex.max_parallelism
                )
                states[spec.id] = replace(state, coordinator=coordinators[spec.id])
    return states
