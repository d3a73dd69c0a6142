"""A clock and timers that advance only when a test advances them.

Both are deterministic. Callbacks that are due at the same time run in the order in which they were scheduled.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

from penstock.runtime.time.durations import Duration, seconds_in

T = TypeVar("T")


class ManualClock:
    """A clock that a test sets.

    Args:
        start: Wall-clock seconds at the beginning; monotonic time begins at 0.

    Example:
        >>> clock = ManualClock(start=100.0)
        >>> clock.advance(2.5)
        >>> clock.now(), clock.monotonic()
        (102.5, 2.5)
    """

    def __init__(self, start: float = 1_000_000.0) -> None:
        self._start = start
        self._elapsed = 0.0

    def now(self) -> float:
        """Wall-clock seconds."""
        return self._start + self._elapsed

    def monotonic(self) -> float:
        """Seconds since the clock was made."""
        return self._elapsed

    def advance(self, duration: Duration) -> None:
        """Let time pass.

        Raises:
            ConfigurationError: The argument is not a duration, or is negative.
        """
        self._elapsed += seconds_in("duration", duration)

    def set_wall_clock(self, now: float) -> None:
        """Set the wall clock, forward or back; monotonic time does not change."""
        self._start = now - self._elapsed

    def advance_to(self, monotonic: float) -> None:
        """Let time pass until `monotonic()` shows this time; do nothing if it has passed."""
        self._elapsed = max(self._elapsed, monotonic)


@dataclass(order=True, slots=True)
class ManualTimer:
    """One scheduled callback; `due` is the monotonic time at which it fires."""

    due: float
    number: int
    callback: Callable[[], None] = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class ManualTimers:
    """Timers that fire when the test advances them.

    Example:
        >>> timers = ManualTimers(ManualClock())
        >>> _ = timers.call_later(5, lambda: print("fired"))
        >>> timers.advance(4)
        >>> timers.advance(1)
        fired
    """

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self._heap: list[ManualTimer] = []
        self._numbers = count()

    @property
    def pending(self) -> tuple[ManualTimer, ...]:
        """Timers that will fire, in their order."""
        return tuple(sorted(timer for timer in self._heap if not timer.cancelled))

    @property
    def next_due(self) -> float | None:
        """Monotonic time of the next timer; `None` without timers."""
        while self._heap and self._heap[0].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0].due if self._heap else None

    def call_later(self, delay: float, callback: Callable[[], None]) -> ManualTimer:
        timer = ManualTimer(self._clock.monotonic() + max(0.0, delay), next(self._numbers), callback)
        heapq.heappush(self._heap, timer)
        return timer

    def fire_next(self) -> bool:
        """Advance to the next timer and fire it; return whether there was one."""
        if self.next_due is None:
            return False
        timer = heapq.heappop(self._heap)
        self._clock.advance_to(timer.due)
        timer.callback()
        return True

    def advance(self, seconds: float) -> None:
        """Let time pass and fire all due timers, in order."""
        end = self._clock.monotonic() + seconds
        while (due := self.next_due) is not None and due <= end:
            self.fire_next()
        self._clock.advance_to(end)
