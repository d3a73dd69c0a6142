"""`Trigger`: decides when a window emits; what a user writes, and what it is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from penstock.runtime.time.windows import TimeWindow

T = TypeVar("T")


class TriggerResult(Enum):
    """What a window does now (Flink's `TriggerResult`).

    Example:
        >>> [result.name for result in TriggerResult if result.fires]
        ['FIRE', 'FIRE_AND_PURGE']
    """

    #: Nothing.
    CONTINUE = (False, False)
    #: Emit a result, and keep the contents.
    FIRE = (True, False)
    #: Forget the contents without a result.
    PURGE = (False, True)
    #: Emit a result and forget the contents.
    FIRE_AND_PURGE = (True, True)

    def __init__(self, fires: bool, purges: bool) -> None:
        self.fires = fires
        self.purges = purges


class TriggerState(Protocol):
    """One value of a trigger for the current window; it goes with the window."""

    def value(self) -> Any:
        """The value, or the default."""
        ...

    def update(self, value: Any) -> None:
        """Keep another value."""
        ...

    def clear(self) -> None:
        """Forget the value."""
        ...


class TriggerContext(Protocol):
    """What a trigger may know and use: the time, state and timers of the current key and window."""

    @property
    def current_watermark(self) -> int | None:
        """How far event time has come, in microseconds; `None` before the first watermark."""
        ...

    @property
    def current_processing_time(self) -> int:
        """The time of day in microseconds since the epoch."""
        ...

    def register_event_time_timer(self, at: datetime | int) -> None:
        """Call `on_event_time` when a watermark has reached a moment.

        Raises:
            PenstockError: The moment is past.
        """
        ...

    def register_processing_time_timer(self, at: datetime | int) -> None:
        """Call `on_processing_time` when the time of day has come to a moment.

        Raises:
            PenstockError: The moment is past.
        """
        ...

    def delete_event_time_timer(self, at: datetime | int) -> None:
        """Delete a timer of the window; nothing happens when there is none."""
        ...

    def delete_processing_time_timer(self, at: datetime | int) -> None:
        """Delete a timer of the window; nothing happens when there is none."""
        ...

    def state(self, name: str, default: Any = None) -> TriggerState:
        """The state of this name for the current window."""
        ...

    def merge_state(self, name: str, function: Callable[[Any, Any], Any]) -> None:
        """In `on_merge`: combine the state of this name of the windows that were merged.

        State that is not merged is lost with the windows that had it.
        """
        ...


class Trigger(ABC, Generic[T]):
    """Decides when a window emits (Flink's `Trigger`).

    One object serves all windows of a subtask. What belongs to a window goes into `ctx.state`. State and
    timers of a window are deleted with it.

    Example:
        >>> from penstock.windows import GlobalWindows
        >>> from penstock.testing import OperatorHarness
        >>> class AtEnough(Trigger[int]):
        ...     '''Emits as soon as the numbers of a window add up to something.'''
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
        """A record was added to a window.

        Args:
            element: The record.
            timestamp: Its event time in microseconds; `None` if it has none.
        """

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """A timer of event time that the trigger has set fires."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """A timer of processing time that the trigger has set fires."""
        return TriggerResult.CONTINUE

    @property
    def can_merge(self) -> bool:
        """Whether it works for windows that merge, such as sessions: whether its class has an `on_merge`."""
        return type(self).on_merge is not Trigger.on_merge

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """Windows have become this one; set its timers, and merge the state with `ctx.merge_state`."""
        raise NotImplementedError

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """A window has ended, or has become a part of another one. Its state and timers go by themselves."""

    @property
    def shape(self) -> str:
        """What kind of trigger it is. A job whose open windows have another one does not start from them."""
        return type(self).__qualname__

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"
