"""Reads CSV files: `CsvReader` as dicts of strings or converted values, `ColumnarCsvReader` as typed columns.

A quoted field may hold newlines, so rows can't be found from the middle of a file. Each file is one split.
The position is still an exact byte offset. `csv.reader` consumes only the lines of the current row, so the
number of consumed lines locates the end of the row. The lines of the current poll are kept. After an error in
a poll, they are read again row by row to find the bad row.

**Typed columns.** Arrow parses blocks of about the requested number of rows. A block ends between two rows
(`csv_dialect.py`), so the position is the byte after it. Rows and batches have the same values, because rows
come from batches. A block that Arrow can't read goes through `CsvReader`: `csv.reader` finds its rows, a few
hundred at a time, and Arrow converts them. If that fails, each row is converted alone, which finds the bad
rows. Then Arrow tries the rest of the block again.

Columns and types are decided when the files are first listed. Every split contains them, so a restored job
keeps the inferred types. A type that the program declares replaces the saved one. A file's header may name
the columns in another order.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from typing import Any, Final

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.arrow_batches import PathColumns, arrow_rows, rows_of_arrow
from penstock.runtime.io.connectors.errors import BadRecords, OnError, UnreadableInputError, shown
from penstock.runtime.io.connectors.file_formats.csv_columns import (
    ArrowPlan,
    BadRowError,
    ColumnPlan,
    RowPlan,
    WantedColumns,
)
from penstock.runtime.io.connectors.file_formats.csv_dialect import (
    CsvDialect,
    Quoting,
    inferred_type,
    unreadable_header,
)
from penstock.runtime.io.connectors.file_formats.line_blocks import (
    BLOCK_BYTES,
    LineBlocks,
    lines_of,
    offset_of_line,
    some_of,
)
from penstock.runtime.io.connectors.file_formats.splitting import (
    FileSplit,
    SchemaSplit,
    whole_file,
    with_schema,
)
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import ArrowBatch, BatchFormat, RowBatch
from penstock.runtime.trust.data import read_schema


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Settings for reading CSV files.

    Attributes:
        columns: Names of all columns (without a header), or of the wanted columns (with a header).
        types: Functions that convert strings, by column; with `in_columns`, Arrow types by column.
        in_columns: Whether Arrow parses the files into typed columns.
        infers: Whether the types of the other columns are inferred from a sample; else they are text. Used
            with `in_columns` only.
        path_columns: Columns encoded in the path, which a file may lack.
        block_bytes: Bytes requested by one read.
    """

    dialect: CsvDialect
    header: bool
    columns: tuple[str, ...] | None
    types: Mapping[str, Any]
    on_error: OnError
    in_columns: bool = False
    infers: bool = False
    batch_format: BatchFormat = "rows"
    path_columns: PathColumns | None = None
    block_bytes: int = BLOCK_BYTES

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        """Return a split for each file with data; with typed columns, each holds the columns of all files."""
        present = [info for info in files if info.size]
        splits = [whole_file(info, self.dialect.stored_as) for info in present]
        if not self.in_columns:
            return splits
        schema = self._schema_of(present, filesystem)
        if schema is None:
            return []
        data = schema.serialize().to_pybytes()
        return [with_schema(split, data) for split in splits]

    def open(self, split: FileSplit, filesystem: FileSystem) -> CsvReader:
        handle = self.dialect.open(split, filesystem)
        try:
            return (
                ColumnarCsvReader(handle, split, self) if self.in_columns else CsvReader(handle, split, self)
            )
        except BaseException:
            handle.close()
            raise

    def wanted_in(self, path: str, header: Sequence[str]) -> WantedColumns:
        """Return the wanted columns of a file; columns encoded in its path may be missing."""
        if not self.header:
            return WantedColumns(header, tuple(header), None)
        columns, typed = self.columns, tuple(self.types)
        if self.path_columns is not None:
            there = set(header)
            columns = None if columns is None else self.path_columns.in_file(columns, there)
            typed = self.path_columns.in_file(typed, there)
        return WantedColumns.of_header(path, header, columns, typed)

    def _schema_of(self, files: Sequence[FileInfo], filesystem: FileSystem) -> pa.Schema | None:
        """Infer the columns of all files from some of them; `None` if no file has columns."""
        names: Sequence[str] | None = None
        texts: dict[str, list[str]] = {}
        for info in some_of(files) if self.infers else files:
            rows = self.dialect.sample(info, filesystem, header=self.header)
            if self.header and not rows:
                continue
            header = rows.pop(0) if self.header else self.columns or ()
            wanted = self.wanted_in(info.path, header)
            names = wanted.names if names is None else names
            width = len(header)
            fields = range(width) if wanted.fields is None else wanted.fields
            for index, name in zip(fields, wanted.names, strict=True):
                texts.setdefault(name, []).extend(row[index] for row in rows if len(row) == width)
            if not self.infers:
                break
        if names is None:
            return None
        return pa.schema([(name, self._type_of(name, texts[name])) for name in names])

    def _type_of(self, name: str, texts: Sequence[str]) -> pa.DataType:
        if name in self.types:
            return self.types[name]
        nulls = self.dialect.null_values
        texts = [text for text in texts if text not in nulls] if nulls else texts
        return inferred_type(texts) if self.infers else pa.string()


