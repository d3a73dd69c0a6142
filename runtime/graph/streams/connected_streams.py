"""Two connected streams: without keys, by key, and with a broadcast stream as the second one.

One operator reads both streams. It knows the stream of each record, so the streams may have records of
different types, unlike in `union`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NoReturn, TypeVar, Unpack

from penstock.runtime.graph.stream_graph import Upstream
from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    WrongStreamError,
    checked_with_options,
    need_function,
    need_methods,
    need_object,
)
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.graph.streams.stream import Stream
from penstock.runtime.names import unknown_attribute
from penstock.runtime.operators.functions.broadcast_process_function import (
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
)
from penstock.runtime.operators.functions.co_process import (
    BroadcastProcessOperator,
    CoFunctionOperator,
    CoProcessOperator,
    KeyedBroadcastProcessOperator,
    KeyedCoProcessOperator,
)
from penstock.runtime.operators.functions.co_process_function import (
    CoProcessFunction,
    KeyedCoProcessFunction,
)
from penstock.runtime.operators.functions.function_operator import FunctionOperator
from penstock.runtime.operators.functions.record_functions import FlatMapOperator, MapOperator
from penstock.runtime.operators.operator import TwoInputOperator
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream

T1 = TypeVar("T1")
T2 = TypeVar("T2")
K = TypeVar("K")
R = TypeVar("R")


class _TwoStreams(Stream):
    """Two streams that one operator with two inputs reads."""

    #: Advice in error messages.
    _next_step: ClassVar[str] = "combine both streams with process(id, function) first"

    def __init__(
        self,
        builder: GraphBuilder,
        first: Iterable[Upstream],
        second: Iterable[Upstream],
        *key_selectors: Callable[[Any], Any],
    ) -> None:
        super().__init__(builder, (*first, *(replace(upstream, input_index=1) for upstream in second)))
        self._key_selectors = key_selectors

    @checked_with_options
    def transform(
        self, id: str, operator: TwoInputOperator, **options: Unpack[OperatorOptions]
    ) -> DataStream[Any]:
        """Run an operator of your own with two inputs; see `TwoInputOperator`.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            operator: An object of a subclass of `TwoInputOperator`; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        return self._transformed(id, operator, options, *self._key_selectors, inputs=2)

    if not TYPE_CHECKING:  # a type checker must still refuse unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain why a method of `DataStream` is missing here."""
            if name.startswith("_") or not hasattr(self._builder.stream_type, name):
                raise unknown_attribute(self, name)
            msg = f"a {type(self).__name__} has no {name}: {self._next_step}"
            raise WrongStreamError(msg)

    def __repr__(self) -> str:
        operators = [self._builder.graph.node(upstream.node).operator for upstream in self._inputs]
        return f"{type(self).__name__}({', '.join(one.id or one.name for one in operators)})"


