"""Arrow batches that Spark reads correctly, and the Arrow types of Spark's columns.

Spark's Arrow reader silently misreads some types: `large_string` gives empty strings, and `timestamp[ns]` is
read as microseconds. So every column is cast to a type that Spark writes itself. A column without such a type
is refused. Two names that differ only in case are also refused, because Spark treats them as one name.

Without a given schema the first batch decides the columns; later batches must fit without loss. Arrow does
not check that a `not null` column holds no nulls, and Spark relies on it. So only a user's schema can declare
`not null` columns, and their values are checked.

From Spark to the job, a column whose type can't be transferred is refused when the graph is built. Spark
accepts time zones that Python does not know, such as `GMT+2` and `PST`. Spark's Java code translates them.

PySpark is imported inside functions only.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.errors import GraphError
from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.record.arrow_values import MisfitError, exact_batch, exact_column
from penstock.runtime.record.elements import ArrowBatch, Batch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType


def cut(batch: pa.RecordBatch, size: int, rows: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of at most `rows` rows, and about `size` bytes by the average size of a row."""
    if not batch.num_rows:
        return
    step = max(1, min(rows, int(size / row_size(batch))))
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def cut_strictly(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Cut a batch into pieces of at most `size` bytes each as an Arrow message, or of one row.

    Rows may differ much in size, so each piece is measured, and halved while it is too large.
    """
    for piece in cut(batch, size, batch.num_rows):
        yield from _halved(piece, size)


def row_size(batch: pa.RecordBatch) -> float:
    """Average bytes per row of a batch that is not sliced; at least one.

    Uses `get_total_buffer_size`, because `nbytes` crashes on the empty maps that Spark writes (Arrow 26).
    """
    size, rows = int(batch.get_total_buffer_size()), int(batch.num_rows)
    return max(1.0, size / max(1, rows))


def with_zeros_under_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace the bytes under nulls, which may be arbitrary, so that equal rows have equal bytes."""
    columns = [_with_zeros_under_nulls(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _with_zeros_under_nulls(column: pa.Array) -> pa.Array:
    kind = column.type
    if kinds.is_struct(kind):
        fields = [_with_zeros_under_nulls(each) for each in column.flatten()]
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=column.is_null())
    has_width = kinds.is_primitive(kind) or kinds.is_decimal(kind) or kinds.is_fixed_size_binary(kind)
    if not column.null_count or not has_width:
        return column
    (zero,) = pa.Array.from_buffers(kind, 1, [None, pa.py_buffer(bytes(-(-kind.bit_width // 8)))])
    filled = column.fill_null(zero).cast(kind)  # of a decimal32 it may make a decimal128
    valid = np.packbits(column.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    return pa.Array.from_buffers(kind, len(column), [pa.py_buffer(valid), filled.buffers()[1]])


def message_size(batch: pa.RecordBatch) -> int:
    """Bytes of a batch, or of a slice of a batch, as an Arrow message."""
    return int(pa.ipc.get_record_batch_size(batch))


def _halved(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    if batch.num_rows == 1 or message_size(batch) <= size:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _halved(batch.slice(0, half), size)
    yield from _halved(batch.slice(half), size)


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
    """The schema with types that Spark reads correctly, and with nullable nested values."""
    _refuse_twins(schema.names, "columns")
    return pa.schema([_readable_field(field, field.name).with_nullable(field.nullable) for field in schema])


def _readable_field(field: pa.Field, path: str) -> pa.Field:
    return pa.field(field.name, readable_type(field.type, path))


def readable_type(kind: pa.DataType, path: str) -> pa.DataType:
    """The equivalent type that Spark reads correctly; `path` names the column in errors."""
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
        return pa.map_(
            readable_type(kind.key_type, f"{path}.key"), _readable_field(kind.item_field, f"{path}.value")
        )
    if kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind):
        return pa.list_(_readable_field(kind.value_field, f"{path}[]"))
    if kinds.is_struct(kind):
        _refuse_twins([field.name for field in kind], f"fields of column '{path}'")
        return pa.struct(
            [_readable_field(kind.field(i), f"{path}.{kind.field(i).name}") for i in range(kind.num_fields)]
        )
    what = "holds only nulls, so its type is not known" if kinds.is_null(kind) else f"has type {kind}"
    msg = f"column '{path}' {what}, but Spark can't read such a column: cast it, or give schema="
    raise BadRecordError(msg)


def _refuse_twins(names: Iterable[str], what: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            twin = seen[name.lower()]
            msg = f"{what} are called {twin!r} and {name!r}, one name for Spark: give each its own name"
            raise BadRecordError(msg)
        seen[name.lower()] = name


_OF_SINK: Final = "the schema{known} of this sink: give schema=, or map the rows before the sink"


class ReadableBatches:
    """Makes Arrow batches that Spark reads correctly from a stream's records.

    Args:
        schema: The schema of all batches; without it the first batch decides, and every column may be null.
        of: End of error messages, after "Rows must fit": the schema's owner, and the remedy. `{known}`
            is replaced by the schema.
        rounds: Whether 64-bit floats of Python are rounded in 32-bit columns. True by default with a schema,
            because the user has declared such columns.
    """

    def __init__(
        self, schema: pa.Schema | None = None, of: str = _OF_SINK, *, rounds: bool | None = None
    ) -> None:
        #: The schema of all batches; `None` before the first batch if no schema was given.
        self.schema = None if schema is None else readable_schema(schema)
        self._rounds = schema is not None if rounds is None else rounds
        self._of = of

    def convert(self, batch: Batch) -> pa.RecordBatch:
        """Convert one batch.

        Raises:
            BadRecordError: A value does not fit the schema without loss, or Spark can't read its type.
        """
        arrow = batch.batch if isinstance(batch, ArrowBatch) else self._of_rows(batch.rows)
        if self.schema is None:
            fields = readable_schema(arrow.schema)
            self.schema = pa.schema([field.with_nullable(True) for field in fields])
        if arrow.schema.equals(self.schema, check_metadata=True):
            return self._without_hidden_nulls(arrow)
        if set(arrow.schema.names) != set(self.schema.names):
            raise BadRecordError(self._misfit(f"a batch has columns {arrow.schema.names}"))
        try:
            return exact_batch(arrow, self.schema)
        except (MisfitError, pa.ArrowException) as error:
            raise BadRecordError(self._misfit(str(error))) from error

    def _without_hidden_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Check the `not null` columns of a batch that needs no cast."""
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if not field.nullable and column.null_count:
                raise BadRecordError(self._misfit(f"column '{field.name}' is 'not null' but holds nulls"))
        return batch

    def _of_rows(self, rows: Sequence[Any]) -> pa.RecordBatch:
        odd = next((row for row in rows if not isinstance(row, Mapping)), None)
        if odd is not None:
            msg = (
                f"a row of type {type(odd).__name__} can't become a row of a DataFrame: rows are dicts from "
                f"column name to value; the row is {shown(odd)}. Map the rows before the sink"
            )
            raise BadRecordError(msg)
        names = list(dict.fromkeys(chain.from_iterable(rows))) if self.schema is None else self.schema.names
        has_all = set(names).issuperset
        unknown = next((row for row in rows if not has_all(row)), None)
        if unknown is not None:
            extra = next(name for name in unknown if name not in names)
            raise BadRecordError(self._misfit(f"a row has a column {extra!r}; the row is {shown(unknown)}"))
        try:
            columns = [self._column(name, rows) for name in names]
        except MisfitError as error:
            raise BadRecordError(self._misfit(str(error))) from error
        return pa.RecordBatch.from_arrays(columns, names)

    def _column(self, name: str, rows: Sequence[Any]) -> pa.Array:
        kind = None if self.schema is None else self.schema.field(name).type
        return exact_column([row.get(name) for row in rows], kind, name, rounds=self._rounds)

    def _misfit(self, what: str) -> str:
        known = "" if self.schema is None else f" {shown(str(self.schema))}"
        of = self._of.replace("{known}", known)
        return f"{what}. Rows must fit {of}"


def session_zone(session: SparkSession) -> str:
    """The session's time zone; Java translates a name that Python does not know."""
    name = str(session.conf.get("spark.sql.session.timeZone"))
    if is_known(name):
        return name
    java: Any = session.sparkContext._jvm
    plain = str(java.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(name).normalized().getId())
    return "UTC" if plain == "Z" else plain


def is_known(zone: str) -> bool:
    """Whether Python can read times in this zone."""
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

#: What to do with types that Arrow can't carry. PySpark 3.5 can't read the type `interval` either.
_ADVICE: Final = {"interval": "convert it to days, to seconds or to text"}


class UnsupportedTypeError(GraphError): ...


def arrow_schema(schema: StructType, time_zone: str) -> pa.Schema:
    """The Arrow schema in which rows of a DataFrame are transferred; raises `UnsupportedTypeError`.

    Args:
        time_zone: Spark's session time zone, used for timestamps except those without a zone.
    """
    if not len(schema):
        msg = "the DataFrame has no columns, so there is nothing to transfer"
        raise UnsupportedTypeError(msg)
    _refuse_doubles(schema, "the DataFrame")
    return pa.schema([_arrow_field(field, field.name, time_zone) for field in schema])


def _arrow_field(field: Any, path: str, time_zone: str) -> pa.Field:
    return _named(field.name, arrow_type(field.dataType, path, time_zone), nullable=field.nullable)


def _named(name: str, kind: pa.DataType, *, nullable: bool) -> pa.Field:
    """Make a field; a field of type null is always nullable, although Spark says otherwise for `array()`."""
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
            return pa.struct([_arrow_field(field, f"{path}.{field.name}", time_zone) for field in kind])
        case types.UserDefinedType():
            _refuse(path, kind, "convert it to plain columns first")
        case types.YearMonthIntervalType():
            _refuse(path, kind, "cast it to INTERVAL MONTH and that to INT, or to STRING")
    plain = _PLAIN.get(kind.simpleString())
    if plain is None:
        _refuse(path, kind, _ADVICE.get(kind.simpleString(), "cast it to another type, or drop it"))
    return plain


def _timestamp(path: str, time_zone: str) -> pa.DataType:
    if not is_known(time_zone):
        msg = (
            f"column '{path}' holds times, but Python does not know Spark's session time zone {time_zone!r}: "
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
                    f"type for: {_ADVICE['interval']}"
                )
                raise UnsupportedTypeError(msg) from error
        raise


def spark_schema_of(schema: pa.Schema) -> StructType:
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=True)
