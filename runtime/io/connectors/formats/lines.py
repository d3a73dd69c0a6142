"""Formats with one record per line: cutting files and reading slices of lines. Includes plain text.

The lines of a slice are read together, which is fast, as long as none of them is bad; otherwise one by one.
`LineCursor` computes its position in bytes only on request, from the number of lines returned from the
current block. So reading does not pay for it.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import BadRecords, OnError
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.connectors.formats.line_blocks import BLOCK_BYTES, LineBlocks, offset_of_line
from penstock.runtime.io.connectors.formats.splitting import (
    FileSplit,
    cut_into_ranges,
    is_compressed,
    is_recoded,
    open_for_lines,
    whole_file,
)
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import RowBatch


def checked_encoding(encoding: str) -> tuple[str, str | None]:
    """Return the encoding used to find lines, and the files' encoding if they are recoded; refuses others."""
    try:
        name = codecs.lookup(encoding).name
        newline = "\n".encode(name)
    except (LookupError, UnicodeError) as error:
        msg = f"encoding={encoding!r} is not an encoding that Python knows, such as 'utf-8' or 'latin-1'"
        raise ConfigurationError(msg) from error
    if name == "utf-8-sig":
        return "utf-8", None
    if is_recoded(name):
        return "utf-8", name
    if newline != b"\n":
        msg = (
            f"encoding={encoding!r} does not write a newline as the byte 10; convert the files to UTF-8 first"
        )
        raise ConfigurationError(msg)
    return name, None


class LineCursor:
    r"""The lines of one split, in order, without their line ends (`\n` or `\r\n`).

    A line that can't be decoded is returned as bytes. `close` closes the file.
    """

    def __init__(
        self, handle: InputFile, split: FileSplit, encoding: str, block_bytes: int = BLOCK_BYTES
    ) -> None:
        self._handle = handle
        self._split = split
        self._encoding = encoding
        self._blocks = LineBlocks(handle, split, strip_bom=encoding == "utf-8", block_bytes=block_bytes)
        self._block = b""
        self._block_start: int | None = None
        self._lines: list[str | bytes] = []
        self._next = 0
        self._taken_from = 0
        #: Whether the current block holds lines that can't be decoded.
        self.undecodable = False

    def find_start(self) -> bool:
        return self._blocks.find_start()

    def take(self, max_lines: int) -> list[str | bytes] | None:
        """Return up to twice `max_lines` lines of the current block; `None` at the end."""
        if self._next >= len(self._lines):
            following = self._blocks.next()
            if following is None:
                self._block_start, self._lines, self._next = None, [], 0
                return None
            self._load(*following)
        first, count = self._next, len(self._lines)
        self._taken_from = first
        self._next = count if count - first <= 2 * max_lines else first + max_lines
        return self._lines if self._next - first == count else self._lines[first : self._next]

    def origin(self, index: int) -> str:
        """Return the position of a line of the last `take`, as `file:offset`."""
        offset = offset_of_line(self._block, self._taken_from + index) + (self._block_start or 0)
        return f"{self._split.path}:{offset}"

    def position(self) -> FileSplit:
        if self._block_start is None:
            return replace(self._split, position=self._blocks.offset)
        return replace(self._split, position=self._block_start + offset_of_line(self._block, self._next))

    def close(self) -> None:
        self._handle.close()

    def _load(self, start: int, block: bytes) -> None:
        self._block_start, self._block, self._next = start, block, 0
        try:
            text = block.decode(self._encoding)
        except UnicodeDecodeError:
            self.undecodable = True
            self._lines = [self._decode_line(line) for line in block.split(b"\n")]
        else:
            self.undecodable = False
            self._lines = (text.replace("\r\n", "\n") if "\r" in text else text).split("\n")  # type: ignore[assignment]
        if block.endswith(b"\n"):
            self._lines.pop()

    def _decode_line(self, line: bytes) -> str | bytes:
        try:
            return line.removesuffix(b"\r").decode(self._encoding)
        except UnicodeDecodeError:
            return line


def line_splits(
    files: Sequence[FileInfo], split_size: int, parallelism: int, stored_as: str | None
) -> list[FileSplit]:
    """Return byte ranges of plain files, and one split for each compressed or recoded file."""
    splits: list[FileSplit] = []
    share = -(-sum(info.size for info in files) // parallelism)
    for info in files:
        if is_compressed(info.path) or stored_as is not None:
            splits.append(whole_file(info, stored_as))
        else:
            splits.extend(cut_into_ranges(info, split_size, share))
    return splits


class LineReader:
    """Reads the records of one split; here each line is one."""

    def __init__(self, cursor: LineCursor, on_error: OnError) -> None:
        self._cursor = cursor
        self._on_error: OnError = on_error

    def read(self, max_rows: int) -> Polled[Any]:
        if not self._cursor.find_start():
            return Polled()
        lines = self._cursor.take(max_rows)
        if lines is None:
            return Polled(finished=True)
        if not self._cursor.undecodable:
            records = self._all_of(lines)  # type: ignore[arg-type]
            if records is not None:
                return Polled(RowBatch(records))
        return self._one_by_one(lines)

    def position(self) -> FileSplit:
        return self._cursor.position()

    def close(self) -> None:
        self._cursor.close()

    def _one_by_one(self, lines: Sequence[str | bytes]) -> Polled[Any]:
        bad = BadRecords(self._on_error)
        records: list[Any] = []
        for index, line in enumerate(lines):
            if isinstance(line, bytes):
                what = "the line is not text in the encoding that the source was given"
                bad.report(line, what, self._cursor.origin(index))
            else:
                self._read_line(line, index, records, bad)
        return bad.polled(records)

    def _all_of(self, lines: Sequence[str]) -> Sequence[Any] | None:
        """Return the records of all lines; `None` when they must be read one by one."""
        return lines

    def _read_line(self, line: str, index: int, records: list[Any], bad: BadRecords) -> None:
        """Add the record of one line, or report it."""
        records.append(line)


@dataclass(frozen=True, slots=True)
class LineFormat:
    """A file format with one record per line.

    Attributes:
        split_size: Maximum size of a range, in bytes.
        block_bytes: Bytes requested by one read.
        stored_as: Encoding of the files, if they are recoded to UTF-8.
    """

    encoding: str
    split_size: int
    on_error: OnError
    block_bytes: int = BLOCK_BYTES
    stored_as: str | None = None

    #: Reads one split.
    reader: ClassVar[type[LineReader]] = LineReader

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        return line_splits(files, self.split_size, parallelism, self.stored_as)

    def open(self, split: FileSplit, filesystem: FileSystem) -> LineReader:
        handle = open_for_lines(filesystem, split.path, split.size, self.stored_as)
        return self.reader(LineCursor(handle, split, self.encoding, self.block_bytes), self.on_error)


class TextFormat(LineFormat):
    """Each line is a record; a line that can't be decoded is bad."""

    __slots__ = ()
