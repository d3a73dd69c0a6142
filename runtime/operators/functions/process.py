"""`process(...)` on a stream and on a keyed stream: the user's function with a context."""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from types import GeneratorType
from typing import Any, ClassVar, Final

from penstock.runtime.operators.functions.function_operator import (
    FunctionOperator,
    KeyedFunctionOperator,
    keyed_state_of,
    rows_of,
)
from penstock.runtime.operators.functions.process_function import (
    FunctionContext,
    RuntimeContext,
    SideOutputs,
    TimerFunction,
    UserFunction,
)
from penstock.runtime.operators.keyed_state_requests import StateSweep
from penstock.runtime.operators.operator import OperatorContext, Output, SavedList
from penstock.runtime.operators.timers import REACHED, FunctionTimers, FunctionTimerService
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.operators.user_code.function_class import attributes_of
from penstock.runtime.operators.user_code.result_collector import ResultCollector, iterable_of
from penstock.runtime.record.elements import Batch, RowBatch, StreamStatus, Watermark
from penstock.runtime.state.keyed_states import AggregatingState, ReducingState
from penstock.runtime.state.state_backend import KeyedStateBackend
from penstock.runtime.state.state_table import NO_KEY
from penstock.runtime.user_location import function_location


class _FunctionObjectOperator(FunctionOperator):
    """Runs the user's function object, whose methods take a context."""

    kind: ClassVar[str] = "process"
    takes_generators = True

    #: Methods that process records, for each input.
    methods: ClassVar[tuple[str, ...]] = ("process",)

    #: A copy of the given object: subtasks of a simulation are in one process, but must not share objects.
    _user: Any
    _collector: ResultCollector
    _side: SideOutputs

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._collector = self._collector_of(context)
        self._side = SideOutputs(type(self._user))
        self._side.isolates = self.isolates

    @property
    def _functions(self) -> Iterator[Callable[..., Any]]:
        """The methods for records, timers and snapshots, and the functions of the declared states."""
        for name in (*self.methods, "on_timer", "snapshot"):
            method = getattr(type(self._user), name, None)
            if method is not None and method is not getattr(TimerFunction, name, None):
                yield getattr(self._user, name)
        for state in attributes_of(type(self._user)).values():
            if isinstance(state, ReducingState):
                yield state.function
            elif isinstance(state, AggregatingState):
                function = state.function
                yield from (function.create_accumulator, function.add, function.get_result)

    @abstractmethod
    def _results(self, batch: RowBatch) -> Iterator[Iterable[Any]]:
        """Yield the results of each row, one row after another."""

    def _open_user(self, context: OperatorContext, own: FunctionContext) -> None:
        self._made = self._user
        context.lists.bind_declared(self._user)
        self._call_method(self._user, "open", own)

    def process(self, batch: Batch) -> Iterator[Output]:
        rows = rows_of(batch)
        collected = self._collector.collect(self._results(rows), rows.timestamps, are_iterable=True)
        yield from self._side.merged_into(collected)
        self._cursor.done()

    def _results_without_keys(self, batch: RowBatch, context: FunctionContext) -> Iterator[Iterable[Any]]:
        process = self._function
        stamps = repeat(None, len(batch)) if batch.timestamps is None else batch.timestamps
        for stamp, row in zip(stamps, self._cursor.over(batch.rows), strict=True):
            context.timestamp = stamp
            result = process(row, context)
            yield result if type(result) is GeneratorType else iterable_of(result)


class ProcessOperator(_FunctionObjectOperator):
    _context: FunctionContext

    def __init__(self, function: UserFunction) -> None:
        self._user = copy.deepcopy(function)
        super().__init__(getattr(self._user, self.methods[0]))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._context = FunctionContext(context, FunctionTimerService(context.connector.clock), self._side)
        self._open_user(context, self._context)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        self._context.timer_service.advance(watermark.timestamp)
        return iter(())

    def _results(self, batch: RowBatch) -> Iterator[Iterable[Any]]:
        return self._results_without_keys(batch, self._context)


#: Name of the statistic that counts the timers that have not fired.
TIMERS: Final = "timers"

#: Maximum number of keys that are remembered as checked.
_MOST_CHECKED: Final = 1 << 16


