"""Events of operator coordinators, in order with the checkpoints that a subtask was asked for.

A source takes a checkpoint at the next batch boundary, not when it is asked. The coordinator's own snapshot
counts on the order of events and requests: an event that came after a request belongs after the checkpoint.
So an event waits for the last checkpoint that was asked for before it came.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

from penstock.runtime.record.elements import CheckpointBarrier


class OperatorMail:
    """Holds events until their turn has come; driven by the task thread alone.

    Args:
        deliver: Gives an event to the operator.
        asked: Checkpoints that were asked for and not taken yet, oldest first.
    """

    def __init__(
        self, deliver: Callable[[Any], None], asked: Callable[[], Collection[CheckpointBarrier]]
    ) -> None:
        self._deliver = deliver
        self._asked = asked
        self._waiting: deque[tuple[CheckpointBarrier | None, Any]] = deque()

    def receive(self, event: Any) -> None:
        """An event has come; it is delivered at once if no checkpoint is asked for.

        Raises:
            OperatorError: The operator failed over it.
        """
        asked = [*self._asked()]
        self._waiting.append((asked[-1] if asked else None, event))
        self.deliver_due()

    def deliver_due(self) -> None:
        """A checkpoint may have been taken: deliver what waited for it.

        Raises:
            OperatorError: The operator failed over an event.
        """
        while self._waiting and self._waiting[0][0] not in self._asked():
            self._deliver(self._waiting.popleft()[1])
