"""`CurrentTrigger`: what a trigger sees of the key and window that it is asked about.

One object serves a subtask. The operator sets what is current before each call of the user's trigger.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import reduce
from typing import Any, Final

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.windows.timer_index import Span
from penstock.runtime.operators.windows.window_state import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    STATE,
    Entry,
    WindowState,
)
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.time.instants import micros_of

_SECOND: Final = 1_000_000


class CurrentTrigger:
    """The `TriggerContext` of the operator.

    Args:
        windows: The open windows.

    Attributes:
        watermark: How far event time has come.
    """

    def __init__(self, windows: WindowState, clock: Clock) -> None:
        self._windows = windows
        self._clock = clock
        self._key: Any = None
        self._window: Span = (0, 0)
        self._entry: Entry = []
        self._merged: Sequence[Entry] = ()
        self._processing_floor = 0
        self._now = 0
        self._event_floor: int | None = None
        self.watermark: int | None = None

    def begin(self, key: Any, window: Span, entry: Entry, merged: Sequence[Entry] = ()) -> None:
        """A trigger is asked about a window.

        Args:
            merged: The entries of windows that this one was made of.
        """
        self._key, self._window, self._entry, self._merged = key, window, entry, merged

    def begin_batch(self, watermark: int | None) -> None:
        """Records come, or a watermark."""
        self.watermark = self._event_floor = watermark
        self._now = int(self._clock.now() * _SECOND)
        self._processing_floor = self._now - 1

    def begin_timer(self, at: int, *, is_event_time: bool) -> None:
        """A timer fires: its trigger may set one behind it."""
        if is_event_time:
            self._event_floor = at
        else:
            self._processing_floor = at

    @property
    def current_watermark(self) -> int | None:
        """How far event time has come."""
        return self.watermark

    @property
    def current_processing_time(self) -> int:
        """The time of day when the batch began, in microseconds since the epoch."""
        return self._now

    def register_event_time_timer(self, at: datetime | int) -> None:
        """Set a timer of the window; none is taken at the end of time."""
        if self.watermark != END_OF_TIME:
            moment = _moment(at)
            self._check("event", moment, self._event_floor)
            self._windows.add_timer(self._key, self._window, moment, EVENT_TIMERS)

    def register_processing_time_timer(self, at: datetime | int) -> None:
        """Set a timer of the window; none is taken at the end of time."""
        if self.watermark != END_OF_TIME:
            moment = _moment(at)
            self._check("processing", moment, self._processing_floor)
            self._windows.add_timer(self._key, self._window, moment, PROCESSING_TIMERS)

    def delete_event_time_timer(self, at: datetime | int) -> None:
        """Delete a timer of the window."""
        self._windows.remove_timer(self._key, self._window, _moment(at), EVENT_TIMERS)

    def delete_processing_time_timer(self, at: datetime | int) -> None:
        """Delete a timer of the window."""
        self._windows.remove_timer(self._key, self._window, _moment(at), PROCESSING_TIMERS)

    def state(self, name: str, default: Any = None) -> StateOfWindow:
        """The state of this name for the current window."""
        return StateOfWindow(self._entry[STATE], name, default)

    def merge_state(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        """Combine the state of this name of the windows that were merged."""
        values = [entry[STATE][name] for entry in self._merged if name in entry[STATE]]
        if values:
            self._entry[STATE][name] = own_copy(reduce(function, values))

    def _check(self, domain: str, at: int, floor: int | None) -> None:
        if floor is not None and at <= floor:
            msg = (
                f"a trigger set a timer of {domain} time at {at} for key {self._key!r:.100}, which is in the "
                f"past: it must lie behind {floor} (microseconds since the epoch). Return FIRE instead"
            )
            raise PenstockError(msg)


class StateOfWindow:
    """The `TriggerState` of the operator: one name among the state of a window."""

    __slots__ = ("_default", "_held", "_name")

    def __init__(self, held: dict[str, Any], name: str, default: Any) -> None:
        self._held = held
        self._name = name
        self._default = default

    def value(self) -> Any:
        """The value, or the default."""
        return own_copy(self._held.get(self._name, self._default))

    def update(self, value: Any) -> None:
        """Keep another value."""
        self._held[self._name] = own_copy(value)

    def clear(self) -> None:
        """Forget the value."""
        self._held.pop(self._name, None)


def _moment(at: datetime | int) -> int:
    # The ends of windows may lie anywhere; only what a user made of a datetime is looked at.
    return at if type(at) is int else micros_of(at)
