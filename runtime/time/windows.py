"""Windows, and the assignment of records to them.

Tumbling, sliding and cumulative windows are aligned to the epoch, in UTC: a tumbling window of one hour
begins with the hour. For windows of event time and of one size, the timestamp alone decides
(`WindowAssigner`). `RecordWindowAssigner` is the base of all other assigners, and of users' own.

**Sessions** are records of a key that follow each other closely. Each record opens a window from its
timestamp to one gap later. Windows that overlap are merged. So a session ends one gap after its last record,
and each of its records is less than a gap after the record before it.

Two windows that only touch are not merged. A watermark may fire the first window before the second begins, so
a merge would depend on when watermarks arrive. Flink merges windows that touch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Generic, Protocol, Self, TypeVar, runtime_checkable

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.names import NearestNames
from penstock.runtime.time.durations import Duration, micros_in
from penstock.runtime.user_location import function_name, user_location

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class TimeWindow(tuple[int, int]):
    """A span of time from `start` up to, but not including, `end`.

    Args:
        start_timestamp: Microseconds since the epoch.
        end_timestamp: Microseconds since the epoch.

    Example:
        >>> minute = TimeWindow(1_714_564_800_000_000, 1_714_564_860_000_000)
        >>> minute.start, str(minute.end)
        (datetime.datetime(2024, 5, 1, 12, 0, tzinfo=datetime.timezone.utc), '2024-05-01 12:01:00+00:00')
    """

    __slots__ = ()
    #: Names of the two timestamps in stored data.
    _fields: ClassVar[tuple[str, str]] = ("start", "end")

    def __new__(cls, start_timestamp: int, end_timestamp: int) -> Self:
        return super().__new__(cls, (start_timestamp, end_timestamp))

    def __getnewargs__(self) -> tuple[int, int]:
        return self[0], self[1]

    @property
    def start_timestamp(self) -> int:
        """The first microsecond of the window, since the epoch."""
        return self[0]

    @property
    def end_timestamp(self) -> int:
        """The first microsecond after the window, since the epoch."""
        return self[1]

    @property
    def start(self) -> datetime:
        """The first moment of the window, in UTC; `datetime.min` for the window that never ends."""
        return _moment(self.start_timestamp)

    @property
    def end(self) -> datetime:
        """The first moment after the window, in UTC; `datetime.max` for the window that never ends."""
        return _moment(self.end_timestamp)

    @property
    def max_timestamp(self) -> int:
        """The last microsecond that belongs to the window: the timestamp of its results."""
        return self.end_timestamp - 1

    def __repr__(self) -> str:
        try:
            return f"TimeWindow({self.start}, {self.end})"
        except PenstockError:
            return f"TimeWindow({self.start_timestamp}, {self.end_timestamp})"


def _moment(timestamp: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=timestamp)
    except OverflowError:
        if timestamp in GLOBAL_WINDOW:
            return datetime.min.replace(tzinfo=UTC) if timestamp < 0 else datetime.max.replace(tzinfo=UTC)
        msg = (
            f"timestamp {timestamp} of a window is outside the years 1 to 9999 of a datetime: check the "
            "unit of the records' timestamps, or use start_timestamp and end_timestamp, in microseconds"
        )
        raise PenstockError(msg) from None


@runtime_checkable
class WindowAssigner(Protocol):
    """Assigns a timestamp to windows of one size. The same timestamp always gets the same windows.

    A record in no window goes to the side output of late records. If windows begin at a fixed interval, an
    attribute `slide` may declare it in microseconds: then the assigner is not called for every record. An
    attribute `offset`, in microseconds, declares the shift of the starts. A job refuses a snapshot with open
    windows of a different slide or offset. A subclass of another assigner with its own `starts` is called for
    every record, even if it has a `slide`.
    """

    @property
    def size(self) -> int:
        """Microseconds from the start of a window to its end."""
        ...

    def starts(self, timestamp: int) -> Sequence[int]:
        """Starts of all windows that hold this timestamp, the earliest first."""
        ...


def slide_of(assigner: WindowAssigner) -> int | None:
    """Microseconds between the starts of two windows; `None` if they may begin and end anywhere.

    Example:
        >>> class Workdays(TumblingEventTimeWindows):
        ...     def starts(self, timestamp):
        ...         return () if timestamp // 86_400_000_000 % 7 in (2, 3) else super().starts(timestamp)
        >>> slide_of(TumblingEventTimeWindows(3600)), slide_of(Workdays(3600))
        (3600000000, None)
    """
    slide: int | None = getattr(assigner, "slide", None)
    classes = [of for of in type(assigner).__mro__ if "starts" in vars(of) and of is not WindowAssigner]
    # A base class's `slide` need not hold for the `starts` of a subclass.
    return slide or None if len(classes) < 2 else None


def micros_of_user(name: str, duration: object, *, at_least: int = 1) -> int:
    """Like `micros_in`, with an error that names the user's line."""
    try:
        return micros_in(name, duration, at_least=at_least)
    except ConfigurationError as error:
        msg = f"{user_location()}: {error}"
        raise ConfigurationError(msg) from None


