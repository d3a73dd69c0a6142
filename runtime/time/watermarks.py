"""Watermarks: `WatermarkStrategy` makes them, `WatermarkValve` merges the watermarks of several channels.

`WatermarkGenerator` is the base of users' own generators. `WatermarkAlignment` makes fast sources of a group
wait for slow ones. `IdlenessTimer` measures how long a stream has had no records; the time under back
pressure does not count.

**`WatermarkValve`** (Flink's `StatusWatermarkValve`). The input as a whole has the watermark of the slowest
channel that counts. An idle channel does not count. A channel that becomes active again with a lower
watermark than the input does not count until it has caught up. When all channels are idle, event time
advances to the highest watermark of all. Flink does so only if the last channel to become idle was the
slowest, so its result depends on the order.

Before its end, a channel sends the watermark of the end of time, even if it is idle. Unlike Flink, the valve
remembers the watermark of an idle channel, so that no end is lost. If some channels have ended and the others
are idle, the input is idle, but not at the end of time. An ended channel then counts with the last watermark
before its end. Event time reaches its end when all channels have ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any, Final, Generic, TypeVar

from penstock.runtime.arity import arity_problem
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.names import NearestNames, checked_keywords, checked_name
from penstock.runtime.record.elements import END_OF_TIME, StreamStatus, Watermark
from penstock.runtime.time.durations import Duration, micros_in, micros_of, seconds_in
from penstock.runtime.time.time_units import TimeUnit, checked_unit


@dataclass(frozen=True, slots=True)
class WatermarkAlignment:
    """Settings of `WatermarkStrategy.with_alignment`; drift in microseconds, interval in seconds."""

    group: str
    max_drift: int
    interval: float


T = TypeVar("T")


class WatermarkOutput:
    """Receives the watermarks of one generator; they are sent after the batch that is being processed.

    Attributes:
        reached: The highest watermark so far, in microseconds; `None` before the first one.
        is_idle: Whether the stream counts as idle.

    Example:
        >>> output = WatermarkOutput()
        >>> output.emit_watermark(20)
        >>> output.emit_watermark(10)
        >>> output.reached
        20
    """

    __slots__ = ("is_idle", "reached")

    def __init__(self) -> None:
        self.reached: int | None = None
        self.is_idle = False

    def emit_watermark(self, moment: datetime | int) -> None:
        """Declare that no record with this or an earlier timestamp follows; marks the stream active.

        Ignores a moment that is not later than the last watermark.

        Args:
            moment: A `datetime` with a time zone, or microseconds since the epoch as an `int`.
        """
        self.advance(micros_of(moment))
        self.is_idle = False

    def mark_idle(self) -> None:
        """Mark the stream idle: no operator waits for it until a record, a watermark or `mark_active`."""
        self.is_idle = True

    def mark_active(self) -> None:
        """Make operators wait for this stream again."""
        self.is_idle = False

    def advance(self, reached: int) -> None:
        """Emit a checked watermark, in microseconds."""
        if self.reached is None or reached > self.reached:
            self.reached = reached


class WatermarkGenerator(Generic[T]):
    """Base of users' own generators; see `WatermarkStrategy.for_generator`.

    Each subtask has its own generator, or each split if the source has the strategy. Snapshots do not contain
    it. After a restart event time does not advance until the new generator has emitted a watermark.

    Example:
        >>> class BehindTheSecondNewest(WatermarkGenerator):
        ...     '''Ignores the newest record, which may be far ahead of all others.'''
        ...
        ...     def __init__(self):
        ...         self.newest = [0, 0]
        ...
        ...     def on_event(self, value, timestamp, output):
        ...         self.newest = sorted([*self.newest, timestamp])[1:]
        ...
        ...     def on_periodic(self, output):
        ...         output.emit_watermark(self.newest[0])
        >>> from penstock import WatermarkStrategy
        >>> from penstock.testing import OperatorHarness
        >>> strategy = WatermarkStrategy.for_generator(BehindTheSecondNewest, interval=1)
        >>> strategy = strategy.with_timestamp_assigner(lambda number: number)
        >>> with OperatorHarness.of(lambda n: n.assign_timestamps_and_watermarks(strategy)) as harness:
        ...     pushed = harness.push([10, 5_000, 20])
        ...     harness.advance(1)
        ...     harness.watermarks
        []
        (20,)
    """

    def on_event(self, value: T, timestamp: int, output: WatermarkOutput) -> None:
        """Handle a record; called for each record in order.

        Args:
            value: The record; a dict for a row of an Arrow batch.
            timestamp: Event time in microseconds.
            output: Receives a watermark if one is due.
        """
        raise NotImplementedError

    def on_periodic(self, output: WatermarkOutput) -> None:
        """Emit a watermark if one is due; called at the interval of the strategy.

        Time under back pressure does not count. Not called while `with_idleness` has marked the stream idle.
        """


class PunctuatedWatermarks(WatermarkGenerator[T]):
    def __init__(self, watermark_of: Callable[[T, int], datetime | int | None]) -> None:
        self._watermark_of = watermark_of

    def on_event(self, value: T, timestamp: int, output: WatermarkOutput) -> None:
        moment: Any = self._watermark_of(value, timestamp)
        if moment is not None:
            output.emit_watermark(moment)


#: Default seconds between two calls of a generator's `on_periodic`.
INTERVAL: Final = 0.2

#: Default seconds between two reports of an aligned source.
ALIGNMENT_INTERVAL: Final = 0.5


@dataclass(frozen=True, slots=True)
class WatermarkStrategy(Generic[T], metaclass=NearestNames):
    """Assigns timestamps to records and makes watermarks from them (Flink's `WatermarkStrategy`).

    Created by `for_bounded_out_of_orderness`, `for_monotonous_timestamps`, `for_punctuated` or
    `for_generator`.

    Attributes:
        out_of_orderness: Microseconds by which a record may be older than the newest record before it;
            ignored with a generator.
        timestamp_assigner: Returns the moment of a record; `None` keeps its timestamp.
        timestamp_column: Name of the column with the moments, instead of an assigner; `None` for none.
        timestamp_unit: Unit of moments that are numbers.
        generator: Makes the generator of a subtask or split; `None` for bounded out-of-orderness.
        named_by: The user's class or function; error messages about the generator contain its name.
        interval: Seconds between two calls of a generator's `on_periodic`.
        idle_after: Seconds without records after which a stream is idle; `None` for never.
        alignment: The group of sources that wait for each other; `None` for none.

    Example:
        >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(5)
        >>> strategy.with_timestamp_assigner(lambda reading: reading["at"]).out_of_orderness
        5000000
    """

    out_of_orderness: int
    timestamp_assigner: Callable[[T], datetime | float] | None = None
    timestamp_column: str | None = None
    timestamp_unit: TimeUnit = "us"
    generator: Callable[[], WatermarkGenerator[T]] | None = None
    named_by: Callable[..., Any] | None = None
    interval: float = INTERVAL
    idle_after: float | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    @checked_keywords
    def for_bounded_out_of_orderness(most: Duration) -> WatermarkStrategy[Any]:
        """Watermarks for records that are at most `most` older than the newest record before them.

        An older record may be late.

        Args:
            most: A `timedelta`, or seconds.
        """
        return WatermarkStrategy(micros_in("most", most, at_least=0))

    @staticmethod
    @checked_keywords
    def for_monotonous_timestamps() -> WatermarkStrategy[Any]:
        """Watermarks for timestamps that never decrease within a subtask, or within a split of a source."""
        return WatermarkStrategy(0)

    @staticmethod
    @checked_keywords
    def for_punctuated(watermark_of: Callable[[T, int], datetime | int | None]) -> WatermarkStrategy[T]:
        """Watermarks that some records contain.

        Args:
            watermark_of: Receives each record and its timestamp in microseconds. Returns the moment up to
                which all records have arrived, or `None`. A moment is a `datetime` with a time zone, or
                microseconds since the epoch as an `int`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> def end_of_hour(row, timestamp):
            ...     return timestamp - 1 if row["hour_ends"] else None
            >>> strategy = WatermarkStrategy.for_punctuated(end_of_hour).with_timestamp_column("at")
            >>> rows = [{"at": 5, "hour_ends": False}, {"at": 9, "hour_ends": True}]
            >>> with OperatorHarness.of(lambda r: r.assign_timestamps_and_watermarks(strategy)) as harness:
            ...     _ = harness.push(rows)
            ...     harness.watermarks
            (8,)
        """
        _need_function("for_punctuated", watermark_of, "record", "timestamp")
        made = partial(PunctuatedWatermarks, watermark_of)
        return WatermarkStrategy(0, generator=made, named_by=watermark_of)

    @staticmethod
    @checked_keywords
    def for_generator(
        make: Callable[[], WatermarkGenerator[T]], interval: Duration = INTERVAL
    ) -> WatermarkStrategy[T]:
        """Watermarks of a user's own class; see `WatermarkGenerator`.

        Args:
            make: Called without arguments for each subtask or split, for example the class itself.
            interval: Time between two calls of `on_periodic`: a `timedelta`, or seconds.
        """
        if isinstance(make, WatermarkGenerator):
            msg = f"for_generator needs the class {type(make).__name__}, not an object: each stream makes one"
            raise ConfigurationError(msg)
        _need_function("for_generator", make)
        seconds = seconds_in("interval", interval, above=0.0)
        return WatermarkStrategy(0, generator=make, named_by=make, interval=seconds)

    @checked_keywords
    def with_timestamp_assigner(
        self, assigner: Callable[[T], datetime | float], *, unit: TimeUnit = "us"
    ) -> WatermarkStrategy[T]:
        """Return this strategy with a function that returns the moment of a record.

        Args:
            assigner: Returns a `datetime` with a time zone, or an `int` since the epoch. With `"s"` and
                `"ms"` it may return a `float`.
            unit: Unit of the numbers: `"s"`, `"ms"`, `"us"` or `"ns"`.

        Example:
            >>> strategy = WatermarkStrategy.for_monotonous_timestamps()
            >>> strategy.with_timestamp_assigner(lambda row: row["seconds"], unit="s").timestamp_unit
            's'
        """
        _need_function("with_timestamp_assigner", assigner, "record")
        unit = checked_unit("with_timestamp_assigner", unit)
        return replace(self, timestamp_assigner=assigner, timestamp_column=None, timestamp_unit=unit)

    @checked_keywords
    def with_timestamp_column(self, name: str, *, unit: TimeUnit = "us") -> WatermarkStrategy[Any]:
        """Return this strategy with timestamps from a column of Arrow batches, or a key of records (dicts).

        Args:
            name: Name of a column of timestamps with a time zone, or of integers since the epoch. With `"s"`
                and `"ms"` it may hold floats.
            unit: Unit of the numbers: `"s"`, `"ms"`, `"us"` or `"ns"`. A column of timestamps has its own.
        """
        if not isinstance(name, str):
            msg = f"with_timestamp_column needs the name of a column, not {name!r:.80}"
            raise ConfigurationError(msg)
        unit = checked_unit("with_timestamp_column", unit)
        return replace(self, timestamp_assigner=None, timestamp_column=name, timestamp_unit=unit)

    def with_idleness(self, timeout: Duration) -> WatermarkStrategy[T]:
        """Return this strategy with a timeout, after which a stream without records is idle.

        No operator waits for an idle stream. The next record makes it active again. This record is late if
        its timestamp is not later than the watermark that the other streams have reached by then.

        Args:
            timeout: A `timedelta`, or seconds. Time under back pressure does not count.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(60)
            >>> strategy = strategy.with_timestamp_assigner(lambda number: number)
            >>> with OperatorHarness.of(lambda n: n.assign_timestamps_and_watermarks(strategy)) as harness:
            ...     pushed = harness.push([5])
            ...     harness.advance(60)
            ...     quiet = harness.is_idle
            ...     pushed = harness.push([6])
            ...     quiet, harness.is_idle
            []
            (True, False)
        """
        return replace(self, idle_after=seconds_in("timeout", timeout, above=0.0))

    def with_alignment(
        self, group: str, max_drift: Duration, interval: Duration = ALIGNMENT_INTERVAL
    ) -> WatermarkStrategy[T]:
        """Return this strategy with a group of sources; a source that is too far ahead of the others waits.

        Only for the strategy of a source. A subtask that is ahead reads nothing; a reader that `PausesSplits`
        pauses only the splits that are ahead. A source may exceed the drift by the records that it reads
        until the JobMaster answers.

        Args:
            group: Name of the group; sources of a job with the same group wait for each other.
            max_drift: Maximum lead over the slowest source in event time: a `timedelta`, or seconds.
            interval: Time between two reports of a subtask to the JobMaster: a `timedelta`, or seconds.

        Example:
            >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(5)
            >>> strategy.with_alignment("clicks and views", 60).alignment.max_drift
            60000000
        """
        group = checked_name("with_alignment", group)
        drift = micros_in("max_drift", max_drift)
        seconds = seconds_in("interval", interval, above=0.0)
        return replace(self, alignment=WatermarkAlignment(group, drift, seconds))


def _need_function(call: str, function: object, *arguments: str) -> None:
    if not callable(function):
        msg = f"{call} needs a function, not {function!r:.80}"
        raise ConfigurationError(msg)
    problem = arity_problem(function, arguments)
    if problem is not None:
        msg = f"{call}: the function {problem}"
        raise ConfigurationError(msg)


class IdlenessTimer:
    """Detects that a stream has had no record for `timeout` seconds; never early, perhaps a little late.

    Example:
        >>> timer = IdlenessTimer(5.0)
        >>> timer.ask(10.0), timer.ask(14.9), timer.due_at, timer.ask(15.0), timer.due_at
        (False, False, 15.0, True, None)
        >>> timer.activity()
        >>> timer.is_idle
        False
    """

    __slots__ = ("_quiet_since", "_timeout", "is_idle")

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._quiet_since: float | None = None
        self.is_idle = False

    def activity(self) -> None:
        self._quiet_since = None
        self.is_idle = False

    def ask(self, now: float) -> bool:
        """Return whether the stream is idle at `now`, in seconds; call it periodically."""
        if self._quiet_since is None:
            self._quiet_since = now
        elif now >= self._quiet_since + self._timeout:
            self.is_idle = True
        return self.is_idle

    @property
    def due_at(self) -> float | None:
        """Time of the next check, in seconds; `None` while the stream is idle."""
        if self.is_idle:
            return None
        return 0.0 if self._quiet_since is None else self._quiet_since + self._timeout


_NONE: Final = -(1 << 63)


class WatermarkValve:
    """Merges the watermarks of several channels.

    Example:
        >>> valve = WatermarkValve(2)
        >>> valve.watermark(0, Watermark(5)) is None
        True
        >>> valve.watermark(1, Watermark(3))
        Watermark(timestamp=3)
    """

    def __init__(self, channels: int) -> None:
        self._watermarks = [_NONE] * channels
        self._active = [True] * channels
        self._counts = [True] * channels
        self._emitted = self._highest = _NONE

    @property
    def reached(self) -> int | None:
        """Timestamp of the last watermark of the input as a whole; `None` before the first one."""
        return None if self._emitted == _NONE else self._emitted

    def watermark(self, channel: int, watermark: Watermark) -> Watermark | None:
        """Take a channel's watermark; return the watermark of the input as a whole if it advances."""
        if watermark.timestamp <= self._watermarks[channel]:
            return None
        self._watermarks[channel] = watermark.timestamp
        if watermark.timestamp != END_OF_TIME:
            self._highest = max(self._highest, watermark.timestamp)
        self._recount(channel)
        return self._advance_to(self._slowest())

    def status(self, channel: int, status: StreamStatus) -> tuple[StreamStatus | None, Watermark | None]:
        """Take a channel's status; return the changes for the input as a whole."""
        was_active = any(self._active)
        self._active[channel] = status is StreamStatus.ACTIVE
        self._recount(channel)
        is_active = any(self._active)
        changed = None
        if is_active is not was_active:
            changed = StreamStatus.ACTIVE if is_active else StreamStatus.IDLE
        return changed, self._advance_to(self._slowest())

    def end(self, channel: int) -> tuple[StreamStatus | None, Watermark | None]:
        """Take the end of a channel's data; return the changes for the input as a whole."""
        return self.status(channel, StreamStatus.IDLE)

    def _recount(self, channel: int) -> None:
        """Count an active channel once it has caught up with the input, until it becomes idle or ends."""
        reached = self._watermarks[channel]
        caught_up = self._counts[channel] or reached >= self._emitted
        self._counts[channel] = self._active[channel] and caught_up and reached != END_OF_TIME

    def _slowest(self) -> int:
        """The lowest watermark of the channels that count; the highest if all are idle or ended."""
        counted = [w for w, counts in zip(self._watermarks, self._counts, strict=True) if counts]
        if counted:
            return min(counted)
        if all(w == END_OF_TIME for w in self._watermarks):
            return END_OF_TIME
        pairs = zip(self._active, self._watermarks, strict=True)
        is_catching_up = any(active and reached != END_OF_TIME for active, reached in pairs)
        return _NONE if is_catching_up else self._highest

    def _advance_to(self, timestamp: int) -> Watermark | None:
        if timestamp <= self._emitted:
            return None
        self._emitted = timestamp
        return Watermark(timestamp)
