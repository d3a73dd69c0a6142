"""Timers per key: `KeyedTimerService` sets them, `TimerQueue` stores them, `FunctionTimers` fires them.

*Timers in the past.* A timer must be later than the time at which the function runs, or it would fire
repeatedly within one moment. In `process` that time is the watermark, or the time of day when the batch
began. In `on_timer` it is the moment of the firing timer. So a timer that sets the next timer continues from
its own moment. After an hour of downtime it fires once for each missed interval. In Flink a timer in the
past fires with the next watermark, so a timer that sets itself again never ends.

*The end.* At the end of the input the watermark advances to the end of time, and all timers of event time
fire. New timers that they set are dropped, because a repeating timer would never end. Timers of processing
time do not fire then, as in Flink.

*Timers are keyed state.* A timer is an entry of a nested table, by key and moment; its value is the number of
its registration. So it is in the snapshot as soon as it is set, and moves with its key when the job is
rescaled. A checkpoint writes the timers that were set since the last checkpoint and have not fired, and the
deletions of older timers. A key has at most one timer of each kind of time for a moment.

RocksDB has the table on disk; the timers are also in memory (`io/rocksdb/timer_table.py`).

The table has no order, so a heap in memory orders the timers. It is built from the table when the operator
opens. A deleted timer stays in the heap until it reaches the top. A heap item is valid only if the table
still has its number for its key and moment. When the stale items outnumber the others by more than 1,024,
the heap is rebuilt. So its memory is proportional to the number of timers, and rebuilds are rare.

*Order.* Timers fire in the order of their moments; timers of one moment in the order in which they were set.
After a rescale the timers of each old subtask keep their order. Between timers of different old subtasks no
order is defined.

A timer is deleted from the table before it fires, as in Flink's `InternalTimerServiceImpl`. So a snapshot
between two timers holds exactly the timers that have not fired.

*Firing.* A watermark fires the timers of event time that it has reached, in portions (`held_watermark.py`).
Timers of processing time fire in `flush`, which is due when the time of day has reached the earliest of them.
If the machine's clock is changed, timers fire early or late.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.held_watermark import HeldWatermark, ReachedWatermark, some_of
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.user_code.result_collector import ResultCollector
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import END_OF_TIME, RowBatch, Watermark
from penstock.runtime.state.declared_state import RESERVED
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.state.state_table import NO_KEY, HasCurrentKey
from penstock.runtime.state.timer_table import TimerTable
from penstock.runtime.time.durations import micros_of

#: Up to this number, stale heap items never cause a rebuild.
_LEAST_WASTE: Final = 1024


class TimerQueue:
    """Timers of one subtask and one kind of time; moments are in microseconds.

    Example:
        >>> from penstock.runtime.state.state_table import StateTable
        >>> queue = TimerQueue(TimerTable(StateTable("timers", nested=True)))
        >>> for key, at in [("ann", 20), ("bob", 10), ("ann", 10), ("ann", 20)]:
        ...     queue.register(key, at)
        >>> queue.delete("ann", 10)
        >>> list(queue.due(20))
        [(10, 'bob'), (20, 'ann')]
    """

    def __init__(self, table: TimerTable) -> None:
        self._table = table
        self._number_of = table.number_of
        self._ties = count()
        self._heap: list[tuple[int, int, int, Any]] = []
        self._build()
        self._set = len(self._heap)
        self._next_number = max((number for _, number, _, _ in self._heap), default=-1) + 1

    def __len__(self) -> int:
        return self._set

    @property
    def next_at(self) -> int | None:
        heap = self._heap
        while heap and not self._is_set(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def register(self, key: Any, at: int) -> None:
        if self._number_of(key, at) is not None:
            return
        number = self._next_number
        self._table.put(key, at, number)
        self._next_number = number + 1
        self._set += 1
        heappush(self._heap, (at, number, next(self._ties), key))

    def delete(self, key: Any, at: int) -> None:
        if self._number_of(key, at) is not None:
            self._take_out(key, at)
            if len(self._heap) > 2 * self._set + _LEAST_WASTE:
                self._build()

    def due(self, until: int) -> Iterator[tuple[int, Any]]:
        """Remove the timers up to a moment one by one, including new timers; yield moment and key."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            item = heappop(heap)
            if self._is_set(item):
                at, _, _, key = item
                self._take_out(key, at)
                yield at, key
                heap = self._heap

    def _take_out(self, key: Any, at: int) -> None:
        self._table.remove(key, at)
        self._set -= 1

    def _is_set(self, item: tuple[int, int, int, Any]) -> bool:
        at, number, _, key = item
        return self._number_of(key, at) == number

    def _build(self) -> None:
        self._heap = [(at, number, next(self._ties), key) for key, at, number in self._table]
        heapify(self._heap)


