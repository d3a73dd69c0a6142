"""Where a subtask's time goes: at work, or waiting for credits."""

from __future__ import annotations


class TimeAccount:
    """Adds up the time at work and the time under back pressure.

    Attributes:
        busy: Seconds at work.
        backpressured: Seconds in which an output had no credit.

    Example:
        >>> account = TimeAccount()
        >>> account.step(begun=0.0, now=2.0, worked=True, available=False)
        >>> account.step(begun=7.0, now=7.0, worked=False, available=True)
        >>> account.busy, account.backpressured
        (2.0, 5.0)
    """

    __slots__ = ("_blocked_since", "backpressured", "busy")

    def __init__(self) -> None:
        self.busy = 0.0
        self.backpressured = 0.0
        self._blocked_since: float | None = None

    def step(self, *, begun: float, now: float, worked: bool, available: bool) -> None:
        """A step was done.

        Args:
            begun: Monotonic time at its beginning.
            now: At its end.
            worked: Whether it did anything.
            available: Whether all outputs may be given more now.
        """
        if worked:
            self.busy += now - begun
        if self._blocked_since is not None:
            self.backpressured += begun - self._blocked_since
        self._blocked_since = None if available else now
