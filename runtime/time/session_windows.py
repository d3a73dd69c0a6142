"""Session windows: records of a key that follow each other closely.

Each record opens a window of its own, from its timestamp to one gap later. Windows that overlap become one.
So a session ends one gap behind its last record, and all records of it lie less than a gap apart.

Two windows that only touch stay two. A watermark may have fired the first one before the second begins, so
anything else would depend on when watermarks come. Flink joins windows that touch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

from penstock.runtime.time.instants import micros_in
from penstock.runtime.time.record_windows import RecordWindowAssigner
from penstock.runtime.time.windows import TimeWindow, span_of
from penstock.runtime.user_location import function_name

T = TypeVar("T")


class EventTimeSessionWindows(RecordWindowAssigner[T]):
    """A window for each session: records less than a gap apart, in event time.

    Args:
        gap: A `timedelta`, or seconds. Or a function from a record to its gap.

    Raises:
        ConfigurationError: The gap is no span of time, or not positive.

    Example:
        >>> EventTimeSessionWindows(10).windows("a", 5_000_000)
        [TimeWindow(start=5000000, end=15000000)]
        >>> EventTimeSessionWindows(lambda click: click["patience"]).windows({"patience": 2}, 0)
        [TimeWindow(start=0, end=2000000)]
    """

    is_merging = True

    def __init__(self, gap: timedelta | float | Callable[[T], timedelta | float]) -> None:
        self._gap_of = gap if callable(gap) else None
        self.gap = None if callable(gap) else span_of("the gap of sessions", gap)

    def windows(self, record: T, timestamp: int) -> Sequence[TimeWindow]:
        """One, which begins with the record."""
        gap = self.gap
        if gap is None:
            assert self._gap_of is not None, "a gap is a span or a function"
            gap = micros_in("the gap of a session", self._gap_of(record))
        return [TimeWindow(timestamp, timestamp + gap)]

    @property
    def function(self) -> Callable[..., Any]:
        """The function of the gap."""
        return self._gap_of or self.windows

    def __repr__(self) -> str:
        if self.gap is None:
            assert self._gap_of is not None, "a gap is a span or a function"
            return f"{type(self).__name__}({function_name(self._gap_of)})"
        return f"{type(self).__name__}({timedelta(microseconds=self.gap)})"


class ProcessingTimeSessionWindows(EventTimeSessionWindows[T]):
    """A window for each session: records that come less than a gap apart, by the time of day.

    Args:
        gap: A `timedelta`, or seconds. Or a function from a record to its gap.

    Raises:
        ConfigurationError: The gap is no span of time, or not positive.
    """

    is_event_time = False
