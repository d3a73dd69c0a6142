"""The subtasks that take part in a checkpoint (Flink's `CheckpointPlanCalculator`, FLIP-147).

The coordinator triggers the sources, and every running subtask acknowledges and is notified. A subtask whose
senders have all finished gets no barrier. So the coordinator also triggers these subtasks, and subtasks whose
data has ended. It does so when the checkpoint starts, or as soon as a subtask reports the end of its data.
The subtask begins the checkpoint, without a barrier, when it has consumed the ends of all its channels.

A subtask that had finished in the restored checkpoint only signals the end of its outputs and finishes again.
No checkpoint is taken before that, because a receiver that begins a checkpoint without a barrier must have
all its input.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from penstock.runtime.config.job_config import Semantics
from penstock.runtime.errors import StateMismatchError
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.restore import finished_on_restore
from penstock.runtime.snapshot.handles import OperatorState
from penstock.runtime.snapshot.ids import SubtaskId


class SubtaskStatus(Enum):
    CREATED = "created"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(frozen=True, slots=True)
class CheckpointPlan:
    """The subtasks of one checkpoint.

    A subtask in `trigger` that has inputs begins without a barrier, after the ends of all its channels. The
    checkpoint takes over the last state of the subtasks in `finished`.
    """

    trigger: tuple[SubtaskId, ...]
    acknowledge: tuple[SubtaskId, ...]
    commit: tuple[SubtaskId, ...]
    finished: tuple[SubtaskId, ...] = ()


@dataclass(frozen=True, slots=True)
class NotAllRunning:
    """No checkpoint can be taken now, because of the subtasks in `waiting_for`, or of finished subtasks.

    `waiting_for` has subtasks that don't run yet, or restored finished subtasks that still run.
    """

    waiting_for: tuple[SubtaskId, ...]

    def __str__(self) -> str:
        waiting = ", ".join(map(str, self.waiting_for[:5])) or "none, but subtasks have finished"
        return f"subtasks that a checkpoint waits for: {waiting}"


class CheckpointPlanner:
    """Tracks the subtasks of the current attempt and plans checkpoints."""

    def __init__(self, graph: CurrentGraph, semantics: Semantics = Semantics.current()) -> None:
        self.graph = graph
        self._semantics = semantics
        self.begin_attempt(0)

    @property
    def status(self) -> Mapping[SubtaskId, SubtaskStatus]:
        return self._status

    @property
    def unfinished_count(self) -> int:
        return len(self._status) - self._finished_count

    @property
    def unfinished(self) -> tuple[SubtaskId, ...]:
        return tuple(s for s, status in self._status.items() if status is not SubtaskStatus.FINISHED)

    def begin_attempt(self, attempt: int) -> None:
        self._attempt = attempt
        #: Attempts of subtasks that continued when another region began a new attempt.
        self._older_attempts: dict[SubtaskId, int] = {}
        self._status = dict.fromkeys(self.graph.subtasks, SubtaskStatus.CREATED)
        self._finished_count = 0
        self._data_ended: set[SubtaskId] = set()
        self._leaving: set[SubtaskId] = set()

    def begin_region(self, attempt: int, region: frozenset[SubtaskId]) -> None:
        """Begin a new attempt of a region; the other subtasks keep theirs."""
        others = (subtask for subtask in self.graph.subtasks if subtask not in region)
        self._older_attempts = {subtask: self.attempt_of(subtask) for subtask in others}
        self._attempt = attempt

    def attempt_of(self, subtask: SubtaskId) -> int:
        """The attempt of a subtask; older than the job's if only other regions were restarted."""
        return self._older_attempts.get(subtask, self._attempt)

    def by_attempt(self, subtasks: Iterable[SubtaskId]) -> list[tuple[int, tuple[SubtaskId, ...]]]:
        """The unfinished `subtasks`, by attempt."""
        found: dict[int, list[SubtaskId]] = {}
        status = self.status
        for subtask in subtasks:
            if status[subtask] is not SubtaskStatus.FINISHED:
                found.setdefault(self.attempt_of(subtask), []).append(subtask)
        return [(attempt, tuple(those)) for attempt, those in found.items()]

    def leave_out(self, subtasks: Iterable[SubtaskId]) -> None:
        """Note subtasks that start again after a failure; no checkpoint is planned until they run."""
        for subtask in subtasks:
            self._finished_count -= self._status[subtask] is SubtaskStatus.FINISHED
            self._status[subtask] = SubtaskStatus.CREATED
            self._data_ended.discard(subtask)
            self._leaving.discard(subtask)

    def restored(
        self, operators: Mapping[str, OperatorState], region: frozenset[SubtaskId] | None = None
    ) -> None:
        """Note the states that a region (`None` for the job) starts from; some subtasks may have finished."""
        try:
            finished = finished_on_restore(self.graph.execution, operators)
        except StateMismatchError:
            return  # the deployment meets the same error and reports it
        self._leaving |= finished if region is None else finished & region

    def started(self) -> None:
        for subtask in self.unfinished:
            self._status[subtask] = SubtaskStatus.RUNNING

    def finished(self, subtask: SubtaskId) -> bool:
        """Note a finished subtask; return false if it is unknown or had finished before."""
        if self._status.get(subtask, SubtaskStatus.FINISHED) is SubtaskStatus.FINISHED:
            return False
        self._status[subtask] = SubtaskStatus.FINISHED
        self._finished_count += 1
        self._leaving.discard(subtask)
        return True

    def data_ended(self, subtask: SubtaskId) -> None:
        self._data_ended.add(subtask)

    def plan(self, *, is_last: bool = False) -> CheckpointPlan | NotAllRunning:
        """Plan a checkpoint that starts now; `is_last` allows it even if subtasks have finished."""
        by_status: dict[SubtaskStatus, list[SubtaskId]] = {status: [] for status in SubtaskStatus}
        for subtask, status in self._status.items():
            by_status[status].append(subtask)
        running, finished = by_status[SubtaskStatus.RUNNING], by_status[SubtaskStatus.FINISHED]
        if by_status[SubtaskStatus.CREATED]:
            return NotAllRunning(tuple(by_status[SubtaskStatus.CREATED]))
        if self._leaving:
            return NotAllRunning(tuple(sorted(self._leaving)))
        if not running or (finished and not self._semantics.checkpoints_after_tasks_finish and not is_last):
            return NotAllRunning(())
        gone = frozenset(finished)
        trigger = tuple(s for s in running if self.graph.senders[s] <= gone or s in self._data_ended)
        return CheckpointPlan(trigger, tuple(running), tuple(running), tuple(finished))
