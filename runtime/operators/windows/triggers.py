"""The ready-made triggers and evictors; users may write their own, too.

A trigger decides when a window emits. An evictor decides which records the window keeps.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, NamedTuple, TypeVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.windows.trigger import Trigger, TriggerContext, TriggerResult
from penstock.runtime.time.durations import Duration
from penstock.runtime.time.windows import TimeWindow, micros_of_user
from penstock.runtime.user_location import user_location

_CONTINUE: Final = TriggerResult.CONTINUE
_FIRE: Final = TriggerResult.FIRE

#: Names of the states.
_COUNT: Final = "count"
_NEXT: Final = "next"


class _CompositeTrigger(Trigger[Any]):
    """Calls the triggers in `inner`."""

    inner: tuple[Trigger[Any], ...]

    @property
    def can_merge(self) -> bool:
        return all(part.can_merge for part in self.inner)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        for part in self.inner:
            part.clear(window, ctx)


class EventTimeTrigger(_CompositeTrigger):
    """Emits when event time has passed the window; the default of event-time windows.

    With an allowed lateness and without `late`, each late record makes the window emit again.

    Args:
        early: Emits results before the window's end, for example `CountTrigger(100)`.
        late: Emits results after the end, for windows with an allowed lateness.

    Example:
        >>> from penstock.windows import TumblingEventTimeWindows
        >>> from penstock.testing import OperatorHarness
        >>> def counted(words):
        ...     windows = words.key_by(str).window(TumblingEventTimeWindows(10))
        ...     windows = windows.trigger(EventTimeTrigger(early=CountTrigger(2)))
        ...     return windows.apply("counted", lambda key, window, words: [(key, len(words))])
        >>> with OperatorHarness.of(counted) as harness:
        ...     harness.push(["a", "a", "a"], [1, 2, 3])
        ...     harness.push_watermark(10_000_000)
        [('a', 2)]
        [('a', 3)]
    """

    def __init__(self, early: Trigger[Any] | None = None, late: Trigger[Any] | None = None) -> None:
        self.early = None if early is None else _checked("early", early)
        self.late = None if late is None else _checked("late", late)
        self.inner = tuple(part for part in (self.early, self.late) if part is not None)

    def on_element(
        self, element: Any, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Wait for the end of the window; after it, emit at once or call `late`."""
        if _is_over(window, ctx):
            return _FIRE if self.late is None else self.late.on_element(element, timestamp, window, ctx)
        ctx.register_event_time_timer(window.max_timestamp)
        return _CONTINUE if self.early is None else self.early.on_element(element, timestamp, window, ctx)

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        if time == window.max_timestamp:
            if self.early is not None:
                self.early.clear(window, ctx)
            return _FIRE
        part = self._part(window, ctx)
        return _CONTINUE if part is None else part.on_event_time(time, window, ctx)

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        part = self._part(window, ctx)
        return _CONTINUE if part is None else part.on_processing_time(time, window, ctx)

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        if not _is_over(window, ctx):
            ctx.register_event_time_timer(window.max_timestamp)
        part = self._part(window, ctx)
        if part is not None:
            part.on_merge(window, ctx)

    def _part(self, window: TimeWindow, ctx: TriggerContext) -> Trigger[Any] | None:
        return self.late if _is_over(window, ctx) else self.early

    @property
    def shape(self) -> str:
        return f"EventTimeTrigger({self.early and self.early.shape}, {self.late and self.late.shape})"

    def __repr__(self) -> str:
        parts = {"early": self.early, "late": self.late}
        shown = ", ".join(f"{name}={part!r}" for name, part in parts.items() if part is not None)
        return f"EventTimeTrigger({shown})"


