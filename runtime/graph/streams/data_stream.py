"""`DataStream`: a stream of records, and what can be done with each of them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, NoReturn, TypeVar, Unpack, overload

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.job_graph import DEAD_LETTERS, Partitioner, Partitioning
from penstock.runtime.graph.stream_graph import TakesSchema, Upstream
from penstock.runtime.graph.streams.checked_call import (
    OPTION_NAMES,
    OperatorOptions,
    WrongStreamError,
    checked_call,
    need_function,
    need_object,
    refuse,
)
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.graph.streams.quick_look import (
    DataFrame,
    check_pandas,
    frame_of,
    look,
    picture_of,
    print_rows,
)
from penstock.runtime.graph.streams.steps import (
    REST,
    FunctionObject,
    add_transform,
    column_step,
    given_function,
    split_step,
)
from penstock.runtime.graph.streams.window_settings import WindowSettings
from penstock.runtime.names import unknown_attribute
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.expressions.expression_operators import (
    FilterExpressionOperator,
    SelectOperator,
    shown,
)
from penstock.runtime.operators.functions.map_batches import MapBatchesOperator
from penstock.runtime.operators.functions.process import ProcessOperator
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, ProcessFunction
from penstock.runtime.operators.functions.record_functions import FilterOperator, FlatMapOperator, MapOperator
from penstock.runtime.operators.operator import Operator, OperatorFactory
from penstock.runtime.operators.protocols import DeadLetter, Sink
from penstock.runtime.operators.sinks import SinkOperator
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.operators.user_code.output_tag import OutputTag, tag_name
from penstock.runtime.operators.windows.window import LATE_RECORDS
from penstock.runtime.record.column_key import as_column_key
from penstock.runtime.time.durations import Duration
from penstock.runtime.time.watermark_strategy import WatermarkStrategy
from penstock.runtime.time.windows import RecordWindowAssigner, WindowAssigner
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.keyed_stream import KeyedStream
    from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
    from penstock.runtime.graph.streams.windowed_stream import AllWindowedStream

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
K = TypeVar("K")
U = TypeVar("U")

#: Side outputs by kind of operator; asking for any other would give a stream that is always empty.
_SIDE_OUTPUTS: Final = {"source": (DEAD_LETTERS,), "window": (LATE_RECORDS,)}

_options = checked_call(OPTION_NAMES)
_plain = checked_call()
_columns = checked_call(takes_others=True)


class DataStream(Generic[T_co]):
    """A stream of records of type `T_co`.

    Streams are values: each method returns a new one and leaves this one as it was. So a stream may be used
    several times, and every use gets all of its records. Nothing runs before the environment's `run` or
    `submit`. A stream that nothing reads is fine as long as the graph has a sink somewhere.

    All methods raise `GraphError`, which names the user's line, for arguments that can't be meant. Their
    `options` are those of `OperatorOptions`: `parallelism`, `num_cpus`, `num_gpus`, `resources`,
    `start_new_chain` and `disable_chaining`. Operators without state take an `id` too, and get one made up
    when there is none.
    """

    def __init__(self, builder: GraphBuilder, inputs: tuple[Upstream, ...]) -> None:
        """Made by a `StreamEnvironment` and by other streams, not by users."""
        self._builder = builder
        self._inputs = inputs

    @property
    def environment(self) -> StreamEnvironment:
        """The environment whose job the stream is part of."""
        return self._builder.environment

    @overload
    def map(
        self, function: Callable[[T_co], R], *, id: str | None = None, **options: Unpack[OperatorOptions]
    ) -> DataStream[R]: ...

    @overload
    def map(
        self,
        function: type[FunctionObject[T_co, R]],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @_options
    def map(
        self,
        function: Callable[..., Any],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Replace each record by `function(record)`.

        The function may be a class with a method `__call__`, made with the constructor's arguments that are
        given beside it; see `map_batches`.
        """
        given = given_function("map", function, fn_constructor_args, fn_constructor_kwargs)
        return self._apply("map", given, partial(MapOperator, given), id, options)

    @overload
    def flat_map(
        self,
        function: Callable[[T_co], Iterable[R] | None],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @overload
    def flat_map(
        self,
        function: type[FunctionObject[T_co, Iterable[R] | None]],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @_options
    def flat_map(
        self,
        function: Callable[..., Any],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Replace each record by all of `function(record)`: a list, a generator of any length, or `None`.

        The function may be a class with a method `__call__`, made with the constructor's arguments that are
        given beside it; see `map_batches`.
        """
        given = given_function("flat_map", function, fn_constructor_args, fn_constructor_kwargs)
        return self._apply("flat_map", given, partial(FlatMapOperator, given), id, options)

    @overload
    def filter(
        self,
        function: Callable[[T_co], object] | pc.Expression,
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]: ...

    @overload
    def filter(
        self,
        function: type[FunctionObject[T_co, object]],
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]: ...

    @_options
    def filter(
        self,
        function: Callable[..., object] | pc.Expression,
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]:
        """Keep the records for which a function or an expression is true.

        Args:
            function: Takes a record. Or an expression of columns, such as `pc.field("v") > 3` of
                `pyarrow.compute`: Arrow batches then stay Arrow batches. Records may be dicts, too. Null is
                not true. Or a class with a method `__call__`; see `map_batches`.
            fn_constructor_args: See `map_batches`, as for the arguments below.
            fn_constructor_kwargs: Of a class.
            **options: See `OperatorOptions`.
        """
        if isinstance(function, pc.Expression):
            factory = partial(FilterExpressionOperator, function)
            return self._computed("filter", shown({"filter": function}), factory, id, options)
        given = given_function("filter", function, fn_constructor_args, fn_constructor_kwargs)
        return self._apply("filter", given, partial(FilterOperator, given), id, options)

    @_columns
    def select(
        self,
        *names: str,
        columns: Mapping[str, pc.Expression] | None = None,
        id: str | None = None,
        **others: Any,
    ) -> DataStream[dict[str, Any]]:
        """Keep some columns, and compute others: `select("k", total=pc.field("a") + pc.field("b"))`.

        Works on Arrow batches, and with the same results on records that are dicts.

        Args:
            *names: Columns that are kept.
            columns: Computed columns by name, for names that are no keywords or that options have (`"id"`).
            **others: Computed columns, and options; see `OperatorOptions`.
        """
        return self._selected("select", names, columns, id, others)

    @_columns
    def with_columns(
        self,
        columns: Mapping[str, pc.Expression] | None = None,
        *,
        id: str | None = None,
        **others: Any,
    ) -> DataStream[dict[str, Any]]:
        """Add computed columns, or replace columns: `with_columns(total=pc.field("a") + pc.field("b"))`.

        Works on Arrow batches, and with the same results on records that are dicts. All expressions see the
        columns as they were.

        Args:
            columns: Computed columns by name, for names that are no keywords or that options have (`"id"`).
            **others: Computed columns, and options; see `OperatorOptions`.
        """
        return self._selected("with_columns", None, columns, id, others)

    @overload
    def map_batches(
        self,
        function: Callable[[list[T_co]], list[R] | Iterator[list[R]] | None],
        batch_format: Literal["rows"] = "rows",
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @overload
    def map_batches(
        self,
        function: Callable[[pa.RecordBatch], pa.RecordBatch | pa.Table | Iterator[pa.RecordBatch]],
        batch_format: Literal["arrow"],
        *,
        schema: pa.Schema | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[dict[str, Any]]: ...

    @overload
    def map_batches(
        self,
        function: type[FunctionObject[list[T_co], list[R] | Iterator[list[R]] | None]],
        batch_format: Literal["rows"] = "rows",
        *,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @overload
    def map_batches(
        self,
        function: type[FunctionObject[pa.RecordBatch, pa.RecordBatch | pa.Table | Iterator[pa.RecordBatch]]],
        batch_format: Literal["arrow"],
        *,
        schema: pa.Schema | None = None,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[dict[str, Any]]: ...

    @_options
    def map_batches(
        self,
        function: Callable[..., Any],
        batch_format: Literal["rows", "arrow"] = "rows",
        *,
        schema: pa.Schema | None = None,
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Replace whole batches: the fast way to numpy, pandas, models and Arrow.

        How many records come together depends on the load, so the result must not depend on it. Event time
        stays only if the function returns one batch that is as long as its input, with the i-th record made
        of the i-th. So keep the order, or assign timestamps after it.

        Args:
            function: Takes the records of a batch and returns any number of records in the same format, or
                yields several such results. Or a class with a method `__call__` that does so, such as a
                model. Each subtask makes an object of it before the first batch, and calls its method
                `close` at the end, if it has one.
            batch_format: `rows` hands in a list of records, `arrow` a `pyarrow.RecordBatch`. Rows must be
                dicts for it. They come together only with rows of the same names and types, nulls included.
            schema: The columns of all Arrow batches. Give it where rows lack values: then they stay together.
                A row or batch that does not fit it unchanged ends the job.
            fn_constructor_args: Arguments that objects of the class are made with.
            fn_constructor_kwargs: Likewise, by name.
            **options: See `OperatorOptions`; `num_gpus=1` gives each subtask a GPU of its own.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> class Model:
            ...     def __init__(self, weight, bias=0):
            ...         self.weight, self.bias = weight, bias  # or load it from a file
            ...
            ...     def __call__(self, batch):
            ...         return [self.weight * number + self.bias for number in batch]
            >>> def scored(n):
            ...     return n.map_batches(Model, fn_constructor_args=(10,), fn_constructor_kwargs={"bias": 1})
            >>> with OperatorHarness.of(scored) as harness:
            ...     harness.push([1, 2])
            [11, 21]
        """
        if batch_format not in ("rows", "arrow"):
            refuse(f"map_batches: batch_format must be 'rows' or 'arrow', not {batch_format!r}")
        if schema is not None and (batch_format != "arrow" or not isinstance(schema, pa.Schema)):
            refuse(f"map_batches: schema= is a pyarrow.Schema for batch_format='arrow', not {schema!r:.80}")
        given = given_function("map_batches", function, fn_constructor_args, fn_constructor_kwargs)
        factory = partial(MapBatchesOperator, given, batch_format, schema)
        return self._apply("map_batches", given, factory, id, options)

    @_options
    def process(
        self, id: str, function: ProcessFunction[T_co, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]:
        """Run a `ProcessFunction`, which has side outputs, counters, and knows the watermark.

        Args:
            id: The operator's id.
            function: An object; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        keyed = "; call key_by(function) before process" if isinstance(function, KeyedProcessFunction) else ""
        hint = "; for a plain function use map or flat_map" if callable(function) else keyed
        need_object("process", function, ProcessFunction, hint)
        added = self._builder.add(
            "process",
            type(function).__name__,
            partial(_process_operator, function),
            self._inputs,
            id,
            options,
            stateful=True,
            function=function,
        )
        return DataStream(self._builder, (added,))

    @_options
    def transform(self, id: str, operator: Operator, **options: Unpack[OperatorOptions]) -> DataStream[Any]:
        """Run an operator of your own; see `Operator`.

        Args:
            id: The operator's id; its state is found again under it.
            operator: An object of a subclass of `Operator`; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        return DataStream(self._builder, (add_transform(self._builder, self._inputs, id, operator, options),))

    @_options
    def assign_timestamps_and_watermarks(
        self,
        strategy: WatermarkStrategy[T_co],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]:
        """Give each record its moment, and let event time advance with them.

        Event time is what `KeyedStream.window` goes by. Call it before anything that spreads records over
        subtasks: only there records come in the order that the strategy speaks of.

        Args:
            strategy: For example `WatermarkStrategy.for_bounded_out_of_orderness(5)`, with a timestamp
                column or assigner unless the source gives timestamps.
            id: The operator's id.
            **options: See `OperatorOptions`.
        """
        if not isinstance(strategy, WatermarkStrategy):
            refuse(f"assign_timestamps_and_watermarks needs a WatermarkStrategy, not {strategy!r:.80}")
        if strategy.alignment is not None:
            refuse(
                "assign_timestamps_and_watermarks: only a source can wait for others, so a strategy "
                "with_alignment belongs there: from_source(id, source, watermarks=strategy)"
            )
        assigner = strategy.timestamp_assigner
        what = "timestamps of the source" if assigner is None else function_name(assigner)
        if strategy.timestamp_column is not None:
            what = f"column {strategy.timestamp_column!r}"
        factory = partial(TimestampsAndWatermarksOperator, strategy)
        added = self._builder.add(
            "timestamps", what, factory, self._inputs, id, options, makes_watermarks=True
        )
        return DataStream(self._builder, (added,))

    @overload
    def key_by(self, key: Callable[[T_co], K]) -> KeyedStream[T_co, K]: ...

    @overload
    def key_by(self, key: str | list[str] | tuple[str, ...]) -> KeyedStream[T_co, Any]: ...

    @_plain
    def key_by(
        self, key: Callable[[T_co], Any] | str | list[str] | tuple[str, ...]
    ) -> KeyedStream[T_co, Any]:
        """Group by key: records of equal key meet in one subtask, in their order.

        Args:
            key: The name of a column, or a list of names, for records that are dicts or Arrow batches. Or a
                function from a record to its key; Arrow batches then become dicts.

        The key must be a value with a stable hash: text, bytes, numbers, dates, tuples of these. With names,
        nulls are one key, and so are all NaN, and 0.0 and -0.0.
        """
        from penstock.runtime.graph.streams.keyed_stream import KeyedStream  # streams make each other

        selector = _key_selector(key)
        keyed = self._partitioned(Partitioner(Partitioning.KEY_GROUP, selector))
        return KeyedStream(keyed._builder, keyed._inputs, selector)

    @_plain
    def window_all(self, assigner: WindowAssigner | RecordWindowAssigner[T_co]) -> AllWindowedStream[T_co]:
        """Group all records by windows, without keys; one subtask does that.

        Args:
            assigner: As for `KeyedStream.window`.
        """
        from penstock.runtime.graph.streams.windowed_stream import window_all  # streams make each other

        return window_all(self, WindowSettings.of("window_all", assigner))

    @_plain
    def count_window_all(self, size: int, slide: int | None = None) -> AllWindowedStream[T_co]:
        """Group all records by number, without keys; one subtask does that.

        Args:
            size: Most records of a window.
            slide: As for `KeyedStream.count_window`.
        """
        from penstock.runtime.graph.streams.windowed_stream import window_all  # streams make each other

        return window_all(self, WindowSettings.of_counts("count_window_all", size, slide))

    @_plain
    def union(self: DataStream[U], *others: DataStream[U]) -> DataStream[U]:
        """One stream of the records of all these streams, in no particular order between them."""
        inputs = list(self._inputs)
        for number, other in enumerate(others, 1):
            if not isinstance(other, DataStream):
                hint = "; call key_by after the union" if type(other).__name__ == "KeyedStream" else ""
                refuse(f"union: argument {number} is no DataStream but {other!r:.80}{hint}")
            if other._builder is not self._builder:
                refuse(f"union: argument {number} is a stream of another StreamEnvironment")
            inputs += other._inputs
        return DataStream(self._builder, tuple(inputs))

    @_plain
    def rebalance(self) -> DataStream[T_co]:
        """Spread the records evenly over the subtasks of whatever reads this stream."""
        return self._partitioned(Partitioner(Partitioning.REBALANCE))

    @_plain
    def broadcast(self) -> DataStream[T_co]:
        """Send every record to all subtasks of whatever reads this stream."""
        return self._partitioned(Partitioner(Partitioning.BROADCAST))

    @_options
    def split(
        self,
        predicates: Mapping[str, Callable[[T_co], object] | pc.Expression],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> dict[str, DataStream[T_co]]:
        """Split the stream: each record goes to the first predicate that is true for it.

        Args:
            predicates: Functions of a record, or expressions of columns, by the name of the stream. Arrow
                batches stay Arrow batches with expressions. Null is not true.
            id: The operator's id.
            **options: See `OperatorOptions`.

        Returns:
            A stream for each predicate, by its name, and `"rest"`: the records that none has taken.

        Example:
            >>> from penstock import CollectSink, GeneratorSource, StreamEnvironment
            >>> env = StreamEnvironment("orders")
            >>> numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=6))
            >>> parts = numbers.split({"small": lambda n: n < 2, "even": lambda n: n % 2 == 0})
            >>> sorted(parts)
            ['even', 'rest', 'small']
        """
        step = split_step(predicates)
        added = self._builder.add(
            "split", step.shown, step.factory, self._inputs, id, options, side_outputs=tuple(predicates)
        )
        parts = {name: DataStream[T_co](self._builder, (replace(added, tag=name),)) for name in predicates}
        return parts | {REST: DataStream[T_co](self._builder, (added,))}

    @_plain
    def side_output(self, tag: OutputTag[R] | str) -> DataStream[R]:
        """The stream of what the operator before emits under `tag` beside its main output.

        A source emits the records that it could not read under `dead_letters`. A window emits those that came
        too late under `late_records`, and a process function what it gives to `ctx.output`.

        Args:
            tag: An `OutputTag` of the function's class, or the name of a side output.
        """
        if len(self._inputs) != 1 or self._inputs[0] != Upstream(self._inputs[0].node):
            refuse(
                "side_output: take it right after the operator that emits it, "
                "before any union, rebalance, broadcast or other side_output"
            )
        producer = self._builder.graph.node(self._inputs[0].node)
        tags = producer.side_outputs or _SIDE_OUTPUTS.get(producer.kind, ())
        name = tag_name(tag)
        if name not in tags:
            has = f"its side outputs are {', '.join(map(repr, tags))}" if tags else "it has none"
            refuse(f"side_output: {producer.name} has no side output {name!r}; {has}")
        return DataStream(self._builder, (replace(self._inputs[0], tag=name),))

    @_plain
    def dead_letters(self) -> DataStream[DeadLetter]:
        """The records that the source before could not read, with what was wrong with them.

        Whether it passes bad records on here or fails is the source's own setting.
        """
        return self.side_output(DEAD_LETTERS)

    @_options
    def sink(self, id: str, sink: Sink[T_co], **options: Unpack[OperatorOptions]) -> None:
        """Write every record to `sink`, under an id that stays the same when the program changes."""
        if isinstance(sink, type):
            refuse(f"sink: give an object, {sink.__name__}(...), not the class {sink.__name__}")
        if not isinstance(sink, Sink):
            refuse(f"sink: {sink!r:.80} has no method `writer(context)`, so it is no Sink")
        what, factory = type(sink).__name__, partial(SinkOperator, sink)
        self._builder.add("sink", what, factory, self._inputs, id, options, stateful=True, is_sink=True)
        if isinstance(sink, TakesSchema):
            sink.take_schema(self._builder.graph.schema_of(self._inputs))

    @_plain
    def take(self, limit: int = 20, *, timeout: Duration | None = None) -> list[T_co]:
        """Run what leads to this stream until so many records are here; brings them back.

        No sink of the program gets anything, and the job ends with this call. So streams without end may be
        looked at, too. With several subtasks the records are those that came first.

        Args:
            limit: How many at most.
            timeout: Seconds after which to give up; `None` waits for ever.

        Raises:
            JobFailedError: A function failed; the message begins with the root cause.
            JobTimeoutError: The time was over first.
        """
        return self._look(limit, timeout)

    @_plain
    def collect(self, *, timeout: Duration | None = None) -> list[T_co]:
        """Run what leads to this stream to its end; brings all records back. Use `take` if there is no end.

        All of them must fit into the memory of this program.

        Args:
            timeout: Seconds after which to give up; `None` waits for ever.

        Raises:
            JobFailedError: A function failed; the message begins with the root cause.
            JobTimeoutError: The time was over first.
        """
        return self._look(None, timeout)

    @_plain
    def show(self, limit: int = 20, *, timeout: Duration | None = None) -> None:
        """Print the records of `take`, one a line.

        Args:
            limit: How many at most.
            timeout: Seconds after which to give up; `None` waits for ever.
        """
        print_rows(self._look(limit, timeout))

    @_plain
    def to_pandas(self, limit: int | None = None, *, timeout: Duration | None = None) -> DataFrame:
        """The records of `collect`, or of `take(limit)`, as a `pandas.DataFrame`.

        Dicts and Arrow batches give columns by name; anything else is in the column `item`.

        Args:
            limit: How many at most; `None` for all.
            timeout: Seconds after which to give up; `None` waits for ever.

        Raises:
            ConfigurationError: pandas is not installed.
        """
        check_pandas()
        return frame_of(self._look(limit, timeout))

    def _look(self, limit: int | None, timeout: Duration | None) -> list[T_co]:
        return look(self.environment, self._builder.graph, self._inputs, limit, timeout)

    if not TYPE_CHECKING:  # a type checker must go on refusing unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain where the methods of a `KeyedStream` are."""
            if name not in ("reduce", "process", "window", "count_window"):
                raise unknown_attribute(self, name)
            msg = f"a DataStream has no {name}: group it with key_by(function) first"
            raise WrongStreamError(msg)

    def _repr_html_(self) -> str:
        return picture_of(self._builder, self._inputs, repr(self))

    def __repr__(self) -> str:
        nodes = (self._builder.graph.node(upstream.node) for upstream in self._inputs)
        return f"{type(self).__name__}({', '.join(node.id or node.name for node in nodes)})"

    def _apply(
        self,
        kind: str,
        given: Callable[..., Any] | FunctionClass,
        factory: OperatorFactory,
        operator_id: str | None,
        options: OperatorOptions,
    ) -> DataStream[Any]:
        """Add an operator of a function; one of a class may have state, if it has an id."""
        is_class = isinstance(given, FunctionClass)
        added = self._builder.add(
            kind,
            function_name(given.kind if isinstance(given, FunctionClass) else given),
            factory,
            self._inputs,
            operator_id,
            options,
            stateful=is_class and operator_id is not None,
            function=given if is_class else None,
        )
        return DataStream(self._builder, (added,))

    def _computed(
        self,
        kind: str,
        what: str,
        factory: OperatorFactory,
        operator_id: str | None,
        options: OperatorOptions,
    ) -> DataStream[Any]:
        added = self._builder.add(kind, what, factory, self._inputs, operator_id, options)
        return DataStream(self._builder, (added,))

    def _selected(
        self,
        kind: str,
        names: Sequence[str] | None,
        columns: Mapping[str, pc.Expression] | None,
        operator_id: str | None,
        others: Mapping[str, Any],
    ) -> DataStream[Any]:
        step = column_step(kind, names, columns, others)
        factory = partial(SelectOperator, names, step.columns)
        return self._computed(kind, step.shown, factory, operator_id, step.options)

    def _partitioned(self, partitioner: Partitioner) -> DataStream[T_co]:
        inputs = tuple(replace(upstream, partitioner=partitioner) for upstream in self._inputs)
        return DataStream(self._builder, inputs)


def _key_selector(key: Any) -> Callable[[Any], Any]:
    try:
        named = as_column_key(key)
    except ConfigurationError as error:
        refuse(f"key_by: {error}")
    if named is not None:
        return named
    need_function("key_by", key)
    function: Callable[[Any], Any] = key
    return function


def _process_operator(function: ProcessFunction[Any, Any]) -> ProcessOperator:
    """Make the operator with a function object of its own, as if it had been pickled for the subtask."""
    return ProcessOperator(copy.deepcopy(function))
