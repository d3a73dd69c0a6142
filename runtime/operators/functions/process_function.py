"""Functions for `process(...)` on a stream, with keys or without, and their contexts.

`SideOutputs` collects the records of side outputs until they are emitted as batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, TypeAlias, TypeVar

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.names import unknown_attribute
from penstock.runtime.operators.keyed_state_requests import AsksForKeyedState, RequestedStates
from penstock.runtime.operators.metrics import AsksForMetrics, Metrics
from penstock.runtime.operators.operator import OperatorContext, Output, Tagged
from penstock.runtime.operators.operator_state import AsksForLists, ListStates
from penstock.runtime.operators.source import ConnectorContext, RunsInSubtask
from penstock.runtime.operators.timers import FunctionTimerService, KeyedTimerService
from penstock.runtime.operators.user_code.function_class import OutputTag, declared_name, tag_name, tags_of
from penstock.runtime.operators.user_code.result_collector import OUTPUT_SLICE
from penstock.runtime.record.elements import RowBatch, Watermark
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.state.state_backend import KeyedStateBackend


class SideOutputs:
    """Collects records by tag; copies mutable records if `isolates` is set.

    Example:
        >>> class Sort:
        ...     odd = OutputTag[int]()
        >>> side = SideOutputs(Sort)
        >>> side.emit(Sort.odd, 3, None)
        >>> list(side.take())
        [Tagged(tag='odd', batch=RowBatch(rows=[3], timestamps=None))]
    """

    def __init__(self, kind: type) -> None:
        self._owner = kind.__name__
        self._declared = tags_of(kind)
        self._rows: dict[str, list[Any]] = {}
        self._stamps: dict[str, list[int | None]] = {}
        self._count = 0
        self.isolates = True

    @property
    def is_full(self) -> bool:
        return self._count >= OUTPUT_SLICE

    def emit(self, tag: OutputTag[Any], record: Any, timestamp: int | None) -> None:
        name = tag_name(tag)
        rows = self._rows.get(name)
        if rows is None:
            declared_name(tag, self._declared, self._owner)
            rows, self._stamps[name] = self._rows.setdefault(name, []), []
        rows.append(own_copy(record) if self.isolates else record)
        self._stamps[name].append(timestamp)
        self._count += 1

    def declare(self, tag: OutputTag[Any]) -> None:
        """Accept a tag that the class does not declare."""
        self._declared = {**self._declared, tag.name: tag}

    def merged_into(self, outputs: Iterable[Output]) -> Iterator[Output]:
        """Emit side outputs before each watermark, when there are many of them, and at the end."""
        for output in outputs:
            if isinstance(output, Watermark):
                yield from self.take()
            yield output
            if self.is_full:
                yield from self.take()
        yield from self.take()

    def take(self) -> Iterator[Tagged]:
        """Remove the records, as one batch per tag; a batch has timestamps if all its records do."""
        if not self._count:
            return
        taken, stamps = self._rows, self._stamps
        self._rows, self._stamps, self._count = {}, {}, 0
        for name, rows in taken.items():
            known = [stamp for stamp in stamps[name] if stamp is not None]
            yield Tagged(name, RowBatch(rows, known if len(known) == len(rows) else None))


class NoSideOutputs(SideOutputs):
    """Refuses all records: the operator emits no side outputs, so they would be lost.

    Args:
        kind: Name of the operator in the message.
    """

    def __init__(self, kind: str) -> None:
        super().__init__(object)
        self._kind = kind

    def emit(self, tag: OutputTag[Any], record: Any, timestamp: int | None) -> None:
        msg = (
            f"{self._kind} has no side outputs: emit {tag_name(tag)!r} from a function of `process`, or "
            "return the record and use `split`"
        )
        raise ConfigurationError(msg)


#: Time domains of a timer.
TimeDomain: TypeAlias = Literal["event_time", "processing_time"]

K = TypeVar("K")

T = TypeVar("T")

R = TypeVar("R")


class FunctionContext(AsksForLists, AsksForMetrics, RunsInSubtask):
    """Context of a process function while it runs; one object for the whole attempt.

    Attributes:
        timestamp: Event time of the current record or timer in microseconds; `None` if records have no
            timestamps, and for a processing-time timer.
        timer_service: Provides the current watermark, and sets timers for the current key of a keyed stream.
    """

    # Plain slots, because functions read them for every record; Python calls __getattr__ for an unset slot.
    __slots__ = ("_list_states", "_metrics", "_place", "_side", "timer_service", "timestamp")

    _list_states: ListStates
    _metrics: Metrics
    _place: ConnectorContext
    timestamp: int | None
    timer_service: FunctionTimerService

    def __init__(self, context: OperatorContext, timers: FunctionTimerService, side: SideOutputs) -> None:
        self._place = context.connector
        self._list_states = context.lists
        self._metrics = context.metrics
        self._side = side
        self.timestamp = None
        self.timer_service = timers

    if not TYPE_CHECKING:  # a type checker must still refuse unknown names

        def __getattr__(self, name: str) -> NoReturn:
            if name == "current_key":
                msg = "there is no current key here: read it while a record or timer is processed"
                raise PenstockError(msg)
            raise unknown_attribute(self, name)

    @property
    def watermark(self) -> int | None:
        """Event time, in microseconds; `None` before the first watermark.

        A record is late if its timestamp is not greater than the watermark. In `on_timer` of an event-time
        timer this is the watermark that fires the timer, and may be far ahead of the timer's moment.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> class Punctual(ProcessFunction[str, str]):
            ...     def process(self, value, ctx):
            ...         is_late = ctx.watermark is not None and ctx.timestamp <= ctx.watermark
            ...         yield f"{value} is {'late' if is_late else 'on time'}"
            >>> with OperatorHarness.of(lambda names: names.process("punctual", Punctual())) as harness:
            ...     first = harness.push(["ann"], timestamps=[5])
            ...     passed = harness.push_watermark(10)
            ...     first, harness.push(["bob", "cid"], timestamps=[10, 11])
            (['ann is on time'], ['bob is late', 'cid is on time'])
        """
        return self.timer_service.current_watermark

    def output(self, tag: OutputTag[T], record: T) -> None:
        """Emit a record on a side output, with the timestamp of the current record or timer.

        Raises:
            ConfigurationError: The function's class does not declare the side output.
        """
        self._side.emit(tag, record, self.timestamp)


class RuntimeContext(FunctionContext, AsksForKeyedState):
    """Context of a keyed function; adds the key, state and timers.

    Attributes:
        current_key: Key of the current record or timer; unset in `open`, `snapshot` and `close`.
        time_domain: In `on_timer`, the timer's time domain: `"event_time"` or `"processing_time"`; elsewhere
            `None`.
    """

    __slots__ = ("_requests", "current_key", "time_domain")

    _requests: tuple[RequestedStates, KeyedStateBackend | None]
    current_key: Any
    time_domain: TimeDomain | None

    def __init__(
        self,
        context: OperatorContext,
        backend: KeyedStateBackend,
        timers: KeyedTimerService,
        side: SideOutputs,
    ) -> None:
        super().__init__(context, timers, side)
        self._requests = context.requested, backend
        self.time_domain = None


class UserFunction:
    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Refuse Flink's name of `process`; without this check Python reports only an abstract method.

        Raises:
            ConfigurationError: The class has `process_element`, but not `process`.
        """
        super().__init_subclass__(**kwargs)
        process = getattr(cls, "process", None)
        is_missing = getattr(process, "__isabstractmethod__", False) and "process" not in vars(cls)
        if is_missing and "process_element" in vars(cls):
            msg = f"{cls.__name__}.process_element: this method is called process(self, value, ctx) here"
            raise ConfigurationError(msg)

    def snapshot(self, checkpoint_id: int) -> None:
        """Bring the lists of the subtask (`OperatorListState`) up to date for a snapshot; emits nothing."""

    def close(self) -> None:
        """Release resources; called once, even after a failure."""


