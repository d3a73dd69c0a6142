"""Selects the wanted columns of CSV rows, and converts rows to dicts or Arrow batches."""

from __future__ import annotations

import csv
import io
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from penstock.runtime.io.connectors.errors import UnreadableInputError, shown
from penstock.runtime.io.connectors.file_formats.csv_dialect import (
    CONVERTERS,
    FALSE,
    TRUE,
    CsvDialect,
    checked_column,
    keeps_texts,
    without_texts,
)
from penstock.runtime.io.connectors.file_formats.line_blocks import UTF8_BOM
from penstock.runtime.record.arrow_types import has_leaf
from penstock.runtime.record.arrow_values import is_bytes
from penstock.runtime.record.row_columns import dicts_of_rows


class BadRowError(ValueError):
    """A row that can't be converted; the message says why."""


class WantedColumns(NamedTuple):
    """The wanted columns of one file.

    Attributes:
        header: Names of the file's columns, in its order.
        fields: Indices of the wanted columns in a row; `None` if all are wanted, in the file's order.
    """

    header: Sequence[str]
    names: tuple[str, ...]
    fields: tuple[int, ...] | None

    @staticmethod
    def of_header(
        path: str, header: Sequence[str], wanted: Sequence[str] | None, typed: Iterable[str]
    ) -> WantedColumns:
        """Return the wanted columns of a file with a header; `typed` are those with a declared type.

        Raises:
            UnreadableInputError: The header lacks a wanted or typed column, or has a wanted column twice.
        """
        places = {name: at for at, name in reversed(list(enumerate(header)))}
        missing = [name for name in (*(wanted or ()), *typed) if name not in places]
        if missing:
            msg = f"{path}: the header lacks {missing}; it has {shown(list(header))}"
            raise UnreadableInputError(msg)
        counts = Counter(header) if len(places) < len(header) else {}
        twice = sorted({name for name in (header if wanted is None else wanted) if counts.get(name, 1) > 1})
        if twice:
            msg = (
                f"{path}: the header has {twice} more than once. Choose other columns with columns=[...], or "
                "name all columns yourself with skip_rows=1, header=False and columns=[...]"
            )
            raise UnreadableInputError(msg)
        if wanted is None:
            return WantedColumns(header, tuple(header), None)
        return WantedColumns(header, tuple(wanted), tuple(places[name] for name in wanted))


class RowPlan(ABC):
    """Converts the rows of one file."""

    #: Exceptions that mark a row as bad.
    _errors: ClassVar[tuple[type[Exception], ...]]

    def __init__(self, width: int) -> None:
        self._width = width

    def convert(self, rows: Sequence[Sequence[str]]) -> list[Any] | None:
        """Convert rows together, without blank rows; `None` if a row is bad."""
        lengths = set(map(len, rows))
        if 0 in lengths:
            lengths.discard(0)
            rows = [row for row in rows if row]
        if not rows:
            return []
        if lengths != {self._width}:
            return None
        try:
            return self._converted(rows)
        except self._errors:
            return None  # convert_row finds the bad row

    def convert_row(self, row: Sequence[str]) -> Any:
        """Convert one row, or raise `BadRowError`."""
        if len(row) != self._width:
            msg = f"the number of fields is {len(row)} in this row, but {self._width} in the file"
            raise BadRowError(msg)
        try:
            (converted,) = self._converted([row])
        except self._errors as error:
            msg, cause = self._reason(row, error)
            raise BadRowError(msg) from cause
        return converted

    @abstractmethod
    def _converted(self, rows: Sequence[Sequence[str]]) -> list[Any]:
        """Convert rows of the right width, or raise one of `_errors`."""

    @abstractmethod
    def _reason(self, row: Sequence[str], error: Exception) -> tuple[str, Exception]:
        """Describe the field of a row that can't be converted, and return its error, too."""


