"""`FunctionTimers`: the timers of one process function in one subtask, and their firing.

A watermark fires the timers of event time that it has reached, some at a time (`held_watermark.py`).

Timers of processing time fire in `flush`, too. It is due when the time of day has come to the earliest of
them. The time of day of a machine may be set forward or back, and timers then fire early or late. Nothing
else is decided by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.timers.held_watermark import HeldWatermark, some_of
from penstock.runtime.operators.timers.reached_watermark import ReachedWatermark
from penstock.runtime.operators.timers.timer_queue import TimerQueue
from penstock.runtime.operators.timers.timer_service import KeyedTimerService
from penstock.runtime.operators.user_code.result_collector import ResultCollector
from penstock.runtime.record.elements import RowBatch, Watermark
from penstock.runtime.state.declared_state import RESERVED
from penstock.runtime.state.state_backend import KeyedStateBackend

#: Tables of the timers: no state of a function has such a name.
EVENT_TIMERS: Final = f"{RESERVED}event-time timers"
PROCESSING_TIMERS: Final = f"{RESERVED}processing-time timers"

#: Name of the list state that holds how far event time has come.
REACHED: Final = "watermark"

#: Called with moment, key and whether it is one of event time; returns the results of `on_timer`.
OnTimer = Callable[[int, Any, bool], Any]


class FunctionTimers:
    """Fires timers in order, some at a time.

    Args:
        context: What the operator is opened with.
        on_timer: Calls the user's function; `None` when it has no `on_timer`. Restored timers are then kept,
            and do not fire.
        collector: Makes batches of the results.

    Attributes:
        service: What the function uses.
    """

    def __init__(
        self,
        context: OperatorContext,
        backend: KeyedStateBackend,
        on_timer: OnTimer | None,
        collector: ResultCollector,
    ) -> None:
        self._clock = context.connector.clock
        self._event = TimerQueue(backend.table(EVENT_TIMERS, nested=True))
        self._processing = TimerQueue(backend.table(PROCESSING_TIMERS, nested=True))
        self._on_timer = on_timer
        self._collector = collector
        self._reached = ReachedWatermark(context, REACHED)
        self._hold = HeldWatermark(self._reached, lambda: self._event.next_at, self._fire_event_time)
        self._stamp: int | None = None
        self.service = KeyedTimerService(
            backend, self._event, self._processing, self._clock, can_fire=on_timer is not None
        )
        self.service.begin_batch(self._reached.timestamp)

    def __len__(self) -> int:
        return len(self._event) + len(self._processing)

    @property
    def is_holding(self) -> bool:
        """Whether a watermark waits until the timers that it has reached have fired."""
        return self._hold.is_holding

    @property
    def flush_at(self) -> float | None:
        """Monotonic time at which a timer fires; `None` for none."""
        if self._on_timer is None:
            return None
        if self._hold.is_due:
            return 0.0
        at = self._processing.next_at
        return None if at is None else self._clock.monotonic() + at / 1_000_000 - self._clock.now()

    def begin_batch(self) -> Iterator[Output]:
        """Records or a status come: they stand behind a held watermark, so what it fires comes first."""
        yield from self._hold.release()
        self.service.begin_batch(self._reached.timestamp)

    def advance(self, watermark: Watermark) -> Iterator[Output]:
        """Event time has advanced: fire timers; the watermark is held when some are left."""
        if self._on_timer is None:
            self._reached.advance(watermark.timestamp)
        else:
            yield from self._hold.advance(watermark)
        self.service.begin_batch(self._reached.timestamp)

    def flush(self) -> Iterator[Output]:
        """Fire some of the timers that are due; a held watermark follows the last that it has reached."""
        if self._hold.is_due:
            yield from self._hold.flush()
        else:
            now = self.service.current_processing_time
            yield from self._fire(self._processing, now, is_event_time=False, everything=False)

    def state(self) -> SavedList:
        """How far event time has come; the timers themselves are keyed state."""
        return self._reached.state()

    def _fire_event_time(self, until: int, everything: bool) -> Iterator[RowBatch]:
        return self._fire(self._event, until, is_event_time=True, everything=everything)

    def _fire(
        self, queue: TimerQueue, until: int, *, is_event_time: bool, everything: bool
    ) -> Iterator[RowBatch]:
        results = self._results(queue, until, is_event_time, everything)
        # The stamp of the timer that has fired last, until none is left.
        stamps = iter(lambda: self._stamp, None) if is_event_time else None
        yield from self._collector.collect(results, stamps)

    def _results(self, queue: TimerQueue, until: int, is_event_time: bool, everything: bool) -> Iterator[Any]:
        """What the function returns for each timer."""
        assert self._on_timer is not None, "without on_timer nothing fires"
        service, reached = self.service, self._reached.timestamp
        for at, key in some_of(queue.due(until), self._clock.monotonic, everything=everything):
            service.begin_timer(at, is_event_time=is_event_time, watermark=reached)
            self._stamp = at
            yield self._on_timer(at, key, is_event_time)
        self._stamp = None
        service.begin_batch(reached)