class TumblingEventTimeWindows(metaclass=NearestNames):
    """Windows of one size, side by side: every record is in exactly one window.

    Args:
        size: A `timedelta`, or seconds.
        offset: Shift of the starts of windows, for example for days of another time zone: a `timedelta`, or
            seconds.

    Example:
        >>> minutes = TumblingEventTimeWindows(timedelta(minutes=1))
        >>> minutes.starts(59_999_999), minutes.starts(60_000_000), minutes.starts(-1)
        ((0,), (60000000,), (-60000000,))
    """

    def __init__(self, size: Duration, offset: Duration = 0) -> None:
        self.size = self.slide = micros_of_user("size", size)
        self.offset = micros_of_user("offset", offset, at_least=-self.size)

    def starts(self, timestamp: int) -> Sequence[int]:
        """The start of the window that holds this timestamp."""
        return (timestamp - (timestamp - self.offset) % self.size,)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({timedelta(microseconds=self.size)})"


class SlidingEventTimeWindows(metaclass=NearestNames):
    """Windows of one size that begin every `slide`: a record is in about `size / slide` of them.

    Args:
        size: A `timedelta`, or seconds.
        slide: A `timedelta`, or seconds; at most the size.
        offset: Shift of the starts of windows; a `timedelta`, or seconds.

    Example:
        >>> windows = SlidingEventTimeWindows(size=10, slide=5)
        >>> windows.starts(12_000_000)
        (5000000, 10000000)
    """

    def __init__(self, size: Duration, slide: Duration, offset: Duration = 0) -> None:
        self.size = micros_of_user("size", size)
        self.slide = micros_of_user("slide", slide)
        self.offset = micros_of_user("offset", offset, at_least=-self.size)
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


T = TypeVar("T")


class RecordWindowAssigner(Generic[T], metaclass=NearestNames):
    """Assigns records to windows (Flink's `WindowAssigner`); base of users' own assigners.

    Attributes:
        is_event_time: Whether the windows are spans of event time; otherwise they are of processing time.
        is_merging: Whether overlapping windows of a key become one.
        is_endless: Whether a window never ends.

    Example:
        >>> class UntilPayday(RecordWindowAssigner[dict[str, int]]):
        ...     '''A record counts until its payday.'''
        ...
        ...     def windows(self, record, timestamp):
        ...         return [TimeWindow(timestamp, record["payday"])]
        >>> UntilPayday().windows({"payday": 20}, 5)
        [TimeWindow(1970-01-01 00:00:00.000005+00:00, 1970-01-01 00:00:00.000020+00:00)]
    """

    is_event_time: ClassVar[bool] = True
    is_merging: ClassVar[bool] = False
    is_endless: ClassVar[bool] = False

    def windows(self, record: T, timestamp: int) -> Sequence[TimeWindow]:
        """The windows of a record. A record without windows goes to the side output of late records.

        Args:
            timestamp: Event time in microseconds; the current time for windows of processing time.
        """
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int | str, ...]:
        """The kind of these windows; a job refuses a snapshot with open windows of a different kind."""
        return (type(self).__name__,)

    @property
    def function(self) -> Callable[..., Any] | None:
        """The user's function that receives records, for messages; `None` without such a function."""
        return None if type(self).windows.__module__ == __name__ else self.windows


class AlignedWindows(RecordWindowAssigner[Any]):
    """Windows of one size, determined by the timestamp alone.

    Example:
        >>> AlignedWindows(TumblingEventTimeWindows(10)).windows("a", 12_000_000)
        (TimeWindow(1970-01-01 00:00:10+00:00, 1970-01-01 00:00:20+00:00),)
    """

    def __init__(self, assigner: WindowAssigner) -> None:
        self._assigner = assigner
        self._last: tuple[int | None, Sequence[TimeWindow]] = (None, ())

    def windows(self, record: Any, timestamp: int) -> Sequence[TimeWindow]:
        known, windows = self._last
        if timestamp != known:
            size = self._assigner.size
            windows = tuple(TimeWindow(start, start + size) for start in self._assigner.starts(timestamp))
            self._last = timestamp, windows
        return windows

    @property
    def shape(self) -> tuple[int | str, ...]:
        slide, offset = getattr(self._assigner, "slide", 0), getattr(self._assigner, "offset", 0)
        return (type(self._assigner).__name__, self._assigner.size, slide, offset)

    def __repr__(self) -> str:
        return repr(self._assigner)


class _ProcessingTimeWindows(AlignedWindows):
    is_event_time = False

    @property
    def shape(self) -> tuple[int | str, ...]:
        return (type(self).__name__, *super().shape[1:])

    def __repr__(self) -> str:
        return super().__repr__().replace("Event", "Processing")


