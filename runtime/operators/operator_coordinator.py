"""`OperatorCoordinator`: the part of an operator that lives beside the job and not in a subtask (Flink's).

There is one for the whole operator, in the JobMaster. It talks with the operator's subtasks by events, takes
part in checkpoints, and gets its state back after a failure. Every method is called in the JobMaster's
thread and must not block; work that does goes through `OperatorCoordinatorContext.run_in_background`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

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

    def complete(self, state: bytes | None) -> None:
        """This is its state; everything it sends from now on comes after the checkpoint."""
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
            event: What it is told; it must be possible to pickle it.
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


class OperatorCoordinator(Protocol):
    """A coordinator of one operator; see the module's text for the thread."""

    def start(self) -> None:
        """The attempt begins; called after `reset_to_checkpoint`, before any event."""
        ...

    def handle_event(self, subtask: int, event: Any) -> None:
        """A subtask has sent an event."""
        ...

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        """Give a snapshot, now or later."""
        ...

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: bytes | None) -> None:
        """The whole job starts from this checkpoint, or from nothing: forget everything else."""
        ...

    def subtask_failed(self, subtask: int, reason: str) -> None:
        """A subtask is gone; nothing reaches it until it comes back."""
        ...

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        """A failed subtask comes back with the state of this checkpoint while the others go on."""
        ...

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete."""
        ...

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """A checkpoint was aborted."""
        ...

    def close(self) -> None:
        """The attempt or the job is over; called once."""
        ...