class TimerFunction(UserFunction, Generic[R]):
    """The base of functions with keyed state, which can set timers."""

    def open(self, ctx: RuntimeContext) -> None:
        """Prepare the function; called once per attempt, before any record."""

    def on_timer(self, at: int, ctx: RuntimeContext) -> Iterable[R] | None:
        """Handle a timer that the function has set; the timer's key is the current key.

        Return records as `process` does. Their timestamp is the moment of an event-time timer; records of a
        processing-time timer have none.

        Args:
            at: The timer's moment in microseconds since the epoch.

        Example:
            >>> from penstock import ValueState
            >>> from penstock.testing import OperatorHarness
            >>> class Silence(KeyedProcessFunction[str, str, str]):
            ...     newest = ValueState(int)
            ...
            ...     def process(self, value, ctx):
            ...         if (before := self.newest.value()) is not None:
            ...             ctx.timer_service.delete_event_time_timer(before + 60_000_000)
            ...         self.newest.update(ctx.timestamp)
            ...         ctx.timer_service.register_event_time_timer(ctx.timestamp + 60_000_000)
            ...
            ...     def on_timer(self, at, ctx):
            ...         yield f"{ctx.current_key} is silent"
            >>> with OperatorHarness.of(lambda w: w.key_by(str).process("silence", Silence())) as harness:
            ...     pushed = harness.push(["ann", "bob", "ann"], [0, 1_000_000, 2_000_000])
            ...     harness.push_watermark(61_500_000)
            ['bob is silent']
        """
        return None


