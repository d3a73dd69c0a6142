"""`ControlReceiver`: applies messages of the JobMaster to a subtask.

A message may arrive twice, because a call whose connection broke is repeated. Triggers and notifications are
idempotent. Events of operator coordinators are numbered: one that is not newer than the last one is dropped.
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

#: Puts an action into the mailbox of the subtask, whose thread executes it (Flink's `MailboxExecutor`).
Enqueue: TypeAlias = Callable[[Callable[[Subtask], None]], None]


class ControlReceiver:
    """Receives the messages for one attempt.

    Args:
        enqueue: Puts an action into the subtask's mailbox.
    """

    def __init__(self, enqueue: Enqueue) -> None:
        self._enqueue = enqueue
        self._last_event = 0

    def receive(self, message: SubtaskControl) -> None:
        """Enqueue the action that a message asks for."""
        match message:
            case TriggerCheckpoint(barrier):
                self._enqueue(lambda subtask: subtask.trigger_checkpoint(barrier))
            case EventForOperator(operator_id, number, event):
                if number > self._last_event:
                    self._last_event = number
                    self._enqueue(lambda subtask: subtask.operator_event(operator_id, event))
            case NotifyComplete(checkpoint_id):
                self._enqueue(lambda subtask: subtask.notify_checkpoint_complete(checkpoint_id))
            case NotifyAborted(checkpoint_id):
                self._enqueue(lambda subtask: subtask.notify_checkpoint_aborted(checkpoint_id))