class TumblingProcessingTimeWindows(_ProcessingTimeWindows):
    """Like `TumblingEventTimeWindows`, but in processing time: a record is in the window of its arrival.

    Example:
        >>> TumblingProcessingTimeWindows(10).windows("a", 12_000_000)
        (TimeWindow(1970-01-01 00:00:10+00:00, 1970-01-01 00:00:20+00:00),)
    """

    def __init__(self, size: Duration, offset: Duration = 0) -> None:
        super().__init__(TumblingEventTimeWindows(size, offset))


class SlidingProcessingTimeWindows(_ProcessingTimeWindows):
    """Like `SlidingEventTimeWindows`, but in processing time."""

    def __init__(self, size: Duration, slide: Duration, offset: Duration = 0) -> None:
        super().__init__(SlidingEventTimeWindows(size, slide, offset))


class CumulativeEventTimeWindows(RecordWindowAssigner[Any]):
    """Windows that begin together and end every `step`, up to a maximum size (`CUMULATE` of Flink SQL).

    For example, with a maximum size of a day and a step of an hour, the first window of a day is its first
    hour. The last window is the whole day.

    Args:
        max_size: Size of the last window, a whole number of steps; a `timedelta`, or seconds.
        step: Difference in size between a window and the next one; a `timedelta`, or seconds.
        offset: Shift of the starts of windows; a `timedelta`, or seconds.

    Example:
        >>> windows = CumulativeEventTimeWindows(max_size=15e-6, step=5e-6)
        >>> [tuple(window) for window in windows.windows("a", 7)]
        [(0, 10), (0, 15)]
    """

    def __init__(self, max_size: Duration, step: Duration, offset: Duration = 0) -> None:
        self.max_size = micros_of_user("max_size", max_size)
        self.step = micros_of_user("step", step)
        self.offset = micros_of_user("offset", offset, at_least=-self.max_size)
        if self.max_size % self.step:
            msg = (
                f"{user_location()}: cumulative windows of up to {timedelta(microseconds=self.max_size)} "
                f"can't grow by {timedelta(microseconds=self.step)}: make the largest size a whole number "
                "of steps"
            )
            raise ConfigurationError(msg)

    def windows(self, record: Any, timestamp: int) -> Sequence[TimeWindow]:
        within = (timestamp - self.offset) % self.max_size
        start = timestamp - within
        first = within // self.step * self.step + self.step
        return [TimeWindow(start, start + size) for size in range(first, self.max_size + 1, self.step)]

    @property
    def shape(self) -> tuple[int | str, ...]:
        return (type(self).__name__, self.max_size, self.step, self.offset)

    def __repr__(self) -> str:
        size, step = timedelta(microseconds=self.max_size), timedelta(microseconds=self.step)
        return f"{type(self).__name__}({size}, by {step})"


class CumulativeProcessingTimeWindows(CumulativeEventTimeWindows):
    """Like `CumulativeEventTimeWindows`, but in processing time."""

    is_event_time = False


#: The window that holds all records.
GLOBAL_WINDOW: Final = TimeWindow(-(1 << 63), (1 << 63) - 1)


class GlobalWindows(RecordWindowAssigner[Any]):
    """One window for all records of a key; it needs a trigger.

    Example:
        >>> GlobalWindows().windows("a", 5) == (GLOBAL_WINDOW,)
        True
    """

    is_event_time = False
    is_endless = True

    def windows(self, record: Any, timestamp: int) -> Sequence[TimeWindow]:
        return (GLOBAL_WINDOW,)

    def __repr__(self) -> str:
        return "GlobalWindows()"


class EventTimeSessionWindows(RecordWindowAssigner[T]):
    """A window for each session: records less than a gap apart, in event time.

    Args:
        gap: A `timedelta`, seconds, or a function from a record to its gap.

    Example:
        >>> EventTimeSessionWindows(10).windows("a", 5_000_000)
        [TimeWindow(1970-01-01 00:00:05+00:00, 1970-01-01 00:00:15+00:00)]
        >>> EventTimeSessionWindows(lambda click: click["patience"]).windows({"patience": 2}, 0)
        [TimeWindow(1970-01-01 00:00:00+00:00, 1970-01-01 00:00:02+00:00)]
    """

    is_merging = True

    def __init__(self, gap: Duration | Callable[[T], Duration]) -> None:
        self._gap_of = gap if callable(gap) else None
        self.gap = None if callable(gap) else micros_of_user("gap", gap)

    def windows(self, record: T, timestamp: int) -> Sequence[TimeWindow]:
        gap = self.gap
        if gap is None:
            assert self._gap_of is not None, "a gap is a span or a function"
            gap = micros_in("gap", self._gap_of(record))
        return [TimeWindow(timestamp, timestamp + gap)]

    @property
    def function(self) -> Callable[..., Any] | None:
        return self._gap_of or super().function

    def __repr__(self) -> str:
        if self.gap is None:
            assert self._gap_of is not None, "a gap is a span or a function"
            return f"{type(self).__name__}({function_name(self._gap_of)})"
        return f"{type(self).__name__}({timedelta(microseconds=self.gap)})"


class ProcessingTimeSessionWindows(EventTimeSessionWindows[T]):
    """Like `EventTimeSessionWindows`, but in processing time."""

    is_event_time = False
