"""`InputTime`: a clock that measures how long a subtask could have taken input.

Idleness is time in which records could have come and did not. Such time passes while the subtask waits. It
stands still while an output has no credit: then the subtask takes nothing, and its input may be full. One
step counts for little, however long it takes: a checkpoint or a slow function leaves records waiting, too.
"""

from __future__ import annotations

from typing import Final

#: Most seconds that one step counts for.
_MOST_OF_A_STEP: Final = 0.1


class InputTime:
    """Adds up the time between steps, and a little of the steps.

    Example:
        >>> time = InputTime()
        >>> time.begin(10.0)
        0.0
        >>> time.end(10.0, available=True)
        >>> time.begin(13.0)  # it has waited
        3.0
        >>> time.end(20.0, available=False)  # a long step
        >>> round(time.begin(50.0), 3)  # back pressure
        3.1
    """

    __slots__ = ("_begun", "_seconds", "_waits_since")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._begun = 0.0
        self._waits_since: float | None = None

    def begin(self, now: float) -> float:
        """A step begins; the seconds so far.

        Args:
            now: Monotonic seconds.
        """
        self._begun = now
        if self._waits_since is not None:
            self._seconds += now - self._waits_since
            self._waits_since = None
        return self._seconds

    def end(self, now: float, *, available: bool) -> None:
        """A step ends.

        Args:
            now: Monotonic seconds.
            available: Whether all outputs may be given more now.
        """
        self._seconds += min(now - self._begun, _MOST_OF_A_STEP)
        self._waits_since = now if available else None

    def monotonic_at(self, seconds: float, now: float) -> float:
        """The monotonic time at which the clock shows `seconds`, if it does not stand still before."""
        return now + max(0.0, seconds - self._seconds)
