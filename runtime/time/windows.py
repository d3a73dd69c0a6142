"""Windows of event time that are all of one size, and which of them a timestamp belongs to.

Windows are aligned to the epoch, in UTC: a tumbling window of one hour begins with the hour. Windows of other
kinds are in `record_windows.py` and in the files beside it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, Protocol, runtime_checkable

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.misspelt_names import NearestNames
from penstock.runtime.time.instants import micros_in
from penstock.runtime.user_location import user_location


class TimeWindow(NamedTuple):
    """A span of time from `start` up to, but not including, `end`.

    Attributes:
        start: Microseconds since the epoch.
        end: Likewise.
    """

    start: int
    end: int

    @property
    def max_timestamp(self) -> int:
        """The last microsecond that belongs to it: the timestamp of what the window emits."""
        return self.end - 1


@runtime_checkable
class WindowAssigner(Protocol):
    """Says which windows a timestamp belongs to. The same timestamp always gives the same windows.

    All windows of one assigner have one size. A timestamp that belongs to none is late everywhere. If windows
    begin every so many microseconds, an attribute `slide` may say so: then not every record is asked for.
    With it, an `offset` in microseconds says where they begin; a job whose open windows have another slide
    or offset does not start from them. A class that derives from another assigner and has its own `starts` is
    asked for every record, and its `slide` and `offset` count for nothing.
    """

    @property
    def size(self) -> int:
        """Microseconds from the start of a window to its end."""
        ...

    def starts(self, timestamp: int) -> Sequence[int]:
        """Starts of all windows that hold this timestamp, the earliest first."""
        ...


def slide_of(assigner: WindowAssigner) -> int | None:
    """Every how many microseconds windows begin; `None` if they may begin and end anywhere.

    Example:
        >>> class Workdays(TumblingEventTimeWindows):
        ...     def starts(self, timestamp):
        ...         return () if timestamp // 86_400_000_000 % 7 in (2, 3) else super().starts(timestamp)
        >>> slide_of(TumblingEventTimeWindows(3600)), slide_of(Workdays(3600))
        (3600000000, None)
    """
    slide: int | None = getattr(assigner, "slide", None)
    classes = [of for of in type(assigner).__mro__ if "starts" in vars(of) and of is not WindowAssigner]
    # What a base class says of the windows need not hold for starts that are not its own.
    return slide or None if len(classes) < 2 else None


def span_of(what: str, span: object, *, least: int = 1) -> int:
    """A span of a window in microseconds; see `micros_in`.

    Raises:
        ConfigurationError: It makes no sense; names the user's line.
    """
    try:
        return micros_in(what, span, least=least)
    except ConfigurationError as error:
        msg = f"{user_location()}: {error}"
        raise ConfigurationError(msg) from None


class TumblingEventTimeWindows(metaclass=NearestNames):
    """Windows of one size, side by side: every record is in exactly one.

    Args:
        size: A `timedelta`, or seconds.
        offset: Shifts where windows begin, for days of another time zone, say.

    Raises:
        ConfigurationError: A span makes no sense.

    Example:
        >>> minutes = TumblingEventTimeWindows(timedelta(minutes=1))
        >>> minutes.starts(59_999_999), minutes.starts(60_000_000), minutes.starts(-1)
        ((0,), (60000000,), (-60000000,))
    """

    def __init__(self, size: timedelta | float, offset: timedelta | float = 0) -> None:
        self.size = self.slide = span_of("the size of a window", size)
        self.offset = span_of("the offset of windows", offset, least=-self.size)

    def starts(self, timestamp: int) -> Sequence[int]:
        """The start of the window that holds this timestamp."""
        return (timestamp - (timestamp - self.offset) % self.size,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({timedelta(microseconds=self.size)})"


class SlidingEventTimeWindows(metaclass=NearestNames):
    """Windows of one size that begin every `slide`: a record is in `size / slide` of them.

    Args:
        size: A `timedelta`, or seconds.
        slide: Likewise; at most the size.
        offset: Shifts where windows begin.

    Raises:
        ConfigurationError: A span makes no sense, or there would be gaps.

    Example:
        >>> windows = SlidingEventTimeWindows(size=10, slide=5)
        >>> windows.starts(12_000_000)
        (5000000, 10000000)
    """

    def __init__(
        self, size: timedelta | float, slide: timedelta | float, offset: timedelta | float = 0
    ) -> None:
        self.size = span_of("the size of a window", size)
        self.slide = span_of("the slide of windows", slide)
        self.offset = span_of("the offset of windows", offset, least=-self.size)
        if self.slide > self.size:
            msg = (
                f"{user_location()}: windows of {timedelta(microseconds=self.size)} that begin every "
                f"{timedelta(microseconds=self.slide)} leave gaps; make the slide at most the size"
            )
            raise ConfigurationError(msg)

    def starts(self, timestamp: int) -> Sequence[int]:
        """The starts of all windows that hold this timestamp, the earliest first."""
        last = timestamp - (timestamp - self.offset) % self.slide
        return tuple(range(last, timestamp - self.size, -self.slide))[::-1]

    def __repr__(self) -> str:
        size, slide = timedelta(microseconds=self.size), timedelta(microseconds=self.slide)
        return f"{type(self).__name__}({size}, every {slide})"
