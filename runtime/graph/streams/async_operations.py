"""`map_async` of streams with and without keys: checks its arguments, and adds its operator."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, get_args, overload

import pyarrow as pa

from penstock.runtime.graph.streams.checked_call import (
    OperatorOptions,
    check_flag,
    checked_with_options,
    need_function,
    refusals,
    refuse,
)
from penstock.runtime.graph.streams.given_function import FunctionObject, given_function
from penstock.runtime.graph.streams.stream import QuickLooks, Stream
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.user_location import function_location, function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream
    from penstock.runtime.operators.functions.async_call import Retry
    from penstock.runtime.operators.functions.async_map import AsyncSettings

T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")

#: Seconds that an incomplete batch waits by default.
_LINGER = 0.01

#: Maximum of `capacity` and of `batch`; records in flight are kept in memory and in every checkpoint.
_MOST_CALLS = 1_000_000


def add_map_async(
    stream: Stream,
    function: Callable[..., Any],
    id: str,
    options: OperatorOptions,
    *,
    capacity: int,
    timeout: Duration | None,
    retry: Retry | int | None,
    ordered: bool,
    on_timeout: Callable[[Any], Any] | None,
    batch: int | None,
    linger: Duration | None,
    batch_format: BatchFormat = "rows",
    fn_constructor_args: Iterable[Any] = (),
    fn_constructor_kwargs: Mapping[str, Any] | None = None,
    key_selector: Callable[[Any], Any] | None = None,
) -> DataStream[Any]:
    """Add the operator of a `map_async`; the methods of the streams describe the arguments."""
    # Loaded only for programs with asynchronous calls, because loading asyncio takes time.
    from penstock.runtime.operators.functions.async_map import AsyncMapOperator
    from penstock.runtime.operators.functions.keyed_async_map import KeyedAsyncMapOperator

    given = given_function("map_async", function, fn_constructor_args, fn_constructor_kwargs)
    check_coroutine("map_async", given.kind.__call__ if isinstance(given, FunctionClass) else given)
    settings = async_settings(
        "map_async", capacity, timeout, retry, ordered, on_timeout, batch, linger, batch_format
    )
    factory = (
        partial(AsyncMapOperator, given, settings)
        if key_selector is None
        else partial(KeyedAsyncMapOperator, key_selector, given, settings)
    )
    name = function_name(given.kind if isinstance(given, FunctionClass) else given)
    return stream._builder.add(
        "map_async",
        name,
        factory,
        stream._inputs,
        id,
        options,
        stateful=True,
        keyed=key_selector is not None,
        function=given if isinstance(given, FunctionClass) else None,
    )


def async_settings(
    call: str,
    capacity: int,
    timeout: Duration | None,
    retry: Retry | int | None,
    ordered: bool,
    on_timeout: Callable[[Any], Any] | None = None,
    batch: int | None = None,
    linger: Duration | None = None,
    batch_format: BatchFormat = "rows",
) -> AsyncSettings:
    """Check the arguments of asynchronous calls."""
    from penstock.runtime.operators.functions.async_call import Retry
    from penstock.runtime.operators.functions.async_map import AsyncSettings

    _check_number(call, "capacity", capacity)
    check_flag(call, "ordered", ordered)
    if batch is not None:
        _check_number(call, "batch", batch)
    if batch_format not in get_args(BatchFormat):
        refuse(f"{call}: batch_format must be 'rows' or 'arrow', not {batch_format!r:.80}")
    if linger is not None and (batch is None or batch_format == "arrow"):
        refuse(f"{call}: linger is for batches of rows: give batch=, and not batch_format='arrow'")
    if on_timeout is not None:
        need_function(f"{call}: on_timeout", on_timeout)
        if timeout is None:
            refuse(f"{call}: on_timeout needs a timeout")
    with refusals(call):
        seconds = None if timeout is None else seconds_in("timeout", timeout, above=0)
        lingers = seconds_in("linger", _LINGER if linger is None else linger)
        if isinstance(retry, int):
            retry = Retry(attempts=retry)
    if retry is not None and not isinstance(retry, Retry):
        refuse(f"{call}: retry must be a number of attempts or a Retry(...), not {retry!r:.80}")
    return AsyncSettings(
        capacity, seconds, retry, ordered, on_timeout, batch, lingers if batch else 0.0, batch_format
    )


def _check_number(call: str, name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_CALLS:
        refuse(f"{call}: {name} must be a whole number from 1 to {_MOST_CALLS:,}, not {value!r:.80}")


def check_coroutine(call: str, function: Callable[..., Any]) -> None:
    """Refuse a function whose result certainly can't be awaited; other wrong functions fail when called."""
    function = inspect.unwrap(function)
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        refuse(f"{call}: {function_location(function)} yields: let it return one result, without `yield`")
    if isinstance(function, type(lambda: 0)) and not inspect.iscoroutinefunction(function):
        plain = inspect.signature(function).return_annotation
        if plain in (bool, int, float, str, bytes, "bool", "int", "float", "str", "bytes"):
            refuse(
                f"{call}: {function_location(function)} is not a coroutine function: declare it "
                "`async def`, or use map"
            )


