"""`TriggeredWindowOperator`: windows of any assigner, with a trigger, an evictor and lateness.

`WindowOperator` has the most common windows: one size, event time, one result. It needs no trigger. This
operator calls a trigger for each record, and supports all other windows. The contents of windows are the same
for both (`window_contents.py`).

**Record.** The assigner returns the record's windows. If the assigner merges, each window is first merged
with the overlapping windows of the key. A window of event time whose life has ended accepts no record. A
record that no window accepts is late, and goes to the side output. Otherwise it is added to the contents, and
the trigger decides whether to emit.

**Timer.** The trigger is called if it has set the timer. After that call, a window at the end of its life is
deleted. A window of event time lives until its last microsecond plus the lateness, a window of processing
time until its last microsecond.

**Merge.** The new window's entry replaces the old ones. It has their merged contents, the earlier window
first, and the state that `on_merge` merges. Timers of the old windows are deleted; `on_merge` sets new ones.
All this happens before the record is added. So a session grows with each record, and is never half merged.

**Many timers** fire in portions: the watermark is held while `flush` fires some at a time
(`held_watermark.py`).

**End of the input.** All timers fire, because no more records can come. Flink drops timers of processing
time. Timers that a trigger sets at that time are ignored.

A failure must never make a window emit a record twice. A timer at the end of a window's life must fire before
the window is deleted. Whether a record is late must not depend on restarts (`held_watermark.py`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import repeat
from typing import Any, Final

from penstock.runtime.errors import PenstockError, StateMismatchError
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS, REACHED, no_timestamps
from penstock.runtime.operators.functions.function_operator import only_table, rows_of
from penstock.runtime.operators.held_watermark import some_of
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.user_code.result_collector import iterator_of
from penstock.runtime.operators.windows.trigger import CurrentTrigger, Trigger, TriggerResult
from penstock.runtime.operators.windows.triggers import Evictor, TimestampedValue, parts_of
from penstock.runtime.operators.windows.window import SHAPE, RowWindowOperator
from penstock.runtime.operators.windows.window_contents import ALL_RECORDS, WindowContents
from penstock.runtime.operators.windows.window_state import (
    CONTENTS,
    EVENT_TIMERS,
    PROCESSING_TIMERS,
    STATE,
    Entry,
    Span,
    WindowState,
    is_empty,
)
from penstock.runtime.record.elements import END_OF_TIME, Batch, RowBatch, StreamStatus, Watermark
from penstock.runtime.snapshot.handles import RedistributionMode
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.time.windows import RecordWindowAssigner, TimeWindow
from penstock.runtime.user_location import function_location

#: Name of the state table that holds the windows.
TRIGGERED_WINDOWS: Final = "triggered_windows"

#: Name of the count of open windows in the statistics.
OPEN_WINDOWS: Final = "windows"

_SECOND: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The windows of an operator; `lateness` is in microseconds of event time after the end of a window."""

    assigner: RecordWindowAssigner[Any]
    trigger: Trigger[Any]
    evictor: Evictor[Any] | None = None
    lateness: int = 0
    late_tag: str = LATE_RECORDS


