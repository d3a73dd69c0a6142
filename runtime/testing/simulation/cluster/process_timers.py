"""`ProcessTimers`: the timers of one process, which fire when the agenda says so."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.testing.manual_time import ManualClock, ManualTimer, ManualTimers
from penstock.runtime.testing.simulation.cluster.suspension import Suspension
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.world import World


class ProcessTimers(ManualTimers):
    """Timers that fire in the order in which they are due, one in a move, until their owner is gone.

    Args:
        clock: Their owner's.
        suspension: Whether their owner can run.
        name: Their owner, for the trace.
    """

    def __init__(self, world: World, clock: ManualClock, suspension: Suspension, name: str) -> None:
        super().__init__(clock)
        self._world = world
        self._suspension = suspension
        self._name = name
        self._scheduled: float | None = None
        self._is_closed = False

    def call_later(self, delay: float, callback: Callable[[], None]) -> ManualTimer:
        """Fire `callback` when `delay` seconds have passed."""
        timer = super().call_later(delay, callback)
        self._schedule()
        return timer

    def close(self) -> None:
        """The owner is gone: nothing fires any more."""
        self._is_closed = True

    def _schedule(self) -> None:
        """Put the next timer on the agenda, unless it stands there."""
        due = self.next_due
        if due is None or (self._scheduled is not None and self._scheduled <= due):
            return
        self._scheduled = due
        at = self._world.clocks.in_world(self._clock, due)
        self._world.agenda.add(Happening.TIMER, lambda: self._fire(due), self._name, "timer", at=at)

    def _fire(self, due: float) -> None:
        if self._is_closed or self._suspension.holds(
            Happening.TIMER, lambda: self._fire(due), self._name, "timer"
        ):
            return
        if self._scheduled == due:
            self._scheduled = None
        next_due = self.next_due
        if next_due is not None and next_due <= self._clock.monotonic():
            self.fire_next()
        self._schedule()
