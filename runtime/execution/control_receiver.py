"""`ControlReceiver`: what a message of the JobMaster does to a subtask.

A message may come twice, because a call whose connection broke is made again. Subtasks take triggers and
notifications twice without harm. Events of operator coordinators are numbered for that: one that is not newer
than the last one is dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from penstock.runtime.execution.messages import (
    EventForOperator,
    NotifyAborted,
    NotifyComplete,
    SubtaskControl,
    TriggerCheckpoint,
)
from penstock.runtime.task.subtask import Subtask

#: Hands something to the subtask, in its own thread, when it runs.
HandOver: TypeAlias = Callable[[Callable[[Subtask], None]], None]


class ControlReceiver:
    """Takes the messages for one attempt.

    Args:
        hand_over: Hands something to the subtask.
    """

    def __init__(self, hand_over: HandOver) -> None:
        self._hand_over = hand_over
        self._last_event = 0

    def receive(self, message: SubtaskControl) -> None:
        """Take a message."""
        match message:
            case TriggerCheckpoint(barrier):
                self._hand_over(lambda subtask: subtask.trigger_checkpoint(barrier))
            case EventForOperator(operator_id, number, event):
                if number > self._last_event:
                    self._last_event = number
                    self._hand_over(lambda subtask: subtask.operator_event(operator_id, event))
            case NotifyComplete(checkpoint_id):
                self._hand_over(lambda subtask: subtask.notify_checkpoint_complete(checkpoint_id))
            case NotifyAborted(checkpoint_id):
                self._hand_over(lambda subtask: subtask.notify_checkpoint_aborted(checkpoint_id))
