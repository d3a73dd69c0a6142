"""`GeneratorSource`: makes records from their indices; for examples, tests and benchmarks.

Record `i` is `function(i)`, so a position is one number. A restore is exact as long as the function depends
only on its argument. The source keeps the rate by returning the time of the next poll, never by sleeping.
After falling behind (back pressure, a long pause) it makes up for at most one second of records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from operator import length_hint
from typing import Any, Final, Generic, TypeVar

from penstock.runtime.error_text import error_text
from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.lag import SourceLag
from penstock.runtime.operators.source import ConnectorContext, Polled, SplitProgress
from penstock.runtime.operators.user_code.only_reads import only_reads
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import RowBatch
from penstock.runtime.state.own_copy import own_copy


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Unread indices of a split.

    Attributes:
        end: First index after the range; `None` for an unbounded range.
        step: Distance between indices, the number of splits of the source.
    """

    next: int
    end: int | None
    step: int

    @property
    def finished(self) -> bool:
        return self.end is not None and self.next >= self.end

    def first(self, count: int) -> range:
        """Return at most the first `count` indices."""
        stop = self.next + count * self.step
        return range(self.next, stop if self.end is None else min(stop, self.end), self.step)

    @property
    def left(self) -> int | None:
        """Number of unread indices; `None` for an unbounded range."""
        return None if self.end is None else len(range(self.next, self.end, self.step))

    def after(self, indices: range) -> IndexRange:
        return IndexRange(self.next + len(indices) * self.step, self.end, self.step)


T = TypeVar("T")

#: Maximum seconds of records that the source makes up for after falling behind.
_MOST_CATCH_UP: Final = 1.0

#: Minimum wait in seconds, so that a high rate does not cause one poll per record.
_SHORTEST_WAIT: Final = 0.01


@dataclass(frozen=True)
class GeneratorSource(Generic[T], metaclass=NearestNames):
    """A source whose record `i` is `function(i)`.

    Attributes:
        function: Makes the record of an index; indices start at 0.
        count: Number of records; `None` for an unbounded source.
        rate: Records per second of the whole source, across its subtasks; `None` for no limit.

    Raises:
        ConfigurationError: `count` is negative or `rate` is not positive.

    Example:
        >>> len(GeneratorSource(lambda i: i * i, count=10).splits(4))
        4
    """

    function: Callable[[int], T]
    count: int | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count < 0:
            msg = f"count={self.count} is not allowed: give a number of records, or None for no end"
            raise ConfigurationError(msg)
        if self.rate is not None and not 0 < self.rate < float("inf"):
            msg = f"rate={self.rate} is not allowed: give records per second, above 0, or None for no limit"
            raise ConfigurationError(msg)

    @property
    def only_reads(self) -> bool:
        """Whether the function can neither change nor keep a record; see `Source`."""
        return only_reads(self.function)

    def splits(self, parallelism: int) -> Sequence[IndexRange]:
        """Return one range of interleaved indices per subtask."""
        return [IndexRange(start, self.count, parallelism) for start in range(parallelism)]

    def reader(self, context: ConnectorContext, splits: Sequence[Any]) -> GeneratorReader[T]:
        """Make the reader of one subtask."""
        return GeneratorReader(self.function, self.rate, context.clock, splits)


class GeneratorReader(Generic[T]):
    """Makes the records of its index ranges; the range that is furthest behind goes first.

    Attributes:
        makes_new_records: Whether each record is copied at once, because the function may change it later.
    """

    def __init__(
        self,
        function: Callable[[int], T],
        rate: float | None,
        clock: Clock,
        splits: Sequence[IndexRange],
    ) -> None:
        self._function = function
        self.makes_new_records = not only_reads(function)
        self._clock = clock
        self._lanes = [_Lane(split, None if rate is None else rate / split.step) for split in splits]
        self.split_progress = SplitProgress(tuple(self._lanes))
        self._paused: Set[Any] = frozenset()

    def poll(self, max_rows: int) -> Polled[T]:
        if any(lane.split.finished for lane in self._lanes):
            self._lanes = [lane for lane in self._lanes if not lane.split.finished]
            self.split_progress = SplitProgress(tuple(self._lanes))
        if not self._lanes:
            return Polled(finished=True)
        now = self._clock.monotonic()
        lanes = [lane for lane in self._lanes if lane not in self._paused]
        for lane in sorted(lanes, key=lambda lane: lane.split.next):
            allowed = min(max_rows, lane.allowed(now))
            if allowed > 0:
                return Polled(RowBatch(self._make(lane, allowed)), split=lane)
        return Polled(ready_at=min((lane.ready_at() for lane in lanes), default=None))

    def pause_splits(self, paused: Set[Any]) -> None:
        """Make no records of these ranges until the next call."""
        self._paused = paused

    def lag(self) -> SourceLag | None:
        """The number of records that are left; `None` without a count."""
        left = [lane.split.left for lane in self._lanes if not lane.split.finished]
        known = [count for count in left if count is not None]
        return None if len(known) < len(left) else SourceLag(records=sum(known), splits=len(known))

    def snapshot(self) -> Sequence[IndexRange]:
        return [lane.split for lane in self._lanes if not lane.split.finished]

    def close(self) -> None: ...

    def _make(self, lane: _Lane, count: int) -> list[T]:
        indices = lane.split.first(count)
        left = iter(indices)
        try:
            # A comprehension, not map(): a StopIteration of the function must not look like the end.
            function = self._function
            if self.makes_new_records:
                rows = [own_copy(function(index)) for index in left]
            else:
                rows = [function(index) for index in left]
        except Exception as error:  # the user's function
            index = indices[-1 - length_hint(left)]
            msg = f"GeneratorSource: the function failed for index {index}: {error_text(error)}"
            raise ConnectorError(msg) from error
        lane.take(indices)
        return rows


class _Lane:
    """One range and its share of the rate."""

    def __init__(self, split: IndexRange, rate: float | None) -> None:
        self.split = split
        self._rate = rate
        self._together = 1 if rate is None else max(1, int(rate * _SHORTEST_WAIT))
        self._started: float | None = None
        self._made = 0

    def allowed(self, now: float) -> int:
        if self._rate is None:
            return 1 << 62
        if self._started is None:
            self._started = now
        due = int((now - self._started) * self._rate + 1e-6) + 1
        most = max(1, int(_MOST_CATCH_UP * self._rate))
        if due - self._made > most:
            self._started = now - (self._made + most - 1) / self._rate
            due = self._made + most
        allowed = due - self._made
        # Other events wake the subtask, too. A few records would be a small frame, and the next ones would
        # wait until it is consumed.
        return 0 if self._made and allowed < self._together else allowed

    def take(self, indices: range) -> None:
        self.split = self.split.after(indices)
        self._made += len(indices)

    def ready_at(self) -> float:
        """Return the time at which the next record, or the next few at a high rate, may be made."""
        if self._rate is None or self._started is None:
            return 0.0
        return self._started + (self._made + self._together - 1) / self._rate
