"""`Clocks`: the clocks of all processes of a run, and their differences.

In most runs all processes share the time of the world. In other runs each has its own clock: one runs faster
than another, and their wall clocks disagree. Wall clocks may be set, forward or back, by an hour. Monotonic
time never jumps.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.testing.manual_time import ManualClock
from penstock.runtime.testing.simulation.world.draws import Draws
from penstock.runtime.time.durations import Duration, as_seconds

#: Rounding must not let a timer fire before its time.
_TINY = 1e-9


class LocalClock(ManualClock):
    """Shows the time of the world as one process sees it.

    Args:
        rate: Seconds of this clock per second of the world's clock.
        ahead: Seconds by which its wall clock is ahead.

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
        return self._ahead + self.monotonic()

    def monotonic(self) -> float:
        return (self._world.monotonic() - self._begun) * self._rate

    def advance(self, duration: Duration) -> None:
        self._world.advance(as_seconds(duration) / self._rate)

    def advance_to(self, monotonic: float) -> None:
        self._world.advance_to(self.in_world(monotonic))

    def set_wall_clock(self, now: float) -> None:
        self._ahead = now - self.monotonic()

    def in_world(self, monotonic: float) -> float:
        """Time of the world's clock when this clock shows `monotonic`."""
        return self._begun + monotonic / self._rate + _TINY


#: Maximum error of a wall clock in seconds. A timer of processing time may wait for twice as long after a
#: restore. If a job waits much longer, checkpoints every few milliseconds use up its moves.
_WRONG: Final = 6.0


class Clocks:
    """Makes the clocks of processes; see the module's text.

    Args:
        drift: Maximum relative error of a clock's rate; 0 for one clock for all.
    """

    def __init__(self, world: ManualClock, draws: Draws, drift: float) -> None:
        self._world = world
        self._draws = draws
        self._drift = drift
        self._made: list[LocalClock] = []

    @property
    def differ(self) -> bool:
        """Whether processes have clocks of their own."""
        return self._drift > 0.0

    def new(self) -> ManualClock:
        if not self.differ:
            return self._world
        draws = self._draws
        rate = 1.0 + draws.real(-self._drift, self._drift)
        clock = LocalClock(self._world, rate, draws.pick((0.0, draws.real(-_WRONG, _WRONG))))
        self._made.append(clock)
        return clock

    def in_world(self, clock: ManualClock, monotonic: float) -> float:
        """Time of the world's clock when a process's clock shows `monotonic`."""
        return clock.in_world(monotonic) if isinstance(clock, LocalClock) else monotonic

    def set_wall_clocks(self, by: float) -> None:
        """Set the wall clock of one process, or the shared one."""
        clock = self._draws.pick(self._made) if self._made else self._world
        clock.set_wall_clock(clock.now() + by)
