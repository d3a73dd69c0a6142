"""`LocalClock`: the clock of one process: it runs a little fast or slow, and its wall clock may be wrong."""

from __future__ import annotations

from penstock.runtime.testing.manual_time import ManualClock

#: Rounding must not let a timer fire before its time.
_TINY = 1e-9


class LocalClock(ManualClock):
    """Shows the time of the world as one process sees it.

    Args:
        world: The time of the world.
        rate: Seconds of this clock in a second of the world's.
        ahead: Seconds that its wall clock is ahead.

    Example:
        >>> world = ManualClock(start=100.0)
        >>> slow = LocalClock(world, rate=0.5)
        >>> world.advance(10.0)
        >>> slow.monotonic(), slow.now(), round(slow.in_world(6.0), 3)
        (5.0, 105.0, 12.0)
    """

    def __init__(self, world: ManualClock, rate: float = 1.0, ahead: float = 0.0) -> None:
        super().__init__()
        self._world = world
        self._rate = rate
        self._begun = world.monotonic()
        self._ahead = ahead + world.now() - self.monotonic()

    def now(self) -> float:
        """Wall-clock seconds."""
        return self._ahead + self.monotonic()

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return (self._world.monotonic() - self._begun) * self._rate

    def advance(self, seconds: float) -> None:
        """Let time pass, for the whole world."""
        self._world.advance(seconds / self._rate)

    def advance_to(self, monotonic: float) -> None:
        """Let time pass for the whole world until this clock shows this."""
        self._world.advance_to(self.in_world(monotonic))

    def set_wall_clock(self, now: float) -> None:
        """Somebody sets the wall clock, forward or back."""
        self._ahead = now - self.monotonic()

    def in_world(self, monotonic: float) -> float:
        """When the world's clock shows the moment at which this one shows `monotonic`."""
        return self._begun + monotonic / self._rate + _TINY
