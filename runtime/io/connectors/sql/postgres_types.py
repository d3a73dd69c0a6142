"""Maps types of PostgreSQL to Arrow's, and converts values to and from the CSV that `COPY` uses."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.types as kinds

from penstock.runtime.io.connectors.sql.database import Column, Values

#: Name, id of the type, precision and scale of a column of a query.
QueryColumn: TypeAlias = tuple[str, int, int | None, int | None]

_ARROW: Final = {
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": pa.int64(),
    "oid": pa.int64(),
    "float4": pa.float32(),
    "float8": pa.float64(),
    "bool": pa.bool_(),
    "text": pa.string(),
    "varchar": pa.string(),
    "bpchar": pa.string(),
    "name": pa.string(),
    "bytea": pa.binary(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
}
#: Ids of these types, which PostgreSQL never changes.
_BY_ID: Final = {
    21: "int2",
    23: "int4",
    20: "int8",
    26: "oid",
    700: "float4",
    701: "float8",
    16: "bool",
    25: "text",
    1043: "varchar",
    1042: "bpchar",
    19: "name",
    17: "bytea",
    1082: "date",
    1083: "time",
    1114: "timestamp",
    1184: "timestamptz",
}
_NUMERIC: Final = 1700
_MOST_DIGITS: Final = 38
_PLAIN: Final = frozenset(
    ["int2", "int4", "int8", "text", "varchar", "bool", "date", "timestamp", "timestamptz", "bytea"]
)


def is_plain(type_name: str, modifier: int) -> bool:
    """Whether PostgreSQL and Arrow agree on which values of a type are equal.

    A modifier, such as a length or a precision, may make PostgreSQL store different values as equal ones.
    """
    return type_name in _PLAIN and modifier < 0


def arrow_type(type_name: str, modifier: int) -> pa.DataType | None:
    """The Arrow type of a column; `None` for a type whose values are transferred as text."""
    if type_name == "numeric" and modifier >= 0:
        precision, scale = (modifier - 4) >> 16 & 0xFFFF, (modifier - 4) & 0x7FF
        return _decimal(precision, scale)
    return _ARROW.get(type_name)


def _decimal(precision: int | None, scale: int | None) -> pa.DataType | None:
    if precision is None or scale is None or precision > _MOST_DIGITS or scale > precision:
        return None
    return pa.decimal128(precision, scale)


def as_text(column: Column, values: Values) -> pa.Array:
    """Convert values to an Arrow array whose CSV PostgreSQL can read.

    Raises:
        ValueError: A value does not fit the column.
        TypeError: A value has a type that the column can't hold.
    """
    kind = column.arrow
    if kind is None:
        listed = values if not isinstance(values, pa.Array) else values.to_pylist()
        return pa.array(
            [None if value is None else _text(column.kind, value) for value in listed], pa.string()
        )
    if isinstance(values, pa.Array):
        if kinds.is_date(kind) and kinds.is_timestamp(values.type):
            msg = "a timestamp would lose its time: cast it to a date first"
            raise ValueError(msg)
        array = values.cast(kind)
    else:
        _check_not_cut(column, values)
        array = pa.array(values, kind)
    if kinds.is_binary(kind):
        hexed = [None if value is None else "\\x" + value.hex() for value in array.to_pylist()]
        return pa.array(hexed, pa.string())
    return array


def _check_not_cut(column: Column, values: Sequence[Any]) -> None:
    """Refuse values that Arrow would truncate: fractions in integer columns, times of day in date columns."""
    if kinds.is_integer(column.arrow):
        cut: Any = next((v for v in values if isinstance(v, float | Decimal) and not _is_whole(v)), None)
    elif kinds.is_date(column.arrow):
        cut = next((v for v in values if isinstance(v, datetime)), None)
    else:
        return
    if cut is not None:
        msg = f"{cut!r} would be truncated"
        raise ValueError(msg)


def _is_whole(value: float | Decimal) -> bool:
    if isinstance(value, float):
        return value.is_integer()
    return value.is_finite() and value == value.to_integral_value()


def _text(kind: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    if kind in ("json", "jsonb"):
        return json.dumps(value, allow_nan=False)
    if isinstance(value, list | tuple) and kind.endswith("[]"):
        return _array_text(kind, value)
    if isinstance(value, timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    if isinstance(value, dict | list | tuple | set | bytes):
        msg = f"a value of type {type(value).__name__} can't be stored as {kind}"
        raise TypeError(msg)
    return str(value)


def _array_text(kind: str, values: Sequence[Any]) -> str:
    parts = []
    for value in values:
        if value is None:
            parts.append("NULL")
        elif isinstance(value, list | tuple):
            parts.append(_array_text(kind, value))
        else:
            text = _text(kind.removesuffix("[]"), value)
            escaped = text.replace("\\", "\\\\").replace('"', '\\"')
            parts.append(f'"{escaped}"')
    return "{" + ",".join(parts) + "}"


def from_text(data: bytes, columns: Sequence[QueryColumn]) -> pa.Table:
    """Read the CSV output of `COPY`."""
    types: dict[str, Any] = {}
    for name, type_id, precision, scale in columns:
        kind = _decimal(precision, scale) if type_id == _NUMERIC else _ARROW.get(_BY_ID.get(type_id, ""))
        types[name] = kind or pa.string()
    if not data:
        return pa.schema(list(types.items())).empty_table()
    read = {name: pa.string() if kinds.is_binary(kind) else kind for name, kind in types.items()}
    table = csv.read_csv(
        io.BytesIO(data),
        csv.ReadOptions(column_names=list(types), use_threads=False, block_size=1 << 26),
        csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        csv.ConvertOptions(
            column_types=read,
            null_values=[""],
            true_values=["t"],
            false_values=["f"],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    for index, (name, kind) in enumerate(types.items()):
        if kinds.is_binary(kind):
            plain = [None if v is None else bytes.fromhex(v[2:]) for v in table.column(name).to_pylist()]
            table = table.set_column(index, name, pa.array(plain, kind))
    return table
