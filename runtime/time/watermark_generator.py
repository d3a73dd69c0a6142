"""`WatermarkGenerator`: code of a user's own that says how far event time has come (Flink's name, too)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar

from penstock.runtime.time.instants import micros_of

T = TypeVar("T")


class WatermarkOutput:
    """Takes the watermarks of one generator; they leave behind the batch that is being processed.

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
        """No record with this timestamp or an older one comes any more; one that goes back does nothing.

        The stream is active from now on.

        Args:
            moment: A `datetime` with a time zone, or microseconds since the epoch as an `int`.

        Raises:
            ConfigurationError: It is neither.
        """
        self.advance(micros_of(moment))
        self.is_idle = False

    def mark_idle(self) -> None:
        """Nobody need wait for this stream, until its next record or watermark, or `mark_active`."""
        self.is_idle = True

    def mark_active(self) -> None:
        """Event time waits for this stream again."""
        self.is_idle = False

    def advance(self, reached: int) -> None:
        """A watermark in microseconds that was checked already."""
        if self.reached is None or reached > self.reached:
            self.reached = reached


class WatermarkGenerator(Generic[T]):
    """Base of a user's own generators; see `WatermarkStrategy.for_generator`.

    Each stream has a generator of its own: each subtask, or each split where the source has the strategy. It
    is in no snapshot. After a restart a new generator begins, and event time stands still until it has
    emitted a watermark.

    Example:
        >>> class BehindTheSecondNewest(WatermarkGenerator):
        ...     '''One record may be far ahead of all others.'''
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
        """A record has come; called once for each, in their order.

        Args:
            value: The record; a dict where it is a row of an Arrow batch.
            timestamp: Its event time in microseconds.
            output: Takes a watermark, if one is due.
        """
        raise NotImplementedError

    def on_periodic(self, output: WatermarkOutput) -> None:
        """Some time has passed: the interval of the strategy.

        Time under back pressure does not count. Not called while the stream has been quiet for longer than
        `WatermarkStrategy.with_idleness` allows.
        """


class PunctuatedWatermarks(WatermarkGenerator[T]):
    """Asks a function about every record.

    Args:
        watermark_of: From a record and its timestamp in microseconds to a watermark or `None`.
    """

    def __init__(self, watermark_of: Callable[[T, int], datetime | int | None]) -> None:
        self._watermark_of = watermark_of

    def on_event(self, value: T, timestamp: int, output: WatermarkOutput) -> None:
        """Emit the watermark that the record brings, if it brings one."""
        moment: Any = self._watermark_of(value, timestamp)
        if moment is not None:
            output.emit_watermark(moment)
