"""`CoordinatorHarness`: the coordinator of an operator, without a job.

The harness runs the JobMaster's code. Events and state go through the value codec. A restored coordinator is
a new object, and handles the events in flight again. The test sends the subtasks' events, and sees the
events that the coordinator sends to them. Background work runs immediately.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from penstock.runtime.errors import OperatorLocation, PenstockError
from penstock.runtime.names import NearestMembers, NearestNames
from penstock.runtime.operators.coordinator_host import (
    CoordinatorHost,
    EventOfCoordinator,
    EventOfSubtask,
    UserCoordinatorProvider,
)
from penstock.runtime.operators.coordinators import EventAnswer, HasCoordinator
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers
from penstock.runtime.time.durations import Duration, seconds_in

T = TypeVar("T")


class CoordinatorHarness(NearestMembers, metaclass=NearestNames):
    """Drives the coordinator of an operator.

    Args:
        restored: The result of another harness's `snapshot`; `None` starts without state.

    Raises:
        OperatorError: The coordinator failed; all calls raise this.

    Example:
        >>> from penstock.operators import Operator, OperatorCoordinator
        >>> class Sum(OperatorCoordinator):
        ...     def __init__(self, context):
        ...         self.context, self.sum = context, 0
        ...
        ...     def handle_event(self, subtask, event):
        ...         self.sum += event
        ...         self.context.send_event(subtask, self.sum)
        ...
        ...     def checkpoint(self, checkpoint_id, answer):
        ...         answer.complete(self.sum)
        ...
        ...     def reset_to_checkpoint(self, checkpoint_id, state):
        ...         self.sum = state or 0
        >>> class Summed(Operator):
        ...     def coordinator(self, context):
        ...         return Sum(context)
        >>> harness = CoordinatorHarness(Summed(), parallelism=2)
        >>> harness.handle_event(0, 5), harness.handle_event(1, 2)
        ([(0, 5)], [(1, 7)])
        >>> again = CoordinatorHarness(Summed(), parallelism=2, restored=harness.snapshot())
        >>> again.handle_event(1, 1)
        [(1, 8)]
    """

    def __init__(
        self,
        operator: HasCoordinator,
        *,
        operator_id: str = "operator",
        parallelism: int = 1,
        restored: bytes | None = None,
    ) -> None:
        self._codec = ValueCodec()
        self._context = _Context(operator_id, parallelism)
        location = OperatorLocation(operator_id, None, parallelism)
        self._coordinator = CoordinatorHost(
            UserCoordinatorProvider(operator), self._context, self._codec, location
        )
        self._numbers: dict[int, int] = {}
        self._last_id = 0
        self._coordinator.reset_to_checkpoint(None if restored is None else 0, restored)
        self._after(self._coordinator.start)

    @property
    def sent(self) -> list[tuple[int, Any]]:
        """All events that the coordinator has sent so far, each with its subtask."""
        return [(subtask, self._codec.loads(event.data)) for subtask, event in self._context.sent]

    def handle_event(self, subtask: int, event: Any) -> list[tuple[int, Any]]:
        """Pass an event of a subtask to the coordinator; return the events that it sent in response.

        Raises:
            CodecError: The event can't be encoded.
        """
        self._numbers[subtask] = number = self._numbers.get(subtask, 0) + 1
        carried = EventOfSubtask(number, self._codec.dumps(event))
        return self._after(lambda: self._coordinator.handle_event(subtask, carried))

    def subtask_failed(self, subtask: int, reason: str = "killed") -> list[tuple[int, Any]]:
        """Notify the coordinator of a failed subtask; return the events that it sent in response."""
        return self._after(lambda: self._coordinator.subtask_failed(subtask, reason))

    def snapshot(self, *, on_the_way: tuple[tuple[int, Any], ...] = ()) -> bytes:
        """Take the coordinator's part of a checkpoint and complete the checkpoint.

        Args:
            on_the_way: Events in flight, each with its subtask. The subtasks sent them before their own parts
                of the checkpoint, so the checkpoint holds them.

        Raises:
            AssertionError: The coordinator has not answered.
        """
        self._last_id += 1
        checkpoint_id, answer = self._last_id, _Answer()
        self._after(lambda: self._coordinator.checkpoint(checkpoint_id, answer))
        assert answer.is_given, f"the coordinator has not answered checkpoint {checkpoint_id}"
        if answer.error is not None:
            raise answer.error
        for subtask, event in on_the_way:
            self.handle_event(subtask, event)
        for subtask, number in self._numbers.items():
            self._coordinator.subtask_acknowledged(checkpoint_id, subtask, number)
        state = self._coordinator.recorded_state(checkpoint_id)
        assert state is not None, "a checkpoint that was answered is recorded"
        self._after(lambda: self._coordinator.notify_checkpoint_complete(checkpoint_id))
        return state

    def advance(self, duration: Duration) -> list[tuple[int, Any]]:
        """Let time pass; return the events that the coordinator sent in its timers."""
        seconds = seconds_in("duration", duration)
        return self._after(lambda: self._context.timers.advance(seconds))

    def close(self) -> None:
        """Close the coordinator."""
        self._after(self._coordinator.close)

    def _after(self, call: Callable[[], None]) -> list[tuple[int, Any]]:
        before = len(self._context.sent)
        call()
        failure, self._context.failure = self._context.failure, None
        if failure is not None:
            raise failure
        return self.sent[before:]


class _Context:
    """Keeps the events of the coordinator, and a failure of the job."""

    def __init__(self, operator_id: str, parallelism: int) -> None:
        self.operator_id = operator_id
        self.parallelism = parallelism
        self.sent: list[tuple[int, EventOfCoordinator]] = []
        self.failure: PenstockError | None = None
        self.timers = ManualTimers(ManualClock())

    def send_event(self, subtask: int, event: Any, answer: EventAnswer | None = None) -> None:
        if not 0 <= subtask < self.parallelism:
            known = self.parallelism
            msg = f"operator {self.operator_id!r} has no subtask {subtask}: its parallelism is {known}"
            raise ValueError(msg)
        self.sent.append((subtask, event))
        if answer is not None:
            answer.sent()

    def run_in_background(
        self, work: Callable[[], T], on_result: Callable[[T], None], on_error: Callable[[BaseException], None]
    ) -> None:
        try:
            result = work()
        except Exception as error:  # the user's work: the coordinator learns of it, as in a job
            on_error(error)
        else:
            on_result(result)

    def call_later(self, delay: Duration, callback: Callable[[], None]) -> None:
        self.timers.call_later(seconds_in("delay", delay), callback)

    def fail_job(self, cause: str | PenstockError) -> None:
        if self.failure is None:
            self.failure = cause if isinstance(cause, PenstockError) else PenstockError(cause)


class _Answer:
    def __init__(self) -> None:
        self.is_given = False
        self.error: BaseException | None = None

    def complete(self, state: Any | None) -> None:
        self.is_given = True

    def fail(self, error: BaseException) -> None:
        self.is_given = True
        self.error = error