class ColumnPlan(RowPlan):
    """Converts rows to dicts.

    A text of `null_values` becomes `None` in every column, and so does the empty text except in text columns.
    """

    _errors = (Exception,)  # whatever a user's function raises

    def __init__(
        self, wanted: WantedColumns, types: Mapping[str, Callable[[str], Any]], null_values: Iterable[str]
    ) -> None:
        super().__init__(len(wanted.header))
        self._names, self._fields = wanted.names, wanted.fields
        chosen = (types.get(name) for name in wanted.names)
        self._converters = tuple(CONVERTERS.get(kind, kind) for kind in chosen)
        nulls = frozenset(null_values)
        self._nulls = tuple(nulls if convert is None else nulls | {""} for convert in self._converters)
        self._is_plain = self._fields is None and not any(self._converters) and not any(self._nulls)

    def _converted(self, rows: Sequence[Sequence[str]]) -> list[dict[str, Any]]:
        if self._is_plain:
            return dicts_of_rows(self._names, rows)
        columns: list[Sequence[Any]] = list(zip(*rows, strict=False))
        if self._fields is not None:
            columns = [columns[field] for field in self._fields]
        columns = list(map(_values, columns, self._converters, self._nulls))
        return dicts_of_rows(self._names, zip(*columns, strict=True)) if columns else [{} for _ in rows]

    def _reason(self, row: Sequence[str], error: Exception) -> tuple[str, Exception]:
        texts = row if self._fields is None else [row[field] for field in self._fields]
        for name, text, convert, nulls in zip(self._names, texts, self._converters, self._nulls, strict=True):
            try:
                _values((text,), convert, nulls)
            except Exception as own:
                return f"column {name!r} can't be converted from {shown(text)}: {own}", own
        return str(error), error


def _values(
    texts: Sequence[str], convert: Callable[[str], Any] | None, nulls: frozenset[str]
) -> Sequence[Any]:
    if convert is not None:
        return [None if text in nulls else convert(text) for text in texts]
    return [None if text in nulls else text for text in texts] if nulls else texts