class AsyncOperations(QuickLooks[T_co]):
    """Methods of a `DataStream` that call coroutines."""

    @overload
    def map_async(
        self,
        function: Callable[[T_co], Awaitable[R]] | type[FunctionObject[T_co, Awaitable[R]]],
        *,
        id: str,
        capacity: int = ...,
        timeout: Duration | None = ...,
        retry: Retry | int | None = ...,
        ordered: bool = ...,
        on_timeout: Callable[[T_co], R | Awaitable[R]] | None = ...,
        fn_constructor_args: Iterable[Any] = ...,
        fn_constructor_kwargs: Mapping[str, Any] | None = ...,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @overload
    def map_async(
        self,
        function: Callable[[list[T_co]], Awaitable[list[R]]]
        | type[FunctionObject[list[T_co], Awaitable[list[R]]]],
        *,
        id: str,
        batch: int,
        linger: Duration | None = ...,
        capacity: int = ...,
        timeout: Duration | None = ...,
        retry: Retry | int | None = ...,
        ordered: bool = ...,
        on_timeout: Callable[[list[T_co]], list[R] | Awaitable[list[R]]] | None = ...,
        fn_constructor_args: Iterable[Any] = ...,
        fn_constructor_kwargs: Mapping[str, Any] | None = ...,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[R]: ...

    @overload
    def map_async(
        self,
        function: Callable[[pa.RecordBatch], Awaitable[pa.RecordBatch]]
        | type[FunctionObject[pa.RecordBatch, Awaitable[pa.RecordBatch]]],
        *,
        id: str,
        batch_format: Literal["arrow"],
        batch: int | None = ...,
        capacity: int = ...,
        timeout: Duration | None = ...,
        retry: Retry | int | None = ...,
        ordered: bool = ...,
        on_timeout: Callable[[pa.RecordBatch], pa.RecordBatch | Awaitable[pa.RecordBatch]] | None = ...,
        fn_constructor_args: Iterable[Any] = ...,
        fn_constructor_kwargs: Mapping[str, Any] | None = ...,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[dict[str, Any]]: ...

    @checked_with_options
    def map_async(
        self,
        function: Callable[..., Any],
        *,
        id: str,
        capacity: int = 100,
        timeout: Duration | None = None,
        retry: Retry | int | None = None,
        ordered: bool = True,
        on_timeout: Callable[[Any], Any] | None = None,
        batch: int | None = None,
        linger: Duration | None = None,
        batch_format: BatchFormat = "rows",
        fn_constructor_args: Iterable[Any] = (),
        fn_constructor_kwargs: Mapping[str, Any] | None = None,
        **options: Unpack[OperatorOptions],
    ) -> DataStream[Any]:
        """Replace each record with the result of a coroutine function; many calls run at once.

        In each subtask the operator has its own event loop. Each checkpoint holds the records whose results
        have not been emitted. After a restore the function is called for them again, with the same
        idempotency key (`async_call`). See `docs/async.md`.

        Args:
            function: A coroutine function, or a function that returns something to await, such as a Ray
                `ObjectRef`. Or a class whose `__call__` is such a function. Its methods `open(context)` and
                `close()` may be coroutine functions, which run on the event loop.
            id: The operator's id; a restore finds the records in flight by this id.
            capacity: Maximum calls of a subtask whose results have not been emitted. At this limit the
                operator takes no input.
            timeout: Maximum duration of a call, including all its tries and pauses; `None` for no limit.
            retry: Number of tries, or a `Retry`. By default the first failure of a call fails the job.
            ordered: Whether results are emitted in the order of the records. Otherwise a result is emitted as
                soon as its call has ended, but never across a watermark.
            on_timeout: Takes the function's argument, and returns the result of a call that has timed out. By
                default a timeout fails the job.
            batch: Maximum records of a call. The function then takes a list of records, and returns a list
                with one result for each record. With Arrow batches it is the maximum number of rows of a
                call.
            linger: Maximum time that an incomplete batch waits for records; 0.01 seconds by default.
            batch_format: With `arrow` the function takes and returns a `pyarrow.RecordBatch`.
            fn_constructor_args: Positional arguments for the constructor of a class.
            fn_constructor_kwargs: Keyword arguments for the constructor of a class.
            **options: See `OperatorOptions`.

        Example:
            >>> import asyncio
            >>> from penstock.testing import OperatorHarness
            >>> async def priced(item):
            ...     await asyncio.sleep(0.1)  # or ask a service
            ...     return item, len(item)
            >>> with OperatorHarness.of(lambda items: items.map_async(priced, id="prices")) as harness:
            ...     harness.push(["tea", "rice"]), harness.advance(0.1)
            ([], [('tea', 3), ('rice', 4)])
        """
        return add_map_async(
            self,
            function,
            id,
            options,
            capacity=capacity,
            timeout=timeout,
            retry=retry,
            ordered=ordered,
            on_timeout=on_timeout,
            batch=batch,
            linger=linger,
            batch_format=batch_format,
            fn_constructor_args=fn_constructor_args,
            fn_constructor_kwargs=fn_constructor_kwargs,
        )
