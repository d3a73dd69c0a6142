"""`OperatorCoordinator`: the part of an operator that lives beside the job and not in a subtask (Flink's).

There is one for the whole operator, in the JobMaster. It talks with the operator's subtasks by events, takes
part in checkpoints, and gets its state back after a failure. Every method is called in the JobMaster's
thread and must not block; work that does goes through `OperatorCoordinatorContext.run_in_background`.

A source has one if it has an enumerator. A user's operator has one if it has a method `coordinator`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar, runtime_checkable

from penstock.runtime.errors import PenstockError

T = TypeVar("T")


class EventAnswer(Protocol):
    """Called once with the outcome of an event."""

    def sent(self) -> None:
        """The subtask has it."""
        ...

    def failed(self, error: BaseException) -> None:
        """It was not sent, or nobody knows whether it arrived."""
        ...


class CoordinatorAnswer(Protocol):
    """How a coordinator gives its snapshot, once; later answers are ignored."""

    def complete(self, state: Any | None) -> None:
        """This is its state, with every event that it has handled by now.

        Everything that it sends from now on comes after the checkpoint.
        """
        ...

    def fail(self, error: BaseException) -> None:
        """It can't take a snapshot: the checkpoint is aborted."""
        ...


class OperatorCoordinatorContext(Protocol):
    """The calls that a coordinator may make."""

    @property
    def operator_id(self) -> str:
        """Of which operator."""
        ...

    @property
    def parallelism(self) -> int:
        """How many subtasks the operator has."""
        ...

    def send_event(self, subtask: int, event: Any, answer: EventAnswer | None = None) -> None:
        """Send an event to a subtask; those to one subtask arrive in order.

        Args:
            subtask: Its index.
            event: What it is told: any value that the codec carries.
            answer: Called with its outcome.
        """
        ...

    def run_in_background(
        self, work: Callable[[], T], on_result: Callable[[T], None], on_error: Callable[[BaseException], None]
    ) -> None:
        """Run what blocks; nothing is told after the job was restored or the coordinator was closed.

        Args:
            work: What blocks.
        """
        ...

    def fail_job(self, cause: str | PenstockError) -> None:
        """The coordinator can't go on: the job fails and restarts."""
        ...


class OperatorCoordinator:
    """Base of coordinators: those of Penstock and those of users' operators (`HasCoordinator`).

    A coordinator of a user's operator is made anew for each attempt. Its calls come in this order:
    `reset_to_checkpoint`, `start`, then the others; `close` is the last one.
    """

    def start(self) -> None:
        """The attempt begins; called after `reset_to_checkpoint`, before any event."""

    def handle_event(self, subtask: int, event: Any) -> None:
        """A subtask has sent an event; those of one subtask come in the order in which they were sent."""

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        """Give a snapshot, now or later: any value that the codec carries; `None` for no state."""
        answer.complete(None)

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        """The operator starts from this checkpoint, or from nothing: forget everything else."""

    def subtask_failed(self, subtask: int, reason: str) -> None:
        """A subtask is gone; nothing reaches it until it comes back."""

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        """A failed subtask comes back with the state of this checkpoint while the others go on.

        Only for sources. Any other operator goes back with its coordinator, by `reset_to_checkpoint`.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was aborted."""

    def close(self) -> None:
        """The attempt or the job is over; called once."""


@runtime_checkable
class HasCoordinator(Protocol):
    """An `Operator` of a user's with a coordinator in the JobMaster."""

    def coordinator(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        """Make the coordinator of one attempt.

        Called in the JobMaster, on a copy of the operator that processes nothing.
        """
        ...


@runtime_checkable
class RecordsEvents(Protocol):
    """An `OperatorCoordinator` whose part of a checkpoint includes events on their way to it."""

    def subtask_acknowledged(self, checkpoint_id: int, subtask: int, events: int) -> None:
        """A subtask has taken its part of a checkpoint after it had sent this many events."""
        ...

    def has_all_events(self, checkpoint_id: int) -> bool:
        """Whether every event has come that was sent in front of an acknowledged part."""
        ...

    def recorded_state(self, checkpoint_id: int) -> bytes | None:
        """The state with those events; `None` when no such checkpoint is recorded."""
        ...
