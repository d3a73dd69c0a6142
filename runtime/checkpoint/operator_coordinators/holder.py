"""`OperatorCoordinatorHolder`: one operator coordinator with its valve (Flink's classes).

The holder closes the `OperatorEventValve` for the coordinator's snapshot. As in Flink's later versions, the
snapshot also waits for the answers to all events that were sent before. Otherwise a split in transit would be
in no snapshot, and would be lost if its reader failed before it arrived.

A coordinator and its subtasks take a checkpoint at different moments, so an event between them could be in
both snapshots or in neither. For example, a coordinator assigns a split after its own snapshot, and the split
reaches its reader before the barrier. After a restore the coordinator would assign the split again. So the
valve is closed from the coordinator's snapshot until the sources have their barriers. Events wait meanwhile,
and are sent in order after the barriers.

In one checkpoint the valve is *marked* before the coordinator's snapshot and *shut* after it. It is *opened*
when the barriers are injected, or the start of the checkpoint is aborted. It refuses a mark that is not newer
than the last one, and refuses to be shut for a checkpoint that is not marked.

The valve must never:

* send an event while it is shut,
* change the order of two events of one subtask,
* send an event to a subtask that has failed while the event waited.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, Protocol, TypeVar

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.coordinators import (
    EventAnswer,
    FirstAnswer,
    MissingEvents,
    OperatorCoordinator,
    OperatorCoordinatorContext,
    RecordsEvents,
)
from penstock.runtime.ports import AsyncRunner, TimerService
from penstock.runtime.time.durations import Duration, seconds_in


class EventDiscardedError(PenstockError):
    """An event was not sent, because its subtask failed or the job was restored while the event waited."""


class EventSender(Protocol):
    """The port that carries events to the subtasks of one operator, in order for each subtask."""

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        """Send an event; `answer` is called at once or later, in the coordinator's thread."""
        ...


@dataclass(frozen=True, slots=True)
class HeldEvent:
    event: Any
    answer: EventAnswer


class OperatorEventValve:
    """Lets events through, or holds them; see the module's docstring."""

    def __init__(self, sender: EventSender) -> None:
        self._sender = sender
        self._held: dict[int, list[HeldEvent]] = {}
        self._is_shut = False
        self._marked: int | None = None
        self._last_marked: int | None = None

    @property
    def is_shut(self) -> bool:
        return self._is_shut

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        if self._is_shut:
            self._held.setdefault(subtask, []).append(HeldEvent(event, answer))
        else:
            self._sender.send(subtask, event, answer)

    def mark_for_checkpoint(self, checkpoint_id: int) -> None:
        """Prepare for the coordinator's snapshot; refuse an old id, or a second mark."""
        if self._marked not in (None, checkpoint_id):
            msg = f"the valve is marked for checkpoint {self._marked} and can't be marked for {checkpoint_id}"
            raise RuntimeError(msg)
        if self._last_marked is not None and checkpoint_id <= self._last_marked:
            msg = f"the valve was marked for checkpoint {self._last_marked} before {checkpoint_id}"
            raise RuntimeError(msg)
        self._marked = self._last_marked = checkpoint_id

    def shut(self, checkpoint_id: int) -> None:
        """Hold events back, after the coordinator's snapshot for the marked checkpoint."""
        if checkpoint_id != self._marked:
            marked = "nothing" if self._marked is None else f"checkpoint {self._marked}"
            msg = f"the valve can't be shut for checkpoint {checkpoint_id}: it is marked for {marked}"
            raise RuntimeError(msg)
        self._is_shut = True

    def open_and_unmark(self) -> None:
        self._marked = None
        self._is_shut = False
        held, self._held = self._held, {}
        for subtask, events in held.items():
            for waiting in events:
                self.send(subtask, waiting.event, waiting.answer)

    def reset(self) -> None:
        held, self._held = self._held, {}
        self._is_shut = False
        self._marked = None
        for events in held.values():
            self._discard(events, "the job was restored")

    def reset_subtask(self, subtask: int) -> None:
        self._discard(self._held.pop(subtask, ()), f"subtask {subtask} failed")

    def _discard(self, events: Iterable[HeldEvent], why: str) -> None:
        for waiting in events:
            waiting.answer.failed(EventDiscardedError(f"the event was never sent: {why}"))


