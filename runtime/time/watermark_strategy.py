"""`WatermarkStrategy`: where the event time of records comes from, and how far it has come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.misspelt_names import NearestNames, checked_keywords
from penstock.runtime.time.instants import micros_in

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WatermarkStrategy(Generic[T], metaclass=NearestNames):
    """How records get timestamps, and how much out of order they may come (Flink's `WatermarkStrategy`).

    Made by `for_bounded_out_of_orderness` or `for_monotonous_timestamps`.

    Attributes:
        out_of_orderness: Microseconds by which a record may be older than the newest one before it.
        timestamp_assigner: From a record to its moment; `None` keeps the timestamp that it has.
        timestamp_column: Name of the column with the moments; there is no assigner then.

    Example:
        >>> strategy = WatermarkStrategy.for_bounded_out_of_orderness(timedelta(seconds=5))
        >>> strategy.with_timestamp_assigner(lambda reading: reading["at"]).out_of_orderness
        5000000
    """

    out_of_orderness: int
    timestamp_assigner: Callable[[T], datetime | int] | None = None
    timestamp_column: str | None = None

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

    def with_timestamp_assigner(self, assigner: Callable[[T], datetime | int]) -> WatermarkStrategy[T]:
        """The same with a function that knows the moment of a record.

        Args:
            assigner: Returns a `datetime` with a time zone, or microseconds since the epoch as an `int`.

        Raises:
            ConfigurationError: It is no function.
        """
        if not callable(assigner):
            msg = f"with_timestamp_assigner needs a function, not {assigner!r:.80}"
            raise ConfigurationError(msg)
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
