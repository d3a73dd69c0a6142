"""Text files: one record per line, a `str` without its line end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock.runtime.io.connectors.bad_records import BadRecords, OnError
from penstock.runtime.io.connectors.compression import is_compressed
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem
from penstock.runtime.io.connectors.line_blocks import BLOCK_BYTES
from penstock.runtime.io.connectors.line_cursor import LineCursor
from penstock.runtime.io.connectors.opening import open_for_lines
from penstock.runtime.io.connectors.splitting import FileSplit, cut_into_ranges, whole_file
from penstock.runtime.operators.protocols import Polled
from penstock.runtime.record.elements import RowBatch


def line_splits(files: Sequence[FileInfo], split_size: int, parallelism: int) -> list[FileSplit]:
    """Byte ranges of plain files, one split for each compressed file."""
    splits: list[FileSplit] = []
    share = -(-sum(info.size for info in files) // parallelism)
    for info in files:
        if is_compressed(info.path):
            splits.append(whole_file(info))
        else:
            splits.extend(cut_into_ranges(info, split_size, share))
    return splits


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How text files are read.

    Attributes:
        encoding: From `checked_encoding`.
        split_size: Largest range, in bytes.
        on_error: What is done with a line that can't be decoded.
        block_bytes: Bytes asked for by one read.
    """

    encoding: str
    split_size: int
    on_error: OnError
    block_bytes: int = BLOCK_BYTES

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        """Cut the files."""
        return line_splits(files, self.split_size, parallelism)

    def open(self, split: FileSplit, filesystem: FileSystem) -> TextReader:
        """Open one split."""
        handle = open_for_lines(filesystem, split.path, split.size)
        return TextReader(LineCursor(handle, split, self.encoding, self.block_bytes), self.on_error)


class TextReader:
    """Reads the lines of one split."""

    def __init__(self, cursor: LineCursor, on_error: OnError) -> None:
        self._cursor = cursor
        self._on_error: OnError = on_error

    def read(self, max_rows: int) -> Polled[str]:
        """The next lines; `finished` at the end of the split."""
        if not self._cursor.find_start():
            return Polled()
        lines = self._cursor.take(max_rows)
        if lines is None:
            return Polled(finished=True)
        if not self._cursor.undecodable:
            return Polled(RowBatch(lines))
        bad = BadRecords(self._on_error)
        good = []
        for index, line in enumerate(lines):
            if isinstance(line, bytes):
                report_undecodable(bad, line, self._cursor.origin(index))
            else:
                good.append(line)
        return bad.polled(good)

    def position(self) -> FileSplit:
        """The split with how far it was read."""
        return self._cursor.position()

    def close(self) -> None:
        """Close the file."""
        self._cursor.close()


def report_undecodable(bad: BadRecords, line: bytes, origin: str) -> None:
    """Report a line whose bytes are not text in the source's encoding."""
    bad.report(line, "the line is not text in the encoding that the source was given", origin)
