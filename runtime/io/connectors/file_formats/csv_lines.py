"""CSV rows as records: each value is one row, without a header.

In a batch without quotes, escape characters and line ends, each value is one line. Arrow parses such a batch
in one call. `csv.reader` parses any other batch, value by value. Both use the `ArrowPlan` of CSV files, so
types and nulls are the same as in files.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

from penstock.runtime.error_text import shown
from penstock.runtime.errors import BadRecordError, ConfigurationError
from penstock.runtime.io.connectors.file_formats.csv_columns import ArrowPlan, BadRowError
from penstock.runtime.io.connectors.file_formats.csv_dialect import CsvDialect, declared_types
from penstock.runtime.io.formats.format import Decoded
from penstock.runtime.io.formats.parts import decoded_columns, decoded_rows
from penstock.runtime.io.formats.rows import rows_of
from penstock.runtime.io.formats.settings import checked_batch_format, checked_schema
from penstock.runtime.record.elements import Batch, BatchFormat
from penstock.runtime.record.row_columns import NoPythonValueError, dicts_of_arrow


@dataclass(frozen=True, slots=True)
class CsvLines:
    """CSV: each value is one row, decoded to a dict of strings; columns in `schema` have typed values.

    Args:
        columns: Names of all columns, in their order; by default those of the schema.
        schema: Types of some columns; others are text. An empty field is null, or `""` in a column of text.
        null_values: Texts that are null in every column.

    Raises:
        ConfigurationError: The columns are missing, or a setting has a value that is not allowed.

    Example:
        >>> prices = CsvLines(["name", "price"], pa.schema({"price": pa.float64()}))
        >>> prices.decoder("rows").decode([b'"tea, green",2.5', b"milk,"]).batch.rows
        [{'name': 'tea, green', 'price': 2.5}, {'name': 'milk', 'price': None}]
    """

    columns: Sequence[str] | None = None
    schema: pa.Schema | None = None
    delimiter: str = ","
    quotechar: str | None = '"'
    escapechar: str | None = None
    null_values: Sequence[str] = ()

    def __post_init__(self) -> None:
        if isinstance(self.columns, str):
            msg = f"columns={self.columns!r} is a single string: give a list of names, [{self.columns!r}]"
            raise ConfigurationError(msg)
        schema = None if self.schema is None else checked_schema(self.schema)
        names = tuple(self.columns if self.columns is not None else [] if schema is None else schema.names)
        if not names or len(set(names)) < len(names):
            msg = f"columns={list(names)} is not a list of different names: name all columns of the values"
            raise ConfigurationError(msg)
        unknown = [] if schema is None else [name for name in schema.names if name not in names]
        if unknown:
            msg = f"schema has {unknown}, which columns={list(names)} lacks"
            raise ConfigurationError(msg)
        declared_types({} if schema is None else {field.name: field.type for field in schema})
        object.__setattr__(self, "columns", names)
        object.__setattr__(self, "schema", schema)
        object.__setattr__(self, "null_values", tuple(self.null_values))
        self.dialect()

    def dialect(self) -> CsvDialect:
        """The syntax of the values, as for files."""
        return CsvDialect(self.delimiter, self.quotechar, self.escapechar, tuple(self.null_values))

    def decoder(self, batch_format: BatchFormat) -> CsvLineDecoder:
        """Create a decoder whose batches are rows or Arrow columns."""
        return CsvLineDecoder(self, checked_batch_format(batch_format))

    def encoder(self) -> CsvLineEncoder:
        """Create an encoder, which takes dicts, tuples, lists, and Arrow columns."""
        return CsvLineEncoder(self)

    def all_columns(self) -> pa.Schema:
        """All columns with their types."""
        types = {} if self.schema is None else {field.name: field.type for field in self.schema}
        return pa.schema([(name, types.get(name, pa.string())) for name in self.columns or ()])


class CsvLineDecoder:
    def __init__(self, form: CsvLines, batch_format: BatchFormat) -> None:
        self._schema = form.all_columns()
        self._dialect = form.dialect()
        self._format = batch_format
        self._plan = ArrowPlan(self._schema.names, self._schema, frozenset(), self._dialect)
        special = [sign for sign in (form.quotechar, form.escapechar) if sign is not None]
        self._special = [sign.encode() for sign in [*special, "\r"]]

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        if self._format == "rows":
            return decoded_rows(values, self._rows, self._why)
        return decoded_columns(values, self._schema, self._columns, self._why)

    def close(self) -> None:
        pass

    def _rows(self, values: Sequence[bytes]) -> list[dict[str, Any]] | None:
        batch = self._columns(values)
        try:
            return None if batch is None else dicts_of_arrow(batch)
        except NoPythonValueError:
            return None

    def _columns(self, values: Sequence[bytes]) -> pa.RecordBatch | None:
        text = b"\n".join(values)
        is_plain = text.count(b"\n") == len(values) - 1 and not any(sign in text for sign in self._special)
        if is_plain and self._dialect.delimiter.isascii():
            batch = self._plan.parse(text)
            if batch is not None and batch.num_rows == len(values):
                return batch
            if len(values) > 1:
                return None
        try:
            found = self._plan.convert([self._row(value) for value in values])
        except BadRowError:
            return None
        if not found or found[0].num_rows != len(values):
            return None
        batch = found[0]
        assert isinstance(batch, pa.RecordBatch)
        return batch

    def _row(self, value: bytes) -> list[str]:
        try:
            rows = list(self._dialect.rows_of(io.StringIO(value.decode(), newline=""), strict=True))
        except (csv.Error, UnicodeDecodeError) as error:
            raise BadRowError(str(error)) from error
        if len(rows) != 1 or not rows[0]:
            msg = f"it has {len(rows)} rows" if rows and rows[0] else "it is empty"
            raise BadRowError(msg)
        return rows[0]

    def _why(self, value: bytes) -> str:
        try:
            dicts_of_arrow(self._plan.convert_row(self._row(value)))
        except (BadRowError, NoPythonValueError) as error:
            return f"the value is not a CSV row: {error}"
        return "the value is not a CSV row"


class _Lines(NamedTuple):
    """An output of `csv.writer`."""

    write: Callable[[str], object]


class CsvLineEncoder:
    def __init__(self, form: CsvLines) -> None:
        self._form = form
        self._names = list(form.columns or ())

    def encode(self, batch: Batch) -> list[bytes | None]:
        rows = rows_of(batch)
        texts: list[str] = []
        writer = self._writer(texts, csv.QUOTE_NONE if self._form.quotechar is None else csv.QUOTE_MINIMAL)
        found: list[bytes | None] = []
        for row in rows:
            if row is None:
                found.append(None)
                continue
            fields = self._fields(row)
            try:
                writer.writerow(fields)
                if "\r" in texts[-1] and self._form.quotechar is not None:
                    # Python's writer leaves a carriage return unquoted.
                    self._writer(texts, csv.QUOTE_ALL).writerow(fields)
                found.append(texts.pop()[:-1].encode())
            except (csv.Error, UnicodeEncodeError) as error:
                msg = f"a record can't be written as CSV: {error}; the record is {shown(row)}"
                raise BadRecordError(msg) from error
        return found

    def close(self) -> None:
        pass

    def _writer(self, texts: list[str], quoting: Any) -> Any:
        """A writer that adds each row to a list."""
        form = self._form
        return csv.writer(
            _Lines(texts.append),
            delimiter=form.delimiter,
            quotechar=form.quotechar,
            escapechar=form.escapechar,
            lineterminator="\n",
            quoting=quoting,
        )

    def _fields(self, row: Any) -> Sequence[Any]:
        if isinstance(row, Mapping) and row.keys() == set(self._names):
            return [row[name] for name in self._names]
        if isinstance(row, (tuple, list)) and len(row) == len(self._names):
            return row
        msg = (
            f"a record does not fit the CSV columns {self._names}: the record is {shown(row)}. Map the "
            "records to dicts with exactly these keys, or to tuples of as many values"
        )
        raise BadRecordError(msg)
