"""Which checkpoints have ended, and how: decides what becomes of the files that come for them too late."""

from __future__ import annotations

from collections import OrderedDict
from enum import Enum
from typing import Final

#: So many ends are remembered. A subtask is late by a few checkpoints: its barriers come in order, and a
#: checkpoint whose acknowledgement does not come holds up the next ones until its timeout.
REMEMBERED_ENDS: Final = 1000


class CheckpointEnd(Enum):
    """How a checkpoint ended."""

    COMPLETED = "completed"
    DEAD = "dead"


class EndedCheckpoints:
    """The last checkpoints that have ended.

    An end that is forgotten is like one of which nobody knows how it went: files that come for it are left
    alone. The next attempt finds those that nothing names and deletes them.

    Args:
        capacity: How many ends are remembered.

    Example:
        >>> ended = EndedCheckpoints(capacity=2)
        >>> ended.remember(1, CheckpointEnd.DEAD)
        >>> ended.remember(2, CheckpointEnd.COMPLETED)
        >>> ended.end_of(1), ended.end_of(2)
        (<CheckpointEnd.DEAD: 'dead'>, <CheckpointEnd.COMPLETED: 'completed'>)
        >>> ended.remember(3, CheckpointEnd.DEAD)
        >>> ended.end_of(1) is None
        True
    """

    def __init__(self, capacity: int = REMEMBERED_ENDS) -> None:
        self._capacity = capacity
        self._ends: OrderedDict[int, CheckpointEnd] = OrderedDict()

    def remember(self, checkpoint_id: int, end: CheckpointEnd) -> None:
        """A checkpoint has ended; beyond the capacity the end that came first is forgotten."""
        self._ends[checkpoint_id] = end
        if len(self._ends) > self._capacity:
            self._ends.popitem(last=False)

    def end_of(self, checkpoint_id: int) -> CheckpointEnd | None:
        """How a checkpoint ended; `None` when that is not known, or not any more."""
        return self._ends.get(checkpoint_id)

    def clear(self) -> None:
        """Forget all of them: a new attempt begins, and what older ones say is not listened to."""
        self._ends.clear()
