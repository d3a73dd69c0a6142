"""`QueryRestarts`: whether a failed query is started again, and after which pause.

The cause of a failure, such as an unavailable storage, often lasts some seconds only. Restarts without pauses
would all be used up by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from penstock.bridge.transfer.program_end import program_ends

#: Seconds before the first restart, and the maximum.
SHORTEST: Final = 1.0
LONGEST: Final = 30.0
#: Seconds between two checks that the query is still wanted.
_LOOK: Final = 1.0


class QueryRestarts:
    """Counts the failures of a query, and lets its pauses grow.

    Args:
        most: Restarts without progress.

    Example:
        >>> restarts = QueryRestarts(2)
        >>> [restarts.pause(progress=p) for p in (False, False, True, False, False)]
        [1.0, 2.0, 1.0, 2.0, 4.0]
        >>> restarts.are_used_up, restarts.pause(progress=False), restarts.are_used_up
        (False, 8.0, True)
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._pause = SHORTEST

    @property
    def are_used_up(self) -> bool:
        """Whether the query must not be started again."""
        return self._left < 0

    def pause(self, *, progress: bool) -> float:
        """Count a failed run; returns the seconds until the next one.

        Args:
            progress: Spark has committed a micro-batch in the run.
        """
        if progress:
            self._left, self._pause = self._most, SHORTEST
        else:
            self._left -= 1
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        return pause


class Ends(Protocol):
    """An event that may happen during a wait, such as a `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Whether it has happened, within this many seconds."""
        ...


def rest(
    seconds: float,
    is_wanted: Callable[[], bool],
    ends: Ends = program_ends,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait, unless the query is no longer wanted.

    Args:
        seconds: How long.
        is_wanted: Checked every second.
        ends: Ends the wait at once.
        clock: Monotonic seconds.

    Returns:
        Whether the whole time has passed.
    """
    deadline = clock() + seconds
    while (left := deadline - clock()) > 0:
        if ends.wait(min(left, _LOOK)) or not is_wanted():
            return False
    return True
