"""Streams in windows: `WindowedStream` by key, and `AllWindowedStream` of all records in one subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from types import MappingProxyType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Generic,
    NoReturn,
    Self,
    TypeVar,
    TypeVarTuple,
    Unpack,
    cast,
    overload,
)

from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.graph.stream_graph import Upstream
from penstock.runtime.graph.streams.aggregate import add_windowed_aggregate, function_or_columns
from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    WrongStreamError,
    checked,
    checked_with_keywords,
    checked_with_options,
    need_function,
    refuse,
)
from penstock.runtime.graph.streams.foreign_names import refuse_foreign_method
from penstock.runtime.graph.streams.graph_builder import GraphBuilder
from penstock.runtime.graph.streams.stream import Stream
from penstock.runtime.graph.streams.window_settings import WindowSettings
from penstock.runtime.names import unknown_attribute
from penstock.runtime.operators.aggregation.vectorized_aggregate import AnyAggregate
from penstock.runtime.operators.functions.keyed_folds import (
    AggregatedContents,
    AggregateFunction,
    has_merge,
)
from penstock.runtime.operators.user_code.function_class import OutputTag
from penstock.runtime.operators.windows.trigger import Trigger
from penstock.runtime.operators.windows.triggers import Evictor
from penstock.runtime.operators.windows.window_contents import (
    ListedContents,
    ReducedContents,
    WindowContents,
)
from penstock.runtime.time.durations import Duration
from penstock.runtime.time.windows import TimeWindow
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream

T = TypeVar("T")
K = TypeVar("K")
A = TypeVar("A")
V = TypeVar("V")
R = TypeVar("R")
#: Arguments of window functions before the window: the key, or none.
Keys = TypeVarTuple("Keys")


class GroupedStream(Stream):
    """Records in groups; a call of a `DataStream` method raises an error that names the next step."""

    #: Advice in error messages; some methods have their own.
    _next_step: ClassVar[str]
    _next_steps: ClassVar[Mapping[str, str]] = MappingProxyType({})

    def __init__(
        self, builder: GraphBuilder, inputs: tuple[Upstream, ...], key_selector: Callable[[Any], Any]
    ) -> None:
        super().__init__(builder, inputs)
        self._key_selector = key_selector

    if not TYPE_CHECKING:  # a type checker must still refuse unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain why a method of `DataStream` is missing here."""
            if name.startswith("_") or not hasattr(self._builder.stream_type, name):
                refuse_foreign_method(type(self).__name__, name)
                raise unknown_attribute(self, name)
            kind = type(self).__name__
            article = "an" if kind.startswith("A") else "a"
            next_step = self._next_steps.get(name, self._next_step)
            msg = f"{article} {kind} has no {name}: {next_step.format(name)}"
            raise WrongStreamError(msg)


