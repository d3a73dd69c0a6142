"""Arrow types that Spark reads right, and how other types become such.

Spark's Arrow reader silently misreads some types: `large_string` gives empty strings, and `timestamp[ns]` is
read as microseconds. So every column is cast to a type that Spark writes itself. A column without such a type
is refused by its name. So are names that differ only in case: Spark takes them for one.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.io.connectors.errors import BadRecordError

_SAME: Final = (
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
)
_OTHERS: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.date64(): pa.date32(),
}
#: Maximum precision of a Spark decimal.
_DIGITS: Final = 38


@lru_cache(maxsize=64)
def readable_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as Spark reads it right; nested values may be null.

    Raises:
        BadRecordError: Spark can't read a column; the message names it.

    Example:
        >>> readable_schema(pa.schema({"a": pa.large_string(), "b": pa.timestamp("ns")}))
        a: string
        b: timestamp[us]
    """
    _refuse_twins(schema.names, "columns")
    return pa.schema([_field(field, field.name).with_nullable(field.nullable) for field in schema])


def _field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, readable_type(field.type, path))


def readable_type(kind: pa.DataType, path: str) -> pa.DataType:
    """The type as Spark reads it right; `path` names the column.

    Raises:
        BadRecordError: There is none.
    """
    if kind in _SAME:
        return kind
    if kind in _OTHERS:
        return _OTHERS[kind]
    if kinds.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    if kinds.is_duration(kind):
        return pa.duration("us")
    if kinds.is_decimal(kind) and kind.precision <= _DIGITS and kind.scale >= 0:
        return pa.decimal128(kind.precision, kind.scale)
    if kinds.is_dictionary(kind):
        return readable_type(kind.value_type, path)
    if kinds.is_fixed_size_binary(kind):
        return pa.binary()
    if kinds.is_map(kind):
        return pa.map_(readable_type(kind.key_type, f"{path}.key"), _field(kind.item_field, f"{path}.value"))
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return pa.list_(_field(kind.value_field, f"{path}[]"))
    if kinds.is_struct(kind):
        _refuse_twins([field.name for field in kind], f"fields of column '{path}'")
        return pa.struct(
            [_field(kind.field(i), f"{path}.{kind.field(i).name}") for i in range(kind.num_fields)]
        )
    what = "holds nothing but nulls, so its type is not known" if kinds.is_null(kind) else f"has type {kind}"
    msg = f"column '{path}' {what}, and Spark reads no such column: cast it, or give schema="
    raise BadRecordError(msg)


def _refuse_twins(names: Iterable[str], what: str) -> None:
    """Refuse names that differ only in case: Spark takes them for one unless it is told otherwise."""
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            twin = seen[name.lower()]
            msg = (
                f"{what} are called {twin!r} and {name!r}, which Spark takes for one: give each its own name"
            )
            raise BadRecordError(msg)
        seen[name.lower()] = name
