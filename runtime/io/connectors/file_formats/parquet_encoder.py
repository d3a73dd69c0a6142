"""Writes Parquet: rows that are dicts, or Arrow batches. A file has one schema.

Rows are collected into row groups. A given schema applies to all files. A value that does not fit is an
error, except a Python float that a narrower float type rounds. Without a schema, a value's type does not
depend on other rows. Types that combine without loss share a file (`common_type`): null combines with every
type, and rows may lack a column. Incompatible types, or a new column after a file has begun, start another
file. Later files use the remembered schemas. So rows of one type (the usual case) have one schema in all
files. A row group of mixed rows needs one file per schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pyarrow as pa
import pyarrow.types as kinds

from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.io.connectors.file_formats.encoders import CountingOutput
from penstock.runtime.io.connectors.file_formats.fixed_schema import FixedSchema, refuse_odd_rows
from penstock.runtime.record.arrow_types import NoColumnTypeError
from penstock.runtime.record.arrow_values import exact_cast
from penstock.runtime.record.elements import ArrowBatch, Batch
from penstock.runtime.record.own_types import common_fields, row_columns
from penstock.runtime.record.row_columns import Places, RowColumn, uniform_rows

if TYPE_CHECKING:
    import pyarrow.parquet as pq

#: A row group is written when this number of rows is collected.
GROUP_ROWS: Final = 64 * 1024
#: Number of schemas remembered for the next rows.
_MOST_SCHEMAS: Final = 64

_ADVICE: Final = "Give FileSink.parquet the schema= that all rows have, or map the rows before the sink"


def is_codec(compression: str) -> bool:
    try:
        return compression == "none" or bool(pa.Codec.is_available(compression))
    except ValueError:
        return False


@dataclass(frozen=True, slots=True)
class ParquetSinkFormat:
    """The Parquet format of a sink; without a schema the values decide the types."""

    schema: pa.Schema | None = None
    compression: str = "snappy"

    extension: ClassVar[str] = "parquet"

    def encoders(self) -> Callable[[], ParquetEncoder]:
        return partial(ParquetEncoder, self.schema, self.compression, [])


class ParquetEncoder:
    """Encodes files; all encoders of a writer share `learned`, the schemas of the rows so far."""

    def __init__(self, schema: pa.Schema | None, compression: str, learned: list[pa.Schema]) -> None:
        self._fixed = None if schema is None else FixedSchema(schema, _ADVICE)
        self._learned = learned
        self._compression = compression
        self._output: CountingOutput | None = None
        self._next_file: Callable[[], CountingOutput] | None = None
        self._writer: pq.ParquetWriter | None = None
        self._rows: list[Any] = []
        self._parts: list[Sequence[Any] | pa.RecordBatch] = []
        self._gathered = 0

    def begin(self, output: CountingOutput, next_file: Callable[[], CountingOutput]) -> None:
        self._output, self._next_file, self._writer = output, next_file, None

    def write(self, batch: Batch) -> None:
        if isinstance(batch, ArrowBatch):
            self._gather_rows()
            columns = batch.batch
            self._parts.append(columns if self._fixed is None else self._fixed.fitted(columns))
        else:
            self._rows.extend(batch.rows)
        self._gathered += len(batch)
        if self._gathered >= GROUP_ROWS:
            self._write_group()

    def end(self) -> None:
        self._write_group()
        self._end_file()
        self._output = self._next_file = None

    def _write_group(self) -> None:
        self._gather_rows()
        parts, self._parts, self._gathered = self._parts, [], 0
        if not parts:
            return
        if self._fixed is not None:
            schema = self._fixed.schema
            made = [
                part if isinstance(part, pa.RecordBatch) else self._fixed.converted(part) for part in parts
            ]
            self._write_table(pa.Table.from_batches(made, schema))
            return
        tables = _tables(parts, self._learned)
        # Rows for the open file come first, because beginning another file closes it.
        for table in sorted(tables, key=lambda table: not self._is_open(table.schema)):
            self._write_table(table)

    def _write_table(self, table: pa.Table) -> None:
        assert self._output is not None, "begin() comes first"
        assert self._next_file is not None, "begin() comes first"
        if not self._is_open(table.schema):
            if self._writer is not None:
                self._end_file()
                self._output = self._next_file()
            import pyarrow.parquet as pq  # slow to load, and not needed by other formats

            self._writer = pq.ParquetWriter(self._output, table.schema, compression=self._compression)
        assert self._writer is not None
        self._writer.write_table(table, row_group_size=max(GROUP_ROWS, table.num_rows))

    def _is_open(self, schema: pa.Schema) -> bool:
        return self._writer is not None and self._writer.schema.equals(schema)

    def _end_file(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _gather_rows(self) -> None:
        if self._rows:
            self._parts.append(self._rows)
            self._rows = []


@dataclass(frozen=True, slots=True)
class _TypedRows:
    """Rows in which each column has one type."""

    places: Places | None
    arrays: Mapping[str, pa.Array]
    columns: Mapping[str, RowColumn]

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(name, array.type) for name, array in self.arrays.items()])

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self._array(field) for field in schema], schema=schema)

    def _array(self, field: pa.Field) -> pa.Array:
        array = self.arrays.get(field.name)
        if array is None or kinds.is_null(array.type):
            return pa.nulls(len(next(iter(self.arrays.values()))), field.type)
        if array.type.equals(field.type):
            return array
        values = self.columns[field.name].values
        if self.places is not None:
            values = [values[place] for place in self.places.tolist()]
        return pa.array(values, field.type)


@dataclass(frozen=True, slots=True)
class _TypedBatch:
    columns: pa.RecordBatch

    @property
    def schema(self) -> pa.Schema:
        return self.columns.schema

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        if self.columns.schema.equals(schema):
            return self.columns
        names = set(self.columns.schema.names)
        rows = self.columns.num_rows
        columns = [
            exact_cast(self.columns.column(field.name), field.type, field.name)
            if field.name in names
            else pa.nulls(rows, field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _tables(parts: Sequence[Sequence[Any] | pa.RecordBatch], learned: list[pa.Schema]) -> list[pa.Table]:
    """Return a table for each schema of some rows; widens the schemas of `learned`, and adds new ones."""
    typed: list[tuple[int, _TypedRows | _TypedBatch]] = []
    for part in parts:
        groups = [_TypedBatch(part)] if isinstance(part, pa.RecordBatch) else _typed_rows(part)
        typed += [(_index_of(rows.schema, learned), rows) for rows in groups]
    tables = [
        pa.Table.from_batches(
            [rows.batch(learned[index]) for at, rows in typed if at == index], learned[index]
        )
        for index in dict.fromkeys(at for at, _ in typed)
    ]
    del learned[: max(0, len(learned) - _MOST_SCHEMAS)]
    return tables


def _index_of(wanted: pa.Schema, learned: list[pa.Schema]) -> int:
    for place, schema in enumerate(learned):
        if schema.equals(wanted):
            return place
    if len(set(wanted.names)) == len(wanted.names):
        for place, schema in enumerate(learned):
            if len(set(schema.names)) < len(schema.names):
                continue
            common = common_fields(list(schema), list(wanted))
            if common is not None:
                learned[place] = pa.schema(common, schema.metadata)
                return place
    learned.append(wanted)
    return len(learned) - 1


def _typed_rows(rows: Sequence[Any]) -> list[_TypedRows]:
    refuse_odd_rows(rows)
    try:
        return _grouped_by_types(rows)
    except NoColumnTypeError as failure:
        for row in rows:
            try:
                _grouped_by_types([row])
            except NoColumnTypeError as error:
                msg = (
                    f"a row can't be written as Parquet: {error}; the row is {shown(row)}. Map the rows "
                    "before the sink, or give FileSink.parquet a schema="
                )
                raise BadRecordError(msg) from error
        raise BadRecordError(str(failure)) from failure


def _grouped_by_types(rows: Sequence[Any]) -> list[_TypedRows]:
    if not all(rows):
        msg = "Parquet can't hold a row without columns"
        raise NoColumnTypeError(msg)
    names = dict.fromkeys(chain.from_iterable(rows))
    columns = row_columns({name: [row.get(name) for row in rows] for name in names}, merged=True)
    for name, column in columns.items():
        for kind in column.kinds:
            _refuse_empty_dicts(name, column.values, kind)
    return [_TypedRows(*group, columns) for group in uniform_rows(columns, len(rows))]


def _refuse_empty_dicts(name: str, values: Sequence[Any], kind: pa.DataType) -> None:
    """Refuse every `{}`: Parquet could hold it only if another dict of the column had fields."""
    if kinds.is_struct(kind):
        present = [value for value in values if isinstance(value, dict)]
        if not all(present):
            msg = f"column {name!r}: Parquet can't hold {{}}: a dict needs fields"
            raise NoColumnTypeError(msg)
        for field in kind:
            if pa.types.is_nested(field.type):
                _refuse_empty_dicts(name, [value.get(field.name) for value in present], field.type)
    elif kinds.is_list(kind) and pa.types.is_nested(kind.value_type):
        lists = [value for value in values if isinstance(value, list | tuple)]
        _refuse_empty_dicts(name, list(chain.from_iterable(lists)), kind.value_type)
