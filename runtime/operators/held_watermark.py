"""`HeldWatermark`: fires the timers of a watermark in portions, and forwards the watermark after them.

A watermark may fire millions of timers or windows. Firing all of them at once would delay barriers. So the
operator fires some of them, and holds the watermark (`Operator.holds_watermark`). It continues in `flush`,
before any other input, until all due timers have fired. Then the watermark is forwarded. A checkpoint may be
taken between two flushes. Its snapshot holds the remaining timers and the reached event time. A restored
operator fires the remaining timers in `flush`, because event time has reached them. Flink calls such timers
interruptible.

The end of time is not held, because the end of the input directly follows it: all timers fire at once.

Neither the watermark nor a record after it may overtake the timers that the watermark fires.

`ReachedWatermark` holds the reached event time of an operator, across restarts and rescales. Whether a record
is late must not depend on restarts. Otherwise a straggler could reopen a window that has fired. So snapshots
hold the reached watermark.

At another parallelism a subtask receives keys of several old subtasks. It begins with the lowest watermark
of all old subtasks, so no record becomes late that was not late for its old subtask. The end of time is not
restored as a watermark: a drained job that continues expects more records. Event time never goes back,
although sources that restart send lower watermarks than the restored one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, TypeVar

from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.user_code.result_collector import PATIENCE
from penstock.runtime.record.elements import END_OF_TIME, Watermark
from penstock.runtime.snapshot.handles import RedistributionMode


class ReachedWatermark:
    """The highest watermark so far, in microseconds; `None` before the first one."""

    def __init__(self, context: OperatorContext, name: str) -> None:
        self._subtask = context.connector.subtask, context.connector.parallelism
        self.timestamp = self._restored(context.restored.get(name, ()))

    def advance(self, timestamp: int) -> int:
        if self.timestamp is None or timestamp > self.timestamp:
            self.timestamp = timestamp
        return self.timestamp

    def state(self) -> SavedList:
        return SavedList([(*self._subtask, self.timestamp)], RedistributionMode.UNION)

    def _restored(self, old: Sequence[tuple[int, int, int | None]]) -> int | None:
        own = [reached for *subtask, reached in old if tuple(subtask) == self._subtask]
        all_reached = own or [reached for *_, reached in old]
        known = [reached for reached in all_reached if reached is not None]
        if len(known) < len(all_reached):
            return None
        return min((reached for reached in known if reached != END_OF_TIME), default=None)


T = TypeVar("T")

#: Maximum number of timers or windows that fire before a checkpoint may be taken.
MOST_FIRED: Final = 1024


class HeldWatermark:
    """The watermark of one operator while its timers fire.

    Args:
        reached: The reached event time; advanced here.
        next_at: Returns the moment of the earliest timer; `None` without timers.
        fire: Fires the timers up to a moment: all if the second argument is true, else the timers that
            `some_of` returns.
    """

    def __init__(
        self,
        reached: ReachedWatermark,
        next_at: Callable[[], int | None],
        fire: Callable[[int, bool], Iterator[Output]],
    ) -> None:
        self._reached = reached
        self._next_at = next_at
        self._fire = fire
        self._held: Watermark | None = None

    @property
    def is_holding(self) -> bool:
        return self._held is not None

    @property
    def is_due(self) -> bool:
        """Whether `flush` has work; after a restore also without a held watermark."""
        return self._held is not None or self._is_left()

    def advance(self, watermark: Watermark) -> Iterator[Output]:
        reached = self._reached.advance(watermark.timestamp)
        if not self.is_due:
            return
        is_end = watermark.timestamp == END_OF_TIME
        self._held = watermark
        yield from self._fire(reached, is_end)
        if is_end or not self._is_left():
            self._held = None

    def flush(self) -> Iterator[Output]:
        """Fire some of the due timers; a held watermark follows the last due timer."""
        reached = self._reached.timestamp
        assert reached is not None, "only a watermark makes anything due"
        yield from self._fire(reached, False)
        if self._held is not None and not self._is_left():
            passed, self._held = self._held, None
            yield passed

    def release(self) -> Iterator[Output]:
        """Fire all timers that a held watermark has reached, before the records or status that follow it."""
        while self._held is not None:
            yield from self.flush()

    def _is_left(self) -> bool:
        at, reached = self._next_at(), self._reached.timestamp
        return at is not None and reached is not None and at <= reached


def some_of(due: Iterable[T], monotonic: Callable[[], float], *, everything: bool) -> Iterator[T]:
    """Timers that fire before a checkpoint may be taken: limited in number and time, unless `everything`.

    Draws no more timers from `due` than it returns; `monotonic` is a clock in seconds.

    Example:
        >>> due = iter(range(3000))
        >>> len(list(some_of(due, lambda: 0.0, everything=False))), next(due)
        (1024, 1024)
    """
    return iter(due) if everything else _sliced(due, monotonic)


def _sliced(due: Iterable[T], monotonic: Callable[[], float]) -> Iterator[T]:
    deadline = monotonic() + PATIENCE
    for fired, timer in enumerate(due, 1):
        yield timer
        if fired >= MOST_FIRED or monotonic() >= deadline:
            return
