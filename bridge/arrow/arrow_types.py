"""Which Spark SQL types can be transferred, and as which Arrow types.

The types are those that Spark itself uses when it gives columns to Python workers. A column that Spark can't
give them is refused by its name when the graph is built, and not in the middle of a job.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.bridge.arrow.session_zone import is_known
from penstock.runtime.errors import GraphError

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

_PLAIN: Final = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


class UnsupportedTypeError(GraphError):
    """A column has a type that can't be transferred."""


def arrow_schema(schema: StructType, time_zone: str) -> pa.Schema:
    """The Arrow schema in which rows of a DataFrame are transferred.

    Args:
        schema: The DataFrame's schema.
        time_zone: Spark's session time zone; timestamps carry it, those without a zone none.

    Raises:
        UnsupportedTypeError: A column can't be transferred; the message names it and says what to do.
    """
    if not len(schema):
        msg = "the DataFrame has no columns, so there is nothing to transfer"
        raise UnsupportedTypeError(msg)
    _refuse_doubles(schema, "the DataFrame")
    return pa.schema([_field(field, field.name, time_zone) for field in schema])


def _field(field: Any, path: str, time_zone: str) -> pa.Field:
    return _named(field.name, arrow_type(field.dataType, path, time_zone), nullable=field.nullable)


def _named(name: str, kind: pa.DataType, *, nullable: bool) -> pa.Field:
    """A field. Spark says that the elements of `array()` are not null; for Arrow they are."""
    return pa.field(name, kind, nullable or pa.types.is_null(kind))


def arrow_type(kind: DataType, path: str, time_zone: str) -> pa.DataType:
    """The Arrow type of one Spark type.

    Args:
        kind: The Spark type.
        path: Path of the column, for messages.
        time_zone: Spark's session time zone.

    Raises:
        UnsupportedTypeError: It can't be transferred.
    """
    from pyspark.sql import types

    match kind:
        case types.TimestampType():
            return _timestamp(path, time_zone)
        case types.DecimalType():
            return pa.decimal128(kind.precision, kind.scale)
        case types.DayTimeIntervalType():
            return pa.duration("us")
        case types.CharType() | types.VarcharType():
            return pa.string()
        case types.ArrayType():
            element = arrow_type(kind.elementType, f"{path}[]", time_zone)
            return pa.list_(_named("element", element, nullable=kind.containsNull))
        case types.MapType():
            key = arrow_type(kind.keyType, f"{path}.key", time_zone)
            if pa.types.is_null(key):
                _refuse(path, kind, "cast it to a map whose keys have a type")
            value = arrow_type(kind.valueType, f"{path}.value", time_zone)
            return pa.map_(key, _named("value", value, nullable=kind.valueContainsNull))
        case types.StructType():
            _refuse_doubles(kind, f"column '{path}'")
            return pa.struct([_field(field, f"{path}.{field.name}", time_zone) for field in kind])
        case types.UserDefinedType():
            _refuse(path, kind, "convert it to plain columns first")
        case types.YearMonthIntervalType():
            _refuse(path, kind, "cast it to INTERVAL MONTH and that to INT, or to STRING")
    plain = _PLAIN.get(kind.simpleString())
    if plain is None:
        _refuse(path, kind, "cast it to another type, or drop it")
    return plain


def _timestamp(path: str, time_zone: str) -> pa.DataType:
    if not is_known(time_zone):
        msg = (
            f"column '{path}' holds times, and Python does not know Spark's session time zone {time_zone!r}: "
            "set spark.sql.session.timeZone to a name such as 'Europe/Berlin' or '+02:00'"
        )
        raise UnsupportedTypeError(msg)
    return pa.timestamp("us", time_zone)


def _refuse(path: str, kind: DataType, advice: str) -> Any:
    msg = f"column '{path}' has type {kind.simpleString()}, which Arrow can't carry from Spark: {advice}"
    raise UnsupportedTypeError(msg)


def _refuse_doubles(schema: StructType, where: str) -> None:
    twice = [name for name, count in Counter(schema.names).items() if count > 1]
    if twice:
        msg = f"{where} has several columns called {', '.join(map(repr, twice))}: give each its own name"
        raise UnsupportedTypeError(msg)
