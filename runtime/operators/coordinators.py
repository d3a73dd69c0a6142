"""The parts of operators and sources that run in the JobMaster.

**`OperatorCoordinator`** (Flink's name, too): an operator's part in the JobMaster. It exchanges events with
the operator's subtasks, takes part in checkpoints, and is restored after a failure. Every method is called in
the JobMaster's thread and must not block; use `OperatorCoordinatorContext.run_in_background` for blocking
work. A source with an enumerator has a coordinator, and so has a user's operator with a method `coordinator`.

**`MasterHook`** and `ExternallyInducedReader` are for sources whose data decides when a checkpoint happens
(Flink's `ExternallyInducedSourceReader`). An external system puts a mark into its data, and all records
before the mark belong to the checkpoint. The source's *master hook* runs in the JobMaster: when a checkpoint
starts, it makes the system write the mark. The reader of each subtask reaches the mark and reports it, and
the subtask takes the checkpoint exactly there.

The job still triggers its sources for each checkpoint; for such a reader, the trigger only permits the
checkpoint. A reader that reaches a mark before the permission stops until the permission arrives, or until
the checkpoint is aborted or overtaken. A mark from before a restart stops no reader. After the end of the
data there are no marks, and the subtask takes checkpoints like any other. Savepoints work the same way; a
savepoint that stops the job ends the data of each reader at its mark.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

from penstock.runtime.errors import PenstockError
from penstock.runtime.time.durations import Duration

T = TypeVar("T")


class EventAnswer(Protocol):
    """Called once with the outcome of an event."""

    def sent(self) -> None:
        """React to the arrival of the event at the subtask."""
        ...

    def failed(self, error: BaseException) -> None:
        """React to an event that was not sent, or may not have arrived."""
        ...


class CoordinatorAnswer(Protocol):
    """Receives a coordinator's snapshot; ignores all answers after the first."""

    def complete(self, state: Any | None) -> None:
        """Deliver the coordinator's state, which includes every event that it has handled so far.

        Every event that it sends from now on belongs after the checkpoint.
        """
        ...

    def fail(self, error: BaseException) -> None:
        """Report that the coordinator can't take a snapshot: the checkpoint is aborted."""
        ...


class FirstAnswer:
    """A `CoordinatorAnswer` that passes on the first answer only."""

    def __init__(self, on_state: Callable[[Any], None], on_error: Callable[[BaseException], None]) -> None:
        self._on_state = on_state
        self._on_error = on_error
        self._is_given = False

    def complete(self, state: Any | None = None) -> None:
        if not self._is_given:
            self._is_given = True
            self._on_state(state)

    def fail(self, error: BaseException) -> None:
        if not self._is_given:
            self._is_given = True
            self._on_error(error)


class OperatorCoordinatorContext(Protocol):
    """The calls that a coordinator may make."""

    @property
    def operator_id(self) -> str:
        """Id of the coordinator's operator."""
        ...

    @property
    def parallelism(self) -> int:
        """Number of the operator's subtasks."""
        ...

    def send_event(self, subtask: int, event: Any, answer: EventAnswer | None = None) -> None:
        """Send an event, any value that the codec can encode; events to one subtask arrive in order.

        Args:
            subtask: Index of the subtask.
            answer: Called with the outcome.
        """
        ...

    def run_in_background(
        self, work: Callable[[], T], on_result: Callable[[T], None], on_error: Callable[[BaseException], None]
    ) -> None:
        """Run blocking work; no callback runs after the job was restored or the coordinator was closed."""
        ...

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        """Call back after a delay; never after the job was restored or the coordinator was closed."""
        ...

    def fail_job(self, cause: str | PenstockError) -> None:
        """Fail the attempt, because the coordinator can't continue; the job may restart."""
        ...


