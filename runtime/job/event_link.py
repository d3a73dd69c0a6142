"""`EventLink`: carries the events of one operator coordinator to its subtasks (Flink's `SubtaskGateway`).

A subtask is there from the moment at which it is started until it fails or its attempt ends. An event for one
that is not there waits: an enumerator may hand out splits before anything is deployed. What waits for a
subtask that fails is dropped, because the coordinator takes it back.

An event that is lost on its way to a subtask that is there would be in nobody's snapshot. So it counts as a
failure of that subtask, and what the subtask was given comes back in the usual way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.runtime.checkpoint.operator_coordinators.operator_event_valve import EventCallbacks
from penstock.runtime.operators.operator_coordinator import EventAnswer
from penstock.runtime.snapshot.subtask_id import SubtaskId

if TYPE_CHECKING:
    from penstock.runtime.job.context import JobContext

#: Told of an event that is lost: its subtask, the event, and why.
OnLost = Callable[[SubtaskId, Any, BaseException], None]


class EventLink:
    """The `EventSender` of one operator; see the module's text.

    Args:
        job: The job.
        vertex: Whose subtasks they are.
        operator_id: The operator.
        on_lost: Told of events that are lost on their way to a subtask that is there.
    """

    def __init__(self, job: JobContext, vertex: str, operator_id: str, on_lost: OnLost) -> None:
        self._job = job
        self._vertex = vertex
        self._operator_id = operator_id
        self._on_lost = on_lost
        self._there: set[int] = set()
        self._waiting: dict[int, deque[tuple[Any, EventAnswer]]] = {}

    def appear(self, subtask: int) -> None:
        """A subtask is there: `flush` sends what waits for it."""
        self._there.add(subtask)

    def flush(self, subtask: int) -> None:
        """Send what waits for a subtask, in the order in which it was sent."""
        while subtask in self._there and (waiting := self._waiting.get(subtask)):
            self._carry(subtask, *waiting.popleft())

    def vanish(self, subtask: int) -> None:
        """A subtask is gone, and what waits for it with it."""
        self._there.discard(subtask)
        self._waiting.pop(subtask, None)

    def vanish_all(self) -> None:
        """The attempt is over."""
        self._there.clear()
        self._waiting.clear()

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        """Send an event, now or when its subtask is there and has what was sent before."""
        if subtask in self._there and not self._waiting.get(subtask):
            self._carry(subtask, event, answer)
        else:
            self._waiting.setdefault(subtask, deque()).append((event, answer))

    def _carry(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        to = SubtaskId(self._vertex, subtask)
        attempt = self._job.attempt_of(to)

        def failed(error: BaseException) -> None:
            # First the subtask fails, which gives checkpoints up: no snapshot may count without this event.
            if subtask in self._there and attempt == self._job.attempt_of(to):
                self._on_lost(to, event, error)
            answer.failed(error)

        callbacks = EventCallbacks(answer.sent, failed)
        self._job.gateway.send_operator_event(attempt, to, self._operator_id, event, callbacks)