_SECOND: Final = 1_000_000


class FunctionTimerService:
    """Provides the time to a function; on a keyed stream also sets timers (Flink's `TimerService`)."""

    __slots__ = ("_clock", "_watermark")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watermark: int | None = None

    @property
    def current_watermark(self) -> int | None:
        """Event time, in microseconds; `None` before the first watermark."""
        return self._watermark

    @property
    def current_processing_time(self) -> int:
        """This machine's wall-clock time, in microseconds since the epoch."""
        return int(self._clock.now() * _SECOND)

    def register_event_time_timer(self, at: datetime | int) -> None:
        """Call `on_timer` for the current key when a watermark has reached a moment.

        Args:
            at: A `datetime` with a time zone, or an `int` of microseconds since the epoch.

        Raises:
            ConfigurationError: The value is not a point in time.
            PenstockError: The moment has passed, there is no current key, the stream is not keyed, or the
                function has no `on_timer`.
        """
        raise _without_keys()

    def register_processing_time_timer(self, at: datetime | int) -> None:
        """Call `on_timer` for the current key when the time of day has reached a moment.

        See `register_event_time_timer` for moments and errors.
        """
        raise _without_keys()

    def delete_event_time_timer(self, at: datetime | int) -> None:
        """Delete the current key's timer of this moment; does nothing if there is none."""
        raise _without_keys()

    def delete_processing_time_timer(self, at: datetime | int) -> None:
        """Delete the current key's timer of this moment; does nothing if there is none."""
        raise _without_keys()

    def advance(self, watermark: int | None) -> None:
        self._watermark = watermark


class KeyedTimerService(FunctionTimerService):
    """Timers of the current key; `can_fire` means that the function has an `on_timer`."""

    __slots__ = ("_can_fire", "_event", "_event_floor", "_owner", "_processing", "_processing_floor")

    def __init__(
        self,
        owner: HasCurrentKey,
        event_time: TimerQueue,
        processing_time: TimerQueue,
        clock: Clock,
        *,
        can_fire: bool,
    ) -> None:
        super().__init__(clock)
        self._owner = owner
        self._can_fire = can_fire
        self._event = event_time
        self._processing = processing_time
        self._event_floor: int | None = None
        self._processing_floor: int | None = None

    def register_event_time_timer(self, at: datetime | int) -> None:
        if self._watermark == END_OF_TIME:
            return
        self._register(self._event, micros_of(at), self._event_floor, "event")

    def register_processing_time_timer(self, at: datetime | int) -> None:
        self._register(self._processing, micros_of(at), self._processing_floor, "processing")

    def delete_event_time_timer(self, at: datetime | int) -> None:
        self._event.delete(self._key("event"), micros_of(at))

    def delete_processing_time_timer(self, at: datetime | int) -> None:
        self._processing.delete(self._key("processing"), micros_of(at))

    def begin_batch(self, watermark: int | None) -> None:
        self.advance(watermark)
        self._event_floor = watermark
        self._processing_floor = self.current_processing_time - 1

    def begin_timer(self, at: int, *, is_event_time: bool, watermark: int | None) -> None:
        self.begin_batch(watermark)
        if is_event_time:
            self._event_floor = at
        else:
            self._processing_floor = at

    def _register(self, queue: TimerQueue, at: int, floor: int | None, domain: str) -> None:
        key = self._key(domain)
        if not self._can_fire:
            msg = f"a timer of {domain} time was set, but the function has no method `on_timer(at, ctx)`"
            raise PenstockError(msg)
        if floor is not None and at <= floor:
            msg = (
                f"a timer of {domain} time at {at} for key {key!r:.100} is in the past: it must be later "
                f"than {floor} (microseconds since the epoch). Handle a late record at once, or drop it"
            )
            raise PenstockError(msg)
        queue.register(key, at)

    def _key(self, domain: str) -> object:
        key = self._owner.current_key
        if key is NO_KEY:
            msg = (
                f"a timer of {domain} time was set or deleted outside the processing of a record. A timer "
                "belongs to the key of a record: set and delete it in process or on_timer"
            )
            raise PenstockError(msg)
        return key


