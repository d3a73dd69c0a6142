"""`Trigger`: the base class that decides when a window emits, and its context."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Callable, Sequence
from datetime import datetime
from enum import Enum
from functools import reduce
from typing import Any, Final, Generic, TypeVar

from penstock.runtime.errors import PenstockError
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.windows.window_state import (
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    STATE,
    Entry,
    Span,
    WindowState,
)
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import END_OF_TIME
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.time.durations import micros_of
from penstock.runtime.time.windows import TimeWindow

T = TypeVar("T")

_SECOND: Final = 1_000_000


class TriggerResult(Enum):
    """The action on a window (Flink's `TriggerResult`).

    Example:
        >>> [result.name for result in TriggerResult if result.fires]
        ['FIRE', 'FIRE_AND_PURGE']
    """

    #: Do nothing.
    CONTINUE = (False, False)
    #: Emit a result, and keep the contents.
    FIRE = (True, False)
    #: Delete the contents without a result.
    PURGE = (False, True)
    #: Emit a result and delete the contents.
    FIRE_AND_PURGE = (True, True)

    def __init__(self, fires: bool, purges: bool) -> None:
        self.fires = fires
        self.purges = purges


class TriggerState:
    """One value of a trigger for the current window; deleted with the window."""

    __slots__ = ("_default", "_name", "_states")

    def __init__(self, states: dict[str, Any], name: str, default: Any) -> None:
        self._states = states
        self._name = name
        self._default = default

    def value(self) -> Any:
        """The value, or the default."""
        return own_copy(self._states.get(self._name, self._default))

    def update(self, value: Any) -> None:
        """Replace the value."""
        self._states[self._name] = own_copy(value)

    def clear(self) -> None:
        """Delete the value."""
        self._states.pop(self._name, None)


class TriggerContext:
    """The time, state and timers of a trigger for the current key and window."""

    def __init__(self, windows: WindowState, clock: Clock) -> None:
        self._windows = windows
        self._clock = clock
        self._key: Any = None
        self._window: Span = (0, 0)
        self._entry: Entry = []
        self._merged: Sequence[Entry] = ()
        self._now = 0
        self._watermark: int | None = None
        #: For each kind of time, the latest moment at which a new timer is refused.
        self._floors: dict[int, int | None] = {EVENT_TIMERS: None, PROCESSING_TIMERS: None}

    @property
    def current_watermark(self) -> int | None:
        """The event time, in microseconds; `None` before the first watermark."""
        return self._watermark

    @property
    def current_processing_time(self) -> int:
        """The wall-clock time in microseconds since the epoch."""
        return self._now

    def register_event_time_timer(self, at: datetime | int) -> None:
        """Call `on_event_time` when a watermark reaches `at`, which must not be in the past."""
        self._register("event", at, EVENT_TIMERS)

    def register_processing_time_timer(self, at: datetime | int) -> None:
        """Call `on_processing_time` when the wall-clock time reaches `at`, which must not be in the past."""
        self._register("processing", at, PROCESSING_TIMERS)

    def delete_event_time_timer(self, at: datetime | int) -> None:
        """Delete a timer of the window, if there is one."""
        self._windows.remove_timer(self._key, self._window, _moment(at), EVENT_TIMERS)

    def delete_processing_time_timer(self, at: datetime | int) -> None:
        """Delete a timer of the window, if there is one."""
        self._windows.remove_timer(self._key, self._window, _moment(at), PROCESSING_TIMERS)

    def state(self, name: str, default: Any = None) -> TriggerState:
        """The state of this name for the current window."""
        return TriggerState(self._entry[STATE], name, default)

    def merge_state(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        """Combine the state of the merged windows, in `on_merge`; other state of these windows is lost."""
        values = [entry[STATE][name] for entry in self._merged if name in entry[STATE]]
        if values:
            self._entry[STATE][name] = own_copy(reduce(function, values))

    def _register(self, domain: str, at: datetime | int, kind: int) -> None:
        if self._watermark == END_OF_TIME:
            return
        moment, floor = _moment(at), self._floors[kind]
        if floor is not None and moment <= floor:
            msg = (
                f"a trigger set a timer of {domain} time at {moment} for key {self._key!r:.100}. This time "
                f"is in the past: it must be later than {floor} (microseconds since the epoch). "
                "Return FIRE instead"
            )
            raise PenstockError(msg)
        self._windows.add_timer(self._key, self._window, moment, kind)


class CurrentTrigger(TriggerContext):
    """The context with setters for its operator, which sets time, key and window before each call."""

    def begin(self, key: Any, window: Span, entry: Entry, merged: Sequence[Entry] = ()) -> None:
        self._key, self._window, self._entry, self._merged = key, window, entry, merged

    def begin_batch(self, watermark: int | None) -> None:
        self._watermark = self._floors[EVENT_TIMERS] = watermark
        self._now = int(self._clock.now() * _SECOND)
        self._floors[PROCESSING_TIMERS] = self._now - 1

    def begin_timer(self, at: int, kind: int) -> None:
        self._floors[kind] = at


class _NearestAbstract(NearestNames, ABCMeta):
    """Metaclass of abstract classes that suggest names."""


class Trigger(Generic[T], metaclass=_NearestAbstract):
    """Decides when a window emits (Flink's `Trigger`).

    One object serves all windows of a subtask. Keep the state of a window in `ctx.state`. State and
    timers of a window are deleted with it.

    Example:
        >>> from penstock.windows import GlobalWindows
        >>> from penstock.testing import OperatorHarness
        >>> class AtEnough(Trigger[int]):
        ...     '''Emits as soon as the sum of a window reaches a limit.'''
        ...
        ...     def __init__(self, enough):
        ...         self.enough = enough
        ...
        ...     def on_element(self, element, timestamp, window, ctx):
        ...         total = ctx.state("total", 0)
        ...         total.update(total.value() + element)
        ...         if total.value() < self.enough:
        ...             return TriggerResult.CONTINUE
        ...         total.clear()
        ...         return TriggerResult.FIRE_AND_PURGE
        >>> def heaps(numbers):
        ...     windows = numbers.key_by(lambda n: "all").window(GlobalWindows()).trigger(AtEnough(10))
        ...     return windows.apply("heaps", lambda key, window, records: [records])
        >>> with OperatorHarness.of(heaps) as harness:
        ...     harness.push([4, 5, 6, 7, 8])
        [[4, 5, 6], [7, 8]]
    """

    @abstractmethod
    def on_element(
        self, element: T, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Handle a record that was added to a window; `timestamp` is in microseconds, or `None`."""

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """Handle an event-time timer that the trigger has set."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """Handle a processing-time timer that the trigger has set."""
        return TriggerResult.CONTINUE

    @property
    def can_merge(self) -> bool:
        """Whether the trigger supports windows that merge, such as sessions: its class has an `on_merge`."""
        return type(self).on_merge is not Trigger.on_merge

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """Handle a merge into this window; set its timers, and merge the state with `ctx.merge_state`."""
        raise NotImplementedError

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """Clean up after a window that has ended or was merged. Its state and timers are deleted anyway."""

    @property
    def shape(self) -> str:
        """The kind of the trigger; a job refuses to restore open windows of a trigger of another kind."""
        return type(self).__qualname__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


def _moment(at: datetime | int) -> int:
    # The ends of windows may lie anywhere; only a user's datetime is checked.
    return at if type(at) is int else micros_of(at)
