"""Which subtasks have finished for good, according to a checkpoint (FLIP-147).

A subtask that has processed the end of its data acknowledges checkpoints as *ended*. All that its operators
will ever emit is in front of the barrier. After a restore from such a checkpoint these operators must not run
again: what they emit at the end would be emitted twice. So the checkpoint holds, for each operator, which
subtasks have finished.

Only subtasks whose senders have all finished too count. With aligned barriers this is always so: the sender's
end came before its barrier. Without alignment (at-least-once) a subtask may meet the end of a channel behind
the barrier and still in front of its snapshot. Its sender would be restored to before the end and send again,
and a receiver that does not run would drop that. Such a subtask runs again.

Three rules for a graph that is not the one the checkpoint was taken with, after Flink's
`VertexFinishedStateChecker`:

* The operators of one chain have all finished or none: a new operator in a finished chain would get nothing.
* All senders of a finished operator have finished.
* A partly finished operator at another parallelism runs in all subtasks, because its old subtasks do not
  exist any more. The state of its finished subtasks is not redistributed, because it was emitted; see
  `kept_after_the_end`.

Unlike Flink, a checkpoint keeps the state of finished subtasks, so a partly finished operator with union list
state loses nothing and needs no refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph, ExecutionSubtask
from penstock.runtime.graph.job_graph import JobVertex
from penstock.runtime.snapshot.handles import (
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
)
from penstock.runtime.snapshot.subtask_id import SubtaskId


def finished_in_checkpoint(graph: ExecutionGraph, ended: Iterable[SubtaskId]) -> frozenset[SubtaskId]:
    """The ended subtasks whose senders have all finished.

    Args:
        ended: Subtasks that have left, or had ended when they took their snapshot.
    """
    candidates, finished = frozenset(ended), set[SubtaskId]()
    for subtask in graph.subtasks:  # sources first
        if subtask.id in candidates and finished.issuperset(_senders(subtask)):
            finished.add(subtask.id)
    return frozenset(finished)


def finished_on_restore(
    graph: ExecutionGraph, operators: Mapping[str, OperatorState]
) -> frozenset[SubtaskId]:
    """The subtasks of a job that do not run again when it starts from these states.

    Raises:
        StateMismatchError: The graph breaks a rule of the module's text.
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
                f"but {', '.join(running[:3])} sends to it and does run: what it sends would be lost. "
                "Give the new part of the job operators of its own, behind the old ones' senders"
            )
            raise StateMismatchError(msg)
    return frozenset(finished)


def kept_after_the_end(state: OperatorSubtaskState, *, is_sink: bool) -> OperatorSubtaskState:
    """The part of a finished subtask's state that is still needed.

    These are transactions of a sink, which must be committed, and lists that every subtask sees. All other
    state has had its effect.
    """

    def concerns_others(handle: OperatorStateHandle) -> bool:
        return is_sink or handle.mode is not RedistributionMode.SPLIT_DISTRIBUTE

    return OperatorSubtaskState(
        operator=tuple(filter(concerns_others, state.operator)),
        raw_operator=tuple(filter(concerns_others, state.raw_operator)),
    )


def _finished_indices(vertex: JobVertex, operators: Mapping[str, OperatorState]) -> frozenset[int]:
    """Indices of a vertex's subtasks that had finished, as they are numbered now."""
    by_operator: dict[str, frozenset[int]] = {}
    for spec in vertex.operators:
        state = operators.get(spec.id)
        if state is None:
            by_operator[spec.id] = frozenset()
        elif state.is_fully_finished:
            by_operator[spec.id] = frozenset(range(vertex.parallelism))
        elif state.parallelism == vertex.parallelism:
            by_operator[spec.id] = state.finished
        else:
            by_operator[spec.id] = frozenset()
    kinds = set(by_operator.values())
    all_indices = frozenset(range(vertex.parallelism))
    if len(kinds) > 1 and all_indices in kinds:
        done = [operator for operator, indices in by_operator.items() if indices == all_indices]
        others = [operator for operator, indices in by_operator.items() if indices != all_indices]
        msg = (
            f"{', '.join(map(repr, done))} had finished when the checkpoint was taken and does not run "
            f"again, but {', '.join(map(repr, others))} in the same chain had not: it would get no input. "
            "Start from a snapshot in which all operators of the chain have finished, or none"
        )
        raise StateMismatchError(msg)
    return frozenset.intersection(*kinds)


def _senders(subtask: ExecutionSubtask) -> frozenset[SubtaskId]:
    return frozenset(channel.sender for channel in subtask.inputs)
