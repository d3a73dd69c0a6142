"""CSV files as typed columns: Arrow batches, or rows that are made of them.

Arrow parses blocks of about as many rows as are asked for. A block ends between two rows (`quoting_of`), so
the position is the byte behind it. Rows and batches are the same values, because rows come from batches.

A block that Arrow does not read goes through `CsvReader` instead: `csv.reader` finds its rows, some hundred
at a time, and Arrow converts those. Among rows that can't be converted together each one is converted alone,
which shows the bad ones. Then what is left of the block is tried as a whole again.

The columns and their types are decided once, when the job starts from nothing. They are in every split, so a
restored job reads on with the same types. A file's header may name them in another order.

`quoting_of` tells whether a block ends between two rows, and whether Arrow and Python read it alike. Both
follow RFC 4180. They differ outside of it: quotes within an unquoted field, text behind a closing quote, a
carriage return that ends no line. Where quotes stand only where they may, every second quote closes a field.
So the number of quotes says whether the block ends within one.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from penstock.runtime.io.connectors.arrow_batches import arrow_rows, rows_of_arrow
from penstock.runtime.io.connectors.errors import BadRecords, ConnectorError, UnreadableInputError, shown
from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.connectors.formats.csv_columns import (
    FALSE,
    TRUE,
    BadRowError,
    ColumnPlan,
    checked_column,
    inferred_type,
    is_text,
    without_texts,
)
from penstock.runtime.io.connectors.formats.csv_reader import CsvFormat, CsvReader, unreadable_header
from penstock.runtime.io.connectors.formats.line_blocks import (
    UTF8_BOM,
    head_of,
    lines_of,
    offset_of_line,
    some_of,
)
from penstock.runtime.io.connectors.formats.parquet_reader import RecordFormat
from penstock.runtime.io.connectors.formats.splitting import (
    FileSplit,
    SchemaSplit,
    open_for_lines,
    whole_file,
    with_schema,
)
from penstock.runtime.operators.protocols import Polled
from penstock.runtime.record.arrow_streams import read_schema
from penstock.runtime.record.elements import ArrowBatch, RowBatch


class Quoting(Enum):
    """How a block of whole lines is quoted."""

    #: It ends between two rows.
    CLOSED = "closed"
    #: It ends within a quoted field.
    OPEN = "open"
    #: Quotes or line ends stand where the standard does not allow them.
    IRREGULAR = "irregular"


def quoting_of(block: bytes, delimiter: int, quote: int = ord('"'), line_end: bytes = b"\n") -> Quoting:
    r"""How a block of whole lines is quoted that begins between two rows.

    Args:
        delimiter: The byte that separates fields.
        quote: The byte around quoted fields; -1 for none.

    Example:
        >>> [quoting_of(block, ord(",")).value for block in (b'1,"a\n', b'1,"a\nb"\n', b'1,5" disk\n')]
        ['open', 'closed', 'irregular']
    """
    if line_end == b"\r":
        if b"\n" in block:
            return Quoting.IRREGULAR
    elif b"\r" in block and block.count(b"\r") != block.count(b"\r\n"):
        return Quoting.IRREGULAR
    if quote < 0 or quote not in block:
        return Quoting.CLOSED
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == quote)
    opening, closing = quotes[::2], quotes[1::2]
    before = data[opening[1:] - 1] if opening[0] == 0 else data[opening - 1]
    after = data[np.minimum(closing + 1, len(data) - 1)]
    if not np.isin(before, (ord(line_end), delimiter, quote)).all():
        return Quoting.IRREGULAR
    if not np.isin(after, (*b"\r\n", delimiter, quote)).all():
        return Quoting.IRREGULAR
    return Quoting.OPEN if len(quotes) % 2 else Quoting.CLOSED


#: Rows that are read at a time where a block holds something that Arrow does not read.
_SLOW_ROWS: Final = 256
#: Bytes of a block, at least and at most; a quoted field may be longer.
_LEAST_BYTES: Final = 4 * 1024

_MOST_BYTES: Final = 2 * 1024 * 1024

_MOST_OPEN_BYTES: Final = 16 * 1024 * 1024

#: Wanted columns, and where each stands in a row.
_Columns: TypeAlias = Sequence[tuple[int, pa.Field]]


@dataclass(frozen=True, slots=True)
class ColumnarCsvFormat:
    """How CSV files are read as typed columns.

    Attributes:
        text: How their rows are found.
        types: Arrow types of some columns; the others are text, or inferred.
        infers: Types of the other columns are inferred from a sample.
        batch_format: `"rows"` or `"arrow"`.
    """

    text: CsvFormat
    types: Mapping[str, pa.DataType]
    infers: bool
    batch_format: RecordFormat

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        """One split for each file, with the columns of all of them."""
        present = [info for info in files if info.size]
        schema = self._schema_of(present, filesystem)
        if schema is None:
            return []
        data = schema.serialize().to_pybytes()
        return [with_schema(whole_file(info, self.text.stored_as), data) for info in present]

    def open(self, split: FileSplit, filesystem: FileSystem) -> ColumnarCsvReader:
        """Open one file.

        Raises:
            ConnectorError: The snapshot is of a source whose columns had no types.
        """
        if not isinstance(split, SchemaSplit):
            msg = (
                f"{split.path}: the snapshot was taken when this source read text without types, so the "
                "types of its columns are not decided. Start with the source as it was, or from nothing"
            )
            raise ConnectorError(msg)
        csv.field_size_limit(max(csv.field_size_limit(), self.text.max_field_size))
        handle = open_for_lines(filesystem, split.path, split.size, self.text.stored_as)
        return ColumnarCsvReader(handle, split, self)

    def _schema_of(self, files: Sequence[FileInfo], filesystem: FileSystem) -> pa.Schema | None:
        """The columns of all files, as the first ones of them show; `None` if those are empty."""
        sampled = some_of(files) if self.infers else files
        names: Sequence[str] | None = None
        texts: dict[str, list[str]] = {}
        for info in sampled:
            header, rows = _sample(info, filesystem, self.text)
            if header is None:
                continue
            plan = _columns_of(info.path, header, self.text, self.types)
            names = plan.names if names is None else names
            fields = range(plan.width) if plan.fields is None else plan.fields
            for index, name in zip(fields, plan.names, strict=True):
                texts.setdefault(name, []).extend(row[index] for row in rows if len(row) == plan.width)
            if not self.infers:
                break
        if names is None:
            return None
        return pa.schema([(name, self._type_of(name, texts[name])) for name in names])

    def _type_of(self, name: str, texts: Sequence[str]) -> pa.DataType:
        if name in self.types:
            return self.types[name]
        nulls = self.text.null_values
        texts = [text for text in texts if text not in nulls] if nulls else texts
        return inferred_type(texts) if self.infers else pa.string()


class ColumnarCsvReader(CsvReader):
    """Reads one file as columns.

    Args:
        handle: The open file; closed by `close`.
        split: The file, the position in it, and the columns.
        form: How it is read.
    """

    def __init__(self, handle: InputFile, split: SchemaSplit, form: ColumnarCsvFormat) -> None:
        self._columnar = form
        self._schema: pa.Schema = read_schema(split.schema)
        self._inferred = frozenset(
            name
            for name, kind in zip(self._schema.names, self._schema.types, strict=True)
            if form.infers and name not in form.types and kind != pa.string()
        )
        self._row_bytes = 64.0
        super().__init__(handle, split, form.text)

    def read(self, max_rows: int) -> Polled[Any]:
        """The next rows; `finished` at the end of the file."""
        arrow = self._columnar.batch_format == "arrow"
        wanted = int(self._row_bytes * (arrow_rows(max_rows) if arrow else max_rows))
        self._source.block_bytes = min(max(wanted, _LEAST_BYTES), _MOST_BYTES)
        if not self._source.find_start():
            return Polled()
        if self._plan is None:
            if not self._read_header():
                return Polled(finished=True)
            if not self._source.find_start():
                return Polled()
        self._skip_rows()
        block = self._whole_rows()
        if block is None:
            return Polled(finished=True)
        start, raw, is_regular = block
        plan = self._plan
        assert isinstance(plan, ArrowPlan), "made below"
        batch = plan.parse(raw) if is_regular else None
        if batch is not None:
            self._row_bytes = len(raw) / max(1, batch.num_rows)
            return self._polled([batch], BadRecords(self._format.on_error))
        first = self._lines_loaded
        self._load(start, raw)
        self._reread_from(first)
        return super().read(min(max_rows, _SLOW_ROWS))

    def _whole_rows(self) -> tuple[int, bytes, bool] | None:
        """The next block: where it begins, and whether Arrow may read it; `None` at the end of the file."""
        block = self._loaded_rest() or self._source.next()
        if block is None:
            return None
        start, raw = block
        while (quoting := self._quoting_of(raw)) is Quoting.OPEN:
            more = self._source.next() if len(raw) < _MOST_OPEN_BYTES else None
            if more is None:
                return start, raw, False
            raw += more[1]
        return start, raw, quoting is Quoting.CLOSED

    def _quoting_of(self, raw: bytes) -> Quoting:
        form = self._format
        if form.escapechar is not None and form.escapechar.encode(form.encoding) in raw:
            return Quoting.IRREGULAR
        if not (form.delimiter + (form.quotechar or "")).isascii():
            return Quoting.IRREGULAR
        quote = -1 if form.quotechar is None else ord(form.quotechar)
        return quoting_of(raw, ord(form.delimiter), quote, self._line_end)

    def _loaded_rest(self) -> tuple[int, bytes] | None:
        """Take back the lines that were loaded and not read."""
        line = self._line()
        rest: list[tuple[int, bytes]] = []
        for block in self._blocks:
            if line < block.first_line + len(block.lines):
                cut = offset_of_line(block.raw, max(0, line - block.first_line), self._line_end)
                rest.append((block.start + cut, block.raw[cut:]))
        self._blocks.clear()
        self._lines_loaded = line
        self._reread_from(line)
        return (rest[0][0], b"".join(raw for _, raw in rest)) if rest else None

    def _plan_without_header(self, names: Sequence[str]) -> ArrowPlan:
        return ArrowPlan(names, self._schema, self._inferred, self._format)

    def _plan_of_header(self, names: Sequence[str]) -> ArrowPlan:
        path = self._split.path
        plan = _columns_of(path, names, self._format, self._columnar.types)
        there, known = set(names), set(self._schema.names)
        missing = [name for name in self._schema.names if name not in there]
        more = [name for name in plan.names if name not in known]
        if missing or more:
            what = f"there is no column {missing[0]!r}" if missing else f"column {more[0]!r} is new"
            msg = (
                f"{path}: {what}, and all files must have the columns that were found when the job "
                f"started, {shown(self._schema.names)}. Give columns=[...] with those that all files have, "
                "or read this file by a source of its own"
            )
            raise UnreadableInputError(msg)
        return ArrowPlan(names, self._schema, self._inferred, self._format)

    def _polled(self, values: list[Any], bad: BadRecords) -> Polled[Any]:
        polled = bad.polled([])
        whole = pa.Table.from_batches(values, self._schema).combine_chunks().to_batches() if values else []
        if not whole or not whole[0].num_rows:
            return polled
        (batch,) = whole
        given = (
            ArrowBatch(batch) if self._columnar.batch_format == "arrow" else RowBatch(rows_of_arrow(batch))
        )
        return Polled(given, polled.dead_letters, polled.skipped)


class ArrowPlan:
    """How the rows of one file become Arrow batches.

    Args:
        header: Names of the file's columns, in its order.
        schema: Those that are wanted, with their types.
        inferred: Names of those whose types are inferred, and not text.
        form: How rows are written.
    """

    def __init__(self, header: Sequence[str], schema: pa.Schema, inferred: Set[str], form: CsvFormat) -> None:
        import pyarrow.csv as arrow_csv  # not for sources of other formats

        self._header = list(header)
        places = {name: at for at, name in reversed(list(enumerate(header)))}
        #: Where the wanted columns stand. Arrow knows columns by their places, for two may have one name.
        self._places = [places[name] for name in schema.names]
        self._nulls = [text for text in form.null_values if text]
        self._schema = schema
        self._inferred = inferred
        self._form = form
        self._csv = arrow_csv
        if (form.delimiter + (form.quotechar or "")).isascii():
            self._parse_options = arrow_csv.ParseOptions(
                delimiter=form.delimiter,
                quote_char=False if form.quotechar is None else form.quotechar,
                newlines_in_values=form.quotechar is not None,
            )
        self._written_options = arrow_csv.ParseOptions(newlines_in_values=True)
        self._columns = list(zip(self._places, schema, strict=True))
        self._options = self._convert_options(self._columns)

    def parse(self, data: bytes) -> pa.RecordBatch | None:
        """The rows of a block; `None` if Arrow does not read all of them."""
        if self._form.encoding != "utf-8":
            try:
                data = data.decode(self._form.encoding).encode("utf-8")
            except UnicodeDecodeError:
                return None
        try:
            return self._read(data, self._parse_options)
        except (pa.ArrowException, UnicodeDecodeError):
            return None

    def convert(self, rows: Sequence[Sequence[str]]) -> list[pa.RecordBatch] | None:
        """Convert rows at once, leaving out blank ones; `None` if any of them is bad."""
        present = [row for row in rows if row]
        if any(len(row) != len(self._header) for row in present):
            return None
        try:
            return [self._read(self._written(present), self._written_options)]
        except (pa.ArrowException, UnicodeError):
            return None

    def convert_row(self, row: Sequence[str]) -> pa.RecordBatch:
        """Convert one row.

        Raises:
            BadRowError: It has too many or too few fields, or a field can't be converted.
        """
        if len(row) != len(self._header):
            msg = f"the row has {len(row)} fields, the file has {len(self._header)} columns"
            raise BadRowError(msg)
        try:
            return self._read(self._written([row]), self._written_options)
        except pa.ArrowException as error:
            raise BadRowError(self._reason(row, error)) from error

    def _reason(self, row: Sequence[str], error: pa.ArrowException) -> str:
        for place, field in self._columns:
            text, alone = row[place], [(0, field)]
            try:
                self._read(self._written([[text]]), self._written_options, alone)
            except pa.ArrowException:
                return f"column {field.name!r} of type {field.type} can't be converted from {shown(text)}"
        return str(error)

    def _convert_options(self, columns: _Columns) -> Any:
        return self._csv.ConvertOptions(
            column_types={
                str(place): pa.string() if field.name in self._inferred else field.type
                for place, field in columns
            },
            include_columns=[str(place) for place, _ in columns],
            null_values=["", *self._nulls],
            strings_can_be_null=False,
            quoted_strings_can_be_null=True,
            true_values=list(TRUE),
            false_values=list(FALSE),
        )

    def _read(self, data: bytes, parse_options: Any, alone: _Columns | None = None) -> pa.RecordBatch:
        """The rows of a text; `alone` names the only column of a text that has one."""
        schema = self._schema if alone is None else pa.schema([field for _, field in alone])
        if not data.strip(b"\r\n"):
            return pa.RecordBatch.from_pylist([], schema)
        columns = self._columns if alone is None else alone
        options = self._options if alone is None else self._convert_options(alone)
        width = len(self._header) if alone is None else 1
        if b"0x" in data or b"0X" in data:
            self._refuse_hexadecimal(data, width, parse_options, columns)
        batches = self._table(data, width, parse_options, options).to_batches()
        if not batches:
            return pa.RecordBatch.from_pylist([], schema)
        return pa.RecordBatch.from_arrays(self._converted(batches[0].columns, schema), schema=schema)

    def _table(self, data: bytes, width: int, parse_options: Any, options: Any) -> pa.Table:
        if data.startswith(UTF8_BOM):
            data = UTF8_BOM + data  # pyarrow takes the first away; here it is a character of a field
        # One block, so that no row is cut and the batch is whole.
        read = self._csv.ReadOptions(
            column_names=list(map(str, range(width))), use_threads=False, block_size=len(data) + 1
        )
        return self._csv.read_csv(pa.BufferReader(data), read, parse_options, options).combine_chunks()

    def _refuse_hexadecimal(self, data: bytes, width: int, parse_options: Any, columns: _Columns) -> None:
        """Arrow reads `0x10` as 16; other readers, and rows of Python's `int`, refuse it."""
        import pyarrow.compute as pc  # not for sources of other formats

        places = [str(place) for place, field in columns if pa.types.is_integer(field.type)]
        if not places:
            return
        options = self._csv.ConvertOptions(
            include_columns=places, column_types=dict.fromkeys(places, pa.string())
        )
        for column in self._table(data, width, parse_options, options).columns:
            if pc.any(pc.match_substring(column, "0x", ignore_case=True)).as_py():
                msg = "a text is no integer"
                raise pa.ArrowInvalid(msg)

    def _converted(self, columns: list[pa.Array], schema: pa.Schema) -> list[pa.Array]:
        """Columns as Arrow has read them, with their nulls and their types."""
        if self._form.null_values:
            nulls = self._form.null_values
            columns = [without_texts(each, nulls) if is_text(each.type) else each for each in columns]
        inferred: dict[pa.DataType, list[int]] = {}
        for at, field in enumerate(schema):
            if field.name in self._inferred:
                inferred.setdefault(field.type, []).append(at)
            elif columns[at].type != field.type:
                columns[at] = columns[at].cast(field.type)
            if pa.types.is_decimal(field.type):
                # Arrow's parser adds zeros up to the scale without a look at the precision.
                columns[at].validate(full=True)
        for kind, places in inferred.items():
            # A file may have thousands of columns: all of one type are checked by one call.
            rows = len(columns[places[0]])
            joined = checked_column(pa.concat_arrays([columns[at] for at in places]), kind)
            for number, at in enumerate(places):
                columns[at] = joined.slice(number * rows, rows)
        return columns

    def _written(self, rows: Sequence[Sequence[str]]) -> bytes:
        """Rows as CSV again; all are quoted, for Python's writer leaves a carriage return without quotes."""
        text = io.StringIO(newline="")
        writer = csv.writer(text, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerows(rows)
        return text.getvalue().encode("utf-8")


def _columns_of(path: str, header: Sequence[str], form: CsvFormat, types: Mapping[str, Any]) -> ColumnPlan:
    """Which columns of a file are wanted."""
    if not form.header:
        return ColumnPlan.without_header(form.columns or (), {})
    form = replace(form, types=dict.fromkeys(types, str)).of_header(header)
    return ColumnPlan.of_header(path, header, form.columns, form.types)


def _sample(
    info: FileInfo, filesystem: FileSystem, form: CsvFormat
) -> tuple[Sequence[str] | None, list[list[str]]]:
    """The header of a file and its first rows; `None` for a file without rows."""
    csv.field_size_limit(max(csv.field_size_limit(), form.max_field_size))
    head, is_all = head_of(info, filesystem, form.encoding, form.line_end_of, form.stored_as)
    text = head.decode(form.encoding, "replace")
    rows: list[list[str]] = []
    try:
        lines = lines_of(text, form.line_end_of(io.BytesIO(head)))
        rows.extend(row for row in islice(form.rows_of(lines, strict=False), form.skip_rows, None) if row)
    except csv.Error as error:
        if form.header and not rows:
            raise unreadable_header(info.path, error) from error
        # The rows before it do; the reader says what is wrong.
    if not is_all:
        # The last row may be cut within quotes.
        rows = rows[:1] if len(rows) == 1 else rows[:-1]
    if not form.header:
        return (form.columns or ()), rows
    return (rows[0], rows[1:]) if rows else (None, [])
