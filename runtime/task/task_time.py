"""The time of a subtask: its timers, its input time, and its time at work.

`TaskTimers` fire in the subtask's thread, between two pieces of work. `TimeAccount` adds up the time at work
and the wait for credits.

`InputTime` is a clock that measures how long a subtask could have taken input. Idleness is time in which
records could have arrived but did not. The clock runs while the subtask waits. It stops while an output has
no credit: then the subtask takes no input, and its input may be full. Even a long step counts for little:
records also wait during a checkpoint or a slow function.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Final

from penstock.runtime.ports import Clock


class _Timer:
    """A future call; `cancel` removes its callback."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class TaskTimers:
    """A `TimerService` that `Subtask.step` drives; it never fires by itself."""

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
        """Run the callbacks that are due, the earliest first."""
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


#: Maximum seconds that a step adds to `InputTime`.
_MOST_OF_A_STEP: Final = 0.1


class InputTime:
    """Adds up the time between steps while all outputs have credits, and a bounded part of each step."""

    __slots__ = ("_begun", "_seconds", "_waits_since")

    def __init__(self) -> None:
        self._seconds = 0.0
        self._begun = 0.0
        self._waits_since: float | None = None

    def begin(self, now: float) -> float:
        """Begin a step at `now`, in monotonic seconds; return the seconds so far."""
        self._begun = now
        if self._waits_since is not None:
            self._seconds += now - self._waits_since
            self._waits_since = None
        return self._seconds

    def end(self, now: float, *, available: bool) -> None:
        """End a step; `available` is whether all outputs have credits."""
        self._seconds += min(now - self._begun, _MOST_OF_A_STEP)
        self._waits_since = now if available else None

    def monotonic_at(self, seconds: float, now: float) -> float:
        """The monotonic time at which this clock will show `seconds`, if it does not stop before then."""
        return now + max(0.0, seconds - self._seconds)


class TimeAccount:
    """Adds up the time at work and the time under back pressure, in seconds.

    The task thread writes it; any thread may read it.

    Attributes:
        backpressured: Time in which an output had no credit, without the current wait.
        begun: Monotonic time at which the running step began; `None` between two steps.
    """

    __slots__ = ("_blocked_since", "backpressured", "begun", "busy")

    def __init__(self) -> None:
        self.busy = 0.0
        self.backpressured = 0.0
        self.begun: float | None = None
        self._blocked_since: float | None = None

    def step(self, *, begun: float, now: float, worked: bool, available: bool) -> None:
        self.begun = None
        if worked:
            self.busy += now - begun
        if self._blocked_since is not None:
            self.backpressured += begun - self._blocked_since
        self._blocked_since = None if available else now

    def until(self, now: float) -> tuple[float, float]:
        """Seconds at work and under back pressure, with the running step and the current wait.

        A call of a user's function may last for minutes, and so may a wait for a credit. A running step
        counts as work, even if it finds nothing to do. So a later result may be smaller, by one step.
        """
        # Read in this order: a step that ends in between may be missing, but is never counted twice.
        busy, backpressured = self.busy, self.backpressured
        begun, blocked_since = self.begun, self._blocked_since
        if blocked_since is not None:
            backpressured += max(0.0, (now if begun is None else begun) - blocked_since)
        if begun is not None:
            busy += max(0.0, now - begun)
        return busy, backpressured
