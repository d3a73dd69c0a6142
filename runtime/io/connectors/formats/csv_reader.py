"""CSV files: one record per row, a dict from column name to text (or to what `schema` makes of it).

A quoted field may hold newlines, so rows can't be found from the middle of a file and a file is one split.
The position is still an exact byte offset. `csv.reader` takes no more lines than a row needs, so the number
of lines that it took says where the row ended. The lines of the current poll are kept. When a poll meets
anything bad, they are read again row by row, which shows the bad row.
"""

from __future__ import annotations

import csv
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import Any, Protocol

from penstock.runtime.io.connectors.arrow_batches import PathColumns
from penstock.runtime.io.connectors.errors import BadRecords, OnError, UnreadableInputError
from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.connectors.formats.csv_columns import BadRowError, ColumnPlan, RowPlan
from penstock.runtime.io.connectors.formats.line_blocks import (
    BLOCK_BYTES,
    LineBlocks,
    line_end_of,
    lines_of,
    offset_of_line,
)
from penstock.runtime.io.connectors.formats.splitting import FileSplit, open_for_lines, whole_file
from penstock.runtime.operators.protocols import Polled


class CsvRows(Protocol):
    """What `csv.reader` returns."""

    @property
    def line_num(self) -> int:
        """Lines that it has taken."""
        ...

    def __iter__(self) -> Iterator[list[str]]: ...

    def __next__(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """How CSV files are read.

    Attributes:
        header: The first row of each file names the columns.
        delimiter: One character.
        columns: Names of all columns (without a header), or of those wanted (with one).
        types: What makes a value of a column's text.
        encoding: Encoding in which lines are found.
        max_field_size: Longest field, in characters.
        on_error: What is done with a bad row.
        quotechar: What begins and ends a quoted field, one character; `None` reads quotes as text.
        escapechar: What takes the meaning of the character behind it, one character or `None`.
        null_values: Texts that are `None` in every column.
        skip_rows: Rows that are left out at the beginning of each file.
        path_columns: Columns that stand in the path, which a file may lack.
        block_bytes: Bytes asked for by one read.
        stored_as: Encoding of the files, if they are recoded to UTF-8.
    """

    header: bool
    delimiter: str
    columns: tuple[str, ...] | None
    types: Mapping[str, Callable[[str], Any]]
    encoding: str
    max_field_size: int
    on_error: OnError
    quotechar: str | None = '"'
    escapechar: str | None = None
    null_values: tuple[str, ...] = ()
    skip_rows: int = 0
    path_columns: PathColumns | None = None
    block_bytes: int = BLOCK_BYTES
    stored_as: str | None = None

    def rows_of(self, lines: Iterable[str], *, strict: bool) -> CsvRows:
        """The rows of lines, as texts.

        Args:
            strict: Quotes where none may stand are an error.
        """
        quoting: Any = csv.QUOTE_MINIMAL if self.quotechar is not None else csv.QUOTE_NONE
        return csv.reader(
            lines,
            delimiter=self.delimiter,
            quotechar=self.quotechar,
            escapechar=self.escapechar,
            quoting=quoting,
            strict=strict,
        )

    def of_header(self, header: Sequence[str]) -> CsvFormat:
        """The format of one file, without the columns that stand in its path and not in its header."""
        if self.path_columns is None:
            return self
        there, path = set(header), self.path_columns
        return replace(
            self,
            columns=None if self.columns is None else path.in_file(self.columns, there),
            types={name: self.types[name] for name in path.in_file(self.types, there)},
        )

    def line_end_of(self, handle: InputFile) -> bytes:
        """The byte that ends the lines of a file."""
        return line_end_of(handle, (self.quotechar or "").encode(self.encoding))

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        """One split for each file."""
        return [whole_file(info, self.stored_as) for info in files if info.size]

    def open(self, split: FileSplit, filesystem: FileSystem) -> CsvReader:
        """Open one file."""
        csv.field_size_limit(max(csv.field_size_limit(), self.max_field_size))
        return CsvReader(open_for_lines(filesystem, split.path, split.size, self.stored_as), split, self)


def unreadable_header(path: str, error: csv.Error) -> UnreadableInputError:
    """The error of a file whose first row is no CSV."""
    what = f"{error}. Check delimiter, quotechar and escapechar, or say header=False"
    return UnreadableInputError(f"{path}: the header can't be read: {what}")


@dataclass(slots=True)
class _Block:
    """Lines that were given to the `csv.reader` of a poll."""

    first_line: int
    start: int
    raw: bytes
    lines: list[str]
    undecodable: bool


class CsvReader:
    """Reads the rows of one file.

    Args:
        handle: The open file; closed by `close`.
        split: The file and the position in it.
        form: How the file is read.
    """

    def __init__(self, handle: InputFile, split: FileSplit, form: CsvFormat) -> None:
        self._handle = handle
        self._split = split
        self._format = form
        self._plan: RowPlan | None = None
        self._line_end = form.line_end_of(handle)
        self._to_skip = form.skip_rows if form.header or split.position is None else 0
        self._begin_at(None if form.header else split.position)

    def read(self, max_rows: int) -> Polled[dict[str, Any]]:
        if not self._source.find_start():
            return Polled()
        if self._plan is None:
            if not self._read_header():
                return Polled(finished=True)
            if not self._source.find_start():
                return Polled()
        self._skip_rows()
        first = self._line()
        self._forget_lines_before(first)
        rows: list[list[str]] = []
        values = None
        try:
            # What was read before an error stays in the list.
            rows.extend(islice(self._reader, max_rows))
            if not rows:
                return Polled(finished=True)
            if not self._has_undecodable():
                values = self._plan_of_file().convert(rows)
        except csv.Error:
            values = None
        if values is None:
            self._reread_from(first)
            return self._read_one_by_one(max_rows)
        return self._polled(values, BadRecords(self._format.on_error))

    def position(self) -> FileSplit:
        if self._plan is None or self._to_skip:
            return self._split
        line = self._line()
        for block in self._blocks:
            if block.first_line <= line <= block.first_line + len(block.lines):
                at = block.start + offset_of_line(block.raw, line - block.first_line, self._line_end)
                return replace(self._split, position=at)
        return replace(self._split, position=self._source.offset)

    def close(self) -> None:
        """Close the file."""
        self._handle.close()

    def _begin_at(self, position: int | None) -> None:
        self._source = LineBlocks(
            self._handle,
            replace(self._split, position=position),
            strip_bom=self._format.encoding == "utf-8",
            block_bytes=self._format.block_bytes,
            line_end=self._line_end,
        )
        self._blocks: deque[_Block] = deque()
        self._lines_loaded = 0
        self._reread_from(0)
        if not self._format.header and self._plan is None:
            self._plan = self._plan_without_header(self._format.columns or ())

    def _plan_without_header(self, names: Sequence[str]) -> RowPlan:
        return ColumnPlan.without_header(names, self._format.types, self._format.null_values)

    def _plan_of_header(self, names: Sequence[str]) -> RowPlan:
        form = self._format.of_header(names)
        return ColumnPlan.of_header(self._split.path, names, form.columns, form.types, form.null_values)

    def _polled(self, values: list[Any], bad: BadRecords) -> Polled[Any]:
        """What a poll gives: converted rows, and those that were bad."""
        return bad.polled(values)

    def _line(self) -> int:
        """Number of the line after the last row that was read."""
        return self._base_line + self._reader.line_num

    def _plan_of_file(self) -> RowPlan:
        if self._plan is None:
            msg = f"{self._split.path}: rows before the header"
            raise RuntimeError(msg)
        return self._plan

    def _reread_from(self, line: int) -> None:
        """Go back to a line that is still kept."""
        self._base_line = line
        self._reader = self._format.rows_of(chain.from_iterable(self._feed(line)), strict=True)

    def _feed(self, line: int) -> Iterator[list[str]]:
        for block in list(self._blocks):
            if line < block.first_line + len(block.lines):
                yield block.lines[max(0, line - block.first_line) :]
        while (following := self._source.next()) is not None:
            start, raw = following
            yield self._load(start, raw)

    def _load(self, start: int, raw: bytes) -> list[str]:
        """Keep the lines of a block until they are read."""
        text, undecodable = self._decode(raw)
        lines = lines_of(text, self._line_end)
        self._blocks.append(_Block(self._lines_loaded, start, raw, lines, undecodable))
        self._lines_loaded += len(lines)
        return lines

    def _decode(self, raw: bytes) -> tuple[str, bool]:
        """The text of a block, and whether some of it is no text (those bytes become lone surrogates)."""
        try:
            return raw.decode(self._format.encoding), False
        except UnicodeDecodeError:
            return raw.decode(self._format.encoding, "surrogateescape"), True

    def _has_undecodable(self) -> bool:
        return any(block.undecodable for block in self._blocks)

    def _forget_lines_before(self, line: int) -> None:
        # The last block stays: the position lies in it.
        while len(self._blocks) > 1 and self._blocks[0].first_line + len(self._blocks[0].lines) <= line:
            self._blocks.popleft()

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
            msg = f"{path}: the header is not text in {self._format.encoding}. Say encoding=..."
            raise UnreadableInputError(msg)
        self._plan = self._plan_of_header(names)
        if self._split.position is not None:
            self._handle.seek(0)
            self._begin_at(self._split.position)
        return True

    def _skip_rows(self) -> None:
        """Pass by the rows in front of the first one that is read."""
        while self._to_skip and next(self._reader, None) is not None:
            self._to_skip -= 1
        self._to_skip = 0

    def _read_one_by_one(self, max_rows: int) -> Polled[dict[str, Any]]:
        bad = BadRecords(self._format.on_error)
        plan, values = self._plan_of_file(), []
        for _ in range(max_rows):
            before = self._line()
            try:
                row = next(self._reader)
                if _is_undecodable(row):
                    bad.report(*self._found(before, f"the row is not text in {self._format.encoding}"))
                elif row:
                    values.append(plan.convert_row(row))
            except StopIteration:
                break
            except csv.Error as error:
                bad.report(*self._found(before, f"the row is not CSV: {error}"))
            except BadRowError as error:
                bad.report(*self._found(before, str(error)))
        return self._polled(values, bad)

    def _found(self, line: int, error: str) -> tuple[str | bytes, str, str]:
        """The record that begins at a line and ends before the current one, for a report."""
        block = next(each for each in reversed(self._blocks) if each.first_line <= line)
        offset = block.start + offset_of_line(block.raw, line - block.first_line, self._line_end)
        kept = chain.from_iterable(each.lines for each in self._blocks)
        skip = line - self._blocks[0].first_line
        record: str | bytes = "".join(islice(kept, skip, skip + self._line() - line)).rstrip("\r\n")
        if _is_undecodable([str(record)]):
            record = str(record).encode(self._format.encoding, "surrogateescape")
        return record, error, f"{self._split.path}:{offset}"


def _is_undecodable(row: Sequence[str]) -> bool:
    try:
        "".join(row).encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False
