"""`QueryRestarts`: whether a query that has failed is started again, and after which pause.

What makes a query fail is often away for some seconds only, such as a storage. Restarts without pauses would
all be used up by then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, Protocol

from penstock.bridge.transfer.program_end import program_ends

#: Seconds before the first restart, and at most.
SHORTEST: Final = 1.0
LONGEST: Final = 30.0
#: Seconds between two looks whether the query is still wanted.
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
        """Whether it is not to be started again."""
        return self._left < 0

    def pause(self, *, progress: bool) -> float:
        """A run has failed: seconds until the next one.

        Args:
            progress: Spark has committed a micro-batch in it.
        """
        if progress:
            self._left, self._pause = self._most, SHORTEST
        else:
            self._left -= 1
        pause, self._pause = self._pause, min(2 * self._pause, LONGEST)
        return pause


class Ends(Protocol):
    """Something that may happen meanwhile, such as a `threading.Event`."""

    def wait(self, timeout: float) -> bool:
        """Whether it has happened, within so many seconds."""
        ...


def rest(
    seconds: float,
    is_wanted: Callable[[], bool],
    ends: Ends = program_ends,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait, unless nobody wants it any more.

    Args:
        seconds: How long.
        is_wanted: Looked at each second.
        ends: Ends the wait at once.
        clock: Seconds that only go forward.

    Returns:
        Whether the whole time has passed.
    """
    deadline = clock() + seconds
    while (left := deadline - clock()) > 0:
        if ends.wait(min(left, _LOOK)) or not is_wanted():
            return False
    return True