class OperatorCoordinator:
    """Base of coordinators: those of Penstock and those of users' operators (`HasCoordinator`).

    A user's operator has a new coordinator in each attempt. Its methods are called in this order:
    `reset_to_checkpoint`, `start`, then the others; `close` is the last one.
    """

    def start(self) -> None:
        """Begin the attempt; called after `reset_to_checkpoint`, before any event."""

    def handle_event(self, subtask: int, event: Any) -> None:
        """Handle an event of a subtask; events of one subtask arrive in the order in which they were sent."""

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        """Give `answer` the state, now or later: any value that the codec can encode; `None` for no state."""
        answer.complete(None)

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        """Restore the state of this checkpoint, or start empty; drop all other state."""

    def subtask_failed(self, subtask: int, reason: str) -> None:
        """React to a failed subtask; no event reaches it until it is restored."""

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        """React to the restart of a source's subtask from this checkpoint; the coordinator continues.

        Any other operator is restored together with its coordinator, by `reset_to_checkpoint`.
        """

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """React to a completed checkpoint."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """React to an aborted checkpoint."""

    def close(self) -> None:
        """Release resources at the end of the attempt or the job; called once."""


@runtime_checkable
class HasCoordinator(Protocol):
    """A user's `Operator` with a coordinator in the JobMaster."""

    def coordinator(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        """Make the coordinator of one attempt; called in the JobMaster, on a copy of the operator."""
        ...


class CoordinatorProvider:
    """Makes the coordinator of an operator, one for each attempt (Flink's `OperatorCoordinator.Provider`)."""

    def make(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        raise NotImplementedError

    def name(self, coordinator: OperatorCoordinator | None) -> str:
        """Name of the user's code for messages; `None` before the coordinator was made."""
        raise NotImplementedError

    def check_restored(self, checkpoint_id: int | None, state: Any | None) -> None:
        """Raise a `PenstockError` if the coordinator can't start from this state; accepts any by default."""

    def must_arrive(self, event: Any) -> bool:
        """Return whether a finished subtask must run again for this event of the coordinator."""
        return False


@dataclass(frozen=True, slots=True)
class MissingEvents:
    """Number of events that a subtask sent before its part of a checkpoint, and number that arrived."""

    subtask: int
    received: int
    sent: int


@runtime_checkable
class RecordsEvents(Protocol):
    """An `OperatorCoordinator` whose part of a checkpoint includes events on their way to it."""

    def subtask_acknowledged(self, checkpoint_id: int, subtask: int, events: int) -> None:
        """Record that a subtask took its part of a checkpoint after it had sent `events` events."""
        ...

    def missing_events(self, checkpoint_id: int) -> tuple[MissingEvents, ...]:
        """Events that were sent before an acknowledged part and have not arrived, by subtask."""
        ...

    def recorded_state(self, checkpoint_id: int) -> bytes | None:
        """The state with the recorded events; `None` for a checkpoint that is not recorded."""
        ...


class MasterHook(Protocol):
    """A user's hook; it is called from different threads, but never concurrently.

    Calls may block. A call that does not return in time fails its checkpoint, or the start of the attempt. No
    further call is made before it has returned.

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
        """Name of the hook's state, constant for the life of the job."""
        ...

    def trigger_checkpoint(self, checkpoint_id: int, timestamp: float) -> Any | None:
        """Do the hook's part of a checkpoint and return its state; an exception aborts the checkpoint.

        The state is any value that the codec can encode.
        """
        ...

    def restore_checkpoint(self, checkpoint_id: int, state: Any | None) -> None:
        """Restore the hook's state: the job starts from this checkpoint."""
        ...

    def reset(self) -> None:
        """Reset the hook's state: the job starts without a checkpoint."""
        ...

    def close(self) -> None:
        """Release resources at the end of the job."""
        ...


@runtime_checkable
class HasMasterHook(Protocol):
    """A `Source` with a hook in the JobMaster that takes part in every checkpoint."""

    def master_hook(self) -> MasterHook: ...


@runtime_checkable
class ExternallyInducedReader(Protocol):
    """A `SourceReader` whose data has marks of checkpoints."""

    def should_trigger_checkpoint(self) -> int | None:
        """The checkpoint whose mark follows the records of the last `poll`; called once per poll."""
        ...
