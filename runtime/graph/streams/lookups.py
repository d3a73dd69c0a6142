"""Checks the arguments of `lookup`, and adds its operator."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias, get_args

import pyarrow as pa

from penstock.runtime.errors import PenstockError
from penstock.runtime.graph.streams.async_operations import async_settings
from penstock.runtime.graph.streams.checked_call import OperatorOptions, need_function, refusals, refuse
from penstock.runtime.graph.streams.given_function import given_function
from penstock.runtime.graph.streams.joins import check_choice
from penstock.runtime.graph.streams.stream import Stream
from penstock.runtime.operators.joins.asof_join import AsofHow
from penstock.runtime.operators.joins.column_lookup import (
    ColumnLookup,
    ColumnLookupOperator,
    TableLookupOperator,
    check_table,
)
from penstock.runtime.operators.joins.column_records import TableRecords
from penstock.runtime.operators.joins.lookup_join import (
    CacheSettings,
    LookupOperator,
    RowLookup,
    TableOfRecords,
)
from penstock.runtime.operators.joins.output_rows import MergedRows, OutputRows
from penstock.runtime.operators.operator import OperatorFactory
from penstock.runtime.operators.user_code.function_class import FunctionClass, is_function_class
from penstock.runtime.record.column_key import ColumnKey, as_column_key
from penstock.runtime.record.elements import BatchFormat, one_batch
from penstock.runtime.record.row_columns import dicts_of_arrow
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream
    from penstock.runtime.operators.functions.async_call import Retry
    from penstock.runtime.operators.functions.async_map import AsyncSettings

#: Records by key, a table with the key's columns, a function or coroutine function of a key, or a class with
#: a coroutine method `__call__`. Over Arrow batches functions take a batch of keys.
Lookup: TypeAlias = (
    Mapping[Any, Any] | pa.Table | Callable[[Any], Any] | type[Callable[[Any], Awaitable[Any]]]
)

#: Default of the maximum number of concurrent calls per subtask, as for `map_async`.
_CAPACITY: Final = 100


@dataclass(frozen=True)
class LookupSettings:
    """The arguments of a lookup besides table and key; see `JoinOperations.lookup`."""

    how: AsofHow
    cache: int
    ttl: Duration | None
    negative_ttl: Duration | None
    select: Callable[[Any, Any], Any] | None
    suffix: str
    batch_format: BatchFormat
    capacity: int | None
    timeout: Duration | None
    retry: Retry | int | None
    ordered: bool

    def __post_init__(self) -> None:
        check_choice("lookup: how", self.how, get_args(AsofHow))
        check_choice("lookup: batch_format", self.batch_format, get_args(BatchFormat))
        if not isinstance(self.suffix, str) or not self.suffix:
            refuse(f"lookup: suffix must be a non-empty string, not {self.suffix!r:.80}")
        if isinstance(self.cache, bool) or not isinstance(self.cache, int) or self.cache < 0:
            refuse(f"lookup: cache is a number of entries, or 0 for no cache, not {self.cache!r:.80}")

    @property
    def emits_alone(self) -> bool:
        return self.how == "left"

    def cache_settings(self) -> CacheSettings:
        with refusals("lookup"):
            expiry = None if self.ttl is None else seconds_in("ttl", self.ttl, above=0)
            negative = expiry if self.negative_ttl is None else seconds_in("negative_ttl", self.negative_ttl)
        return CacheSettings(self.cache, expiry, negative)

    def calls(self) -> AsyncSettings:
        """Settings of asynchronous calls."""
        if self.batch_format == "arrow" and self.ordered is False:
            refuse(
                "lookup: ordered=False is for rows: an Arrow batch has many keys, so records of a key would "
                "get out of order"
            )
        capacity = _CAPACITY if self.capacity is None else self.capacity
        return async_settings(
            "lookup", capacity, self.timeout, self.retry, self.ordered, batch_format=self.batch_format
        )

    def refuse_calls(self) -> None:
        """Refuse settings that only asynchronous calls have."""
        for name in ("capacity", "timeout", "retry"):
            if getattr(self, name) is not None:
                refuse(f"lookup: {name} is for coroutine functions: declare the function `async def`")
        if self.ordered is not True:
            refuse("lookup: ordered is for coroutine functions; other lookups always keep the order")


def add_lookup(
    stream: Stream,
    table: Lookup,
    on: Callable[[Any], Any] | str | list[str],
    settings: LookupSettings,
    operator_id: str | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    with refusals("lookup"):
        key = on if callable(on) else as_column_key(on)
    if key is None:
        refuse(f"lookup: on is the name of a column, a list of names, or a function, not {on!r:.80}")
    is_table = isinstance(table, Mapping | pa.Table)
    function = None if is_table else _function(table)
    is_async = function is not None and _is_async(function)
    calls = settings.calls() if is_async else None
    if is_async and operator_id is None:
        refuse("lookup: give id=...: records that wait for a coroutine function are state, found by this id")
    if not is_async:
        settings.refuse_calls()
    if settings.batch_format == "arrow":
        factory = _over_columns(table, function, key, settings, calls)
    else:
        factory = _over_rows(table, function, key, settings, calls)
    kind = function.kind if isinstance(function, FunctionClass) else function
    return stream._builder.add(
        "lookup",
        "a table" if kind is None else function_name(kind),
        factory,
        stream._inputs,
        operator_id,
        options,
        stateful=is_async,
        function=function if isinstance(function, FunctionClass) else None,
    )


def _function(function: Any) -> Callable[..., Any] | FunctionClass:
    need_function("lookup", function)
    if is_function_class(function) and inspect.iscoroutinefunction(function.__call__):
        return given_function("lookup", function, (), None)
    plain: Callable[..., Any] = function
    return plain


def _is_async(function: Callable[..., Any] | FunctionClass) -> bool:
    if isinstance(function, FunctionClass):
        return True
    kind = type(function)
    is_object = is_function_class(kind) and inspect.iscoroutinefunction(kind.__call__)
    return is_object or inspect.iscoroutinefunction(function)


def _over_rows(
    table: Any,
    function: Callable[..., Any] | FunctionClass | None,
    key: Callable[[Any], Any],
    settings: LookupSettings,
    calls: AsyncSettings | None,
) -> OperatorFactory:
    make: Callable[[], OutputRows]
    if settings.select is not None:
        need_function("lookup: select", settings.select, "record", "found")
        make = partial(OutputRows, settings.select)
    elif isinstance(key, ColumnKey):
        make = partial(MergedRows, (key, key), settings.suffix)
    else:
        refuse("lookup: with a function as on, give select=function(record, found)")
    cache = None if function is None else settings.cache_settings()
    found = _records(table, key) if function is None else function
    return partial(_row_operator, found, key, make, settings.emits_alone, cache, calls)


def _records(table: Any, key: Callable[[Any], Any]) -> TableOfRecords:
    if not isinstance(table, pa.Table):
        return TableOfRecords(table)
    records: dict[Any, Any] = {}
    _check_table(table, _column_key(key))
    for batch in table.to_batches():
        for row in dicts_of_arrow(batch):
            records[key(row)] = row
    return TableOfRecords(records)


def _column_key(key: Callable[[Any], Any]) -> ColumnKey:
    if not isinstance(key, ColumnKey):
        refuse("lookup: a pyarrow.Table needs on=..., the names of its key columns")
    return key


def _check_table(table: pa.Table, key: ColumnKey) -> None:
    try:
        check_table(table, key, "lookup: the table")
        TableRecords(one_batch(table), key, "lookup: the table")
    except PenstockError as error:
        refuse(str(error))


def _over_columns(
    table: Any,
    function: Callable[..., Any] | FunctionClass | None,
    key: Callable[[Any], Any],
    settings: LookupSettings,
    calls: AsyncSettings | None,
) -> OperatorFactory:
    if not isinstance(key, ColumnKey):
        refuse('lookup: batch_format="arrow" needs a key that names columns, such as on="k", not a function')
    if settings.select is not None:
        refuse('lookup: select is for batch_format="rows"; use select or with_columns after the lookup')
    if function is not None:
        source: Any = settings.cache_settings()
    elif isinstance(table, pa.Table):
        _check_table(table, key)
        source = table
    else:
        refuse('lookup: batch_format="arrow" takes a pyarrow.Table or a function, not a dict of records')
    return partial(_column_operator, function, source, key, settings.suffix, settings.emits_alone, calls)


def _row_operator(
    function: Callable[..., Any] | FunctionClass,
    key: Callable[[Any], Any],
    output: Callable[[], OutputRows],
    emits_alone: bool,
    cache: CacheSettings | None,
    calls: AsyncSettings | None,
) -> Any:
    lookup = RowLookup(key, output(), emits_alone, cache)
    if calls is None:
        assert not isinstance(function, FunctionClass), "classes are for asynchronous calls"
        return LookupOperator(function, lookup)
    # Imported only for asynchronous calls: asyncio is slow to import.
    from penstock.runtime.operators.joins.async_lookup import AsyncLookupOperator

    return AsyncLookupOperator(function, calls, lookup)


def _column_operator(
    function: Callable[..., Any] | FunctionClass | None,
    source: pa.Table | CacheSettings,
    key: ColumnKey,
    suffix: str,
    emits_alone: bool,
    calls: AsyncSettings | None,
) -> Any:
    lookup = ColumnLookup(source, key, suffix, emits_alone)
    if function is None:
        return TableLookupOperator(lookup)
    if calls is None:
        assert not isinstance(function, FunctionClass), "classes are for asynchronous calls"
        return ColumnLookupOperator(function, lookup)
    from penstock.runtime.operators.joins.async_lookup import AsyncColumnLookupOperator

    return AsyncColumnLookupOperator(function, calls, lookup)
