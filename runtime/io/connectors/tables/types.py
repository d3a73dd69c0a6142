"""Converts Arrow schemas to those that tables can have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.io.connectors.errors import BadRecordError

#: Arrow types that tables lack, and the types that hold their values.
_WIDER: Final[Mapping[pa.DataType, pa.DataType]] = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.float16(): pa.float32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
}

_SAME: Final = frozenset(
    [
        pa.bool_(),
        pa.int8(),
        pa.int16(),
        pa.int32(),
        pa.int64(),
        pa.float32(),
        pa.float64(),
        pa.date32(),
        pa.string(),
        pa.binary(),
    ]
)

_MOST_DIGITS: Final = 38


def table_schema(schema: pa.Schema) -> pa.Schema:
    """Convert each column to a type that a table can have.

    Raises:
        BadRecordError: A column has a type without a counterpart, or two names differ only in case.

    Example:
        >>> table_schema(pa.schema({"n": pa.uint8(), "at": pa.timestamp("ns", "Europe/Paris")})).types
        [DataType(int16), TimestampType(timestamp[us, tz=UTC])]
    """
    if len({name.lower() for name in schema.names}) < len(schema.names):
        msg = (
            "a table needs column names that differ in more than upper and lower case, but the columns are "
            f"{schema.names}"
        )
        raise BadRecordError(msg)
    return pa.schema([_field(field, field.name) for field in schema])


def _field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, _type(field.type, path), field.nullable)


def _type(kind: pa.DataType, path: str) -> pa.DataType:
    if kind in _SAME:
        return kind
    for is_kind, converted in _CONVERSIONS:
        if is_kind(kind):
            return converted(kind, path)
    if kinds.is_null(kind):
        msg = f"column '{path}' has only nulls in the first records, so its type is unknown: give schema="
        raise BadRecordError(msg)
    msg = (
        f"column '{path}' has the Arrow type {kind}, which a table can't have: cast the column to a "
        "number, text, bytes, a date or a timestamp before the sink"
    )
    raise BadRecordError(msg)


def _timestamp(kind: Any, path: str) -> pa.DataType:
    return pa.timestamp("us", None if kind.tz is None else "UTC")


def _list(kind: Any, path: str) -> pa.DataType:
    element = kind.value_field
    return pa.list_(pa.field("element", _type(element.type, f"{path}[]"), element.nullable))


def _map(kind: Any, path: str) -> pa.DataType:
    value = pa.field("value", _type(kind.item_type, f"{path}.value"), kind.item_field.nullable)
    return pa.map_(_type(kind.key_type, f"{path}.key"), value)


def _struct(kind: Any, path: str) -> pa.DataType:
    return pa.struct([_field(field, f"{path}.{field.name}") for field in kind])


_CONVERSIONS: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any, str], pa.DataType]], ...]] = (
    (_WIDER.__contains__, lambda kind, path: _WIDER[kind]),
    (kinds.is_timestamp, _timestamp),
    (kinds.is_dictionary, lambda kind, path: _type(kind.value_type, path)),
    (lambda kind: kinds.is_decimal(kind) and kind.precision <= _MOST_DIGITS,
     lambda kind, path: pa.decimal128(kind.precision, kind.scale)),
    (lambda kind: kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind), _list),
    (kinds.is_map, _map),
    (kinds.is_struct, _struct),
)  # fmt: skip
