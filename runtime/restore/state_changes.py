"""What has changed between the states that a program declares and those of the snapshot it starts from.

Nothing here decides anything. `runtime/state/known_states.py` has the rules of keyed states, and
`runtime/operators/state/operator_state.py` those of lists; each subtask follows them. This
says beforehand, by name, what they will come to. States that are only asked for at run time are not known
before the job runs, so nothing is said of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import OperatorState, OperatorStateHandle, SavedState
from penstock.runtime.state.declared_states import StateInfo


def state_changes(graph: ExecutionGraph, checkpoint: CompletedCheckpoint) -> str | None:
    """A warning that names added, dropped and renamed states; `None` when there are none."""
    changes = [
        f"operator {operator.id!r}: {change}"
        for vertex in graph.job.vertices
        for operator in vertex.operators
        if operator.id in checkpoint.operators
        for change in _changes(operator.states, checkpoint.operators[operator.id])
    ]
    return "; ".join(changes) or None


def saved_states(state: OperatorState) -> dict[str, SavedState]:
    """The states of an operator's functions in a snapshot, by name; none in one of version 0.1."""
    handles = (handle for subtask in state.subtasks.values() for handle in subtask.keyed)
    return {saved.name: saved for handle in handles for saved in handle.states}


def saved_lists(state: OperatorState) -> dict[str, OperatorStateHandle]:
    """A handle of each list state of an operator in a snapshot, by name."""
    return {handle.name: handle for subtask in state.subtasks.values() for handle in subtask.operator}


def _changes(declared: tuple[StateInfo, ...], state: OperatorState) -> Iterator[str]:
    keyed = saved_states(state)
    if keyed:  # version 0.1 says nothing of keyed states
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
            yield f"state {info.name!r} takes over what was saved as {info.renamed_from!r}"
        else:
            yield f"state {info.name!r} is new and begins empty"
    known = {info.name for info in declared}
    for state in saved.values():
        if state.is_declared and state.name not in known and state.name not in renamed:
            yield (
                f"state {state.name!r} of the snapshot is declared no more. It stays in every checkpoint, "
                "and is used only if a function asks for it by its name"
            )