class KeyedProcessOperator(KeyedFunctionOperator, _FunctionObjectOperator):
    """Runs a `KeyedProcessFunction` record by record with the record's key set.

    The results of one record are consumed before the next record is processed. So a user's generator accesses
    the state of its own key from its first line to its last.
    """

    _context_type: ClassVar[type[RuntimeContext]] = RuntimeContext

    _backend: KeyedStateBackend
    _context: RuntimeContext
    _sweep: StateSweep
    _timers: FunctionTimers

    def __init__(self, key_selector: Callable[[Any], Any], function: TimerFunction[Any]) -> None:
        self._user = copy.deepcopy(function)
        super().__init__(key_selector, getattr(self._user, self.methods[0]))
        self._checked: set[Any] = set()
        self._has_timers = False
        self._firing: tuple[Any, int] | None = None  # key and moment

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._backend = backend = keyed_state_of(context)
        has_timers = type(self._user).on_timer is not TimerFunction.on_timer
        self._timers = FunctionTimers(
            context, backend, self._on_timer if has_timers else None, self._collector
        )
        self._context = self._context_type(context, backend, self._timers.service, self._side)
        self._sweep = StateSweep(backend, context.connector.clock)
        backend.time.record = self._context
        self._has_timers = has_timers
        context.requested.bind_declared(self._user, backend)
        self._open_user(context, self._context)

    def process(self, batch: Batch) -> Iterator[Output]:
        yield from self._before_batch()
        yield from super().process(batch)

    def process_watermark(self, watermark: Watermark) -> Iterator[Output]:
        self._backend.time.advance(watermark.timestamp)
        yield from self._side.merged_into(self._timers.advance(watermark))
        self._without_key()

    def process_status(self, status: StreamStatus) -> Iterator[Output]:
        yield from self._before_batch()

    @property
    def holds_watermark(self) -> bool:
        return self._timers.is_holding

    @property
    def flush_at(self) -> float | None:
        timer_at, sweep_at = self._timers.flush_at, self._sweep.due_at
        if timer_at is None or sweep_at is None:
            return sweep_at if timer_at is None else timer_at
        return min(timer_at, sweep_at)

    def flush(self) -> Iterator[Output]:
        self._sweep.run_if_due()
        if self._timers.flush_at is not None:
            yield from self._side.merged_into(self._timers.flush())
            self._without_key()

    def snapshot(self, checkpoint_id: int) -> Mapping[str, SavedList]:
        super().snapshot(checkpoint_id)
        return {REACHED: self._timers.state()} if self._has_timers else {}

    @property
    def doing(self) -> str:
        firing = self._firing  # read once: a watchdog calls this from another thread
        if firing is None or self._selecting:
            return super().doing
        key, at = firing
        where = function_location(self._user.on_timer)
        return f"{self.kind} function {where} for key {short_repr(key)} at {at}"

    def _results(self, batch: RowBatch) -> Iterator[Iterable[Any]]:
        context, backend = self._context, self._backend
        process, keys, checked = self._function, self._keys_of(batch), self._checked
        stamps = repeat(None, len(keys)) if batch.timestamps is None else batch.timestamps
        try:
            for key, stamp, row in zip(keys, stamps, self._cursor.over(batch.rows), strict=True):
                if key not in checked:
                    self._check_new(key)
                backend.current_key = context.current_key = key
                context.timestamp = stamp
                result = process(row, context)
                yield result if type(result) is GeneratorType else iterable_of(result)
        except TypeError:
            self._after_type_error(keys)
            raise
        self._without_key()

    def _before_batch(self) -> Iterator[Output]:
        yield from self._side.merged_into(self._timers.begin_batch())
        self._without_key()

    def _on_timer(self, at: int, key: Any, is_event_time: bool) -> Any:
        context, backend = self._context, self._backend
        self._firing = key, at
        backend.current_key = context.current_key = key
        context.timestamp = at if is_event_time else None
        context.time_domain = "event_time" if is_event_time else "processing_time"
        return self._user.on_timer(at, context)

    def _without_key(self) -> None:
        context, backend = self._context, self._backend
        self._firing = None
        if backend.current_key is not NO_KEY:
            backend.current_key = NO_KEY
            del context.current_key
        context.time_domain = None

    def _check_new(self, key: Any) -> None:
        self._check_key(key)
        if len(self._checked) >= _MOST_CHECKED:
            self._checked.clear()
        self._checked.add(key)

    def built_in_counts(self) -> Mapping[str, int]:
        return {TIMERS: len(self._timers)} if self._has_timers else {}
