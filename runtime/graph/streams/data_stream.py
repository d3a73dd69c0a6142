"""`DataStream`: a stream of records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar, Unpack, overload

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
from penstock.runtime.graph.streams.record_operations import RecordOperations
from penstock.runtime.graph.streams.window_settings import WindowSettings
from penstock.runtime.names import problem_with_name, unknown_attribute
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.expression_operators import SplitExpressionsOperator, shown
from penstock.runtime.operators.functions.process import process_operator
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, ProcessFunction
from penstock.runtime.operators.functions.record_functions import SplitOperator
from penstock.runtime.operators.operator import Operator, OperatorFactory
from penstock.runtime.operators.sinks import Sink, SinkOperator
from penstock.runtime.operators.source import DeadLetter
from penstock.runtime.operators.user_code.function_class import OutputTag, tag_name
from penstock.runtime.operators.windows.window import LATE_RECORDS
from penstock.runtime.record.column_key import NoKey, as_column_key
from penstock.runtime.time.watermarks import WatermarkStrategy
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

#: The stream of the records that no predicate has taken.
REST: Final = "rest"


def _split(predicates: Any) -> tuple[str, OperatorFactory]:
    """The predicates of a split as its name shows them, and its operator."""
    if not isinstance(predicates, Mapping) or not predicates:
        refuse(f'split needs predicates by name, such as {{"large": is_large}}, not {predicates!r:.80}')
    for name, predicate in predicates.items():
        problem = problem_with_name(name)
        if problem is not None:
            refuse(f"split: {problem} ({name!r:.80})")
        if name == REST:
            refuse("split: 'rest' is the stream of what no predicate takes; choose another name")
        if not isinstance(predicate, pc.Expression):
            need_function(f"split: {name!r}", predicate)
        if inspect.isclass(predicate):
            refuse(f"split: {name!r} needs a function, not the class {predicate.__name__}")
    are_expressions = {isinstance(predicate, pc.Expression) for predicate in predicates.values()}
    if len(are_expressions) == 2:
        refuse("split: give functions or expressions of columns, not both")
    if are_expressions == {True}:
        return shown(predicates), partial(SplitExpressionsOperator, dict(predicates))
    names = ", ".join(map(function_name, predicates.values()))
    return names, partial(SplitOperator, dict(predicates))


_options = checked_call(OPTION_NAMES)
_plain = checked_call()
_columns = checked_call(takes_others=True)


class DataStream(RecordOperations[T_co]):
    """A stream of records of type `T_co`.

    Streams are values: each method returns a new one and leaves this one as it was. So a stream may be used
    several times, and every use gets all of its records. Nothing runs before the environment's `run` or
    `submit`. A stream that nothing reads is fine as long as the graph has a sink somewhere.

    All methods raise `GraphError`, which names the user's line, for arguments that can't be meant. Their
    `options` are those of `OperatorOptions`: `parallelism`, `num_cpus`, `num_gpus`, `resources`,
    `start_new_chain` and `disable_chaining`. Operators without state take an `id` too, and get one made up
    when there is none.
    """

    @property
    def environment(self) -> StreamEnvironment:
        """The environment whose job the stream is part of."""
        return self._builder.environment

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
        what, factory = type(function).__name__, partial(process_operator, function)
        return self._builder.add(
            "process", what, factory, self._inputs, id, options, stateful=True, function=function
        )

    @_options
    def transform(self, id: str, operator: Operator, **options: Unpack[OperatorOptions]) -> DataStream[Any]:
        """Run an operator of your own; see `Operator`.

        Args:
            id: The operator's id; its state is found again under it.
            operator: An object of a subclass of `Operator`; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        return self._transformed(id, operator, options)

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
        return self._builder.add(
            "timestamps", what, factory, self._inputs, id, options, makes_watermarks=True
        )

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
        from penstock.runtime.graph.streams.keyed_stream import KeyedStream  # programs without keys don't pay

        selector = _key_selector(key)
        keyed = self._partitioned(Partitioner(Partitioning.KEY_GROUP, selector))
        return KeyedStream(keyed._builder, keyed._inputs, selector)

    @_plain
    def window_all(self, assigner: WindowAssigner | RecordWindowAssigner[T_co]) -> AllWindowedStream[T_co]:
        """Group all records by windows, without keys; one subtask does that.

        Args:
            assigner: As for `KeyedStream.window`.
        """
        return self._all_windowed(WindowSettings.of("window_all", assigner))

    @_plain
    def count_window_all(self, size: int, slide: int | None = None) -> AllWindowedStream[T_co]:
        """Group all records by number, without keys; one subtask does that.

        Args:
            size: Most records of a window.
            slide: As for `KeyedStream.count_window`.
        """
        return self._all_windowed(WindowSettings.of_counts("count_window_all", size, slide))

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
        what, factory = _split(predicates)
        tags = tuple(predicates)
        rest = self._builder.add("split", what, factory, self._inputs, id, options, side_outputs=tags)
        return {tag: rest.side_output(tag) for tag in tags} | {REST: rest}

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

    if not TYPE_CHECKING:  # a type checker must go on refusing unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain where the methods of a `KeyedStream` are."""
            if name not in ("reduce", "process", "window", "count_window"):
                raise unknown_attribute(self, name)
            msg = f"a DataStream has no {name}: group it with key_by(function) first"
            raise WrongStreamError(msg)

    def __repr__(self) -> str:
        nodes = (self._builder.graph.node(upstream.node) for upstream in self._inputs)
        return f"{type(self).__name__}({', '.join(node.id or node.name for node in nodes)})"

    def _all_windowed(self, settings: WindowSettings) -> AllWindowedStream[T_co]:
        from penstock.runtime.graph.streams.windowed_stream import AllWindowedStream

        key = NoKey()
        inputs = self._partitioned(Partitioner(Partitioning.KEY_GROUP, key))._inputs
        return AllWindowedStream(self._builder, inputs, key, settings)

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
