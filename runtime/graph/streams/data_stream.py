"""`DataStream`: a stream of records."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, TypeVar, Unpack, get_args, overload

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.graph.job_graph import DEAD_LETTERS, Partitioner, Partitioning
from penstock.runtime.graph.stream_graph import TakesSchema, Upstream
from penstock.runtime.graph.streams.changes import check_sink
from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    WrongStreamError,
    checked,
    checked_with_options,
    need_function,
    need_methods,
    need_object,
    refusals,
    refuse,
)
from penstock.runtime.graph.streams.foreign_names import refuse_foreign_method
from penstock.runtime.graph.streams.given_stream import no_stream
from penstock.runtime.graph.streams.join_operations import JoinOperations
from penstock.runtime.graph.streams.window_settings import WindowSettings
from penstock.runtime.names import normal_name, problem_with_name, unknown_attribute
from penstock.runtime.operators.committed_sink import (
    COMMITTER_SUFFIX,
    CommitterOperator,
    HasCommitter,
    StagingOperator,
)
from penstock.runtime.operators.event_time import TimestampsAndWatermarksOperator
from penstock.runtime.operators.expression_operators import SplitExpressionsOperator
from penstock.runtime.operators.expressions import shown
from penstock.runtime.operators.functions.process import ProcessOperator
from penstock.runtime.operators.functions.process_function import KeyedProcessFunction, ProcessFunction
from penstock.runtime.operators.functions.record_functions import SplitOperator
from penstock.runtime.operators.operator import Operator, OperatorFactory
from penstock.runtime.operators.sinks import Sink, SinkOperator
from penstock.runtime.operators.source import DeadLetter
from penstock.runtime.operators.user_code.function_class import OutputTag, tag_name
from penstock.runtime.record.column_key import NoKey, as_column_key
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.time.watermarks import WatermarkStrategy
from penstock.runtime.time.windows import RecordWindowAssigner, WindowAssigner
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.connected_streams import BroadcastConnectedStream, ConnectedStreams
    from penstock.runtime.graph.streams.keyed_stream import KeyedStream
    from penstock.runtime.graph.streams.stream_environment import StreamEnvironment
    from penstock.runtime.graph.streams.windowed_stream import AllWindowedStream

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
K = TypeVar("K")
U = TypeVar("U")

#: Name of the stream of records for which no predicate is true.
REST: Final = "rest"


def _split(predicates: Any) -> tuple[str, dict[str, Any], OperatorFactory]:
    """Return the description of the predicates, the predicates by tag, and the operator's factory."""
    if not isinstance(predicates, Mapping) or not predicates:
        refuse(f'split needs predicates by name, such as {{"large": is_large}}, not {predicates!r:.80}')
    for name, predicate in predicates.items():
        problem = problem_with_name(name)
        if problem is not None:
            refuse(f"split: {problem} ({name!r:.80})")
        if name == REST:
            refuse("split: 'rest' is the stream of the records that match no predicate; choose another name")
        if inspect.isclass(predicate):
            refuse(f"split: {name!r} needs a function, not the class {predicate.__name__}")
        if not isinstance(predicate, pc.Expression):
            need_function(f"split: {name!r}", predicate, "record")
    by_tag = {normal_name(name): predicate for name, predicate in predicates.items()}
    if len(by_tag) < len(predicates):
        refuse("split: two names are the same in Unicode's normal form C; choose another name")
    are_expressions = {isinstance(predicate, pc.Expression) for predicate in predicates.values()}
    if len(are_expressions) == 2:
        refuse("split: give functions or expressions of columns, not both")
    if are_expressions == {True}:
        return shown(predicates), by_tag, partial(SplitExpressionsOperator, by_tag)
    names = ", ".join(map(function_name, predicates.values()))
    return names, by_tag, partial(SplitOperator, by_tag)


