"""`CoordinatorHost`: runs the coordinator of one operator; each `start` makes a new coordinator object.

Coordinators of users' operators and those of sources with an enumerator are hosted alike. Events of the
operator's subtasks and of the coordinator are handled exactly once relative to checkpoints.

A checkpoint of an operator with a coordinator has one part for the coordinator and one for each subtask. The
parts are taken at different moments: the coordinator's first, then each subtask's when a barrier reaches it.
An event must be sent and handled on the same side of the checkpoint. Otherwise the checkpoint must hold it.
Two rules ensure that.

*From the coordinator to a subtask.* A valve holds back events between the coordinator's part and the barriers
of the sources. This is not enough, because a barrier reaches a subtask later. So each event names the
checkpoint after which it was sent. The subtask holds the event until it has taken its part of that
checkpoint, or will never take it (`task/subtask_checkpoints.py`). Events that were sent before the
coordinator's part have arrived before any source is triggered (`OperatorCoordinatorHolder`).

*From a subtask to the coordinator.* An event that a subtask sent before its part may arrive after the
coordinator's part was taken. Neither state contains the event, so the checkpoint records it (Chandy and
Lamport's state of a channel). Events are numbered, and a subtask acknowledges its part with the number of
events that it had sent. After the coordinator's part, all arriving events are recorded. The checkpoint
completes when all events that precede the subtasks' parts have arrived, and holds only these events. After a
restore they are handled again, right after `start`, because the restored coordinator has not seen them. The
requests of readers are not counted, so checkpoints do not hold them: a restored reader requests again.

A restart gives both sides the same checkpoint. A region restarts with the coordinators of its operators,
since all subtasks of an operator are in one region. So neither side knows an event that the other does not.
The coordinator of a source continues and takes splits back instead (`SourceCoordinator`).

The host must never:

* hand a subtask's events to the coordinator twice, or out of order,
* let a checkpoint complete without an event that precedes it,
* let an error of the user's code escape, except as an `OperatorError`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from penstock.runtime.errors import (
    CodecError,
    CorruptSnapshotError,
    OperatorError,
    OperatorLocation,
    PenstockError,
)
from penstock.runtime.operators.coordinators import (
    CoordinatorAnswer,
    CoordinatorProvider,
    EventAnswer,
    FirstAnswer,
    HasCoordinator,
    MissingEvents,
    OperatorCoordinator,
    OperatorCoordinatorContext,
)
from penstock.runtime.operators.user_code.failure import operator_error, short_repr
from penstock.runtime.operators.user_code.function_class import check_has_run
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.time.durations import Duration


@dataclass(frozen=True, slots=True)
class EventOfSubtask:
    """An event of a subtask for its operator's coordinator.

    Attributes:
        number: Counts the events of this subtask and attempt from 1. Reports may overtake each other.
    """

    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class EventOfCoordinator:
    """An event of an operator's coordinator for one of its subtasks.

    Attributes:
        after: The newest checkpoint for which the coordinator had taken its part since the subtask began; -1
            for none. The event belongs after this checkpoint.
        must_arrive: Whether a subtask that has finished must run again for this event.
    """

    after: int
    data: bytes
    must_arrive: bool = False


class UserCoordinatorProvider(CoordinatorProvider):
    def __init__(self, operator: HasCoordinator) -> None:
        self._operator = operator

    def make(self, context: OperatorCoordinatorContext) -> OperatorCoordinator:
        made: object = self._operator.coordinator(context)
        if not isinstance(made, OperatorCoordinator):
            msg = f"coordinator returned {short_repr(made)}; return an OperatorCoordinator"
            raise PenstockError(msg)
        return made

    def name(self, coordinator: OperatorCoordinator | None) -> str:
        return f"coordinator {type(coordinator or self._operator).__name__}"


T = TypeVar("T")


@dataclass(slots=True)
class _Inbox:
    handled: int = 0
    early: dict[int, bytes] = field(default_factory=dict)


#: Stands for the inbox of a subtask that has sent nothing; never changed.
_NO_EVENTS: Final = _Inbox()


@dataclass(slots=True)
class _Recording:
    state: bytes
    events: list[tuple[int, int, bytes]] = field(default_factory=list)
    sent: dict[int, int] = field(default_factory=dict)


class CoordinatorHost(OperatorCoordinator):
    """Hosts the coordinator of an operator, and is its context; the module's docstring has the rules."""

    def __init__(
        self,
        provider: CoordinatorProvider,
        context: OperatorCoordinatorContext,
        codec: ValueCodec,
        location: OperatorLocation,
    ) -> None:
        self._provider = provider
        self._context = context
        self._codec = codec
        self._location = location
        self._coordinator: OperatorCoordinator | None = None
        self._restored: tuple[int | None, Any | None] = (None, None)
        self._to_handle_again: list[tuple[int, bytes]] = []
        #: `EventOfCoordinator.after` by subtask.
        self._after: dict[int, int] = {}
        self._inboxes: dict[int, _Inbox] = {}
        self._recordings: dict[int, _Recording] = {}
        #: The checkpoint whose state the coordinator must still return; `None` for none.
        self._asked: int | None = None

    # -- the coordinator's context --------------------------------------------------------------------------

    @property
    def operator_id(self) -> str:
        return self._context.operator_id

    @property
    def parallelism(self) -> int:
        return self._context.parallelism

    def send_event(self, subtask: int, event: Any, answer: EventAnswer | None = None) -> None:
        try:
            data = self._codec.dumps(event)
        except CodecError as error:
            msg = f"an event for subtask {subtask} can't be sent: {error}"
            raise CodecError(msg) from error
        event = EventOfCoordinator(self._after.get(subtask, -1), data, self._provider.must_arrive(event))
        self._context.send_event(subtask, event, answer)

    def run_in_background(
        self, work: Callable[[], T], on_result: Callable[[T], None], on_error: Callable[[BaseException], None]
    ) -> None:
        self._context.run_in_background(
            work,
            lambda result: self._guarded("on_result", lambda: on_result(result)),
            lambda error: self._guarded("on_error", lambda: on_error(error)),
        )

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        self._context.call_later(delay, lambda: self._guarded("call_later", callback))

    def fail_job(self, cause: str | PenstockError) -> None:
        self._context.fail_job(cause)

    # -- lifecycle ------------------------------------------------------------------------------------------

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: Any | None) -> None:
        """Prepare a start from a checkpoint, or without one.

        Raises:
            CorruptSnapshotError: The state is damaged, or belongs to another kind of coordinator.
            PenstockError: The coordinator can't begin with the state.
        """
        self.close()
        self._after.clear()
        self._inboxes.clear()
        self._recordings.clear()
        self._asked = None
        own, events = (None, []) if state is None else self._decoded(state)
        self._provider.check_restored(checkpoint_id, own)
        self._restored = (checkpoint_id, own)
        self._to_handle_again = events

    def start(self) -> None:
        checkpoint_id, state = self._restored
        events, self._to_handle_again = self._to_handle_again, []

        def begin() -> None:
            hosted = self._coordinator = self._provider.make(self)
            for name, arguments in (("reset_to_checkpoint", (checkpoint_id, state)), ("start", ())):
                check_has_run(name, getattr(hosted, name)(*arguments))

        self._guarded("start", begin)
        for subtask, data in events:
            self._handle(subtask, data)

    def close(self) -> None:
        hosted, self._coordinator = self._coordinator, None
        if hosted is not None:
            self._guarded("close", hosted.close)

    def subtask_failed(self, subtask: int, reason: str) -> None:
        self._inboxes.pop(subtask, None)
        self._notify("subtask_failed", subtask, reason)

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        """Reset a restarted subtask: its events count from 1 again, and events for it name no checkpoint."""
        self._inboxes.pop(subtask, None)  # a report of the failed subtask may have arrived meanwhile
        self._after.pop(subtask, None)
        self._notify("subtask_reset", subtask, checkpoint_id)

    # -- events ---------------------------------------------------------------------------------------------

    def handle_event(self, subtask: int, event: Any) -> None:
        """Handle an event of a subtask; drops duplicates."""
        if not isinstance(event, EventOfSubtask):
            msg = f"a subtask of {self.operator_id!r} sent {event!r:.80}"
            raise TypeError(msg)
        inbox = self._inboxes.setdefault(subtask, _Inbox())
        if event.number > inbox.handled:
            inbox.early[event.number] = event.data
        while (data := inbox.early.pop(inbox.handled + 1, None)) is not None:
            inbox.handled += 1
            for recording in self._recordings.values():
                recording.events.append((subtask, inbox.handled, data))
            self._handle(subtask, data)

    # -- checkpoints ----------------------------------------------------------------------------------------

    def checkpoint(self, checkpoint_id: int, answer: CoordinatorAnswer) -> None:
        """Take the coordinator's state, and record the events that arrive from then on."""
        assert self._coordinator is not None, "start() comes first"
        self._asked = checkpoint_id
        call: Callable[..., Any] = self._coordinator.checkpoint
        try:
            given = call(
                checkpoint_id, FirstAnswer(partial(self._take_state, checkpoint_id, answer), answer.fail)
            )
            check_has_run("checkpoint", given)
        except BaseException as error:  # the user's code
            failure = self._error("checkpoint", error)
            raise failure from error

    def _take_state(self, checkpoint_id: int, answer: CoordinatorAnswer, state: Any) -> None:
        if checkpoint_id != self._asked:
            return
        self._asked = None
        try:
            data = self._codec.dumps(state)
        except PenstockError as error:
            failure = self._error("checkpoint", CodecError(f"its state can't be saved: {error}"))
            answer.fail(failure)
            self._context.fail_job(failure)
            return
        self._recordings[checkpoint_id] = _Recording(data)
        self._after = dict.fromkeys(range(self.parallelism), checkpoint_id)
        answer.complete(self._encoded(data, []))

    def subtask_acknowledged(self, checkpoint_id: int, subtask: int, events: int) -> None:
        if (recording := self._recordings.get(checkpoint_id)) is not None:
            recording.sent[subtask] = events

    def missing_events(self, checkpoint_id: int) -> tuple[MissingEvents, ...]:
        recording = self._recordings.get(checkpoint_id)
        sent = {} if recording is None else recording.sent
        missing = [item for item in sent.items() if self._inboxes.get(item[0], _NO_EVENTS).handled < item[1]]
        return tuple(self._missing(subtask, last) for subtask, last in sorted(missing))

    def recorded_state(self, checkpoint_id: int) -> bytes | None:
        recording = self._recordings.get(checkpoint_id)
        if recording is None:
            return None
        sent = recording.sent
        return self._encoded(
            recording.state, [(s, data) for s, number, data in recording.events if number <= sent.get(s, 0)]
        )

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """Notify the coordinator. An older savepoint continues recording until its own end."""
        self._recordings.pop(checkpoint_id, None)
        self._notify("notify_checkpoint_complete", checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._recordings.pop(checkpoint_id, None)
        if self._asked == checkpoint_id:
            self._asked = None
        self._notify("notify_checkpoint_aborted", checkpoint_id)

    # -- implementation -------------------------------------------------------------------------------------

    def _notify(self, method: str, *arguments: object) -> None:
        if self._coordinator is not None:
            self._guarded(method, lambda: getattr(self._coordinator, method)(*arguments))

    def _handle(self, subtask: int, data: bytes) -> None:
        if (hosted := self._coordinator) is not None:
            self._guarded("handle_event", lambda: hosted.handle_event(subtask, self._codec.loads(data)))

    def _missing(self, subtask: int, last: int) -> MissingEvents:
        inbox = self._inboxes.get(subtask, _NO_EVENTS)
        received = inbox.handled + sum(number <= last for number in inbox.early)
        return MissingEvents(subtask, received, last)

    def _encoded(self, state: bytes, events: list[tuple[int, bytes]]) -> bytes:
        return self._codec.dumps((state, events))

    def _decoded(self, data: bytes) -> tuple[Any, list[tuple[int, bytes]]]:
        try:
            state, events = self._codec.loads(data)
            return self._codec.loads(state), [(int(subtask), bytes(event)) for subtask, event in events]
        except (PenstockError, TypeError, ValueError) as error:
            msg = (
                f"{self._location}: the state of its coordinator can't be read: {error}. Keep the "
                "class names of the values in this state, or give the operator a new id"
            )
            raise CorruptSnapshotError(msg) from error

    def _guarded(self, what: str, call: Callable[[], Any]) -> None:
        try:
            check_has_run(what, call())
        except BaseException as error:  # the user's code: the job fails with it
            self._context.fail_job(self._error(what, error))

    def _error(self, what: str, error: BaseException) -> OperatorError:
        if isinstance(error, OperatorError):
            return error
        return operator_error(self._location, f"{self._provider.name(self._coordinator)}: {what}", error)