class TriggeredWindowOperator(RowWindowOperator):
    """Folds records by key and window, and emits a window whenever its trigger fires."""

    _windows: WindowState
    _calls: CurrentTrigger

    def __init__(
        self, key_selector: Callable[[Any], Any], plan: WindowPlan, contents: Callable[[], WindowContents]
    ) -> None:
        super().__init__(key_selector, contents, plan.late_tag)
        plan = self._plan = copy.deepcopy(plan)  # subtasks of a simulation share one process
        self._assigner, self._trigger = plan.assigner, plan.trigger
        self._has_stamps = plan.evictor is not None
        #: Whether a user's trigger receives the records, and could change them.
        self._has_user_trigger = any(
            not type(part).__module__.startswith("penstock.") for part in parts_of(plan.trigger)
        )
        #: The running function of the assigner, trigger, evictor or contents; error messages name it.
        self._running_function: Callable[..., Any] | None = None
        self._late_rows: list[Any] = []
        self._late_stamps: list[Any] = []

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        table = only_table(context, TRIGGERED_WINDOWS, "windows with triggers", nested=True)
        if table.entries:
            self._check_shape(context.restored.get(SHAPE, ()))
        self._windows = WindowState(
            table,
            is_event_time=self._assigner.is_event_time,
            lateness=self._plan.lateness,
            is_endless=self._assigner.is_endless,
        )
        self._calls = CurrentTrigger(self._windows, self._clock)
        self._calls.begin_batch(self._reached.timestamp)

    @property
    def only_reads(self) -> bool:
        return False

    @property
    def doing(self) -> str:
        running = self._running_function  # read once: a watchdog calls this from another thread
        if running is None or self._selecting:
            return super().doing
        return f"{self.kind} function {function_location(running)}"

    def process(self, batch: Batch) -> Iterator[Output]:
        yield from self._before_batch()
        rows = rows_of(batch)
        if rows.timestamps is None and len(rows) and self._assigner.is_event_time:
            raise no_timestamps()
        yield from self._emitted(self._added(rows))
        self._cursor.done()

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        yield from self._hold.advance(watermark)
        if watermark.timestamp == END_OF_TIME:
            self._begin_batch()
            yield from self._fired(PROCESSING_TIMERS, END_OF_TIME, everything=True)

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        yield from self._before_batch()

    @property
    def flush_at(self) -> float | None:
        if self._hold.is_due:
            return 0.0
        at = self._windows.due[PROCESSING_TIMERS].next_at
        return None if at is None else self._clock.monotonic() + at / _SECOND - self._clock.now()

    def flush(self) -> Iterator[Output]:
        if self._hold.is_due:
            yield from self._hold.flush()
        else:
            self._begin_batch()
            now = self._calls.current_processing_time
            yield from self._fired(PROCESSING_TIMERS, now, everything=False)

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        return {
            REACHED: self._reached.state(),
            SHAPE: SavedList([self._shape], RedistributionMode.BROADCAST),
        }

    @property
    def _shape(self) -> tuple[Any, ...]:
        return (*self._assigner.shape, self._contents.keeps, self._trigger.shape, self._has_stamps)

    def _check_shape(self, restored: Iterable[tuple[Any, ...]]) -> None:
        for saved in restored:
            if tuple(saved) != self._shape:
                old, new = (", ".join(map(str, shape)) for shape in (saved, self._shape))
                msg = (
                    f"the restored windows ({old}) differ from this program's windows ({new}): assigner, "
                    "contents, use of an evictor and kind of trigger must be the same. Give the operator a "
                    "new id, or change them back"
                )
                raise StateMismatchError(msg)

    def _before_batch(self) -> Iterator[Output]:
        yield from self._hold.release()
        self._begin_batch()

    def _begin_batch(self) -> None:
        self._calls.begin_batch(self._reached.timestamp)

    def _emitted(self, results: Iterable[Any]) -> Iterator[Output]:
        # Before each result `_stamp` is set to its window's timestamp; `None` ends the iterator.
        stamps = iter(lambda: self._stamp, None) if self._assigner.is_event_time else None
        yield from self._collector.collect(results, stamps)
        self._windows.report()
        if self._late_rows:
            rows, late = self._late_rows, self._late_stamps
            self._late_rows, self._late_stamps = [], []
            yield self._late_output(rows, None if None in late else late)

    def _added(self, rows: RowBatch) -> Iterator[Any]:
        assigner, now = self._assigner, self._calls.current_processing_time
        stamps = repeat(None, len(rows)) if rows.timestamps is None else rows.timestamps
        windows_of, function = assigner.windows, assigner.function
        keys = self._keys_of(rows)
        try:
            for key, stamp, row in zip(keys, stamps, self._cursor.over(rows.rows), strict=True):
                if not self._windows.has_key(key):
                    self._check_key(key)
                moment = stamp if assigner.is_event_time else now
                assert moment is not None, "records without timestamps were refused"
                self._running_function = function
                spans = windows_of(row if function is None else own_copy(row), moment)
                self._running_function = None
                if len(spans) > 1:
                    self._contents.overlap = True
                is_late = True
                for span in spans:
                    window = self._joined(key, span) if assigner.is_merging else span
                    if self._is_over(window):
                        continue
                    is_late = False
                    entry, result = self._add(key, window, row, stamp)
                    if result is not TriggerResult.CONTINUE:
                        yield from self._applied(result, key, TimeWindow(*window), entry, is_last=False)
                if is_late:
                    self._late_rows.append(row)
                    self._late_stamps.append(stamp)
        except TypeError:
            self._after_type_error(keys)
            raise
        self._stamp = None

    def _is_over(self, window: Span) -> bool:
        reached = self._reached.timestamp
        if not self._assigner.is_event_time or reached is None:
            return False
        last = self._windows.last_moment(window)
        return last is not None and last <= reached

    def _add(self, key: Any, span: Span, row: Any, stamp: int | None) -> tuple[Entry, TriggerResult]:
        """Put a record into a window, and call the trigger; return the window's entry and the result."""
        windows, contents, window = self._windows, self._contents, TimeWindow(*span)
        # The restored state has plain pairs, so the window is stored as a plain pair.
        span = window.start_timestamp, window.end_timestamp
        entry = windows.open(key, span)
        kept = (row, stamp) if self._has_stamps else row
        if len(entry) > CONTENTS:
            entry[CONTENTS] = contents.add(entry[CONTENTS], kept)
        else:
            entry.append(contents.first(kept))
        self._calls.begin(key, span, entry)
        self._running_function = self._trigger.on_element
        shown = own_copy(row) if self._has_user_trigger else row
        result = self._trigger.on_element(shown, stamp, window, self._calls)
        self._running_function = None
        windows.touch(key, span, entry, kept if self._contents.keeps == ALL_RECORDS else entry[CONTENTS])
        return entry, result

    def _applied(
        self, result: TriggerResult, key: Any, window: TimeWindow, entry: Entry, *, is_last: bool
    ) -> Iterator[Any]:
        if not isinstance(result, TriggerResult):
            msg = (
                f"trigger {type(self._trigger).__name__} returned {result!r:.80}: return a TriggerResult, "
                "such as TriggerResult.CONTINUE or TriggerResult.FIRE"
            )
            raise PenstockError(msg)
        if result is TriggerResult.CONTINUE:
            return
        if result.fires and len(entry) > CONTENTS:
            self._stamp = window.max_timestamp
            yield self._result(key, window, entry, stays=not (result.purges or is_last))
            self._running_function = None
        if result.purges:
            del entry[CONTENTS:]
        span = window.start_timestamp, window.end_timestamp
        if self._is_over_early(entry):
            self._windows.delete(key, span)
        else:
            self._windows.touch(key, span, entry, *(entry[CONTENTS:] if self._has_stamps else ()))

    def _is_over_early(self, entry: Entry) -> bool:
        """Whether a window can be deleted before its end: it is empty, and no later record can extend it."""
        return is_empty(entry) and (self._assigner.is_endless or not self._assigner.is_merging)

    def _result(self, key: Any, window: TimeWindow, entry: Entry, *, stays: bool) -> Any:
        contents, evictor = entry[CONTENTS], self._plan.evictor
        self._running_function = self._contents.result_function
        if evictor is None:
            return self._contents.results(key, window, self._contents.copied(contents) if stays else contents)
        return self._evicted(evictor, key, window, entry)

    def _evicted(self, evictor: Evictor[Any], key: Any, window: TimeWindow, entry: Entry) -> Iterator[Any]:
        self._running_function = evictor.evict_before
        stored = [TimestampedValue(own_copy(value), stamp) for value, stamp in entry[CONTENTS]]
        elements = list(evictor.evict_before(stored, window))
        self._running_function = self._contents.result_function
        if elements:
            result = self._contents.results(key, window, [own_copy(element.value) for element in elements])
            if result is not None:
                yield from iterator_of(result)
        self._running_function = evictor.evict_after
        left = evictor.evict_after(elements, window)
        entry[CONTENTS:] = [[(own_copy(value), stamp) for value, stamp in left]] if left else []

    def _joined(self, key: Any, span: Span) -> Span:
        start, end = span
        overlapping = sorted(old for old in self._windows.of_key(key) if old[0] < end and start < old[1])
        if not overlapping:
            return span
        joined = min(start, overlapping[0][0]), max(end, *(old_end for _, old_end in overlapping), end)
        if overlapping != [joined] and not self._is_over(joined):
            self._merge(key, overlapping, joined)
        return joined

    def _merge(self, key: Any, overlapping: list[Span], merged: Span) -> None:
        old = []
        for span in overlapping:
            entry = self._windows.get(key, span)
            assert entry is not None, "these are windows of the key"
            self._calls.begin(key, span, entry)
            state = {**entry[STATE]}  # `clear` may delete it before `on_merge` reads it
            self._running_function = self._trigger.clear
            self._trigger.clear(TimeWindow(*span), self._calls)
            old.append([state, *self._windows.delete(key, span)[1:]])
        entry = self._windows.open(key, merged)
        contents = [other[CONTENTS] for other in old if len(other) > CONTENTS]
        if contents:
            self._running_function = self._contents.merge_function
            entry.append(reduce(self._contents.merged, contents))
        self._calls.begin(key, merged, entry, old)
        self._running_function = self._trigger.on_merge
        self._trigger.on_merge(TimeWindow(*merged), self._calls)
        self._running_function = None
        self._windows.touch(key, merged, entry, *entry[CONTENTS:])

    def _next_end(self) -> int | None:
        return self._windows.due[EVENT_TIMERS].next_at

    def _fire(self, until: int, everything: bool) -> Iterator[Output]:
        self._begin_batch()
        yield from self._fired(EVENT_TIMERS, until, everything=everything)

    def _fired(self, kind: int, until: int, *, everything: bool) -> Iterator[Output]:
        return self._emitted(self._firings(kind, until, everything))

    def _firings(self, kind: int, until: int, everything: bool) -> Iterator[Any]:
        index = self._windows.due[kind]
        due = iter(lambda: index.pop(until), None)
        for at, span, key in some_of(due, self._clock.monotonic, everything=everything):
            yield from self._on_timer(kind, at, span, key)
        self._stamp = None

    def _on_timer(self, kind: int, at: int, span: Span, key: Any) -> Iterator[Any]:
        """Call the trigger if it has set the timer; delete the window if it is empty or has ended."""
        entry = self._windows.get(key, span)
        assert entry is not None, "only open windows are due"
        is_event_time, window = kind == EVENT_TIMERS, TimeWindow(*span)
        is_last = at == self._windows.last_moment(span) and is_event_time == self._assigner.is_event_time
        self._calls.begin_timer(at, kind)
        self._calls.begin(key, span, entry)
        if at in entry[kind]:
            entry[kind].remove(at)
            handler = self._trigger.on_event_time if is_event_time else self._trigger.on_processing_time
            self._running_function = handler
            result = handler(at, window, self._calls)
            self._running_function = None
            self._windows.touch(key, span, entry)
            yield from self._applied(result, key, window, entry, is_last=is_last)
        left = self._windows.get(key, span)
        if left is None:
            return  # deleted after the trigger's call
        if self._is_over_early(left):
            self._windows.delete(key, span)
        elif is_last:
            self._calls.begin(key, span, left)
            self._running_function = self._trigger.clear
            self._trigger.clear(window, self._calls)
            self._running_function = None
            self._windows.delete(key, span)

    def built_in_counts(self) -> Mapping[str, int]:
        # Statistics may be read before the operator opens.
        return {**super().built_in_counts(), OPEN_WINDOWS: len(getattr(self, "_windows", ()))}