class Windows(GroupedStream, Generic[T, *Keys]):
    """Methods of windowed streams; window functions of a keyed stream take the key first."""

    _next_step = (
        "say what each window emits, with reduce(id, function), aggregate(id, function) or "
        "apply(id, function) first"
    )
    #: Arguments of window functions before the window.
    _key_argument: ClassVar[tuple[str, ...]] = ("key",)

    def __init__(
        self,
        builder: GraphBuilder,
        inputs: tuple[Upstream, ...],
        key_selector: Callable[[T], Any],
        settings: WindowSettings,
    ) -> None:
        super().__init__(builder, inputs, key_selector)
        self._settings = settings

    @checked
    def trigger(self, trigger: Trigger[T]) -> Self:
        """Replace the assigner's trigger, which decides when windows emit.

        Args:
            trigger: Trigger, such as `EventTimeTrigger(early=CountTrigger(100))`; each subtask has a copy.
        """
        return self._with(self._settings.with_trigger(trigger))

    @checked
    def evictor(self, evictor: Evictor[T]) -> Self:
        """Remove records from a window when it emits; only `apply` supports this.

        Args:
            evictor: Evictor, such as `CountEvictor(100)`; each subtask has a copy.
        """
        return self._with(self._settings.with_evictor(evictor))

    @checked
    def allowed_lateness(self, lateness: Duration) -> Self:
        """Keep event-time windows for a while after their end.

        By default, a window emits again for each record that arrives in that time.

        Args:
            lateness: A `timedelta`, or seconds of event time.
        """
        return self._with(self._settings.with_lateness(lateness))

    @checked
    def side_output_late_data(self, tag: OutputTag[T]) -> Self:
        """Give the side output of late records a tag of your own, instead of the name `late_records`.

        Args:
            tag: Tag of the side output; read it with `stream.side_output(tag)` on the result of the windows.
        """
        return self._with(self._settings.with_late_tag(tag))

    @overload
    def reduce(
        self, id: str, function: Callable[[T, T], T], **options: Unpack[OperatorOptions]
    ) -> DataStream[T]: ...

    @overload
    def reduce(
        self,
        id: str,
        function: Callable[[T, T], T],
        window_function: Callable[[Unpack[Keys], TimeWindow, T], Iterable[R] | None],
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @checked_with_options
    def reduce(
        self,
        id: str,
        function: Callable[[T, T], T],
        window_function: Callable[[Unpack[Keys], TimeWindow, T], Iterable[Any] | None] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Combine the records of each window.

        Only the result so far is kept, except in count windows that slide: they keep their last records.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: Takes the result so far and the next record, and returns the new result. It may change
                and return either of the two.
            window_function: Takes the key if there is one, the window and the result. Returns the records to
                emit. Without this function, the result itself is emitted.
            **options: See `OperatorOptions`.
        """
        need_function("reduce", function, "result", "record")
        what = f"reduce({function_name(function)})"
        return self._add(id, "reduce", what, partial(ReducedContents, function), options, window_function)

    @overload
    def aggregate(
        self, id: str, function: AggregateFunction[T, A, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self,
        id: str,
        function: AggregateFunction[T, A, V],
        window_function: Callable[[Unpack[Keys], TimeWindow, V], Iterable[R] | None],
        **options: Unpack[OperatorOptions],
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
        resources: Mapping[str, float] | None = None,
        start_new_chain: bool = False,
        disable_chaining: bool = False,
        state_backend: StateBackend | None = None,
        **functions: AnyAggregate,
    ) -> DataStream[dict[str, Any]]: ...

    @checked_with_keywords
    def aggregate(
        self, id: str, function: Any = None, window_function: Any = None, **named: Any
    ) -> DataStream[Any]:
        """Fold the records of each window into an accumulator, and emit its result.

        With named functions of columns, as in `aggregate("sums", total=Sum("amount"))`, a stream with keys
        must be keyed by the names of columns. A record of the result then has the key's columns,
        `window_start` and `window_end`, and one column for each function.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: An `AggregateFunction`; each subtask works with a copy. It may change its accumulator in
                place. Windows that merge, such as sessions, need its `merge`.
            window_function: Window function, as in `reduce`.
            **named: Functions of columns by the name of their result, and the options of `OperatorOptions`.
                Records are combined by key and window before they are sent, as long as that reduces their
                number; `combine=False` turns this off. Sessions, `CountDistinct` and functions without
                `merge` have no combiner. In overlapping windows, neither have functions that depend on the
                order of records.
        """
        call = function_or_columns(function, named, ("combine",), "apply")
        if call.function is None:
            if window_function is not None:
                refuse("aggregate: a window_function needs an AggregateFunction before it")
            call = call._replace(options=self._checked_options("aggregate", call.options))
            return add_windowed_aggregate(
                self._builder, self._inputs, id, self._key_selector, self._settings, call
            )
        if self._settings.records.is_merging and not has_merge(call.function):
            refuse(
                f"aggregate: windows of {self._settings.assigner!r} merge, so {type(function).__name__} "
                "needs a method merge(first, second), which merges two accumulators"
            )
        what = f"aggregate({type(function).__name__})"
        contents = partial(AggregatedContents, call.function)
        return self._add(id, "aggregate", what, contents, call.options, window_function)

    @checked_with_options
    def apply(
        self,
        id: str,
        function: Callable[[Unpack[Keys], TimeWindow, list[T]], Iterable[R] | None],
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]:
        """Call a function with all records of each window.

        The records are kept until the window is removed, the trigger purges it or an evictor removes them.

        Args:
            id: The operator's id; a restore finds the operator's state by this id.
            function: Takes the key if there is one, the window and its records in order of arrival. When
                windows merge, the records of the earlier window come first. Returns the records to emit: a
                list, a generator, or `None`. The function may change the window's records: overlapping
                windows have separate copies.
            **options: See `OperatorOptions`.
        """
        need_function("apply", function, *self._key_argument, "window", "records")
        what = f"apply({function_name(function)})"
        contents = partial(ListedContents, self._with_key(function))
        return self._add(id, "apply", what, contents, options)

    def _with(self, settings: WindowSettings) -> Self:
        return type(self)(self._builder, self._inputs, self._key_selector, settings)

    def _with_key(self, function: Callable[..., Any]) -> Callable[[Any, TimeWindow, Any], Any]:
        """Return a function that takes a key, the window and its contents, as operators call it."""
        return function

    def _checked_options(self, call: str, options: OperatorOptions) -> OperatorOptions:
        return options

    def _add(
        self,
        operator_id: str | None,
        call: str,
        what: str,
        contents: Callable[..., WindowContents],
        options: OperatorOptions,
        window_function: Callable[..., Any] | None = None,
    ) -> DataStream[Any]:
        if window_function is not None:
            arguments = (*self._key_argument, "window", "result")
            need_function(f"{call}: window_function", window_function, *arguments)
            what += f", {function_name(window_function)}"
            contents = partial(contents, window_function=self._with_key(window_function))
        options = self._checked_options(call, options)
        return self._builder.add(
            "window",
            f"{self._settings}, {what}",
            self._settings.factory(call, self._key_selector, contents),
            self._inputs,
            operator_id,
            options,
            keyed=True,
            side_outputs=(self._settings.late_tag,),
        )


class WindowedStream(Windows[T, K]):
    """Records of type `T` grouped by keys of type `K` and by windows.

    Made by `KeyedStream.window` and `count_window`.

    A window emits when its trigger fires. By default it fires when event time, or processing time, has
    passed the end of the window. Count windows fire after a number of records. Results of event-time windows
    have the window's last microsecond as timestamp; results of other windows have none. In event time, a
    record is late if its windows have ended and their allowed lateness is over. Late records are counted.
    They go to the side output `late_records` of the returned stream, or are dropped if no operator reads that
    output.
    """

    def __repr__(self) -> str:
        return f"WindowedStream({function_name(self._key_selector)}, {self._settings})"


class AllWindowedStream(Windows[T]):
    """All records of a stream grouped by windows; made by `DataStream.window_all` and `count_window_all`.

    One subtask has all windows, so it must keep up with the whole stream. Most aggregates of columns are
    combined before the exchange (see `aggregate`). For other operations, reduce the records by key first, and
    apply `window_all` to the results. The windows behave as in `WindowedStream`.
    """

    _key_argument = ()

    def __repr__(self) -> str:
        return f"AllWindowedStream({self._settings})"

    def _with_key(self, function: Callable[..., Any]) -> Callable[[Any, TimeWindow, Any], Any]:
        return WithoutKey(function)

    def _checked_options(self, call: str, options: OperatorOptions) -> OperatorOptions:
        if options.get("parallelism") not in (None, 1):
            refuse(
                f"{call}: windows without keys run in one subtask, so parallelism {options['parallelism']} "
                "is not possible; use key_by(function).window(...) to spread them"
            )
        return cast(OperatorOptions, {**options, "parallelism": 1})


class WithoutKey:
    """Adapts a window function that takes no key."""

    def __init__(self, function: Callable[[TimeWindow, Any], Any]) -> None:
        self.__wrapped__ = function

    def __call__(self, key: object, window: TimeWindow, contents: Any) -> Any:
        return self.__wrapped__(window, contents)
