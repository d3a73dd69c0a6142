"""`EventLink`: carries the events of one operator coordinator to its subtasks (Flink's `SubtaskGateway`).

A subtask is present from its start until it fails or its attempt ends. An event for an absent subtask waits:
an enumerator may assign splits before anything is deployed. When a subtask fails, its waiting events are
dropped, because the coordinator takes them back.

An event that is lost on its way to a present subtask would be in no snapshot. So the loss counts as a failure
of that subtask, and its splits come back as after any other failure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.runtime.checkpoint.operator_coordinators.operator_event_valve import EventCallbacks
from penstock.runtime.operators.coordinators.operator_coordinator import EventAnswer
from penstock.runtime.snapshot.subtask_id import SubtaskId

if TYPE_CHECKING:
    from penstock.runtime.job.context import JobContext

#: Called for an event that is lost: its subtask, the event, and why.
OnLost = Callable[[SubtaskId, Any, BaseException], None]


class EventLink:
    """The `EventSender` of one operator; see the module's text.

    Args:
        vertex: The operator's vertex.
        on_lost: Called for events that are lost on their way to a present subtask.
    """

    def __init__(self, job: JobContext, vertex: str, operator_id: str, on_lost: OnLost) -> None:
        self._job = job
        self._vertex = vertex
        self._operator_id = operator_id
        self._on_lost = on_lost
        self._there: set[int] = set()
        self._waiting: dict[int, deque[tuple[Any, EventAnswer]]] = {}

    def appear(self, subtask: int) -> None:
        """A subtask is present: `flush` sends its waiting events."""
        self._there.add(subtask)

    def flush(self, subtask: int) -> None:
        """Send the waiting events of a subtask, in order."""
        while subtask in self._there and (waiting := self._waiting.get(subtask)):
            self._carry(subtask, *waiting.popleft())

    def vanish(self, subtask: int) -> None:
        """A subtask is absent: drop its waiting events."""
        self._there.discard(subtask)
        self._waiting.pop(subtask, None)

    def vanish_all(self) -> None:
        """The attempt is over."""
        self._there.clear()
        self._waiting.clear()

    def send(self, subtask: int, event: Any, answer: EventAnswer) -> None:
        """Send an event after all earlier ones, as soon as its subtask is present."""
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
