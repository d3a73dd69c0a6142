"""Where a subtask's time goes: at work, or waiting for credits."""

from __future__ import annotations


class TimeAccount:
    """Adds up the time at work and the time under back pressure.

    The task thread writes it; any thread may ask how it stands.

    Attributes:
        busy: Seconds at work, in steps that have ended.
        backpressured: Seconds in which an output had no credit, before the step that runs.
        begun: Monotonic time at which the running step began; `None` between two steps.

    Example:
        >>> account = TimeAccount()
        >>> account.begun = 0.0
        >>> account.step(begun=0.0, now=2.0, worked=True, available=False)
        >>> account.busy, account.until(7.0)
        (2.0, (2.0, 5.0))
    """

    __slots__ = ("_blocked_since", "backpressured", "begun", "busy")

    def __init__(self) -> None:
        self.busy = 0.0
        self.backpressured = 0.0
        self.begun: float | None = None
        self._blocked_since: float | None = None

    def step(self, *, begun: float, now: float, worked: bool, available: bool) -> None:
        """A step was done.

        Args:
            begun: Monotonic time at its beginning.
            now: At its end.
            worked: Whether it did anything.
            available: Whether all outputs may be given more now.
        """
        self.begun = None
        if worked:
            self.busy += now - begun
        if self._blocked_since is not None:
            self.backpressured += begun - self._blocked_since
        self._blocked_since = None if available else now

    def until(self, now: float) -> tuple[float, float]:
        """Seconds at work and under back pressure, with the step that runs and the wait that goes on.

        A call of a user's function may last for minutes, and so may a wait for a credit. A step counts as
        work until its end tells otherwise. So a sum may be smaller than an earlier one, by one step.
        """
        # In this order: a step that ends in between is missing once, and is never counted twice.
        busy, backpressured = self.busy, self.backpressured
        begun, blocked_since = self.begun, self._blocked_since
        if blocked_since is not None:
            backpressured += max(0.0, (now if begun is None else begun) - blocked_since)
        if begun is not None:
            busy += max(0.0, now - begun)
        return busy, backpressured