class DataStream(JoinOperations[T_co]):
    """A stream of records of type `T_co`.

    Transformations return new streams and do not change this one. So a stream may be used several times, and
    every use gets all of its records. A job runs only after the environment's `run` or `submit`, or in a
    method such as `collect` or `show`. A stream may remain without a reader as long as the graph has a sink.

    All methods raise `GraphError`, which names the user's line, for invalid arguments. Their `options` are
    those of `OperatorOptions`, such as `parallelism`, `num_cpus` and `disable_chaining`. An operator whose
    `id` is optional gets a generated one if the user gives none.
    """

    @property
    def environment(self) -> StreamEnvironment:
        """The environment of the stream's job."""
        return self._builder.environment

    @checked_with_options
    def process(
        self, id: str, function: ProcessFunction[T_co, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]:
        """Run a `ProcessFunction`, which can use side outputs, counters and the watermark.

        Args:
            function: An object; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        keyed = "; call key_by(function) before process" if isinstance(function, KeyedProcessFunction) else ""
        hint = "; for a plain function use map or flat_map" if callable(function) else keyed
        need_object("process", function, ProcessFunction, hint)
        need_methods("process", function, process=("value", "ctx"))
        what, factory = type(function).__name__, partial(ProcessOperator, function)
        return self._builder.add(
            "process", what, factory, self._inputs, id, options, stateful=True, function=function
        )

    @checked_with_options
    def transform(self, id: str, operator: Operator, **options: Unpack[OperatorOptions]) -> DataStream[Any]:
        """Run an operator of your own; see `Operator`.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            operator: An object of a subclass of `Operator`; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        return self._transformed(id, operator, options)

    @checked_with_options
    def assign_timestamps_and_watermarks(
        self,
        strategy: WatermarkStrategy[T_co],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[T_co]:
        """Give each record a timestamp, and let event time advance with the timestamps.

        Event-time windows and timers need timestamps and watermarks, from this call or from a strategy of
        the source. Call this before records are redistributed: after an exchange they may be further out of
        order than the strategy expects.

        Args:
            strategy: For example `WatermarkStrategy.for_bounded_out_of_orderness(5)`, with a timestamp
                column or assigner unless the source gives timestamps.
            **options: See `OperatorOptions`.
        """
        need_object("assign_timestamps_and_watermarks", strategy, WatermarkStrategy)
        if strategy.alignment is not None:
            refuse(
                "assign_timestamps_and_watermarks: only a source can wait for other sources, so give a "
                "strategy with_alignment to the source: from_source(id, source, watermarks=strategy)"
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

    @checked
    def key_by(
        self, key: Callable[[T_co], Any] | str | list[str] | tuple[str, ...]
    ) -> KeyedStream[T_co, Any]:
        """Group by key: records with the same key go to one subtask.

        Records from one sending subtask stay in order.

        The key must be a value with a stable hash: text, bytes, numbers, dates, tuples of these. In columns,
        all nulls are one key; so are all NaNs, and 0.0 and -0.0.

        Args:
            key: The name of a column, or a list of names, for records that are dicts or Arrow batches. It
                may also be a function from a record to its key; Arrow batches then become dicts.
        """
        from penstock.runtime.graph.streams.keyed_stream import (
            KeyedStream,  # loaded only for programs with keys
        )

        selector = _key_selector(key)
        keyed = self._partitioned(Partitioner(Partitioning.KEY_GROUP, selector))
        return KeyedStream(keyed._builder, keyed._inputs, selector)

    @checked
    def window_all(self, assigner: WindowAssigner | RecordWindowAssigner[T_co]) -> AllWindowedStream[T_co]:
        """Group all records by windows, without keys, in one subtask.

        Args:
            assigner: See `KeyedStream.window`.
        """
        return self._all_windowed(WindowSettings.of("window_all", assigner))

    @checked
    def count_window_all(self, size: int, slide: int | None = None) -> AllWindowedStream[T_co]:
        """Group all records by count, without keys, in one subtask.

        Args:
            size: Number of records in a full window.
            slide: See `KeyedStream.count_window`.
        """
        return self._all_windowed(WindowSettings.of_counts("count_window_all", size, slide))

    @checked
    def union(self: DataStream[U], *others: DataStream[U]) -> DataStream[U]:
        """Merge streams; the order of records of different streams is not defined."""
        inputs = list(self._inputs)
        for number, other in enumerate(others, 1):
            if not isinstance(other, DataStream):
                hint = "; call key_by after the union" if type(other).__name__ == "KeyedStream" else ""
                refuse(f"union: argument {number} {no_stream(other)}{hint}")
            if other._builder is not self._builder:
                refuse(f"union: argument {number} is a stream of another StreamEnvironment")
            inputs += other._inputs
        return DataStream(self._builder, tuple(inputs))

    @overload
    def connect(self, other: BroadcastStream[U]) -> BroadcastConnectedStream[T_co, U]: ...  # type: ignore[overload-overlap]

    @overload
    def connect(self, other: DataStream[U]) -> ConnectedStreams[T_co, U]: ...

    @checked
    def connect(
        self, other: DataStream[Any]
    ) -> ConnectedStreams[T_co, Any] | BroadcastConnectedStream[T_co, Any]:
        """Connect this stream to another stream, of records of any type, for an operator that reads both.

        The event time of the result is the lower event time of the two streams. For functions with state by
        key, call `key_by` on both streams first.

        Args:
            other: A stream, or a broadcast stream such as `rules.broadcast()`, for functions with a
                `BroadcastState`.
        """
        from penstock.runtime.graph.streams.connected_streams import (
            BroadcastConnectedStream,
            ConnectedStreams,
        )

        self._check_connects(other)
        if other._is_broadcast:
            return BroadcastConnectedStream(self._builder, self._inputs, other._inputs)
        return ConnectedStreams(self._builder, self._inputs, other._inputs)

    @checked
    def rebalance(self) -> DataStream[T_co]:
        """Spread the records evenly over the subtasks of the next operator."""
        return self._partitioned(Partitioner(Partitioning.REBALANCE))

    @checked
    def broadcast(self) -> BroadcastStream[T_co]:
        """Send every record to all subtasks of the next operator.

        Give the result to `connect`, for a function that keeps the records in a `BroadcastState`.
        """
        broadcast = self._partitioned(Partitioner(Partitioning.BROADCAST))
        return BroadcastStream(self._builder, broadcast._inputs)

    @overload
    def partition_custom(
        self, function: Callable[[T_co, int], int], *, batch_format: Literal["rows"] = "rows"
    ) -> DataStream[T_co]: ...

    @overload
    def partition_custom(
        self, function: Callable[[pa.RecordBatch, int], Any], *, batch_format: Literal["arrow"]
    ) -> DataStream[T_co]: ...

    @checked
    def partition_custom(
        self, function: Callable[[Any, int], Any], *, batch_format: BatchFormat = "rows"
    ) -> DataStream[T_co]:
        """Send each record to the subtask of the next operator that a function chooses.

        Barriers do not overtake records on this exchange, so unaligned checkpoints hold none of its data. At
        another parallelism the function gets the new number of subtasks.

        Args:
            function: Takes a record and the number of subtasks, and returns the index of a subtask, from 0.
                An index out of range fails the subtask; the error names the record, or the row of a batch.
            batch_format: With `"arrow"` the function takes a `pyarrow.RecordBatch` and the number of
                subtasks, and returns an array of whole numbers, one for each row. Rows must then be dicts.
                Records keep their own format.

        Example:
            >>> from penstock import StreamEnvironment
            >>> numbers = StreamEnvironment("numbers").from_collection("numbers", range(6))
            >>> parted = numbers.partition_custom(lambda number, subtasks: number // 2 % subtasks)
        """
        need_function("partition_custom", function, "record", "subtasks")
        if batch_format not in get_args(BatchFormat):
            refuse(f"partition_custom: batch_format must be 'rows' or 'arrow', not {batch_format!r:.80}")
        return self._partitioned(Partitioner(Partitioning.CUSTOM, function, batch_format))

    @checked_with_options
    def split(
        self,
        predicates: Mapping[str, Callable[[T_co], object] | pc.Expression],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> dict[str, DataStream[T_co]]:
        """Split the stream: each record goes to the result of the first predicate that is true for it.

        Args:
            predicates: Functions of a record, or expressions of columns, by the name of the result. With
                expressions Arrow batches stay Arrow batches. Null is not true.
            **options: See `OperatorOptions`.

        Returns:
            A stream for each predicate, by its name, and `"rest"` with the records that match none.

        Example:
            >>> from penstock import CollectSink, GeneratorSource, StreamEnvironment
            >>> env = StreamEnvironment("orders")
            >>> numbers = env.from_source("numbers", GeneratorSource(lambda i: i, count=6))
            >>> parts = numbers.split({"small": lambda n: n < 2, "even": lambda n: n % 2 == 0})
            >>> sorted(parts)
            ['even', 'rest', 'small']
        """
        what, by_tag, factory = _split(predicates)
        tags = tuple(by_tag)
        rest = self._builder.add("split", what, factory, self._inputs, id, options, side_outputs=tags)
        return {name: rest.side_output(name) for name in predicates} | {REST: rest}

    @checked
    def side_output(self, tag: OutputTag[R] | str) -> DataStream[R]:
        """Return a side output of the operator that emits this stream.

        A source emits unreadable records under `dead_letters`. A window emits late records under
        `late_records`. A process function emits the values that it passes to `ctx.output`.

        Args:
            tag: An `OutputTag` of the function's class, or the name of a side output.
        """
        if len(self._inputs) != 1 or self._inputs[0] != Upstream(self._inputs[0].node):
            refuse(
                "side_output: take it right after the operator that emits it, "
                "before any union, rebalance, broadcast or other side_output"
            )
        producer = self._builder.graph.node(self._inputs[0].node)
        tags, name = producer.side_outputs, tag_name(tag)
        if name not in tags:
            has = f"its side outputs are {', '.join(map(repr, tags))}" if tags else "it has none"
            refuse(f"side_output: {producer.operator.name} has no side output {name!r}; {has}")
        return DataStream(self._builder, (replace(self._inputs[0], tag=name),))

    @checked
    def dead_letters(self) -> DataStream[DeadLetter]:
        """Return the records that the source could not read, with the reasons.

        A setting of the source decides whether it emits bad records here, skips them or fails.
        """
        return self.side_output(DEAD_LETTERS)

    @checked_with_options
    def sink(self, id: str, sink: Sink[T_co], **options: Unpack[OperatorOptions]) -> None:
        """Write every record to `sink`; the id must stay the same when the program changes."""
        need_object("sink", sink, Sink, ": it has no method `writer(context)`")
        check_sink(self._builder.graph, self._inputs, id, sink)
        what = type(sink).__name__
        if isinstance(sink, HasCommitter):
            staging = partial(StagingOperator, sink)
            written = self._builder.add(
                "sink", what, staging, self._inputs, id, options, is_sink=True, has_committer=True
            )
            inputs = written._partitioned(Partitioner(Partitioning.GLOBAL))._inputs
            single: OperatorOptions = {"parallelism": 1, "start_new_chain": True}
            committer = partial(CommitterOperator, sink)
            self._builder.add(
                "commit",
                what,
                committer,
                inputs,
                id + COMMITTER_SUFFIX,
                single,
                stateful=True,
                is_committer=True,
            )
        else:
            factory = partial(SinkOperator, sink)
            self._builder.add("sink", what, factory, self._inputs, id, options, is_sink=True)
        if isinstance(sink, TakesSchema):
            sink.take_schema(self._builder.graph.schema_of(self._inputs))

    if not TYPE_CHECKING:  # a type checker must still refuse unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain where the methods of keyed and windowed streams are."""
            from penstock.runtime.graph.streams.keyed_stream import KeyedStream, WindowedStream

            if name.startswith("_") or not (hasattr(KeyedStream, name) or hasattr(WindowedStream, name)):
                refuse_foreign_method(type(self).__name__, name, 'key_by("column").')
                raise unknown_attribute(self, name)
            first = "key_by(function)" if hasattr(KeyedStream, name) else "key_by(function).window(assigner)"
            msg = f"a DataStream has no {name}: group it with {first} first"
            raise WrongStreamError(msg)

    def __repr__(self) -> str:
        operators = (self._builder.graph.node(upstream.node).operator for upstream in self._inputs)
        return f"{type(self).__name__}({', '.join(one.id or one.name for one in operators)})"

    def _all_windowed(self, settings: WindowSettings) -> AllWindowedStream[T_co]:
        from penstock.runtime.graph.streams.windowed_stream import AllWindowedStream

        key = NoKey()
        inputs = self._partitioned(Partitioner(Partitioning.KEY_GROUP, key))._inputs
        return AllWindowedStream(self._builder, inputs, key, settings)

    def _check_connects(self, other: object) -> None:
        if not isinstance(other, DataStream):
            hint = ""
            if type(other).__name__ == "KeyedStream":
                hint = (
                    "; call key_by on both streams, or on neither. To apply rules to data, don't key the "
                    "rules: data.connect(rules.broadcast())"
                )
            refuse(f"connect: the argument {no_stream(other)}{hint}")
        if other._builder is not self._builder:
            refuse("connect: the argument is a stream of another StreamEnvironment")
        if not other._is_broadcast and any(upstream.is_broadcast for upstream in other._inputs):
            refuse(
                "connect: part of the second stream is broadcast: call broadcast() on all of it, or on none"
            )

    def _partitioned(self, partitioner: Partitioner) -> DataStream[T_co]:
        is_other = partitioner.partitioning is not Partitioning.BROADCAST
        if is_other and any(upstream.is_broadcast for upstream in self._inputs):
            refuse(
                "broadcast() came before this call, which would lose the copies for all subtasks: leave "
                "broadcast() out, or connect the broadcast stream to the other stream: "
                "data.connect(rules.broadcast())"
            )
        inputs = tuple(replace(upstream, partitioner=partitioner) for upstream in self._inputs)
        return DataStream(self._builder, inputs)


class BroadcastStream(DataStream[T_co]):
    """A stream whose records go to all subtasks of the next operator; made by `DataStream.broadcast`."""


def _key_selector(key: Any) -> Callable[[Any], Any]:
    with refusals("key_by"):
        named = as_column_key(key)
    if named is not None:
        return named
    need_function("key_by", key, "record")
    function: Callable[[Any], Any] = key
    return function