@dataclass(slots=True)
class _Block:
    first_line: int
    start: int
    raw: bytes
    lines: list[str]
    undecodable: bool
    line_end: bytes

    @property
    def end_line(self) -> int:
        return self.first_line + len(self.lines)

    def rest(self, line: int) -> tuple[int, bytes]:
        """The offset of a line in the file, and the block's bytes from there to its end."""
        cut = offset_of_line(self.raw, max(0, line - self.first_line), self.line_end)
        return self.start + cut, self.raw[cut:]


class CsvReader:
    """Reads the rows of one file; `close` closes the file."""

    def __init__(self, handle: InputFile, split: FileSplit, form: CsvFormat) -> None:
        self._handle = handle
        self._split = split
        self._format = form
        self._encoding = form.dialect.encoding
        self._plan: RowPlan | None = None
        self._line_end = form.dialect.line_end_of(handle, split.path)
        self._to_skip = form.dialect.skip_rows if form.header or split.position is None else 0
        self._begin_at(None if form.header else split.position)

    def read(self, max_rows: int) -> Polled[Any]:
        return self._read_header_and_skip() or self._read_rows(max_rows)

    def position(self) -> FileSplit:
        if self._plan is None or self._to_skip:
            return self._split
        line = self._line()
        for block in self._blocks:
            if block.first_line <= line <= block.end_line:
                return replace(self._split, position=block.rest(line)[0])
        return replace(self._split, position=self._source.offset)

    def close(self) -> None:
        self._handle.close()

    def _begin_at(self, position: int | None) -> None:
        self._source = LineBlocks(
            self._handle,
            replace(self._split, position=position),
            strip_bom=self._encoding == "utf-8",
            block_bytes=self._format.block_bytes,
            line_end=self._line_end,
        )
        self._blocks: deque[_Block] = deque()
        self._lines_loaded = 0
        self._reread_from(0)
        if not self._format.header and self._plan is None:
            self._plan = self._plan_of(self._format.columns or ())

    def _plan_of(self, header: Sequence[str]) -> RowPlan:
        form = self._format
        return ColumnPlan(form.wanted_in(self._split.path, header), form.types, form.dialect.null_values)

    def _polled(self, values: list[Any], bad: BadRecords) -> Polled[Any]:
        return bad.polled(RowBatch(values))

    def _line(self) -> int:
        return self._base_line + self._reader.line_num

    def _reread_from(self, line: int) -> None:
        self._base_line = line
        self._reader = self._format.dialect.rows_of(chain.from_iterable(self._feed(line)), strict=True)

    def _feed(self, line: int) -> Iterator[list[str]]:
        for block in list(self._blocks):
            if line < block.end_line:
                yield block.lines[max(0, line - block.first_line) :]
        while (following := self._source.next()) is not None:
            start, raw = following
            yield self._load(start, raw)

    def _load(self, start: int, raw: bytes) -> list[str]:
        try:
            text, undecodable = raw.decode(self._encoding), False
        except UnicodeDecodeError:  # invalid bytes become lone surrogates
            text, undecodable = raw.decode(self._encoding, "surrogateescape"), True
        lines = lines_of(text, self._line_end)
        self._blocks.append(_Block(self._lines_loaded, start, raw, lines, undecodable, self._line_end))
        self._lines_loaded += len(lines)
        return lines

    def _forget_lines_before(self, line: int) -> None:
        # The last block stays because it contains the position.
        while len(self._blocks) > 1 and self._blocks[0].end_line <= line:
            self._blocks.popleft()

    def _read_header_and_skip(self) -> Polled[Any] | None:
        """Go to the first row; return the poll's result if the row is not reached yet."""
        if not self._source.find_start():
            return Polled()
        if self._plan is None:
            if not self._read_header():
                return Polled(finished=True)
            if not self._source.find_start():
                return Polled()
        self._skip_rows()
        return None

    def _read_header(self) -> bool:
        path = self._split.path
        try:
            self._skip_rows()
            names = next((row for row in self._reader if row), None)
        except csv.Error as error:
            raise unreadable_header(path, error) from error
        if names is None:
            return False
        if _is_undecodable(names):
            msg = f"{path}: the header is not text in {self._encoding}. Set encoding=..."
            raise UnreadableInputError(msg)
        self._plan = self._plan_of(names)
        if self._split.position is not None:
            self._handle.seek(0)
            self._begin_at(self._split.position)
        return True

    def _skip_rows(self) -> None:
        while self._to_skip and next(self._reader, None) is not None:
            self._to_skip -= 1
        self._to_skip = 0

    def _read_rows(self, max_rows: int) -> Polled[Any]:
        plan, first = self._plan, self._line()
        assert plan is not None, "the header comes first"
        self._forget_lines_before(first)
        rows: list[list[str]] = []
        try:
            # Rows read before an error stay in the list.
            rows.extend(islice(self._reader, max_rows))
            if not rows:
                return Polled(finished=True)
            if not any(block.undecodable for block in self._blocks):
                values = plan.convert(rows)
                if values is not None:
                    return self._polled(values, BadRecords(self._format.on_error))
        except csv.Error:
            pass  # reading row by row finds the bad one
        self._reread_from(first)
        return self._read_one_by_one(plan, max_rows)

    def _read_one_by_one(self, plan: RowPlan, max_rows: int) -> Polled[Any]:
        bad = BadRecords(self._format.on_error)
        values: list[Any] = []
        for _ in range(max_rows):
            before = self._line()
            try:
                row = next(self._reader)
                if _is_undecodable(row):
                    bad.report(*self._found(before, f"the row is not text in {self._encoding}"))
                elif row:
                    values.append(plan.convert_row(row))
            except StopIteration:
                break
            except csv.Error as error:
                bad.report(*self._found(before, f"the row is not CSV: {error}"))
            except BadRowError as error:
                bad.report(*self._found(before, str(error)))
        return self._polled(values, bad)

    def _found(self, line: int, error: str) -> tuple[str | bytes, str, str, Callable[[], int | None]]:
        """Return the record from a line up to the current one, for a report."""
        first = next(block for block in reversed(self._blocks) if block.first_line <= line)
        kept = chain.from_iterable(block.lines for block in self._blocks)
        skip = line - self._blocks[0].first_line
        record: str | bytes = "".join(islice(kept, skip, skip + self._line() - line)).rstrip("\r\n")
        if _is_undecodable([str(record)]):
            record = str(record).encode(self._encoding, "surrogateescape")
        offset, _ = first.rest(line)
        return record, error, f"{self._split.path}:{offset}", partial(self._source.line_of, offset)


