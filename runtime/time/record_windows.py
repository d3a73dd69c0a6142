"""Which windows a record belongs to, where its timestamp alone does not say, or windows differ in size.

`RecordWindowAssigner` is the base of all of them, and of users' own. Here are those that are aligned to the
epoch: by processing time, and cumulative ones. `session_windows.py` and `global_windows.py` have the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, ClassVar, Generic, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.misspelt_names import NearestNames
from penstock.runtime.time.windows import (
    SlidingEventTimeWindows,
    TimeWindow,
    TumblingEventTimeWindows,
    WindowAssigner,
    span_of,
)
from penstock.runtime.user_location import user_location

T = TypeVar("T")


class RecordWindowAssigner(Generic[T], metaclass=NearestNames):
    """Says which windows a record belongs to (Flink's `WindowAssigner`); base of users' own assigners.

    Attributes:
        is_event_time: Whether the windows are spans of event time; otherwise they are of processing time.
        is_merging: Whether windows of a key that overlap become one.
        is_endless: Whether a window never ends.

    Example:
        >>> class UntilPayday(RecordWindowAssigner[dict[str, int]]):
        ...     '''Each record says how long it counts.'''
        ...
        ...     def windows(self, record, timestamp):
        ...         return [TimeWindow(timestamp, record["payday"])]
        >>> UntilPayday().windows({"payday": 20}, 5)
        [TimeWindow(start=5, end=20)]
    """

    is_event_time: ClassVar[bool] = True
    is_merging: ClassVar[bool] = False
    is_endless: ClassVar[bool] = False

    def windows(self, record: T, timestamp: int) -> Sequence[TimeWindow]:
        """The windows of a record; none for a record that is late everywhere.

        Args:
            timestamp: Its event time in microseconds, or the time of day for windows of processing time.
        """
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int | str, ...]:
        """What windows these are. A job whose open windows are others does not start from them."""
        return (type(self).__name__,)

    @property
    def function(self) -> Callable[..., Any]:
        """The user's function behind the windows, for messages."""
        return self.windows


class AlignedWindows(RecordWindowAssigner[Any]):
    """Windows of one size, which a timestamp alone decides.

    Example:
        >>> AlignedWindows(TumblingEventTimeWindows(10)).windows("a", 12_000_000)
        (TimeWindow(start=10000000, end=20000000),)
    """

    def __init__(self, assigner: WindowAssigner) -> None:
        self._assigner = assigner
        self._last: tuple[int | None, Sequence[TimeWindow]] = (None, ())

    def windows(self, record: Any, timestamp: int) -> Sequence[TimeWindow]:
        """The windows of the timestamp, the earliest first."""
        known, windows = self._last
        if timestamp != known:
            size = self._assigner.size
            windows = tuple(TimeWindow(start, start + size) for start in self._assigner.starts(timestamp))
            self._last = timestamp, windows
        return windows

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Size, slide and offset."""
        slide, offset = getattr(self._assigner, "slide", 0), getattr(self._assigner, "offset", 0)
        return (type(self._assigner).__name__, self._assigner.size, slide, offset)

    def __repr__(self) -> str:
        return repr(self._assigner)


class TumblingProcessingTimeWindows(AlignedWindows):
    """Windows of one size of the time of day, side by side: a record is in the one that it comes in.

    Args:
        size: A `timedelta`, or seconds.
        offset: By so much windows begin later than the epoch; seconds.

    Raises:
        ConfigurationError: A span makes no sense.

    Example:
        >>> TumblingProcessingTimeWindows(10).windows("a", 12_000_000)
        (TimeWindow(start=10000000, end=20000000),)
    """

    is_event_time = False

    def __init__(self, size: timedelta | float, offset: timedelta | float = 0) -> None:
        super().__init__(TumblingEventTimeWindows(size, offset))

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Those of event time are others."""
        return (type(self).__name__, *super().shape[1:])

    def __repr__(self) -> str:
        return super().__repr__().replace("Event", "Processing")


class SlidingProcessingTimeWindows(AlignedWindows):
    """Windows of one size of the time of day that begin every `slide`.

    Args:
        size: A `timedelta`, or seconds.
        slide: Likewise; at most the size.
        offset: By so much windows begin later than the epoch; seconds.

    Raises:
        ConfigurationError: A span makes no sense, or there would be gaps.
    """

    is_event_time = False

    def __init__(
        self, size: timedelta | float, slide: timedelta | float, offset: timedelta | float = 0
    ) -> None:
        super().__init__(SlidingEventTimeWindows(size, slide, offset))

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Those of event time are others."""
        return (type(self).__name__, *super().shape[1:])

    def __repr__(self) -> str:
        return super().__repr__().replace("Event", "Processing")


class CumulativeEventTimeWindows(RecordWindowAssigner[Any]):
    """Windows that begin together and end every `step`, up to a largest size (`CUMULATE` of Flink SQL).

    Take a largest size of a day and a step of an hour. The first window of a day is its first hour. The last
    one is the whole day.

    Args:
        max_size: Of the last window; a `timedelta`, or seconds. A whole number of steps.
        step: By so much each window is longer than the one before.
        offset: By so much windows begin later than the epoch; seconds.

    Raises:
        ConfigurationError: A span makes no sense, or the largest size is no whole number of steps.

    Example:
        >>> windows = CumulativeEventTimeWindows(max_size=15e-6, step=5e-6)
        >>> [tuple(window) for window in windows.windows("a", 7)]
        [(0, 10), (0, 15)]
    """

    def __init__(
        self, max_size: timedelta | float, step: timedelta | float, offset: timedelta | float = 0
    ) -> None:
        self.max_size = span_of("the largest size of cumulative windows", max_size)
        self.step = span_of("the step of cumulative windows", step)
        self.offset = span_of("the offset of windows", offset, least=-self.max_size)
        if self.max_size % self.step:
            msg = (
                f"{user_location()}: cumulative windows of up to {timedelta(microseconds=self.max_size)} "
                f"can't grow by {timedelta(microseconds=self.step)}: make the largest size a whole number "
                "of steps"
            )
            raise ConfigurationError(msg)

    def windows(self, record: Any, timestamp: int) -> Sequence[TimeWindow]:
        """All that hold the timestamp, the shortest first."""
        within = (timestamp - self.offset) % self.max_size
        start = timestamp - within
        first = within // self.step * self.step + self.step
        return [TimeWindow(start, start + size) for size in range(first, self.max_size + 1, self.step)]

    @property
    def shape(self) -> tuple[int | str, ...]:
        """Largest size, step and offset."""
        return (type(self).__name__, self.max_size, self.step, self.offset)

    def __repr__(self) -> str:
        size, step = timedelta(microseconds=self.max_size), timedelta(microseconds=self.step)
        return f"{type(self).__name__}({size}, by {step})"


class CumulativeProcessingTimeWindows(CumulativeEventTimeWindows):
    """Windows of the time of day that begin together and end every `step`; see those of event time."""

    is_event_time = False