class ProcessFunction(UserFunction, ABC, Generic[T, R]):
    """A function with a context, for a stream without keys (Flink's `ProcessFunction`).

    The context has side outputs, metrics, and the watermark. The class may declare lists of the subtask
    (`OperatorListState`). Timers and all other state need keys: see `KeyedProcessFunction`. Each subtask has
    one object.

    Example:
        >>> from penstock import OutputTag
        >>> from penstock.testing import OperatorHarness
        >>> class Parse(ProcessFunction[str, int]):
        ...     broken = OutputTag[str]()
        ...
        ...     def process(self, value, ctx):
        ...         if not value.isdigit():
        ...             ctx.output(self.broken, value)
        ...         else:
        ...             yield int(value)
        >>> with OperatorHarness.of(lambda texts: texts.process("parse", Parse())) as harness:
        ...     harness.push(["1", "x", "2"])
        ...     harness.side_output("broken")
        [1, 2]
        ['x']
    """

    def open(self, ctx: FunctionContext) -> None:
        """Prepare the function; called once per attempt, before any record."""

    @abstractmethod
    def process(self, value: T, ctx: FunctionContext) -> Iterable[R] | None:
        """Process one record; return or yield the records to emit, or return `None`."""


class KeyedProcessFunction(TimerFunction[R], ABC, Generic[K, T, R]):
    """A function with state for each key (Flink's `KeyedProcessFunction`).

    The class declares its states: `ValueState`, `ListState`, `MapState`, `ReducingState`, `AggregatingState`.
    Each of them reads and writes the value of the current key. Each subtask has one object, which serves all
    its keys. Keys share the other attributes of `self`, and a restart loses them. Keep all data of a key in
    state.

    Example:
        >>> from penstock import ValueState
        >>> from penstock.testing import OperatorHarness
        >>> class Count(KeyedProcessFunction[str, str, tuple[str, int]]):
        ...     seen = ValueState(int, default=0)
        ...
        ...     def process(self, value, ctx):
        ...         self.seen.update(self.seen.value() + 1)
        ...         yield ctx.current_key, self.seen.value()
        >>> with OperatorHarness.of(lambda words: words.key_by(str).process("count", Count())) as harness:
        ...     harness.push(["a", "b", "a"])
        [('a', 1), ('b', 1), ('a', 2)]
    """

    @abstractmethod
    def process(self, value: T, ctx: RuntimeContext) -> Iterable[R] | None:
        """Process one record; return or yield the records to emit, or return `None`."""
