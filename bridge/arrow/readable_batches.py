"""Makes Arrow batches that Spark reads correctly from a stream's records, and changes no value.

Spark's Arrow reader silently misreads some types: `large_string` gives empty strings, and `timestamp[ns]` is
read as microseconds. So every column is cast to a type that Spark writes itself. A column without such a type
is refused by its name. So are names that differ only in case: Spark treats them as one.

Without a given schema the first batch decides the columns. A later batch fits them as it is, or is refused by
the name of its column: see `exact_values`.

Arrow does not check that a `not null` column holds no nulls, and Spark relies on it. So only a schema that
the user gives makes such columns, and their values are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.record.exact_values import MisfitError, exact_batch, exact_column

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
    """The schema as Spark reads it correctly; nested values may be null.

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
    """The type as Spark reads it correctly; `path` names the column.

    Raises:
        BadRecordError: Spark has no such type.
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
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            twin = seen[name.lower()]
            msg = (
                f"{what} are called {twin!r} and {name!r}, which Spark takes for one: give each its own name"
            )
            raise BadRecordError(msg)
        seen[name.lower()] = name


_OF_SINK: Final = "the schema{known} of this sink: give schema=, or map the rows before"


class ReadableBatches:
    """Makes Arrow batches that Spark reads correctly from a stream's records.

    Args:
        schema: The schema of all batches; without it the first batch decides, and every column may be null.
        of: End of error messages, after "which does not fit": the schema's owner, and what to do. `{known}`
            is replaced by the schema.
        rounds: Round Python's 64-bit floats where the schema has 32 bits. True by default when a schema is
            given, because the user has declared such a column.

    Example:
        >>> from penstock.operators import RowBatch
        >>> ReadableBatches().convert(RowBatch([{"a": 1, "b": "x"}])).schema.names
        ['a', 'b']
    """

    def __init__(
        self, schema: pa.Schema | None = None, of: str = _OF_SINK, *, rounds: bool | None = None
    ) -> None:
        self._schema = None if schema is None else readable_schema(schema)
        self._rounds = schema is not None if rounds is None else rounds
        self._of = of

    @property
    def schema(self) -> pa.Schema | None:
        """`None` before the first batch."""
        return self._schema

    def convert(self, batch: Batch) -> pa.RecordBatch:
        """Convert one batch.

        Raises:
            BadRecordError: A value does not fit the schema unchanged, or Spark can't read its type.
        """
        arrow = batch.batch if isinstance(batch, ArrowBatch) else self._of_rows(batch.rows)
        if self._schema is None:
            fields = readable_schema(arrow.schema)
            self._schema = pa.schema([field.with_nullable(True) for field in fields])
        if arrow.schema.equals(self._schema, check_metadata=True):
            return self._without_hidden_nulls(arrow)
        if set(arrow.schema.names) != set(self._schema.names):
            raise BadRecordError(self._misfit(f"a batch has columns {arrow.schema.names}"))
        try:
            return exact_batch(arrow, self._schema)
        except (MisfitError, pa.ArrowException) as error:
            raise BadRecordError(self._misfit(str(error))) from error

    def _without_hidden_nulls(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Check the `not null` columns of a batch that needs no cast."""
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
        kind = None if self._schema is None else self._schema.field(name).type
        return exact_column([row.get(name) for row in rows], kind, name, rounds=self._rounds)

    def _misfit(self, what: str) -> str:
        known = "" if self._schema is None else f" {shown(str(self._schema))}"
        of = self._of.replace("{known}", known)
        return f"{what}, which does not fit {of}"
