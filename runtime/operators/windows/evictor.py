"""`Evictor`: takes records out of a window before or after it emits (Flink's name, too)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Generic, NamedTuple, TypeVar

from penstock.runtime.operators.windows.triggers import positive
from penstock.runtime.time.windows import TimeWindow, span_of

T = TypeVar("T")


class TimestampedValue(NamedTuple):
    """A record of a window.

    Attributes:
        value: The record.
        timestamp: Its event time in microseconds; `None` if it has none.
    """

    value: Any
    timestamp: int | None


class Evictor(Generic[T]):
    """Takes records out of a window whenever it emits; they do not come back.

    Example:
        >>> from penstock.windows import GlobalWindows
        >>> from penstock.runtime.operators.windows.triggers import CountTrigger
        >>> from penstock.testing import OperatorHarness
        >>> class Positive(Evictor[int]):
        ...     def evict_before(self, elements, window):
        ...         return [element for element in elements if element.value > 0]
        >>> def kept(numbers):
        ...     windows = numbers.key_by(lambda n: "all").window(GlobalWindows())
        ...     windows = windows.trigger(CountTrigger(3)).evictor(Positive())
        ...     return windows.apply("kept", lambda key, window, records: [records])
        >>> with OperatorHarness.of(kept) as harness:
        ...     harness.push([1, -2, 3, 4, -5, 6])
        [[1, 3], [1, 3, 4, 6]]
    """

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        """Called before the window's function; gives the records that stay."""
        return elements

    def evict_after(self, elements: list[TimestampedValue], window: TimeWindow) -> Sequence[TimestampedValue]:
        """Called behind the window's function; gives the records that stay."""
        return elements

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CountEvictor(Evictor[Any]):
    """Keeps the last so many records.

    Raises:
        ConfigurationError: The number is no positive whole number.
    """

    def __init__(self, count: int) -> None:
        self.count = positive("CountEvictor", count)

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        """The last ones."""
        return elements[-self.count :]

    def __repr__(self) -> str:
        return f"CountEvictor({self.count})"


class TimeEvictor(Evictor[Any]):
    """Keeps the records that are less than a span of event time older than the newest one.

    Args:
        span: A `timedelta`, or seconds.

    Raises:
        ConfigurationError: The span is none, or not positive.
    """

    def __init__(self, span: timedelta | float) -> None:
        self.span = span_of("the span of an evictor", span)

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        """Those that are new enough; records without timestamps stay."""
        newest = max((stamp for _, stamp in elements if stamp is not None), default=0)
        return [each for each in elements if each.timestamp is None or each.timestamp > newest - self.span]

    def __repr__(self) -> str:
        return f"TimeEvictor({timedelta(microseconds=self.span)})"
