"""`FunctionTimers`: the timers of one process function in one subtask, and their firing.

A watermark fires the timers of event time that it has reached. There may be millions. So the operator fires
some of them and holds the watermark (`Operator.holds_watermark`). It goes on in `flush`, before any other
input, until none is left that the watermark has reached. Then the watermark goes on. Between two flushes a
checkpoint may come: the snapshot has the timers that are left, and how far event time has come. An operator
that is restored from it fires them at once, because it finds timers that its event time has reached. Flink
calls such timers interruptible.

Timers of processing time fire in `flush`, too. It is due when the time of day has come to the earliest of
them. The time of day of a machine may be set forward or back, and timers then fire early or late. Nothing
else is decided by it.

The end of time is not held, as the end of the input comes right behind it: all timers fire in one go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.timers.reached_watermark import ReachedWatermark
from penstock.runtime.operators.timers.timer_queue import TimerQueue
from penstock.runtime.operators.timers.timer_service import KeyedTimerService
from penstock.runtime.operators.user_code.result_collector import PATIENCE, ResultCollector
from penstock.runtime.record.elements import END_OF_TIME, RowBatch, Watermark
from penstock.runtime.state.declared_state import RESERVED
from penstock.runtime.state.state_backend import KeyedStateBackend

#: Tables of the timers: no state of a function has such a name.
EVENT_TIMERS: Final = f"{RESERVED}event-time timers"
PROCESSING_TIMERS: Final = f"{RESERVED}processing-time timers"

#: Name of the list state that holds how far event time has come.
REACHED: Final = "watermark"

#: Most timers that fire until a checkpoint may come.
MOST_FIRED: Final = 1024

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
        self._held: Watermark | None = None
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
        return self._held is not None

    @property
    def flush_at(self) -> float | None:
        """Monotonic time at which a timer fires; `None` for none."""
        if self._on_timer is None:
            return None
        if self._held is not None or self._event_is_due():
            return 0.0
        at = self._processing.next_at
        return None if at is None else self._clock.monotonic() + at / 1_000_000 - self._clock.now()

    def begin_batch(self) -> Iterator[Output]:
        """Records or a status come: they stand behind a held watermark, so what it fires comes first."""
        while self._held is not None:
            yield from self.flush()
        self.service.begin_batch(self._reached.timestamp)

    def advance(self, watermark: Watermark) -> Iterator[Output]:
        """Event time has advanced: fire timers; the watermark is held when some are left."""
        reached = self._reached.advance(watermark.timestamp)
        is_end = watermark.timestamp == END_OF_TIME
        self.service.begin_batch(reached)
        if self._on_timer is None:
            return
        self._held = watermark
        yield from self._fire(self._event, reached, is_event_time=True, most=None if is_end else MOST_FIRED)
        if is_end or not self._event_is_due():
            self._held = None

    def flush(self) -> Iterator[Output]:
        """Fire some of the timers that are due; a held watermark follows the last that it has reached."""
        if self._held is None and not self._event_is_due():
            now = self.service.current_processing_time
            yield from self._fire(self._processing, now, is_event_time=False, most=MOST_FIRED)
            return
        reached = self._reached.timestamp
        assert reached is not None, "only a watermark makes timers of event time due"
        yield from self._fire(self._event, reached, is_event_time=True, most=MOST_FIRED)
        if self._held is not None and not self._event_is_due():
            passed, self._held = self._held, None
            yield passed

    def state(self) -> SavedList:
        """How far event time has come; the timers themselves are keyed state."""
        return self._reached.state()

    def _event_is_due(self) -> bool:
        at, reached = self._event.next_at, self._reached.timestamp
        return at is not None and reached is not None and at <= reached

    def _fire(
        self, queue: TimerQueue, until: int, *, is_event_time: bool, most: int | None
    ) -> Iterator[RowBatch]:
        results = self._results(queue, until, is_event_time, most)
        # The stamp of the timer that has fired last, until none is left.
        stamps = iter(lambda: self._stamp, None) if is_event_time else None
        yield from self._collector.collect(results, stamps)

    def _results(self, queue: TimerQueue, until: int, is_event_time: bool, most: int | None) -> Iterator[Any]:
        """What the function returns for each timer."""
        assert self._on_timer is not None, "without on_timer nothing fires"
        monotonic, service = self._clock.monotonic, self.service
        deadline, reached = monotonic() + PATIENCE, self._reached.timestamp
        for fired, (at, key) in enumerate(queue.due(until), 1):
            service.begin_timer(at, is_event_time=is_event_time, watermark=reached)
            self._stamp = at
            yield self._on_timer(at, key, is_event_time)
            if most is not None and (fired >= most or monotonic() >= deadline):
                break
        self._stamp = None
        service.begin_batch(reached)
