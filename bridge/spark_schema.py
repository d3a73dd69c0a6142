"""Arrow types that Spark reads right, and how the others become such.

Spark's reader of Arrow takes some types for others without a word: `large_string` gives empty strings and
`timestamp[ns]` is read as microseconds. So everything is cast to the types that Spark writes itself before it
leaves, and what has no such type is refused by the name of the column.

Arrow does not check that a column which is `not null` holds no nulls, and Spark takes its word for it. So
only a schema that the user gives makes such columns, and their values are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.record.elements import ArrowBatch, Batch

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
#: The most digits that a decimal of Spark has.
_DIGITS: Final = 38


@lru_cache(maxsize=64)
def readable_schema(schema: pa.Schema) -> pa.Schema:
    """The schema as Spark reads it right; what is nested may be null.

    Raises:
        BadRecordError: A column can't be read by Spark; the message names it.

    Example:
        >>> readable_schema(pa.schema({"a": pa.large_string(), "b": pa.timestamp("ns")}))
        a: string
        b: timestamp[us]
    """
    if len(set(schema.names)) < len(schema.names):
        msg = f"columns {schema.names} are not all different; Spark needs a name for each"
        raise BadRecordError(msg)
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
        return pa.struct(
            [_field(kind.field(i), f"{path}.{kind.field(i).name}") for i in range(kind.num_fields)]
        )
    what = "holds nothing but nulls, so its type is not known" if kinds.is_null(kind) else f"has type {kind}"
    msg = f"column '{path}' {what}, and Spark reads no such column: cast it, or give schema="
    raise BadRecordError(msg)


class ReadableBatches:
    """Makes Arrow batches that Spark reads right of whatever a stream carries.

    Args:
        schema: The schema of all of them; without one the first batch decides, and every column may be null.

    Example:
        >>> from penstock.runtime import RowBatch
        >>> ReadableBatches().convert(RowBatch([{"a": 1, "b": "x"}])).schema.names
        ['a', 'b']
    """

    def __init__(self, schema: pa.Schema | None = None) -> None:
        self._schema = None if schema is None else readable_schema(schema)

    @property
    def schema(self) -> pa.Schema | None:
        """The schema; `None` before the first batch."""
        return self._schema

    def convert(self, batch: Batch) -> pa.RecordBatch:
        """Convert one batch.

        Raises:
            BadRecordError: It does not fit the schema, or Spark could not read it.
        """
        arrow = batch.batch if isinstance(batch, ArrowBatch) else self._of_rows(batch.rows)
        if self._schema is None:
            fields = readable_schema(arrow.schema)
            self._schema = pa.schema([field.with_nullable(True) for field in fields])
        if arrow.schema.equals(self._schema, check_metadata=True):
            return self._without_hidden_nulls(arrow)
        try:
            if set(arrow.schema.names) != set(self._schema.names):
                raise BadRecordError(self._misfit(f"a batch has columns {arrow.schema.names}"))
            return arrow.select(self._schema.names).cast(self._schema)
        except (pa.ArrowException, ValueError, TypeError) as error:
            raise BadRecordError(self._misfit(f"a batch can't be cast ({error})")) from error

    def _without_hidden_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch; a cast finds nulls where the schema has none, and this is one that needs no cast."""
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if not field.nullable and column.null_count:
                raise BadRecordError(self._misfit(f"column '{field.name}' is 'not null' and holds nulls"))
        return batch

    def _of_rows(self, rows: Sequence[Any]) -> pa.RecordBatch:
        odd = next((row for row in rows if not isinstance(row, Mapping)), None)
        if odd is not None:
            msg = (
                f"a row of type {type(odd).__name__} can't become a row of a DataFrame: rows are dicts from "
                f"column name to value; the row is {shown(odd)}. Map the rows before the sink"
            )
            raise BadRecordError(msg)
        names = list(dict.fromkeys(chain.from_iterable(rows))) if self._schema is None else self._schema.names
        unknown = next((row for row in rows if any(name not in names for name in row)), None)
        if unknown is not None:
            raise BadRecordError(self._misfit(f"a row has other columns; the row is {shown(unknown)}"))
        try:
            columns = [self._column(name, rows) for name in names]
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise BadRecordError(self._misfit(f"a row can't be converted ({error})")) from error
        return pa.RecordBatch.from_arrays(columns, names)

    def _column(self, name: str, rows: Sequence[Any]) -> pa.Array:
        kind = None if self._schema is None else self._schema.field(name).type
        return pa.array([row.get(name) for row in rows], kind)

    def _misfit(self, what: str) -> str:
        known = "" if self._schema is None else f" {shown(str(self._schema))}"
        return (
            f"{what}, which does not fit the schema{known} of this sink: give schema=, or map the rows before"
        )
