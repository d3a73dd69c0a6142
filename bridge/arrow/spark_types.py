"""Spark SQL types that can be transferred, and their Arrow types; time zones by names that Python knows.

The types are those that Spark itself uses when it gives columns to Python workers. A column of another type
is refused by its name when the graph is built, not while the job runs.

Spark accepts more time zones than Python, such as `GMT+2`, `Z`, `+5:30` and `PST`. Java translates them.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from penstock.runtime.errors import GraphError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def session_zone(session: SparkSession) -> str:
    """The session's time zone; Spark's own name where Python knows none."""
    name = str(session.conf.get("spark.sql.session.timeZone"))
    if is_known(name):
        return name
    java: Any = session.sparkContext._jvm
    plain = str(java.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name).normalized().getId())
    return "UTC" if plain == "Z" else plain


def is_known(zone: str) -> bool:
    """Whether Python can read times in this zone.

    Example:
        >>> [is_known(zone) for zone in ("UTC", "Asia/Kolkata", "+05:45", "GMT+2")]
        [True, True, True, False]
    """
    try:
        pa.scalar(0, pa.timestamp("us", zone)).as_py()
    except (KeyError, ValueError):
        return False
    return True


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


class UnsupportedTypeError(GraphError): ...


def arrow_schema(schema: StructType, time_zone: str) -> pa.Schema:
    """The Arrow schema in which rows of a DataFrame are transferred.

    Args:
        time_zone: Spark's session time zone. Timestamps carry it, except those without a zone.

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
    """A field. Spark wrongly says that elements of `array()` are not null, so nested values may be null."""
    return pa.field(name, kind, nullable or pa.types.is_null(kind))


def arrow_type(kind: DataType, path: str, time_zone: str) -> pa.DataType:
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


def arrow_schema_of(df: DataFrame) -> pa.Schema:
    """See `arrow_schema`."""
    return arrow_schema(_schema_of(df), session_zone(df.sparkSession))


def _schema_of(df: DataFrame) -> StructType:
    """The schema of a DataFrame; the error names the column whose type PySpark can't read."""
    from pyspark.errors import PySparkValueError
    from pyspark.sql.types import StructField

    try:
        return df.schema
    except PySparkValueError:
        for field in json.loads(df._jdf.schema().json())["fields"]:
            try:
                StructField.fromJson(field)
            except PySparkValueError as error:
                kind = field["type"] if isinstance(field["type"], str) else json.dumps(field["type"])
                msg = (
                    f"column {field['name']!r} has type {kind}, which PySpark can't read and Arrow has no "
                    "type for: convert it to days, to seconds or to text"
                )
                raise UnsupportedTypeError(msg) from error
        raise


def spark_schema_of(schema: pa.Schema) -> StructType:
    """The Spark schema of Arrow batches; timestamps without a zone stay without one."""
    from pyspark.sql.pandas.types import from_arrow_type
    from pyspark.sql.types import StructType

    spark_schema = StructType()
    for field in schema:
        spark_schema.add(field.name, from_arrow_type(field.type, prefer_timestamp_ntz=True), field.nullable)
    return spark_schema
