"""What a run says about itself, line by line, for replays of a failing seed."""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.ports import Clock


class Trace:
    """Writes readable lines; costs nothing while nobody listens.

    Args:
        clock: Stamps the lines.
        write: Takes each line; `None` for a run that nobody reads.

    Attributes:
        is_on: Whether somebody listens; look at it before a line is put together.
        moves: How many moves were made.

    Example:
        >>> from penstock.runtime.testing.manual_time import ManualClock
        >>> Trace(ManualClock(), print).note("map[0] crashes")
             0  0.00000s  map[0] crashes
    """

    __slots__ = ("_clock", "_write", "is_on", "moves")

    def __init__(self, clock: Clock, write: Callable[[str], None] | None = None) -> None:
        self._clock = clock
        self._write = write
        self.is_on = write is not None
        self.moves = 0

    def note(self, *parts: object) -> None:
        """Write a line."""
        if self._write is not None:
            text = " ".join(map(str, parts))
            self._write(f"{self.moves:>6} {self._clock.monotonic():>8.5f}s  {text}")