class ProcessingTimeTrigger(Trigger[Any]):
    """Emits when processing time has passed the window's end; the default of processing-time windows."""

    def on_element(
        self, element: Any, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.register_processing_time_timer(window.max_timestamp)
        return _CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return _FIRE

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.register_processing_time_timer(window.max_timestamp)


class CountTrigger(Trigger[Any]):
    """Emits each time that a window has received `count` records."""

    def __init__(self, count: int) -> None:
        self.count = positive("CountTrigger", count)

    def on_element(
        self, element: Any, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        count = ctx.state(_COUNT, 0)
        more = count.value() + 1
        if more < self.count:
            count.update(more)
            return _CONTINUE
        count.clear()
        return _FIRE

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.merge_state(_COUNT, operator.add)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.state(_COUNT).clear()

    def __repr__(self) -> str:
        return f"CountTrigger({self.count})"


class _ContinuousTrigger(Trigger[Any]):
    def __init__(self, interval: Duration) -> None:
        self.interval = micros_of_user("interval", interval)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({timedelta(microseconds=self.interval)})"


class ContinuousProcessingTimeTrigger(_ContinuousTrigger):
    """Emits at an interval of processing time while a window has records to emit.

    As the `early` part of an `EventTimeTrigger` it emits results before the window has ended. The interval is
    a `timedelta`, or seconds.
    """

    def on_element(
        self, element: Any, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Set a timer at the next whole interval, unless one is set."""
        if ctx.state(_NEXT).value() is None:
            self._wait(ctx)
        return _CONTINUE

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """Emit; the next record sets the next timer."""
        due = ctx.state(_NEXT)
        if due.value() != time:
            return _CONTINUE
        due.clear()
        return _FIRE

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.merge_state(_NEXT, min)
        if ctx.state(_NEXT).value() is not None:
            self._wait(ctx)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        at = ctx.state(_NEXT).value()
        if at is not None:
            ctx.delete_processing_time_timer(at)
            ctx.state(_NEXT).clear()

    def _wait(self, ctx: TriggerContext) -> None:
        now = ctx.current_processing_time
        at = now - now % self.interval + self.interval
        ctx.state(_NEXT).update(at)
        ctx.register_processing_time_timer(at)


class ContinuousEventTimeTrigger(_ContinuousTrigger):
    """Emits at an interval of event time while a window has records to emit, and at its end.

    The interval is a `timedelta`, or seconds.
    """

    def on_element(
        self, element: Any, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        """Set a timer at the end of the interval of the record, or of the watermark if that is later."""
        if _is_over(window, ctx):
            return _FIRE
        ctx.register_event_time_timer(window.max_timestamp)
        due = ctx.state(_NEXT)
        reached = ctx.current_watermark
        to_come = [timestamp] if timestamp is not None else []
        if reached is not None:
            to_come.append(reached + 1)
        if not to_come:
            return _CONTINUE
        base = max(to_come)
        at = base - base % self.interval + self.interval - 1
        before = due.value()
        if at < window.max_timestamp and (before is None or at < before):
            if before is not None:
                ctx.delete_event_time_timer(before)
            due.update(at)
            ctx.register_event_time_timer(at)
        return _CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        """Emit; the next record sets the next timer."""
        due = ctx.state(_NEXT)
        if time == due.value():
            due.clear()
            return _FIRE
        return _FIRE if time == window.max_timestamp else _CONTINUE

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        """Keep the earliest timer, and wait for the end of the window."""
        if _is_over(window, ctx):
            return
        ctx.register_event_time_timer(window.max_timestamp)
        ctx.merge_state(_NEXT, min)
        at = ctx.state(_NEXT).value()
        if at is not None:
            ctx.register_event_time_timer(at)

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        at = ctx.state(_NEXT).value()
        if at is not None:
            ctx.delete_event_time_timer(at)
            ctx.state(_NEXT).clear()


class PurgingTrigger(_CompositeTrigger):
    """Deletes the contents of a window whenever `trigger` emits, so that each record is emitted once."""

    def __init__(self, trigger: Trigger[Any]) -> None:
        self.trigger = _checked("trigger", trigger)
        self.inner = (self.trigger,)

    def on_element(
        self, element: Any, timestamp: int | None, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return _purged(self.trigger.on_element(element, timestamp, window, ctx))

    def on_event_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return _purged(self.trigger.on_event_time(time, window, ctx))

    def on_processing_time(self, time: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return _purged(self.trigger.on_processing_time(time, window, ctx))

    def on_merge(self, window: TimeWindow, ctx: TriggerContext) -> None:
        self.trigger.on_merge(window, ctx)

    @property
    def shape(self) -> str:
        return f"PurgingTrigger({self.trigger.shape})"

    def __repr__(self) -> str:
        return f"PurgingTrigger({self.trigger!r})"


def parts_of(trigger: Trigger[Any]) -> Iterator[Trigger[Any]]:
    """A trigger, and the triggers inside it.

    Example:
        >>> list(parts_of(PurgingTrigger(CountTrigger(5))))
        [PurgingTrigger(CountTrigger(5)), CountTrigger(5)]
    """
    yield trigger
    if isinstance(trigger, _CompositeTrigger):
        for part in trigger.inner:
            yield from parts_of(part)


def part_of_other_time(trigger: Trigger[Any], *, is_event_time: bool) -> Trigger[Any] | None:
    """Return the part of a trigger that waits for a window's end in the wrong kind of time.

    Example:
        >>> part_of_other_time(PurgingTrigger(ProcessingTimeTrigger()), is_event_time=True)
        ProcessingTimeTrigger()
        >>> part_of_other_time(ContinuousProcessingTimeTrigger(5), is_event_time=True) is None
        True
    """
    wrong = ProcessingTimeTrigger if is_event_time else EventTimeTrigger | ContinuousEventTimeTrigger
    return next((part for part in parts_of(trigger) if isinstance(part, wrong)), None)


def positive(what: str, count: object) -> int:
    """Check a number of records; an error names the user's line."""
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        msg = f"{user_location()}: {what} needs a positive whole number of records, not {count!r:.80}"
        raise ConfigurationError(msg)
    return count


def _checked(name: str, trigger: object) -> Trigger[Any]:
    if not isinstance(trigger, Trigger):
        msg = f"{user_location()}: {name} must be a trigger such as CountTrigger(100), not {trigger!r:.80}"
        raise ConfigurationError(msg)
    return trigger


def _is_over(window: TimeWindow, ctx: TriggerContext) -> bool:
    reached = ctx.current_watermark
    return reached is not None and window.max_timestamp <= reached


def _purged(result: TriggerResult) -> TriggerResult:
    return TriggerResult.FIRE_AND_PURGE if result.fires else result


T = TypeVar("T")


class TimestampedValue(NamedTuple):
    """A record of a window and its event time in microseconds, or `None` without one."""

    value: Any
    timestamp: int | None


class Evictor(Generic[T], metaclass=NearestNames):
    """Removes records from a window for good whenever it emits.

    Example:
        >>> from penstock.windows import CountTrigger, GlobalWindows
        >>> from penstock.testing import OperatorHarness
        >>> class Positive(Evictor[int]):
        ...     def evict_before(self, elements, window):
        ...         return [element for element in elements if element.value > 0]
        >>> def kept(numbers):
        ...     windows = numbers.key_by(lambda n: "all").window(GlobalWindows())
        ...     windows = windows.trigger(CountTrigger(3)).evictor(Positive())
        ...     return windows.apply("kept", lambda key, window, records: [records])
        >>> with OperatorHarness.of(kept) as harness:
        ...     harness.push([1, -2, 3, 4, -5, 6])
        [[1, 3], [1, 3, 4, 6]]
    """

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        """Return the records that stay; called before the window's function."""
        return elements

    def evict_after(self, elements: list[TimestampedValue], window: TimeWindow) -> Sequence[TimestampedValue]:
        """Return the records that stay; called after the window's function."""
        return elements

    def __repr__(self) -> str:
        return f"{type(self).__name__}()"


class CountEvictor(Evictor[Any]):
    """Keeps the last `count` records of a window."""

    def __init__(self, count: int) -> None:
        self.count = positive("CountEvictor", count)

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        return elements[-self.count :]

    def __repr__(self) -> str:
        return f"CountEvictor({self.count})"


class TimeEvictor(Evictor[Any]):
    """Keeps the records less than `span` older than the newest; `span` is a `timedelta`, or seconds."""

    def __init__(self, span: Duration) -> None:
        self.span = micros_of_user("span", span)

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        """Keep records that are new enough, and records without timestamps."""
        newest = max((stamp for _, stamp in elements if stamp is not None), default=0)
        return [e for e in elements if e.timestamp is None or e.timestamp > newest - self.span]

    def __repr__(self) -> str:
        return f"TimeEvictor({timedelta(microseconds=self.span)})"