#: Rows read at a time from a block that Arrow can't read completely.
_SLOW_ROWS: Final = 256
#: Minimum and maximum bytes of a block; a quoted field may be longer.
_LEAST_BYTES: Final = 4 * 1024

_MOST_BYTES: Final = 2 * 1024 * 1024

_MOST_OPEN_BYTES: Final = 16 * 1024 * 1024


class ColumnarCsvReader(CsvReader):
    """Reads one file as columns; the split holds the position and the columns."""

    def __init__(self, handle: InputFile, split: FileSplit, form: CsvFormat) -> None:
        if not isinstance(split, SchemaSplit):
            msg = (
                f"{split.path}: the snapshot was taken when this source read text without types, so it has "
                "no column types. Restore the source's old settings, or start without the snapshot"
            )
            raise ConnectorError(msg)
        # The types of the program may be newer than those of the snapshot.
        self._schema: pa.Schema = pa.schema(
            [(field.name, form.types.get(field.name, field.type)) for field in read_schema(split.schema)]
        )
        self._inferred = frozenset(
            name
            for name, kind in zip(self._schema.names, self._schema.types, strict=True)
            if form.infers and name not in form.types and kind != pa.string()
        )
        self._row_bytes = 64.0
        super().__init__(handle, split, form)

    def read(self, max_rows: int) -> Polled[Any]:
        arrow = self._format.batch_format == "arrow"
        wanted = int(self._row_bytes * (arrow_rows(max_rows) if arrow else max_rows))
        self._source.block_bytes = min(max(wanted, _LEAST_BYTES), _MOST_BYTES)
        if (polled := self._read_header_and_skip()) is not None:
            return polled
        block = self._whole_rows()
        if block is None:
            return Polled(finished=True)
        start, raw, is_regular = block
        plan = self._plan
        assert isinstance(plan, ArrowPlan), "`_plan_of` makes it"
        batch = plan.parse(raw) if is_regular else None
        if batch is not None:
            self._row_bytes = len(raw) / max(1, batch.num_rows)
            return self._polled([batch], BadRecords(self._format.on_error))
        first = self._lines_loaded
        self._load(start, raw)
        self._reread_from(first)
        return self._read_rows(min(max_rows, _SLOW_ROWS))

    def _whole_rows(self) -> tuple[int, bytes, bool] | None:
        """Return the next block's start, bytes and whether Arrow may read it; `None` at the end."""
        block = self._loaded_rest() or self._source.next()
        if block is None:
            return None
        start, raw = block
        while (quoting := self._format.dialect.quoting_of(raw, self._line_end)) is Quoting.OPEN:
            more = self._source.next() if len(raw) < _MOST_OPEN_BYTES else None
            if more is None:
                return start, raw, False
            raw += more[1]
        return start, raw, quoting is Quoting.CLOSED

    def _loaded_rest(self) -> tuple[int, bytes] | None:
        line = self._line()
        rest = [block.rest(line) for block in self._blocks if line < block.end_line]
        self._blocks.clear()
        self._lines_loaded = line
        self._reread_from(line)
        return (rest[0][0], b"".join(raw for _, raw in rest)) if rest else None

    def _plan_of(self, header: Sequence[str]) -> ArrowPlan:
        path, form = self._split.path, self._format
        wanted = form.wanted_in(path, header)
        there, known = set(header), set(self._schema.names)
        missing = [name for name in self._schema.names if name not in there]
        more = [name for name in wanted.names if name not in known]
        if form.header and (missing or more):
            what = f"there is no column {missing[0]!r}" if missing else f"column {more[0]!r} is new"
            msg = (
                f"{path}: {what}, but all files must have the columns that were found when the job "
                f"started, {shown(self._schema.names)}. Give columns=[...] with the columns that all files "
                "have, or read this file with a separate source"
            )
            raise UnreadableInputError(msg)
        return ArrowPlan(header, self._schema, self._inferred, form.dialect)

    def _polled(self, values: list[Any], bad: BadRecords) -> Polled[Any]:
        whole = pa.Table.from_batches(values, self._schema).combine_chunks().to_batches()
        if not whole:
            return bad.polled(None)
        arrow = self._format.batch_format == "arrow"
        return bad.polled(ArrowBatch(whole[0]) if arrow else RowBatch(rows_of_arrow(whole[0])))


def _is_undecodable(row: Sequence[str]) -> bool:
    try:
        "".join(row).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
