"""`StepOperators`: the source coordinators of a `StepJob`, and what is on its way to and from readers.

Requests of readers arrive in any order. What goes to a reader, the triggers of checkpoints included, arrives
in the order in which it was sent, which is what the real master promises; each arrival is one move.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from penstock.runtime.checkpoint.operator_coordinators.holder import OperatorCoordinatorHolder
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.errors import OperatorLocation, PenstockError
from penstock.runtime.graph.execution_graph import ExecutionGraph
from penstock.runtime.graph.job_graph import JobVertex
from penstock.runtime.operators.operator_coordinator import EventAnswer, OperatorCoordinatorContext
from penstock.runtime.operators.source_coordinator import SourceCoordinator
from penstock.runtime.operators.split_enumerator import EnumeratesSplits
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import StateHandle
from penstock.runtime.snapshot.subtask_id import SubtaskId
from penstock.runtime.task.subtask import Subtask
from penstock.runtime.testing.two_step_runner import TwoStepRunner

#: Something that reaches a subtask, and what happens where it came from when it has.
Parcel = tuple[Callable[[Subtask], None], Callable[[], None]]


class StepOperators:
    """Source coordinators of one attempt.

    Args:
        graph: The job.
        restore: What the attempt starts from.

    Raises:
        PenstockError: The checkpoint does not fit.

    Attributes:
        runner: What coordinators do in the background.
        requests: What readers have sent and has not arrived.
        lanes: What is on its way to each reader, oldest first.
    """

    def __init__(self, graph: ExecutionGraph, restore: CompletedCheckpoint | None) -> None:
        self.runner = TwoStepRunner()
        self.requests: list[Callable[[], None]] = []
        vertices = [v for v in graph.job.vertices if isinstance(v.operators[0].source, EnumeratesSplits)]
        self.lanes: dict[SubtaskId, list[Parcel]] = {
            SubtaskId(vertex.id, index): [] for vertex in vertices for index in range(vertex.parallelism)
        }
        self._codec = ValueCodec()
        self._starting: int | None = None
        self._coordinators = OperatorCoordinators(map(self._holder, vertices))
        if restore is None:
            self._coordinators.reset_to_checkpoint(None)
        else:
            self._coordinators.reset_to_checkpoint(restore.checkpoint_id, restore.operators)
        self._coordinators.start()

    @property
    def is_starting(self) -> bool:
        """Whether coordinators are asked for their snapshots."""
        return self._starting is not None

    def start_checkpoint(self, checkpoint_id: int, then: Callable[[dict[str, StateHandle]], None]) -> None:
        """Ask the coordinators for their snapshots; `then` is told when all have given theirs."""
        self._starting = checkpoint_id
        states: dict[str, StateHandle] = {}
        missing = set(self._coordinators.operator_ids)

        def given(operator_id: str, state: StateHandle | None) -> None:
            if self._starting != checkpoint_id:
                return
            missing.discard(operator_id)
            if state is not None:
                states[operator_id] = state
            if not missing:
                self._starting = None
                then(states)

        if not missing:
            self._starting = None
            then(states)
        for operator_id in self._coordinators.operator_ids:
            self._coordinators.checkpoint(operator_id, checkpoint_id, partial(given, operator_id), _raise)

    def barriers_injected(self, checkpoint_id: int) -> None:
        """The sources were told: events go on behind that."""
        self._coordinators.after_barrier_injection(checkpoint_id)

    def give_up(self, checkpoint_id: int) -> None:
        """A checkpoint was given up; if it was being started, events go on."""
        if self._starting == checkpoint_id:
            self._starting = None
            self._coordinators.abort_current_triggering()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete."""
        self._coordinators.notify_checkpoint_complete(checkpoint_id)

    def event_of(self, subtask: SubtaskId, operator_id: str, event: Any) -> None:
        """A reader sends something; it arrives in a move of its own."""
        deliver = partial(self._coordinators.handle_event, operator_id, subtask.index, event)
        self.requests.append(lambda: _require(deliver()))

    def _holder(self, vertex: JobVertex) -> OperatorCoordinatorHolder:
        operator_id = vertex.operators[0].id

        def make(context: OperatorCoordinatorContext) -> SourceCoordinator:
            spec = vertex.operators[0]
            assert isinstance(spec.source, EnumeratesSplits)
            location = OperatorLocation(spec.id, None, vertex.parallelism, spec.defined_at)
            return SourceCoordinator(spec.source, context, self._codec, location)

        link = _Link(self.lanes, vertex.id, operator_id)
        return OperatorCoordinatorHolder(operator_id, vertex.parallelism, make, link, self.runner, _fail)


class _Link:
    """Puts a coordinator's events on their way."""

    def __init__(self, lanes: dict[SubtaskId, list[Parcel]], vertex: str, operator_id: str) -> None:
        self._lanes = lanes
        self._vertex = vertex
        self._operator_id = operator_id

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        deliver = partial(Subtask.operator_event, operator_id=self._operator_id, event=event)
        self._lanes[SubtaskId(self._vertex, subtask)].append((deliver, answer.sent))


def _raise(error: BaseException) -> None:
    raise error


def _fail(cause: str | PenstockError) -> None:
    raise cause if isinstance(cause, PenstockError) else PenstockError(cause)


def _require(handled: bool) -> None:
    assert handled, "an event was sent to an operator without a coordinator"
