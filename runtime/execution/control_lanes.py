"""`ControlLanes`: control messages that must reach a subtask in their order.

A process may start calls in any order, so a message is sent only after the one before it has been answered.
Triggers and the events of operator coordinators share a lane. An event that is sent after a trigger must not
overtake it: its content would be in two snapshots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TypeAlias

from penstock.runtime.execution.messages import SubtaskControl
from penstock.runtime.snapshot.subtask_id import SubtaskId

#: Called with whether a message arrived.
OnAnswer: TypeAlias = Callable[[bool], None]
#: Sends one message of an attempt, and answers later, never at once.
SendControl: TypeAlias = Callable[[int, SubtaskId, SubtaskControl, OnAnswer], None]


class ControlLanes:
    """One lane a subtask.

    Args:
        send: Sends one message.
    """

    def __init__(self, send: SendControl) -> None:
        self._send = send
        self._waiting: dict[SubtaskId, deque[tuple[int, SubtaskControl, OnAnswer | None]]] = {}
        self._numbers: dict[SubtaskId, int] = {}

    def next_number(self, subtask: SubtaskId) -> int:
        """The number of the next event for a subtask."""
        self._numbers[subtask] = self._numbers.get(subtask, 0) + 1
        return self._numbers[subtask]

    def put(
        self,
        attempt: int,
        subtask: SubtaskId,
        message: SubtaskControl,
        on_answer: OnAnswer | None = None,
    ) -> None:
        """Send a message when all before it were answered; `on_answer` is called with whether it arrived."""
        lane = self._waiting.setdefault(subtask, deque())
        lane.append((attempt, message, on_answer))
        if len(lane) == 1:
            self._send_first(subtask)

    def _send_first(self, subtask: SubtaskId) -> None:
        lane = self._waiting[subtask]
        attempt, message, on_answer = lane[0]

        def answered(arrived: bool) -> None:
            lane.popleft()
            if lane:
                self._send_first(subtask)
            if on_answer is not None:
                on_answer(arrived)

        self._send(attempt, subtask, message, answered)
