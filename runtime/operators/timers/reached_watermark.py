"""`ReachedWatermark`: how far event time has come in one operator, over restarts and rescales.

Whether a record is late must not depend on where a restart happened, or a straggler could open a window
again that has fired. So the watermark that was reached is in snapshots.

At another parallelism a subtask gets keys of several old subtasks. It begins with the lowest of their
watermarks, so no record becomes late that was not late for one of them. The end of time is no watermark to go
on from: a job that was drained and goes on has records to come. Event time never goes back, though sources
that start again send lower watermarks than the restored one.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.runtime.operators.operator import OperatorContext, SavedList
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.snapshot.handles import RedistributionMode


class ReachedWatermark:
    """The highest watermark so far.

    Args:
        context: What the operator is opened with.
        name: Of the list state that holds it.

    Attributes:
        timestamp: In microseconds; `None` before the first one.
    """

    def __init__(self, context: OperatorContext, name: str) -> None:
        self._subtask = context.connector.subtask, context.connector.parallelism
        self.timestamp = self._restored(context.restored.get(name, ()))

    def advance(self, timestamp: int) -> int:
        """A watermark has come; gives the highest so far."""
        if self.timestamp is None or timestamp > self.timestamp:
            self.timestamp = timestamp
        return self.timestamp

    def state(self) -> SavedList:
        """What a snapshot keeps."""
        return SavedList([(*self._subtask, self.timestamp)], RedistributionMode.UNION)

    def _restored(self, old: Sequence[tuple[int, int, int | None]]) -> int | None:
        """That of this very subtask, or of the one that was behind all others; `None` if one had none."""
        own = [reached for *subtask, reached in old if tuple(subtask) == self._subtask]
        all_reached = own or [reached for *_, reached in old]
        known = [reached for reached in all_reached if reached is not None]
        if len(known) < len(all_reached):
            return None
        return min((reached for reached in known if reached != END_OF_TIME), default=None)