class ConnectedStreams(_TwoStreams, Generic[T1, T2]):
    """Two streams without keys, which one operator reads; made by `DataStream.connect`.

    Event time is the lower event time of the two streams. A stream that is idle or has ended doesn't hold it
    back. The order between the streams is not defined.
    """

    _next_step = "combine both streams with process(id, function), co_map or co_flat_map first"

    @checked_with_options
    def process(
        self, id: str, function: CoProcessFunction[T1, T2, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]:
        """Run a `CoProcessFunction`, which has a method for each stream.

        Args:
            function: An object; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        is_keyed = isinstance(function, KeyedCoProcessFunction)
        hint = "; for plain functions use co_map or co_flat_map" if callable(function) else ""
        if is_keyed:
            hint = "; call key_by on both streams before connect"
        elif isinstance(function, BroadcastProcessFunction | KeyedBroadcastProcessFunction):
            hint = "; it needs a broadcast stream as the second one: data.connect(rules.broadcast())"
        need_object("process", function, CoProcessFunction, hint)
        need_methods(
            "process", function, process_element1=("value", "ctx"), process_element2=("value", "ctx")
        )
        what, factory = type(function).__name__, partial(CoProcessOperator, function)
        return self._builder.add(
            "process", what, factory, self._inputs, id, options, stateful=True, function=function
        )

    @checked_with_options
    def co_map(
        self,
        first: Callable[[T1], R],
        second: Callable[[T2], R],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]:
        """Replace each record of the first stream with `first(record)`, of the second with `second(record)`.

        Example:
            >>> from penstock.testing import OperatorHarness
            >>> with OperatorHarness.of(lambda a, b: a.connect(b).co_map(str.upper, str)) as harness:
            ...     harness.push(["a"]), harness.push([1], input_index=1)
            (['A'], ['1'])
        """
        return self._co("co_map", MapOperator, (first, second), id, options)

    @checked_with_options
    def co_flat_map(
        self,
        first: Callable[[T1], Iterable[R] | None],
        second: Callable[[T2], Iterable[R] | None],
        *,
        id: str | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]:
        """Replace each record with all results of its stream's function: a list, a generator, or `None`."""
        return self._co("co_flat_map", FlatMapOperator, (first, second), id, options)

    def _co(
        self,
        kind: str,
        operator: type[FunctionOperator],
        functions: tuple[Callable[..., Any], Callable[..., Any]],
        operator_id: str | None,
        options: OperatorOptions,
    ) -> DataStream[Any]:
        for function in functions:
            need_function(kind, function, "record")
        factory = partial(_co_operator, operator, functions)
        names = ", ".join(map(function_name, functions))
        return self._builder.add(kind, names, factory, self._inputs, operator_id, options)


def _co_operator(
    operator: type[FunctionOperator], functions: tuple[Callable[..., Any], Callable[..., Any]]
) -> CoFunctionOperator:
    first, second = functions
    return CoFunctionOperator(operator(first), operator(second))


class KeyedConnectedStreams(_TwoStreams, Generic[K, T1, T2]):
    """Two streams with the same kind of key, which one operator reads; made by `KeyedStream.connect`.

    Records of both streams with the same key are processed in one subtask. Event time is the lower event time
    of the two streams. A stream that is idle or has ended doesn't hold it back. The order between the streams
    is not defined.
    """

    @checked_with_options
    def process(
        self, id: str, function: KeyedCoProcessFunction[K, T1, T2, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]:
        """Run a `KeyedCoProcessFunction`, with state and timers that both streams share.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: An object; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        need_object("process", function, KeyedCoProcessFunction)
        need_methods(
            "process", function, process_element1=("value", "ctx"), process_element2=("value", "ctx")
        )
        factory = partial(KeyedCoProcessOperator, self._key_selectors, function)
        what = type(function).__name__
        return self._builder.add(
            "process", what, factory, self._inputs, id, options, keyed=True, function=function
        )


class BroadcastConnectedStream(_TwoStreams, Generic[T1, T2]):
    """A data stream and a broadcast stream; made by `DataStream.connect(other.broadcast())`.

    Every subtask gets all records of the broadcast stream, and its share of the data. Event time is the lower
    event time of the two streams. A stream that is idle or has ended doesn't hold it back.
    """

    @checked_with_options
    def process(
        self, id: str, function: BroadcastProcessFunction[T1, T2, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]:
        """Run a `BroadcastProcessFunction`.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: An object; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        is_keyed = isinstance(function, KeyedBroadcastProcessFunction)
        hint = "; call key_by on the data before connect" if is_keyed else ""
        need_object("process", function, BroadcastProcessFunction, hint)
        need_methods(
            "process", function, process_element=("value", "ctx"), process_broadcast_element=("value", "ctx")
        )
        what, factory = type(function).__name__, partial(BroadcastProcessOperator, function)
        return self._builder.add(
            "process", what, factory, self._inputs, id, options, stateful=True, function=function
        )


class KeyedBroadcastConnectedStream(_TwoStreams, Generic[K, T1, T2]):
    """A keyed stream and a broadcast stream; made by `KeyedStream.connect(other.broadcast())`.

    It works like a `BroadcastConnectedStream`, and also has state and timers for each key of the data.
    """

    @checked_with_options
    def process(
        self,
        id: str,
        function: KeyedBroadcastProcessFunction[K, T1, T2, R],
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]:
        """Run a `KeyedBroadcastProcessFunction`.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: An object; each subtask works with a copy of it.
            **options: See `OperatorOptions`.
        """
        need_object("process", function, KeyedBroadcastProcessFunction)
        need_methods(
            "process", function, process_element=("value", "ctx"), process_broadcast_element=("value", "ctx")
        )
        factory = partial(KeyedBroadcastProcessOperator, self._key_selectors, function)
        what = type(function).__name__
        return self._builder.add(
            "process", what, factory, self._inputs, id, options, keyed=True, function=function
        )
