"""One window for all records of a key, which never ends: its trigger alone decides when it emits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from penstock.runtime.time.record_windows import RecordWindowAssigner
from penstock.runtime.time.windows import TimeWindow

#: The window that holds everything.
GLOBAL_WINDOW: Final = TimeWindow(-(1 << 63), (1 << 63) - 1)


class GlobalWindows(RecordWindowAssigner[Any]):
    """One window for all records of a key; it needs a trigger.

    Example:
        >>> GlobalWindows().windows("a", 5) == (GLOBAL_WINDOW,)
        True
    """

    is_event_time = False
    is_endless = True

    def windows(self, record: Any, timestamp: int) -> Sequence[TimeWindow]:
        """The one that holds everything."""
        return (GLOBAL_WINDOW,)

    def __repr__(self) -> str:
        return "GlobalWindows()"