@dataclass(frozen=True, slots=True)
class EventCallbacks:
    on_sent: Callable[[], None]
    on_failed: Callable[[BaseException], None]

    def sent(self) -> None:
        self.on_sent()

    def failed(self, error: BaseException) -> None:
        self.on_failed(error)


T = TypeVar("T")

CoordinatorFactory = Callable[[OperatorCoordinatorContext], OperatorCoordinator]


@dataclass(slots=True)
class _Snapshot:
    checkpoint_id: int
    on_state: Callable[[bytes | None], None]
    on_error: Callable[[BaseException], None]
    state: bytes | None = None
    is_given: bool = False


class OperatorCoordinatorHolder:
    """Holds one operator coordinator and is its context; see the module's docstring.

    When a rescale resets the coordinator, `parallelism` already returns the new number of subtasks.
    """

    def __init__(
        self,
        operator_id: str,
        parallelism: Callable[[], int],
        make: CoordinatorFactory,
        sender: EventSender,
        runner: AsyncRunner,
        fail_job: Callable[[str | PenstockError], None],
        timers: TimerService | None = None,
    ) -> None:
        self._operator_id = operator_id
        self._parallelism = parallelism
        self._runner = runner
        self._fail_job = fail_job
        self._timers = timers
        self._in_flight = _InFlight(sender, self._finish_snapshot)
        self._valve = OperatorEventValve(self._in_flight)
        self._epoch = 0
        self._snapshot: _Snapshot | None = None
        self._coordinator = make(self)

    # -- the coordinator's context ------------------------------------------------------------------------

    @property
    def operator_id(self) -> str:
        return self._operator_id

    @property
    def parallelism(self) -> int:
        return self._parallelism()

    @property
    def is_shut(self) -> bool:
        return self._valve.is_shut

    def send_event(self, subtask: int, event: Any, answer: EventAnswer | None = None) -> None:
        if not 0 <= subtask < self.parallelism:
            known = self.parallelism
            msg = f"operator {self._operator_id!r} has no subtask {subtask}: its parallelism is {known}"
            raise ValueError(msg)
        self._valve.send(subtask, event, answer or _NOBODY)

    def run_in_background(
        self, work: Callable[[], T], on_result: Callable[[T], None], on_error: Callable[[BaseException], None]
    ) -> None:
        epoch = self._epoch

        def result(outcome: T) -> None:
            if epoch == self._epoch:
                self._guarded(lambda: on_result(outcome))

        def error(cause: BaseException) -> None:
            if epoch == self._epoch:
                self._guarded(lambda: on_error(cause))

        self._runner.run(work, result, error)

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        assert self._timers is not None, "a job has timers"
        epoch = self._epoch

        def due() -> None:
            if epoch == self._epoch:
                self._guarded(callback)

        self._timers.call_later(seconds_in("delay", delay), due)

    def fail_job(self, cause: str | PenstockError) -> None:
        """Fail the job; a `PenstockError` already names its operator."""
        if isinstance(cause, PenstockError):
            self._fail_job(cause)
        else:
            self._fail_job(f"the coordinator of operator {self._operator_id!r}: {cause}")

    # -- lifecycle ---------------------------------------------------------------------------------------

    def start(self) -> None:
        self._coordinator.start()

    def close(self) -> None:
        self._forget()
        self._guarded(self._coordinator.close)

    def reset_to_checkpoint(self, checkpoint_id: int | None, state: bytes | None) -> None:
        """Reset the coordinator to its state in a checkpoint; with `None`, to its initial state."""
        self._forget()
        self._coordinator.reset_to_checkpoint(checkpoint_id, state)

    def subtask_failed(self, subtask: int, reason: str) -> None:
        """Drop the events that wait for a failed subtask, and notify the coordinator."""
        self._in_flight.forget_subtask(subtask)
        self._coordinator.subtask_failed(subtask, reason)
        self._valve.reset_subtask(subtask)

    def subtask_reset(self, subtask: int, checkpoint_id: int | None) -> None:
        self._coordinator.subtask_reset(subtask, checkpoint_id)

    def handle_event(self, subtask: int, event: Any) -> None:
        """Pass a subtask's event to the coordinator; an error of the coordinator fails the job."""
        self._guarded(lambda: self._coordinator.handle_event(subtask, event))

    # -- checkpoints --------------------------------------------------------------------------------------

    def checkpoint(
        self,
        checkpoint_id: int,
        on_state: Callable[[bytes | None], None],
        on_error: Callable[[BaseException], None],
    ) -> None:
        """Take a snapshot; calls `on_state` when the valve is shut and all earlier events are answered."""
        snapshot = _Snapshot(checkpoint_id, on_state, on_error)
        try:
            self._valve.mark_for_checkpoint(checkpoint_id)
            self._snapshot = snapshot
            answer = FirstAnswer(
                partial(self._take_snapshot, snapshot), partial(self._fail_snapshot, snapshot)
            )
            self._coordinator.checkpoint(checkpoint_id, answer)
        except BaseException as error:  # users' code may raise anything
            if self._snapshot is snapshot:
                self._snapshot = None
            on_error(error)
            what = f"checkpoint {checkpoint_id}: {error_text(error)}"
            self.fail_job(error if isinstance(error, PenstockError) else what)

    def after_barrier_injection(self, checkpoint_id: int) -> None:
        self._valve.open_and_unmark()

    def abort_current_triggering(self) -> None:
        self._snapshot = None
        self._valve.open_and_unmark()

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        self._coordinator.notify_checkpoint_complete(checkpoint_id)

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        self._coordinator.notify_checkpoint_aborted(checkpoint_id)

    def subtask_acknowledged(self, checkpoint_id: int, subtask: int, events: int) -> None:
        if isinstance(self._coordinator, RecordsEvents):
            self._coordinator.subtask_acknowledged(checkpoint_id, subtask, events)

    def missing_events(self, checkpoint_id: int) -> tuple[MissingEvents, ...]:
        coordinator = self._coordinator
        return coordinator.missing_events(checkpoint_id) if isinstance(coordinator, RecordsEvents) else ()

    def recorded_state(self, checkpoint_id: int) -> bytes | None:
        coordinator = self._coordinator
        return coordinator.recorded_state(checkpoint_id) if isinstance(coordinator, RecordsEvents) else None

    def _take_snapshot(self, snapshot: _Snapshot, state: bytes | None) -> None:
        try:
            self._valve.shut(snapshot.checkpoint_id)
        except RuntimeError as error:
            self._fail_snapshot(snapshot, error)
            return
        snapshot.state, snapshot.is_given = state, True
        self._finish_snapshot()

    def _fail_snapshot(self, snapshot: _Snapshot, error: BaseException) -> None:
        if self._snapshot is snapshot:
            self._snapshot = None
        snapshot.on_error(error)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Make a call; an error fails the job and names the coordinator."""
        try:
            call()
        except BaseException as error:  # users' code may raise anything
            self.fail_job(error if isinstance(error, PenstockError) else error_text(error))

    def _finish_snapshot(self) -> None:
        snapshot = self._snapshot
        if snapshot is not None and snapshot.is_given and self._in_flight.is_empty:
            self._snapshot = None
            snapshot.on_state(snapshot.state)

    def _forget(self) -> None:
        self._epoch += 1
        self._in_flight.forget()
        self._snapshot = None
        self._valve.reset()


class _InFlight:
    """Sends events, and tracks the unanswered ones."""

    def __init__(self, sender: EventSender, on_empty: Callable[[], None]) -> None:
        self._sender = sender
        self._on_empty = on_empty
        self._numbers = count()
        self._open: dict[int, int] = {}

    @property
    def is_empty(self) -> bool:
        return not self._open

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        number = next(self._numbers)
        self._open[number] = subtask

        def answered(tell: Callable[[], None]) -> None:
            if number in self._open:
                del self._open[number]
                tell()
                if self.is_empty:
                    self._on_empty()

        callbacks = EventCallbacks(
            lambda: answered(answer.sent), lambda error: answered(lambda: answer.failed(error))
        )
        self._sender.send(subtask, event, callbacks)

    def forget(self) -> None:
        self._open.clear()

    def forget_subtask(self, subtask: int) -> None:
        self._open = {number: to for number, to in self._open.items() if to != subtask}


_NOBODY = EventCallbacks(lambda: None, lambda error: None)