def _without_keys() -> PenstockError:
    return PenstockError("a timer belongs to a key: call key_by(function) before process")


#: Names of the timers' tables; a function's state can't have these names.
EVENT_TIMERS: Final = f"{RESERVED}event-time timers"
PROCESSING_TIMERS: Final = f"{RESERVED}processing-time timers"

#: Name of the list state that holds the reached event time.
REACHED: Final = "watermark"

#: Called with moment, key and whether it is an event-time timer; returns the results of `on_timer`.
OnTimer = Callable[[int, Any, bool], Any]


class FunctionTimers:
    """Fires timers in order, in portions; without `on_timer` restored timers are kept and do not fire."""

    def __init__(
        self,
        context: OperatorContext,
        backend: KeyedStateBackend,
        on_timer: OnTimer | None,
        collector: ResultCollector,
    ) -> None:
        self._clock = context.connector.clock
        self._event = TimerQueue(backend.timer_table(EVENT_TIMERS))
        self._processing = TimerQueue(backend.timer_table(PROCESSING_TIMERS))
        self._on_timer = on_timer
        self._collector = collector
        self._reached = ReachedWatermark(context, REACHED)
        fire = partial(self._fire, self._event)
        self._hold = HeldWatermark(self._reached, lambda: self._event.next_at, fire)
        self._stamp: int | None = None
        self.service = KeyedTimerService(
            backend, self._event, self._processing, self._clock, can_fire=on_timer is not None
        )
        self.service.begin_batch(self._reached.timestamp)

    def __len__(self) -> int:
        return len(self._event) + len(self._processing)

    @property
    def is_holding(self) -> bool:
        return self._hold.is_holding

    @property
    def flush_at(self) -> float | None:
        if self._on_timer is None:
            return None
        if self._hold.is_due:
            return 0.0
        at = self._processing.next_at
        return None if at is None else self._clock.monotonic() + at / 1_000_000 - self._clock.now()

    def begin_batch(self) -> Iterator[Output]:
        yield from self._hold.release()
        self.service.begin_batch(self._reached.timestamp)

    def advance(self, watermark: Watermark) -> Iterator[Output]:
        if self._on_timer is None:
            self._reached.advance(watermark.timestamp)
        else:
            yield from self._hold.advance(watermark)
        self.service.begin_batch(self._reached.timestamp)

    def flush(self) -> Iterator[Output]:
        if self._hold.is_due:
            yield from self._hold.flush()
        else:
            now = self.service.current_processing_time
            yield from self._fire(self._processing, now, everything=False)

    def state(self) -> SavedList:
        return self._reached.state()

    def _fire(self, queue: TimerQueue, until: int, everything: bool) -> Iterator[RowBatch]:
        is_event_time = queue is self._event
        results = self._results(queue, until, is_event_time, everything)
        # Yields the timestamp of the last fired timer; ends when no timer is left.
        stamps = iter(lambda: self._stamp, None) if is_event_time else None
        return self._collector.collect(results, stamps)

    def _results(self, queue: TimerQueue, until: int, is_event_time: bool, everything: bool) -> Iterator[Any]:
        assert self._on_timer is not None, "without on_timer nothing fires"
        service, reached = self.service, self._reached.timestamp
        for at, key in some_of(queue.due(until), self._clock.monotonic, everything=everything):
            service.begin_timer(at, is_event_time=is_event_time, watermark=reached)
            self._stamp = at
            yield self._on_timer(at, key, is_event_time)
        self._stamp = None
        service.begin_batch(reached)
