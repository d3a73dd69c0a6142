"""Timers of one subtask, which fire in its thread between two pieces of work."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from penstock.runtime.ports import Clock


class _Timer:
    """One call in the future; called off by losing its callback."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class TaskTimers:
    """A `TimerService` that `Subtask.step` drives: it fires nothing by itself.

    Example:
        >>> from penstock.runtime.testing.manual_time import ManualClock
        >>> clock = ManualClock()
        >>> timers, fired = TaskTimers(clock), []
        >>> _ = timers.call_later(5, lambda: fired.append("late"))
        >>> timers.call_later(1, lambda: fired.append("never")).cancel()
        >>> clock.advance(5)
        >>> timers.fire(clock.monotonic())
        >>> fired, timers.next_at
        (['late'], None)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order = count()
        self._heap: list[tuple[float, int, _Timer]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> _Timer:
        """Run `callback` in the first step that begins at least `delay` seconds from now."""
        timer = _Timer(callback)
        heappush(self._heap, (self._clock.monotonic() + delay, next(self._order), timer))
        return timer

    def fire(self, now: float) -> None:
        """Run what is due, the earliest first.

        Args:
            now: Monotonic seconds.
        """
        while self._heap and self._heap[0][0] <= now:
            callback = heappop(self._heap)[2].callback
            if callback is not None:
                callback()

    @property
    def next_at(self) -> float | None:
        """Monotonic time of the earliest timer; `None` when there is none."""
        while self._heap and self._heap[0][2].callback is None:
            heappop(self._heap)
        return self._heap[0][0] if self._heap else None
