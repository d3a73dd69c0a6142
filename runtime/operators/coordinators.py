"""The parts of operators and sources that run in the JobMaster.

**`OperatorCoordinator`** (Flink's name, too). There is one for the whole operator, in the JobMaster. It talks
with the operator's subtasks by events, takes part in checkpoints, and gets its state back after a failure.
Every method is called in the JobMaster's thread and must not block; work that does goes through
`OperatorCoordinatorContext.run_in_background`.

A source has one if it has an enumerator. A user's operator has one if it has a method `coordinator`.

**`MasterHook`** and `ExternallyInducedReader`, for sources that decide by their data when a checkpoint
happens (Flink's `ExternallyInducedSourceReader`). A system outside can put a mark into its data, and
everything in front of the mark is to be in one checkpoint. Two parts make that work. The source's *master
hook* runs in the JobMaster: when a checkpoint starts it asks the system to write the mark of that checkpoint.
The reader of each subtask meets the mark, says so, and the subtask takes the checkpoint exactly there.

The job still tells its sources of each checkpoint; such a reader's subtask takes that as the permission to
begin, not as the moment. A mark that is met before the permission comes stops the reader until it does, or
until the checkpoint is aborted or overtaken. A mark from before a restart stops no reader. When the data has
ended there are no more marks, and the subtask takes checkpoints like any other. Savepoints go the same way;
one with which the job is stopped ends the data of each reader at its mark.
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
        """The event was not sent, or it is unknown whether it arrived."""
        ...


class CoordinatorAnswer(Protocol):
    """Takes a coordinator's snapshot, once; later answers are ignored."""

    def complete(self, state: Any | None) -> None:
        """Give the coordinator's state, with every event that it has handled by now.

        Everything that it sends from now on comes after the checkpoint.
        """
        ...

    def fail(self, error: BaseException) -> None:
        """The coordinator can't take a snapshot: the checkpoint is aborted."""
        ...


class OperatorCoordinatorContext(Protocol):
    """The calls that a coordinator may make."""

    @property
    def operator_id(self) -> str:
        """The id of its operator."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of the operator's subtasks."""
        ...

    def send_event(self, subtask: int, event: Any, answer: EventAnswer | None = None) -> None:
        """Send an event to a subtask; those to one subtask arrive in order.

        Args:
            subtask: Its index.
            event: The message: any value that the codec carries.
            answer: Called with its outcome.
        """
        ...

    def run_in_background(
        self, work: Callable[[], T], on_result: Callable[[T], None], on_error: Callable[[BaseException], None]
    ) -> None:
        """Run what blocks; no callback runs after the job was restored or the coordinator was closed.

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


class CoordinatorProvider(Protocol):
    """Makes the coordinator of an operator, one for each attempt (Flink's `OperatorCoordinator.Provider`)."""

    def make(self, context: OperatorCoordinatorContext) -> OperatorCoordinator: ...

    def name(self, coordinator: OperatorCoordinator | None) -> str:
        """The name of what runs users' code, for messages; `None` before it was made."""
        ...

    def check_restored(self, checkpoint_id: int | None, state: Any | None) -> None:
        """Refuse a state that the coordinator can't begin with, by a `PenstockError`."""
        ...

    def must_arrive(self, event: Any) -> bool:
        """Whether a subtask that has finished must run again for this event of the coordinator."""
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


class MasterHook(Protocol):
    """A hook as a user writes it; its calls may come from different threads, never two at a time.

    All of them may block. A call that does not come back in time fails its checkpoint, or the start of the
    attempt. No further call is made before it has come back.

    Example:
        >>> class Sequence:  # numbers the checkpoints that the job builds on
        ...     identifier = "sequence"
        ...
        ...     def __init__(self):
        ...         self.newest = 0
        ...
        ...     def trigger_checkpoint(self, checkpoint_id, timestamp):
        ...         self.newest += 1
        ...         return self.newest
        ...
        ...     def restore_checkpoint(self, checkpoint_id, state):
        ...         self.newest = state
        ...
        ...     def reset(self):
        ...         self.newest = 0
        ...
        ...     def close(self):
        ...         pass
        >>> hook: MasterHook = Sequence()
        >>> hook.trigger_checkpoint(1, 0.0), hook.trigger_checkpoint(2, 0.0)
        (1, 2)
    """

    @property
    def identifier(self) -> str:
        """Names the hook's state for as long as the job lives."""
        ...

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> Any | None:
        """Do the hook's part of a checkpoint and return its state, any value that the codec carries.

        Raises:
            Exception: Whatever it raises gives the checkpoint up.
        """
        ...

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        """The job starts from this checkpoint."""
        ...

    def reset(self) -> None:
        """The job starts from nothing."""
        ...

    def close(self) -> None:
        """The job has ended."""
        ...


@runtime_checkable
class HasMasterHook(Protocol):
    """A `Source` with a part in every checkpoint that runs in the JobMaster."""

    def master_hook(self) -> MasterHook: ...


@runtime_checkable
class ExternallyInducedReader(Protocol):
    """A `SourceReader` that meets marks."""

    def should_trigger_checkpoint(self) -> int | None:
        """The checkpoint whose mark stands right after what the last `poll` gave; asked once a poll."""
        ...