class ArrowPlan(RowPlan):
    """Converts rows to Arrow batches.

    Args:
        schema: The wanted columns with their types.
        inferred: Names of the columns with an inferred type other than text.
    """

    _errors = (pa.ArrowException, UnicodeError)

    def __init__(
        self, header: Sequence[str], schema: pa.Schema, inferred: Set[str], dialect: CsvDialect
    ) -> None:
        import pyarrow.csv as arrow_csv  # late: sources of other formats don't need it

        super().__init__(len(header))
        places = {name: at for at, name in reversed(list(enumerate(header)))}
        #: Wanted columns and their indices. Arrow gets the indices as names, because names may repeat.
        self._columns = [(places[field.name], field) for field in schema]
        self._nulls = [text for text in dialect.null_values if text]
        has_bytes = any(has_leaf(kind, is_bytes) for kind in schema.types)
        #: Whether Arrow checks all fields for valid UTF-8. It skips columns of bytes and unwanted columns.
        self._checks_text = len(schema) == len(header) and not has_bytes
        self._schema = schema
        self._inferred = inferred
        self._dialect = dialect
        self._csv = arrow_csv
        self._parse_options: Any = None
        self._written_options = arrow_csv.ParseOptions(newlines_in_values=True)
        self._options = self._convert_options()

    def parse(self, data: bytes) -> pa.RecordBatch | None:
        """Return the rows of a block; `None` if Arrow can't read all of them."""
        if self._parse_options is None:
            self._parse_options = self._dialect.arrow_options()
        try:
            if self._dialect.encoding != "utf-8":
                data = data.decode(self._dialect.encoding).encode("utf-8")
            elif not self._checks_text and not data.isascii():
                data.decode("utf-8")  # raises for a bad byte, as reading row by row does
            return self._read(data, self._parse_options)
        except (pa.ArrowException, UnicodeDecodeError):
            return None

    def _converted(self, rows: Sequence[Sequence[str]]) -> list[pa.RecordBatch]:
        return [self._read(_written(rows), self._written_options)]

    def _reason(self, row: Sequence[str], error: Exception) -> tuple[str, Exception]:
        for place, column in self._columns:
            alone = ArrowPlan([column.name], pa.schema([column]), self._inferred, self._dialect)
            try:
                alone._converted([[row[place]]])
            except pa.ArrowException as own:
                what = f"column {column.name!r} of type {column.type} can't be converted from"
                return f"{what} {shown(row[place])}", own
        return str(error), error

    def _convert_options(self) -> Any:
        return self._csv.ConvertOptions(
            column_types={
                str(place): pa.string() if field.name in self._inferred else field.type
                for place, field in self._columns
            },
            include_columns=[str(place) for place, _ in self._columns],
            null_values=["", *self._nulls],
            strings_can_be_null=False,
            quoted_strings_can_be_null=True,
            true_values=list(TRUE),
            false_values=list(FALSE),
        )

    def _read(self, data: bytes, parse_options: Any) -> pa.RecordBatch:
        if not data.strip(b"\r\n"):
            return pa.RecordBatch.from_pylist([], self._schema)
        if b"0x" in data or b"0X" in data:
            self._refuse_hexadecimal(data, parse_options)
        batches = self._table(data, parse_options, self._options).to_batches()
        if not batches:
            return pa.RecordBatch.from_pylist([], self._schema)
        return pa.RecordBatch.from_arrays(self._typed(batches[0].columns), schema=self._schema)

    def _table(self, data: bytes, parse_options: Any, options: Any) -> pa.Table:
        if data.startswith(UTF8_BOM):
            data = UTF8_BOM + data  # pyarrow removes the first one; here it is a character of a field
        # One block, so that no row is cut and the batch is whole.
        read = self._csv.ReadOptions(
            column_names=list(map(str, range(self._width))), use_threads=False, block_size=len(data) + 1
        )
        return self._csv.read_csv(pa.BufferReader(data), read, parse_options, options).combine_chunks()

    def _refuse_hexadecimal(self, data: bytes, parse_options: Any) -> None:
        """Refuse `0x10`: Arrow reads it as 16, but Python's `int` and other readers refuse it."""
        import pyarrow.compute as pc  # late: sources of other formats don't need it

        places = [str(place) for place, field in self._columns if pa.types.is_integer(field.type)]
        if not places:
            return
        options = self._csv.ConvertOptions(
            include_columns=places, column_types=dict.fromkeys(places, pa.string())
        )
        for column in self._table(data, parse_options, options).columns:
            if pc.any(pc.match_substring(column, "0x", ignore_case=True)).as_py():
                msg = "a text is not an integer"
                raise pa.ArrowInvalid(msg)

    def _typed(self, columns: list[pa.Array]) -> list[pa.Array]:
        if self._dialect.null_values:
            nulls = self._dialect.null_values
            columns = [
                without_texts(column, nulls) if keeps_texts(column.type) else column for column in columns
            ]
        inferred: dict[pa.DataType, list[int]] = {}
        for at, field in enumerate(self._schema):
            if field.name in self._inferred:
                inferred.setdefault(field.type, []).append(at)
            elif columns[at].type != field.type:
                columns[at] = columns[at].cast(field.type)
            if pa.types.is_decimal(field.type):
                # Arrow's parser adds zeros up to the scale without checking the precision.
                columns[at].validate(full=True)
        for kind, places in inferred.items():
            # A file may have thousands of columns, so one call checks all columns of a type.
            rows = len(columns[places[0]])
            joined = checked_column(pa.concat_arrays([columns[at] for at in places]), kind)
            for number, at in enumerate(places):
                columns[at] = joined.slice(number * rows, rows)
        return columns


def _written(rows: Sequence[Sequence[str]]) -> bytes:
    """Write rows as CSV again. All fields are quoted, since Python's writer quotes no carriage return."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8")
