"""`KeyedTimerService`: how a function of a keyed stream sets timers, and what time it is for any function.

*The past.* A timer must lie behind the time that the function runs at, or it would fire again and again
within one moment. In `process` that is the watermark, or the time of day when the batch began. In `on_timer`
it is the moment of the timer that fires. So a timer that sets the next one goes on from its own moment. After
an hour of standstill it fires for each interval that was missed. Flink fires a timer of the past with the
next watermark, and one that sets itself again never ends.

*The end.* At the end of the input the watermark goes to the end of time, and all timers of event time fire.
Those that they set are not taken: time has ended, and an interval would never end. Timers of processing time
do not fire then, as in Flink.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.timers.timer_queue import TimerQueue
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.state.state_table import NO_KEY, HasCurrentKey
from penstock.runtime.time.instants import micros_of

_SECOND: Final = 1_000_000


class FunctionTimerService:
    """What time it is for a function; one of a keyed stream can set timers, too (Flink's `TimerService`)."""

    __slots__ = ("_clock", "_watermark")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._watermark: int | None = None

    @property
    def current_watermark(self) -> int | None:
        """How far event time has come, in microseconds; `None` before the first watermark."""
        return self._watermark

    @property
    def current_processing_time(self) -> int:
        """The time of day of this machine in microseconds since the epoch."""
        return int(self._clock.now() * _SECOND)

    def register_event_time_timer(self, at: datetime | int) -> None:
        """Call `on_timer` for the current key when a watermark has reached a moment.

        Args:
            at: A `datetime` with a time zone, or an `int` of microseconds since the epoch.

        Raises:
            ConfigurationError: It is no moment.
            PenstockError: The moment is past, there is no current key, or the stream is not keyed.
        """
        raise _without_keys()

    def register_processing_time_timer(self, at: datetime | int) -> None:
        """Call `on_timer` for the current key when the time of day has come to a moment.

        Args:
            at: A `datetime` with a time zone, or an `int` of microseconds since the epoch.

        Raises:
            ConfigurationError: It is no moment.
            PenstockError: The moment is past, there is no current key, or the stream is not keyed.
        """
        raise _without_keys()

    def delete_event_time_timer(self, at: datetime | int) -> None:
        """Delete the current key's timer of this moment; nothing happens when there is none.

        Raises:
            ConfigurationError: It is no moment.
            PenstockError: There is no current key, or the stream is not keyed.
        """
        raise _without_keys()

    def delete_processing_time_timer(self, at: datetime | int) -> None:
        """Delete the current key's timer of this moment; nothing happens when there is none.

        Raises:
            ConfigurationError: It is no moment.
            PenstockError: There is no current key, or the stream is not keyed.
        """
        raise _without_keys()

    def advance(self, watermark: int | None) -> None:
        """Event time has come to a watermark; for the operator."""
        self._watermark = watermark


class KeyedTimerService(FunctionTimerService):
    """Timers of the current key.

    A moment is a `datetime` with a time zone, or an `int` of microseconds since the epoch. A key has one
    timer at a moment, however often it is set. Timers are keyed state: they are in every checkpoint, and go
    with their keys.

    Args:
        owner: Knows the current key.
        can_fire: Whether the function has an `on_timer`.
    """

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
        """Set a timer for the current key."""
        if self._watermark == END_OF_TIME:
            return
        self._register(self._event, micros_of(at), self._event_floor, "event")

    def register_processing_time_timer(self, at: datetime | int) -> None:
        """Set a timer for the current key."""
        self._register(self._processing, micros_of(at), self._processing_floor, "processing")

    def delete_event_time_timer(self, at: datetime | int) -> None:
        """Delete a timer of the current key."""
        self._event.delete(self._key("event"), micros_of(at))

    def delete_processing_time_timer(self, at: datetime | int) -> None:
        """Delete a timer of the current key."""
        self._processing.delete(self._key("processing"), micros_of(at))

    def begin_batch(self, watermark: int | None) -> None:
        """Records are processed from now on; for the operator."""
        self.advance(watermark)
        self._event_floor = watermark
        self._processing_floor = self.current_processing_time - 1

    def begin_timer(self, at: int, *, is_event_time: bool, watermark: int | None) -> None:
        """A timer fires; for the operator."""
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
                f"a timer of {domain} time at {at} for key {key!r:.100} is in the past: it must lie behind "
                f"{floor} (microseconds since the epoch). Deal with a late record at once, or drop it"
            )
            raise PenstockError(msg)
        queue.register(key, at)

    def _key(self, domain: str) -> object:
        key = self._owner.current_key
        if key is NO_KEY:
            msg = (
                f"a timer of {domain} time was touched where no record is processed; a timer belongs to the "
                "key of a record: set it in process or on_timer"
            )
            raise PenstockError(msg)
        return key


def _without_keys() -> PenstockError:
    return PenstockError("a timer belongs to a key: call key_by(function) in front of process")
