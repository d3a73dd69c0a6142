"""Who takes part in a checkpoint (Flink's `CheckpointPlanCalculator`, FLIP-147).

While everything runs, sources start a checkpoint and everybody acknowledges it and is told of its end. A
finished subtask takes no part any more. A subtask whose senders have all sent their end gets no barrier
from anybody, so it is told to start by itself. When that is so is known only there. So everybody who has
reported the end of data is told, and starts by itself only when the ends of all its channels have been
consumed and no barrier has come. Whoever reports it while a checkpoint runs is told then. What a finished
subtask acknowledged last is carried from checkpoint to checkpoint: its state (an empty list of splits, its
last transactions) must be found when the job restarts. The checkpoint also says who has finished
(`finished_subtasks.py`).

A subtask that had finished when the restored checkpoint was taken only sends its ends and leaves. Until it
has left no checkpoint is taken: its ends are still on their way, and a receiver that is asked to begin a
checkpoint by itself must have everything that was sent to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.restore.finished_subtasks import finished_in_checkpoint, finished_on_restore
from penstock.runtime.snapshot.handles import (
    OperatorState,
    OperatorSubtaskState,
    StateHandle,
    SubtaskSnapshot,
)
from penstock.runtime.snapshot.subtask_id import SubtaskId


class SubtaskStatus(Enum):
    """How far a subtask of the current attempt is."""

    CREATED = "created"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """Who does what in one checkpoint.

    Attributes:
        trigger: Told to start it; those with input only if no barrier comes.
        acknowledge: Must acknowledge it.
        commit: Told of its end.
        finished: Take no part; their last state is carried forward.
    """

    trigger: tuple[SubtaskId, ...]
    acknowledge: tuple[SubtaskId, ...]
    commit: tuple[SubtaskId, ...]
    finished: tuple[SubtaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class NotAllRunning:
    """No checkpoint can be taken now.

    Attributes:
        waiting_for: Subtasks that don't run yet; empty when all have finished.
    """

    waiting_for: tuple[SubtaskId, ...]

    def __str__(self) -> str:
        waiting = ", ".join(map(str, self.waiting_for[:5])) or "none; they have finished"
        return f"subtasks that don't run yet: {waiting}"


class CheckpointPlanner:
    """Knows the subtasks of the current attempt and plans checkpoints.

    Args:
        graph: The job.
        checkpoints_after_tasks_finish: Whether checkpoints go on when some subtasks have finished (Flink
            1.11: they do not).
    """

    def __init__(self, graph: ExecutionGraph, *, checkpoints_after_tasks_finish: bool = True) -> None:
        self._after_finish = checkpoints_after_tasks_finish
        self._finished_count = 0
        self._data_ended: set[SubtaskId] = set()
        self._leaving: set[SubtaskId] = set()
        self.change_graph(graph)

    @property
    def status(self) -> Mapping[SubtaskId, SubtaskStatus]:
        """How far each subtask is."""
        return self._status

    @property
    def unfinished_count(self) -> int:
        """How many subtasks have not finished."""
        return len(self._status) - self._finished_count

    @property
    def unfinished(self) -> tuple[SubtaskId, ...]:
        """Subtasks that have not finished, sources first."""
        return tuple(s for s, status in self._status.items() if status is not SubtaskStatus.FINISHED)

    def change_graph(self, graph: ExecutionGraph) -> None:
        """The job has another parallelism from now on; nothing of it runs yet."""
        self._graph = graph
        self._senders = {s.id: frozenset(channel.sender for channel in s.inputs) for s in graph.subtasks}
        self.reset()

    def reset(self) -> None:
        """A new attempt: nothing runs yet."""
        self._status = dict.fromkeys(self._senders, SubtaskStatus.CREATED)
        self._finished_count = 0
        self._data_ended.clear()
        self._leaving.clear()

    def leave_out(self, subtasks: Iterable[SubtaskId]) -> None:
        """These have failed and are to start again; nothing is planned until they run."""
        for subtask in subtasks:
            self._finished_count -= self._status[subtask] is SubtaskStatus.FINISHED
            self._status[subtask] = SubtaskStatus.CREATED
            self._data_ended.discard(subtask)
            self._leaving.discard(subtask)

    def restored(
        self, operators: Mapping[str, OperatorState], region: frozenset[SubtaskId] | None = None
    ) -> None:
        """Subtasks start from these states: whoever has finished in them only leaves.

        Args:
            operators: The checkpoint's states.
            region: Which subtasks; `None` for all.
        """
        try:
            finished = finished_on_restore(self._graph, operators)
        except StateMismatchError:
            return  # nothing will run: the deployment meets the same error and tells it
        self._leaving |= finished if region is None else finished & region

    def started(self) -> None:
        """Everything that has not finished runs now."""
        for subtask in self.unfinished:
            self._status[subtask] = SubtaskStatus.RUNNING

    def finished(self, subtask: SubtaskId) -> bool:
        """A subtask has finished; `False` when it is unknown or had finished before."""
        if self._status.get(subtask, SubtaskStatus.FINISHED) is SubtaskStatus.FINISHED:
            return False
        self._status[subtask] = SubtaskStatus.FINISHED
        self._finished_count += 1
        self._leaving.discard(subtask)
        return True

    def data_ended(self, subtask: SubtaskId) -> None:
        """A subtask has processed the end of all its inputs: the ends of its channels follow."""
        self._data_ended.add(subtask)

    def plan(self, *, is_last: bool = False) -> CheckpointPlan | NotAllRunning:
        """Who takes part in a checkpoint that starts now.

        Args:
            is_last: Whoever is left waits for it to be able to leave, so it is taken in any case.
        """
        by_status: dict[SubtaskStatus, list[SubtaskId]] = {status: [] for status in SubtaskStatus}
        for subtask, status in self._status.items():
            by_status[status].append(subtask)
        running, finished = by_status[SubtaskStatus.RUNNING], by_status[SubtaskStatus.FINISHED]
        if by_status[SubtaskStatus.CREATED]:
            return NotAllRunning(tuple(by_status[SubtaskStatus.CREATED]))
        if self._leaving:
            return NotAllRunning(tuple(sorted(self._leaving)))
        if not running or (finished and not self._after_finish and not is_last):
            return NotAllRunning(())
        gone = frozenset(finished)
        trigger = tuple(s for s in running if self._senders[s] <= gone or s in self._data_ended)
        return CheckpointPlan(trigger, tuple(running), tuple(running), tuple(finished))

    def collect(
        self,
        snapshots: Mapping[SubtaskId, SubtaskSnapshot | None],
        finished: Iterable[SubtaskId],
        previous: Mapping[str, OperatorState],
    ) -> dict[str, OperatorState]:
        """Turn acknowledgements into the states of operators, the finished subtasks' last ones included.

        Args:
            snapshots: What the subtasks of the plan acknowledged.
            finished: The plan's finished subtasks.
            previous: The states of the newest completed checkpoint, or of the snapshot that the job began
                with as long as there is none.
        """
        gone = tuple(finished)
        ended = [
            subtask for subtask, snapshot in snapshots.items() if snapshot is not None and snapshot.ended
        ]
        done: dict[str, set[int]] = {}
        for subtask in finished_in_checkpoint(self._graph, [*gone, *ended]):
            done.setdefault(subtask.vertex, set()).add(subtask.index)
        parts: dict[str, dict[int, OperatorSubtaskState]] = {}
        for subtask, snapshot in snapshots.items():
            for operator, state in (snapshot.operators if snapshot is not None else {}).items():
                parts.setdefault(operator, {})[subtask.index] = state
        for operator, indices in self.carried(gone, previous).items():
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
            for vertex in self._graph.job.vertices
            for spec in vertex.operators
            if spec.id in parts or vertex.id in done
        }

    def carried(
        self, finished: Iterable[SubtaskId], previous: Mapping[str, OperatorState]
    ) -> dict[str, tuple[int, ...]]:
        """Of which finished subtasks the last state is carried forward: their indices by operator id.

        Args:
            finished: The plan's finished subtasks.
            previous: As for `collect`.
        """
        carried: dict[str, list[int]] = {}
        for subtask in finished:
            vertex = self._graph.job.vertex(subtask.vertex)
            for spec in vertex.operators:
                before = previous.get(spec.id)
                same = before is not None and before.parallelism == vertex.parallelism
                if before is not None and same and subtask.index in before.subtasks:
                    carried.setdefault(spec.id, []).append(subtask.index)
        return {operator: tuple(indices) for operator, indices in carried.items()}

    def with_coordinators(
        self, operators: Mapping[str, OperatorState], coordinators: Mapping[str, StateHandle]
    ) -> dict[str, OperatorState]:
        """The states of operators with those of their coordinators added."""
        states = dict(operators)
        for vertex in self._graph.job.vertices:
            for spec in vertex.operators:
                if spec.id in coordinators:
                    state = states.get(spec.id) or OperatorState(
                        spec.id, vertex.parallelism, vertex.max_parallelism
                    )
                    states[spec.id] = replace(state, coordinator=coordinators[spec.id])
        return states
