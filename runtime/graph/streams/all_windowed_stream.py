"""`AllWindowedStream`: all records of a stream in windows, without keys, in one subtask."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar, Unpack, cast, overload

from penstock.runtime.graph.streams.checked_call import (
    WrongStreamError,
    checked_call,
    need_function,
    need_object,
    refuse,
)
from penstock.runtime.graph.streams.data_stream import DataStream
from penstock.runtime.graph.streams.operator_options import OPTION_NAMES, OperatorOptions
from penstock.runtime.graph.streams.quick_look import picture_of
from penstock.runtime.graph.streams.window_settings import WindowSettings
from penstock.runtime.graph.streams.windowed_stream import WindowedStream
from penstock.runtime.misspelt_names import unknown_attribute
from penstock.runtime.operators.user_code.output_tag import OutputTag
from penstock.runtime.operators.windows.evictor import Evictor
from penstock.runtime.operators.windows.trigger import Trigger
from penstock.runtime.operators.windows.window_contents import AggregateFunction
from penstock.runtime.time.windows import TimeWindow

T = TypeVar("T")
A = TypeVar("A")
V = TypeVar("V")
R = TypeVar("R")

_options = checked_call(OPTION_NAMES)
_plain = checked_call()


class AllWindowedStream(Generic[T]):
    """All records of a stream grouped by windows; made by `DataStream.window_all`.

    One subtask has all windows, so it must keep up with the whole stream. Where that is too much, reduce the
    records by key first, and only the results by `window_all`. See `WindowedStream` for what windows do.
    """

    def __init__(self, windowed: WindowedStream[T, None]) -> None:
        """Made by `DataStream.window_all`, not by users."""
        self._windowed = windowed

    @_plain
    def trigger(self, trigger: Trigger[T]) -> AllWindowedStream[T]:
        """Let a trigger decide when windows emit; see `WindowedStream.trigger`."""
        return AllWindowedStream(self._windowed.trigger(trigger))

    @_plain
    def evictor(self, evictor: Evictor[T]) -> AllWindowedStream[T]:
        """Take records out of a window when it emits; see `WindowedStream.evictor`."""
        return AllWindowedStream(self._windowed.evictor(evictor))

    @_plain
    def allowed_lateness(self, lateness: timedelta | float) -> AllWindowedStream[T]:
        """Keep windows for a while after their end; see `WindowedStream.allowed_lateness`."""
        return AllWindowedStream(self._windowed.allowed_lateness(lateness))

    @_plain
    def side_output_late_data(self, tag: OutputTag[T]) -> AllWindowedStream[T]:
        """Give late records a tag of your own; see `WindowedStream.side_output_late_data`."""
        return AllWindowedStream(self._windowed.side_output_late_data(tag))

    @overload
    def reduce(
        self, id: str, function: Callable[[T, T], T], **options: Unpack[OperatorOptions]
    ) -> DataStream[T]: ...

    @overload
    def reduce(
        self,
        id: str,
        function: Callable[[T, T], T],
        window_function: Callable[[TimeWindow, T], Iterable[R] | None],
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @_options
    def reduce(
        self,
        id: str,
        function: Callable[[T, T], T],
        window_function: Callable[[TimeWindow, T], Iterable[Any] | None] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Combine the records of each window; see `WindowedStream.reduce`.

        Args:
            id: The operator's id; its state is found again under it.
            function: Takes the result so far and the next record, returns the new result.
            window_function: Takes the window and the result, and returns the records to emit.
            **options: See `OperatorOptions`; the parallelism is 1.
        """
        checked = _one_subtask("reduce", options)
        if window_function is None:
            return self._windowed.reduce(id, function, **checked)
        need_function("reduce: window_function", window_function)
        return self._windowed.reduce(id, function, WithoutKey(window_function), **checked)

    @overload
    def aggregate(
        self, id: str, function: AggregateFunction[T, A, R], **options: Unpack[OperatorOptions]
    ) -> DataStream[R]: ...

    @overload
    def aggregate(
        self,
        id: str,
        function: AggregateFunction[T, A, V],
        window_function: Callable[[TimeWindow, V], Iterable[R] | None],
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @_options
    def aggregate(
        self,
        id: str,
        function: AggregateFunction[T, Any, Any],
        window_function: Callable[[TimeWindow, Any], Iterable[Any] | None] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Fold the records of each window into an accumulator; see `WindowedStream.aggregate`.

        Args:
            id: The operator's id; its state is found again under it.
            function: An object; each subtask works with a copy of it.
            window_function: Takes the window and the result, and returns the records to emit.
            **options: See `OperatorOptions`; the parallelism is 1.
        """
        need_object("aggregate", function, AggregateFunction, "; for a plain function use reduce or apply")
        checked = _one_subtask("aggregate", options)
        if window_function is None:
            return self._windowed.aggregate(id, function, **checked)
        need_function("aggregate: window_function", window_function)
        return self._windowed.aggregate(id, function, WithoutKey(window_function), **checked)

    @_options
    def apply(
        self,
        id: str,
        function: Callable[[TimeWindow, list[T]], Iterable[R] | None],
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]:
        """Hand all records of each window to a function; see `WindowedStream.apply`.

        Args:
            id: The operator's id; its state is found again under it.
            function: Takes the window and its records in order of arrival. Returns the records to emit.
            **options: See `OperatorOptions`; the parallelism is 1.
        """
        need_function("apply", function)
        return self._windowed.apply(id, WithoutKey(function), **_one_subtask("apply", options))

    def _repr_html_(self) -> str:
        """What leads to the stream as a picture, in a notebook."""
        return picture_of(self._windowed._builder, self._windowed._inputs, repr(self))

    def __repr__(self) -> str:
        return f"AllWindowedStream({self._windowed._settings})"

    if not TYPE_CHECKING:  # a type checker must go on refusing unknown names

        def __getattr__(self, name: str) -> NoReturn:
            """Explain why a method of `DataStream` is not here."""
            if name.startswith("_") or not hasattr(DataStream, name):
                raise unknown_attribute(self, name)
            msg = (
                f"an AllWindowedStream has no {name}: say what each window emits, with reduce(id, function), "
                "aggregate(id, function) or apply(id, function) first"
            )
            raise WrongStreamError(msg)


class WithoutKey:
    """A function of windows that has no use for the key.

    Example:
        >>> WithoutKey(lambda window, records: len(records))("key", (0, 10), ["a", "b"])
        2
    """

    def __init__(self, function: Callable[[TimeWindow, Any], Any]) -> None:
        self.__wrapped__ = function

    def __call__(self, key: object, window: TimeWindow, contents: Any) -> Any:
        """Call the function without the key."""
        return self.__wrapped__(window, contents)


def window_all(stream: DataStream[T], settings: WindowSettings) -> AllWindowedStream[T]:
    """All records of a stream under one key."""
    keyed = stream.key_by(no_key)
    return AllWindowedStream(WindowedStream(keyed._builder, keyed._inputs, no_key, settings))


def no_key(record: object) -> None:
    """The key of all records."""
    return None


def _one_subtask(call: str, options: OperatorOptions) -> OperatorOptions:
    if options.get("parallelism") not in (None, 1):
        refuse(
            f"{call}: windows without keys run in one subtask, so parallelism {options['parallelism']} can't "
            "be; use key_by(function).window(...) to spread them"
        )
    return cast(OperatorOptions, {**options, "parallelism": 1})
