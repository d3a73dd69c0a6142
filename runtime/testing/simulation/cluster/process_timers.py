"""The timers of one process, and its suspension.

A `Suspension` models SIGSTOP and SIGCONT, a virtual machine that is moved, or C code that holds the
interpreter. The process runs no step, no timer and no background work. Frames that it sent before are on
their way. The operating system keeps arriving frames until the process wakes up. A frozen process can be
killed.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.testing.manual_time import ManualClock, ManualTimer, ManualTimers
from penstock.runtime.testing.simulation.world.agenda import Happening
from penstock.runtime.testing.simulation.world.world import World


class Suspension:
    """Whether one process can run; see the module's text.

    Attributes:
        is_frozen: Whether the process can't run.
    """

    __slots__ = ("_held", "_world", "is_frozen")

    def __init__(self, world: World) -> None:
        self.is_frozen = False
        self._world = world
        self._held: list[tuple[Happening, Callable[[], None], tuple[object, ...]]] = []

    def freeze(self) -> None:
        self.is_frozen = True

    def wake(self) -> None:
        """Continue the process; kept actions run in a random order."""
        self.is_frozen = False
        held, self._held = self._held, []
        for kind, act, what in held:
            self._world.agenda.add(kind, act, *what)

    def holds(self, kind: Happening, act: Callable[[], None], *what: object) -> bool:
        """Keep an action for later if the process can't run now; return whether it was kept."""
        if self.is_frozen:
            self._held.append((kind, act, what))
        return self.is_frozen


class ProcessTimers(ManualTimers):
    """Timers that fire in the order in which they are due, one in a move, until their owner is gone.

    Args:
        suspension: Says whether the owner can run.
    """

    def __init__(self, world: World, clock: ManualClock, suspension: Suspension, name: str) -> None:
        super().__init__(clock)
        self._world = world
        self._suspension = suspension
        self._name = name
        self._scheduled: float | None = None
        self._is_closed = False

    def call_later(self, delay: float, callback: Callable[[], None]) -> ManualTimer:
        timer = super().call_later(delay, callback)
        self._schedule()
        return timer

    def close(self) -> None:
        self._is_closed = True

    def _schedule(self) -> None:
        """Put the next timer on the agenda, unless it is there."""
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
