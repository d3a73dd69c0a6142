"""`IdlenessTimer`: whether a stream of records has been quiet for long."""

from __future__ import annotations


class IdlenessTimer:
    """Measures how long nothing has come.

    It does not know when records come: it is asked from time to time, and told of activity. Quiet begins with
    the first time that it is asked after some activity, so it measures a little too long, never too short.

    Args:
        timeout: Seconds without records after which the stream is idle.

    Attributes:
        is_idle: Whether the stream is idle.

    Example:
        >>> timer = IdlenessTimer(5.0)
        >>> timer.ask(10.0), timer.ask(14.9), timer.due_at, timer.ask(15.0), timer.due_at
        (False, False, 15.0, True, None)
        >>> timer.activity()
        >>> timer.is_idle
        False
    """

    __slots__ = ("_quiet_since", "_timeout", "is_idle")

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._quiet_since: float | None = None
        self.is_idle = False

    def activity(self) -> None:
        """Something has come."""
        self._quiet_since = None
        self.is_idle = False

    def ask(self, now: float) -> bool:
        """Whether the stream is idle.

        Args:
            now: Seconds on the clock that measures.
        """
        if self._quiet_since is None:
            self._quiet_since = now
        elif now >= self._quiet_since + self._timeout:
            self.is_idle = True
        return self.is_idle

    @property
    def due_at(self) -> float | None:
        """When to ask next; `None` while the stream is idle."""
        if self.is_idle:
            return None
        return 0.0 if self._quiet_since is None else self._quiet_since + self._timeout
