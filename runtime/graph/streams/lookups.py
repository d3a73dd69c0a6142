"""`lookup` of streams: checks of its arguments, and the operator."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, get_args

import pyarrow as pa

from penstock.runtime.graph.streams.checked_call import OperatorOptions, need_function, refusals, refuse
from penstock.runtime.graph.streams.joins import check_choice
from penstock.runtime.graph.streams.stream import Stream
from penstock.runtime.operators.joins.asof_join import AsofHow
from penstock.runtime.operators.joins.lookup_join import CacheSettings, LookupOperator, TableOfRecords
from penstock.runtime.operators.joins.output_rows import MergedRows, OutputRows
from penstock.runtime.record.column_key import ColumnKey, as_column_key
from penstock.runtime.record.row_columns import dicts_of_arrow
from penstock.runtime.time.durations import Duration, seconds_in
from penstock.runtime.user_location import function_name

if TYPE_CHECKING:
    from penstock.runtime.graph.streams.data_stream import DataStream

#: Records by key, a table with columns of the key, or a function of a key.
Lookup: TypeAlias = Mapping[Any, Any] | pa.Table | Callable[[Any], Any]


def add_lookup(
    stream: Stream,
    table: Lookup,
    on: Callable[[Any], Any] | str | list[str],
    how: AsofHow,
    cache: int,
    ttl: Duration | None,
    negative_ttl: Duration | None,
    select: Callable[[Any, Any], Any] | None,
    suffix: str,
    operator_id: str | None,
    options: OperatorOptions,
) -> DataStream[Any]:
    check_choice("lookup: how", how, get_args(AsofHow))
    if not isinstance(suffix, str) or not suffix:
        refuse(f"lookup: suffix must be a string that is not empty, not {suffix!r:.80}")
    if isinstance(cache, bool) or not isinstance(cache, int) or cache < 0:
        refuse(f"lookup: cache is a number of entries, or 0 for no cache, not {cache!r:.80}")
    with refusals("lookup"):
        expiry = None if ttl is None else seconds_in("ttl", ttl, above=0)
        negative = expiry if negative_ttl is None else seconds_in("negative_ttl", negative_ttl)
        key = on if callable(on) else as_column_key(on)
    if key is None:
        refuse(f"lookup: on is the name of a column, a list of names, or a function, not {on!r:.80}")
    function = _function(table, key)
    make: Callable[[], OutputRows]
    if select is not None:
        need_function("lookup: select", select)
        make = partial(OutputRows, select)
    elif isinstance(key, ColumnKey):
        make = partial(MergedRows, (key, key), suffix)
    else:
        refuse("lookup: with a function as on, give select=function(record, found)")
    is_table = isinstance(function, TableOfRecords)
    settings = None if is_table else CacheSettings(cache, expiry, negative)
    factory = partial(_operator, function, key, make, how == "left", settings)
    what = "a table" if is_table else function_name(function)
    return stream._builder.add("lookup", what, factory, stream._inputs, operator_id, options)


def _function(table: Any, key: Callable[[Any], Any]) -> Callable[[Any], Any]:
    if isinstance(table, pa.Table):
        if not isinstance(key, ColumnKey):
            refuse("lookup: a pyarrow.Table needs on=..., the names of its columns that are the key")
        records: dict[Any, Any] = {}
        for batch in table.to_batches():
            for row in dicts_of_arrow(batch):
                if records.setdefault(key(row), row) is not row:
                    refuse(f"lookup: the table has the key {key(row)!r:.80} twice")
        return TableOfRecords(records)
    if isinstance(table, Mapping):
        return TableOfRecords(table)
    need_function("lookup", table)
    if inspect.iscoroutinefunction(table):
        refuse("lookup: the function is declared `async def`; call it with map_async, or declare it `def`")
    function: Callable[[Any], Any] = table
    return function


def _operator(
    function: Callable[[Any], Any],
    key: Callable[[Any], Any],
    output: Callable[[], OutputRows],
    emits_alone: bool,
    cache: CacheSettings | None,
) -> LookupOperator:
    return LookupOperator(function, key, output(), emits_alone, cache)
