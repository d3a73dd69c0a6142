"""`WatermarkStrategy`: where the event time of records comes from, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Generic, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.misspelt_names import NearestNames, checked_keywords
from penstock.runtime.names import checked_name
from penstock.runtime.time.instants import micros_in
from penstock.runtime.time.watermark_alignment import WatermarkAlignment
from penstock.runtime.time.watermark_generator import PunctuatedWatermarks, WatermarkGenerator

T = TypeVar("T")

#: Seconds between two calls of a generator's `on_periodic`.
INTERVAL: Final = 0.2

#: Seconds between two reports of an aligned source.
ALIGNMENT_INTERVAL: Final = 0.5


@dataclass(frozen=True, slots=True)
class WatermarkStrategy(Generic[T], metaclass=NearestNames):
    """How records get timestamps, and how far event time has come with them (Flink's `WatermarkStrategy`).

    Made by `for_bounded_out_of_orderness`, `for_monotonous_timestamps`, `for_punctuated` or `for_generator`.

    Attributes:
        out_of_orderness: Microseconds by which a record may be older than the newest one before it; counts
            for nothing where there is a generator.
        timestamp_assigner: From a record to its moment; `None` keeps the timestamp that it has.
        timestamp_column: Name of the column with the moments; there is no assigner then.
        generator: Makes a generator for each stream of records; `None` for bounded out-of-orderness.
        named_by: The user's class or function behind the generator, for messages.
        interval: Seconds between two calls of a generator's `on_periodic`.
        idle_after: Seconds without records after which nobody waits for a stream; `None` waits for ever.
        alignment: The group of sources that wait for each other; `None` for none.

    Example:
        >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5))
        >>> strategy.with_timestamp_assigner(lambda reading: reading["at"]).out_of_orderness
        5000000
    """

    out_of_orderness: int
    timestamp_assigner: Callable[[T], datetime | int] | None = None
    timestamp_column: str | None = None
    generator: Callable[[], WatermarkGenerator[T]] | None = None
    named_by: Callable[..., Any] | None = None
    interval: float = INTERVAL
    idle_after: float | None = None
    alignment: WatermarkAlignment | None = None

    @staticmethod
    @checked_keywords
    def for_bounded_out_of_orderness(most: timedelta | float) -> WatermarkStrategy[Any]:
        """Records may be late by up to `most` (a `timedelta`, or seconds); what is older than that is late.

        Raises:
            ConfigurationError: It is no span of time.
        """
        return WatermarkStrategy(micros_in("the out-of-orderness", most, least=0))

    @staticmethod
    @checked_keywords
    def for_monotonous_timestamps() -> WatermarkStrategy[Any]:
        """Timestamps never go back within one subtask."""
        return WatermarkStrategy(0)

    @staticmethod
    @checked_keywords
    def for_punctuated(watermark_of: Callable[[T, int], datetime | int | None]) -> WatermarkStrategy[T]:
        """Some records say how far event time has come.

        Args:
            watermark_of: Takes each record and its timestamp in microseconds. Returns the moment up to which
                all records have come, or `None`. A moment is a `datetime` with a time zone, or microseconds
                since the epoch as an `int`.

        Raises:
            ConfigurationError: It is no function.

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
        _need_function("for_punctuated", watermark_of)
        made = partial(PunctuatedWatermarks, watermark_of)
        return WatermarkStrategy(0, generator=made, named_by=watermark_of)

    @staticmethod
    @checked_keywords
    def for_generator(
        make: Callable[[], WatermarkGenerator[T]], interval: timedelta | float = INTERVAL
    ) -> WatermarkStrategy[T]:
        """A class of the user's own decides; see `WatermarkGenerator`.

        Args:
            make: Called without arguments for each stream of records, for example the class itself.
            interval: Time between two calls of `on_periodic`: a `timedelta`, or seconds.

        Raises:
            ConfigurationError: `make` can't be called, or the interval is no span of time.
        """
        if isinstance(make, WatermarkGenerator):
            msg = (
                f"for_generator needs the class {type(make).__name__} and no object: each stream has its own"
            )
            raise ConfigurationError(msg)
        _need_function("for_generator", make)
        seconds = micros_in("the interval", interval) / 1_000_000
        return WatermarkStrategy(0, generator=make, named_by=make, interval=seconds)

    def with_timestamp_assigner(self, assigner: Callable[[T], datetime | int]) -> WatermarkStrategy[T]:
        """The same with a function that knows the moment of a record.

        Args:
            assigner: Returns a `datetime` with a time zone, or microseconds since the epoch as an `int`.

        Raises:
            ConfigurationError: It is no function.
        """
        _need_function("with_timestamp_assigner", assigner)
        return replace(self, timestamp_assigner=assigner, timestamp_column=None)

    def with_timestamp_column(self, name: str) -> WatermarkStrategy[Any]:
        """The same with moments from a column, of Arrow batches or of records that are dicts.

        Args:
            name: Of the column: timestamps with a time zone, or whole numbers, microseconds since the epoch.

        Raises:
            ConfigurationError: It is no name.
        """
        if not isinstance(name, str):
            msg = f"with_timestamp_column needs the name of a column, not {name!r:.80}"
            raise ConfigurationError(msg)
        return replace(self, timestamp_assigner=None, timestamp_column=name)

    def with_idleness(self, timeout: timedelta | float) -> WatermarkStrategy[T]:
        """The same, and nobody waits for a stream that has had no record for some time.

        The next record makes it active again. If its timestamp is older than the watermark that the others
        have reached meanwhile, it is late.

        Args:
            timeout: A `timedelta`, or seconds. Time under back pressure does not count.

        Raises:
            ConfigurationError: It is no span of time.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> strategy = WatermarkStrategy.for_monotonous_timestamps().with_idleness(timedelta(minutes=1))
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
        return replace(self, idle_after=micros_in("the idleness", timeout) / 1_000_000)

    def with_alignment(
        self, group: str, max_drift: timedelta | float, interval: timedelta | float = ALIGNMENT_INTERVAL
    ) -> WatermarkStrategy[T]:
        """The same, and a source that is far ahead of the others of its group waits for them.

        Only for a strategy that is given to a source. A subtask that is ahead reads nothing; of a reader that
        `PausesSplits` only the splits wait that are ahead. It may be ahead by a little more than the drift:
        by what it reads until the JobMaster answers.

        Args:
            group: Sources of a job that name the same group wait for each other.
            max_drift: Event time by which it may be ahead of the slowest: a `timedelta`, or seconds.
            interval: Time between two reports of a subtask to the JobMaster: a `timedelta`, or seconds.

        Raises:
            ConfigurationError: The group has no name, or something is no span of time.

        Example:
            >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(5)
            >>> strategy.with_alignment("clicks and views", timedelta(minutes=1)).alignment.max_drift
            60000000
        """
        group = checked_name("with_alignment", group)
        drift = micros_in("the drift", max_drift)
        seconds = micros_in("the interval", interval) / 1_000_000
        return replace(self, alignment=WatermarkAlignment(group, drift, seconds))


def _need_function(call: str, function: object) -> None:
    if not callable(function):
        msg = f"{call} needs a function, not {function!r:.80}"
        raise ConfigurationError(msg)
