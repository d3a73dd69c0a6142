"""`WindowedStream`: keyed records in windows of event time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, cast, overload

from penstock.runtime.config.state_backends import StateBackend
from penstock.runtime.graph.stream_graph import Upstream
from penstock.runtime.graph.streams.aggregate import add_windowed_aggregate
from penstock.runtime.graph.streams.checked_call import (
    WrongStreamError,
    checked_call,
    need_function,
    need_object,
    refuse,
)
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.graph.streams.operator_options import OPTION_NAMES, OperatorOptions
from penstock.runtime.misspelt_names import unknown_attribute
from penstock.runtime.operators.aggregation.vectorized_aggregate import AnyAggregate
from penstock.runtime.operators.window import WindowOperator
from penstock.runtime.operators.window_contents import (
    AggregatedContents,
    AggregateFunction,
    ListedContents,
    ReducedContents,
    WindowContents,
)
from penstock.runtime.time.windows import TimeWindow, WindowAssigner
from penstock.runtime.user_location import function_name

T = TypeVar("T")
K = TypeVar("K")
A = TypeVar("A")
R = TypeVar("R")

_options = checked_call(OPTION_NAMES)
_any = checked_call(takes_others=True)


class WindowedStream(Generic[T, K]):
    """Records of type `T` grouped by keys of type `K` and by windows; made by `KeyedStream.window`.

    Each key's window emits once, when event time has passed it; what it emits has the window's last
    microsecond as timestamp. A record that comes later goes to the side output `late_records` of the returned
    stream. It is counted, and dropped if nothing reads that output.
    """

    def __init__(
        self,
        builder: GraphBuilder,
        inputs: tuple[Upstream, ...],
        key_selector: Callable[[T], K],
        assigner: WindowAssigner,
    ) -> None:
        """Made by `KeyedStream.window`, not by users."""
        self._builder = builder
        self._inputs = inputs
        self._key_selector = key_selector
        self._assigner = assigner

    @_options
    def reduce(
        self, id: str, function: Callable[[T, T], T], **options: Unpack[OperatorOptions]
    ) -> DataStream[T]:
        """Combine the records of each key and window; only the result so far is kept.

        Args:
            id: The operator's id; its state is found again under it.
            function: Takes the result so far and the next record, returns the new result. That is a new
                value, or one of the two unchanged, since a record may be in several windows.
            **options: See `OperatorOptions`.
        """
        need_function("reduce", function)
        return self._add(
            id, f"reduce({function_name(function)})", partial(ReducedContents, function), options
        )

    @overload
    def aggregate(
        self, id: str, function: AggregateFunction[T, A, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self,
        id: str,
        *,
        combine: bool = True,
        parallelism: int | None = None,
        num_cpus: float | None = None,
        num_gpus: float | None = None,
        start_new_chain: bool = False,
        disable_chaining: bool = False,
        state_backend: StateBackend | None = None,
        **functions: AnyAggregate,
    ) -> DataStream[dict[str, Any]]: ...

    @_any
    def aggregate(self, id: str, function: Any = None, **named: Any) -> DataStream[Any]:
        """Fold the records of each key and window into an accumulator, and emit its result.

        With named functions of columns, as in `aggregate("sums", total=Sum("amount"))`, the stream must be
        keyed by the names of columns. A record of the result then has the key's columns, `window_start` and
        `window_end`, and one column for each function.

        Args:
            id: The operator's id; its state is found again under it.
            function: An object; each subtask works with a copy of it. It may change its accumulator in place,
                but not the records.
            **named: Functions of columns by the name of their result, and the options of `OperatorOptions`.
                By default records are reduced by key and window before they are sent, as long as that makes
                them fewer; not so with `combine=False`.
        """
        options = cast(OperatorOptions, {name: named.pop(name) for name in OPTION_NAMES if name in named})
        if function is None:
            combine = named.pop("combine", True)
            if not isinstance(combine, bool):
                refuse(f"aggregate: combine is True or False, not {combine!r:.80}")
            added = add_windowed_aggregate(
                self._builder,
                self._inputs,
                id,
                self._key_selector,
                self._assigner,
                named,
                options,
                combine=combine,
            )
            return DataStream(self._builder, (added,))
        if named:
            names = ", ".join(named)
            refuse(f"aggregate: give one AggregateFunction or functions of columns ({names}), not both")
        need_object("aggregate", function, AggregateFunction, "; for a plain function use reduce or apply")
        what = f"aggregate({type(function).__name__})"
        return self._add(id, what, partial(AggregatedContents, function), options)

    @_options
    def apply(
        self,
        id: str,
        function: Callable[[K, TimeWindow, list[T]], Iterable[R] | None],
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]:
        """Hand all records of each key and window to a function; they are kept until then.

        Args:
            id: The operator's id; its state is found again under it.
            function: Takes the key, the window and its records in order of arrival. Returns the records to
                emit: a list, a generator, or `None` for none. Windows that overlap share their
                records: make new ones, and leave these as they are.
            **options: See `OperatorOptions`.
        """
        need_function("apply", function)
        return self._add(id, f"apply({function_name(function)})", partial(ListedContents, function), options)

    def _add(
        self, operator_id: str, what: str, contents: Callable[[], WindowContents], options: OperatorOptions
    ) -> DataStream[Any]:
        factory = partial(WindowOperator, self._key_selector, self._assigner, contents)
        described = f"{self._assigner!r}, {what}"
        added = self._builder.add(
            "window", described, factory, self._inputs, operator_id, options, stateful=True, keyed=True
        )
        return DataStream(self._builder, (added,))

    def __repr__(self) -> str:
        return f"WindowedStream({function_name(self._key_selector)}, {self._assigner!r})"

    if not TYPE_CHECKING:  # a type checker must go on refusing unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain why a method of `DataStream` is not here."""
            if name.startswith("_") or not hasattr(DataStream, name):
                raise unknown_attribute(self, name)
            msg = (
                f"a WindowedStream has no {name}: say what each window emits, with reduce(id, function), "
                "aggregate(id, function) or apply(id, function) first"
            )
            raise WrongStreamError(msg)
