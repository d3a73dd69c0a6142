"""`KeyedStream`: records grouped by key, for operators with state for each key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload

from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.graph.streams.aggregate import add_aggregate, function_or_columns
from penstock.runtime.graph.streams.async_operations import add_map_async
from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    checked,
    checked_with_keywords,
    checked_with_options,
    need_function,
    need_methods,
    need_object,
    need_tag,
)
from penstock.runtime.graph.streams.keyed_joins import KeyedJoins
from penstock.runtime.graph.streams.pattern_stream import PatternStream, checked_pattern
from penstock.runtime.graph.streams.window_settings import WindowSettings
from penstock.runtime.graph.streams.windowed_stream import WindowedStream
from penstock.runtime.operators.aggregation.vectorized_aggregate import AnyAggregate
from penstock.runtime.operators.functions.event_time_operator import LATE_RECORDS
from penstock.runtime.operators.functions.keyed_folds import (
    AggregateFunction,
    KeyedAggregateFunctionOperator,
    KeyedReduceOperator,
)
from penstock.runtime.operators.functions.process import KeyedProcessOperator
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction
from penstock.runtime.operators.functions.time_order import SortedByTimeOperator, by_arrival
from penstock.runtime.operators.operator import Operator
from penstock.runtime.operators.patterns.pattern import Pattern
from penstock.runtime.operators.user_code.function_class import OutputTag
from penstock.runtime.time.durations import Duration
from penstock.runtime.time.windows import RecordWindowAssigner, WindowAssigner
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.connected_streams import (
        KeyedBroadcastConnectedStream,
        KeyedConnectedStreams,
    )
    from penstock.runtime.graph.streams.data_stream import BroadcastStream, DataStream
    from penstock.runtime.operators.functions.async_call import Retry

T = TypeVar("T")
U = TypeVar("U")
K = TypeVar("K")
R = TypeVar("R")
A = TypeVar("A")


class KeyedStream(KeyedJoins[T, K]):
    """Records of type `T` grouped by keys of type `K`; made by `DataStream.key_by`.

    The methods keep state for each key. Results of stateless methods (`map`, `filter`, ...) would not stay
    grouped, so call these before `key_by`, or after `reduce`, `process` and `transform`.
    """

    _next_step = (
        "call {} before key_by, or combine the records of a key with reduce(id, function) or "
        "process(id, function) first"
    )

    _next_steps = MappingProxyType(
        {"broadcast": "all subtasks get all records of a broadcast stream, so leave key_by out"}
    )

    @checked_with_options
    def reduce(
        self, id: str, function: Callable[[T, T], T], **options: Unpack[OperatorOptions]
    ) -> DataStream[T]:
        """Combine all records of a key, one by one, and emit every intermediate result.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: Takes the result so far and the next record, and returns the new result. A key's first
                record is its first result.
            **options: See `OperatorOptions`.
        """
        need_function("reduce", function, "result", "record")
        factory = partial(KeyedReduceOperator, self._key_selector, function)
        what = function_name(function)
        return self._builder.add("reduce", what, factory, self._inputs, id, options, keyed=True)

    @overload
    def aggregate(
        self, id: str, function: AggregateFunction[T, A, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self,
        id: str,
        *,
        emit_every: Duration | None = None,
        combine: bool = True,
        parallelism: int | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        resources: Mapping[str, float] | None = None,
        start_new_chain: bool = False,
        disable_chaining: bool = False,
        state_backend: StateBackend | None = None,
        **functions: AnyAggregate,
    ) -> DataStream[dict[str, Any]]: ...

    @checked_with_keywords
    def aggregate(self, id: str, function: Any = None, **named: Any) -> DataStream[Any]:
        """Fold all records of a key into an accumulator, and emit its result so far.

        With an `AggregateFunction` every record emits a result. With named functions of columns, as in
        `aggregate("sums", total=Sum("amount"))`, the stream must be keyed by the names of columns, and
        records are Arrow batches or dicts. A record of the result has the key's columns and one column for
        each function. Values that a dict lacks are null.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: An object; each subtask works with a copy of it. It may change its accumulator in place.
            **named: Functions of columns by the name of their result, and the options of `OperatorOptions`.
                Changed keys are emitted once per batch, or every `emit_every`, and before a checkpoint.
                Records are combined by key before they are sent, as long as that reduces their number.
                `combine=False` turns this off, and so do `CountDistinct` and functions without `merge`. State
                in columns must be on the heap: in a job with `RocksDB()`, give `state_backend=HeapState()`.
        """
        call = function_or_columns(function, named, ("combine", "emit_every"), "process")
        if call.function is None:
            return add_aggregate(self._builder, self._inputs, id, self._key_selector, call)
        what = type(function).__name__
        factory = partial(KeyedAggregateFunctionOperator, self._key_selector, call.function)
        return self._builder.add("aggregate", what, factory, self._inputs, id, call.options, keyed=True)

    @checked_with_options
    def process(
        self, id: str, function: KeyedProcessFunction[K, T, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]:
        """Run a `KeyedProcessFunction`, which has separate state for each key.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: An object; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        hint = "; for a plain function use map or flat_map before key_by" if callable(function) else ""
        need_object("process", function, KeyedProcessFunction, hint)
        need_methods("process", function, process=("value", "ctx"), on_timer=("at", "ctx"))
        factory = partial(KeyedProcessOperator, self._key_selector, function)
        what = type(function).__name__
        return self._builder.add(
            "process",
            what,
            factory,
            self._inputs,
            id,
            options,
            keyed=True,
            function=function,
        )

    @checked_with_options
    def sorted_by_time(
        self,
        id: str,
        order: Callable[[T], Any] | None = None,
        *,
        late_tag: OutputTag[T] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T]:
        """Emit the records of each key in the order of their timestamps.

        A record waits in state until a watermark reaches its timestamp. A record that arrives after that is
        late and counted. It goes to the side output `late_records`, or is dropped if no operator reads that
        output.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            order: Orders records with equal timestamps: takes a record and returns a comparable value.
                Records with equal values keep their order of arrival, as all records do by default. NaN comes
                last.
            late_tag: Tag of your own for the side output of late records.
            **options: See `OperatorOptions`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> def in_order(words):
            ...     return words.key_by(len).sorted_by_time("in-order", order=str)
            >>> with OperatorHarness.of(in_order) as harness:
            ...     pushed = harness.push(["c", "b", "a", "d"], timestamps=[2, 1, 1, 9])
            ...     harness.push_watermark(5)
            ['a', 'b', 'c']
        """
        if order is not None:
            need_function("sorted_by_time: order", order, "record")
        tag = LATE_RECORDS if late_tag is None else need_tag("sorted_by_time: late_tag", late_tag)
        factory = partial(SortedByTimeOperator, self._key_selector, order or by_arrival, tag)
        what = "" if order is None else function_name(order)
        return self._builder.add(
            "sorted_by_time", what, factory, self._inputs, id, options, keyed=True, side_outputs=(tag,)
        )

    @checked_with_options
    def transform(self, id: str, operator: Operator, **options: Unpack[OperatorOptions]) -> DataStream[Any]:
        """Run an operator of your own with state for each key; see `Operator`.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            operator: An object of a subclass of `Operator`; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        return self._transformed(id, operator, options, self._key_selector)

    @checked_with_options
    def map_async(
        self,
        function: Callable[..., Any],
        *,
        id: str,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | int | None = None,
        on_timeout: Callable[[Any], Any] | None = None,
        batch: int | None = None,
        linger: Duration | None = None,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Replace each record by the result of a coroutine function; records of a key keep their order.

        Calls for one key run one after another; calls for different keys run concurrently. Results of a key
        are emitted in the order of its records; no result overtakes a watermark, or is overtaken by one.
        Idempotency keys contain the key group, so they are the same at any parallelism. See
        `DataStream.map_async` for the arguments.

        Args:
            function: A coroutine function, or a class with such a method `__call__`.
            id: The operator's id; a restore finds the records in flight by this id.
            **options: See `OperatorOptions`.
        """
        return add_map_async(
            self,
            function,
            id,
            options,
            capacity=capacity,
            timeout=timeout,
            retry=retry,
            ordered=False,
            on_timeout=on_timeout,
            batch=batch,
            linger=linger,
            fn_constructor_args=fn_constructor_args,
            fn_constructor_kwargs=fn_constructor_kwargs,
            key_selector=self._key_selector,
        )

    @overload
    def connect(self, other: BroadcastStream[U]) -> KeyedBroadcastConnectedStream[K, T, U]: ...

    @overload
    def connect(self, other: KeyedStream[U, K]) -> KeyedConnectedStreams[K, T, U]: ...

    @checked
    def connect(
        self, other: KeyedStream[Any, K] | BroadcastStream[Any]
    ) -> KeyedConnectedStreams[K, T, Any] | KeyedBroadcastConnectedStream[K, T, Any]:
        """Connect this stream to another stream with the same kind of key, for a function that reads both.

        Records of both streams with the same key are processed in one subtask. The event time of the result
        is the lower event time of the two streams.

        Args:
            other: A keyed stream of records of any type, or a broadcast stream without keys, such as
                `rules.broadcast()`, for functions with a `BroadcastState`. A job fails if the keys of two
                keyed streams can never be equal, such as numbers and text.
        """
        from penstock.runtime.graph.streams.connected_streams import (
            KeyedBroadcastConnectedStream,
            KeyedConnectedStreams,
        )

        if isinstance(other, self._builder.stream_type) and other._is_broadcast:
            self._check_environment("connect", other)
            inputs = self._inputs, other._inputs
            return KeyedBroadcastConnectedStream(self._builder, *inputs, self._key_selector)
        selectors = self._keys_with("connect", other)
        return KeyedConnectedStreams(self._builder, self._inputs, other._inputs, *selectors)

    @checked
    def pattern(self, pattern: Pattern[T], order: Callable[[T], Any] | None = None) -> PatternStream[T, K]:
        """Find a pattern in the records of each key, in the order of their timestamps.

        Records need timestamps: call `assign_timestamps_and_watermarks` before `key_by`.

        Args:
            pattern: For example `Pattern.begin("a", where=is_a).followed_by("b", where=is_b).within(60)`.
            order: Orders records with equal timestamps, as in `sorted_by_time`.
        """
        if order is not None:
            need_function("pattern: order", order, "record")
        whole = checked_pattern(pattern)
        return PatternStream(self._builder, self._inputs, self._key_selector, whole, order or by_arrival)

    @checked
    def window(self, assigner: WindowAssigner | RecordWindowAssigner[T]) -> WindowedStream[T, K]:
        """Group each key's records by windows.

        Windows of event time need timestamps: call `assign_timestamps_and_watermarks` before `key_by`.

        Args:
            assigner: For example `TumblingEventTimeWindows(size)`, `SlidingEventTimeWindows(size, slide)` or
                `EventTimeSessionWindows(gap)`; time.md lists all assigners.
        """
        settings = WindowSettings.of("window", assigner)
        return WindowedStream(self._builder, self._inputs, self._key_selector, settings)

    @checked
    def count_window(self, size: int, slide: int | None = None) -> WindowedStream[T, K]:
        """Group each key's records by count, in the order of arrival.

        A window that has not ended at the end of the input emits nothing.

        Args:
            size: Number of records in a full window.
            slide: Number of records from the end of a window to the end of the next one. Each window holds
                at most the last `size` records. By default each record is in one window.
        """
        settings = WindowSettings.of_counts("count_window", size, slide)
        return WindowedStream(self._builder, self._inputs, self._key_selector, settings)

    def __repr__(self) -> str:
        return f"KeyedStream({function_name(self._key_selector)})"
