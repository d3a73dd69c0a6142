"""What formats with one record a line share: how files are cut, and how a slice of lines is read.

The lines of a slice are read together, which is fast, as long as none of them is bad; otherwise one by one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from penstock.runtime.io.connectors.bad_records import BadRecords, OnError
from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo, FileSystem
from penstock.runtime.io.connectors.formats.compression import is_compressed
from penstock.runtime.io.connectors.formats.line_blocks import BLOCK_BYTES
from penstock.runtime.io.connectors.formats.line_cursor import LineCursor
from penstock.runtime.io.connectors.formats.opening import open_for_lines
from penstock.runtime.io.connectors.formats.splitting import FileSplit, cut_into_ranges, whole_file
from penstock.runtime.operators.protocols import Polled
from penstock.runtime.record.elements import RowBatch

T = TypeVar("T")


def line_splits(
    files: Sequence[FileInfo], split_size: int, parallelism: int, stored_as: str | None
) -> list[FileSplit]:
    """Byte ranges of plain files, one split for each compressed or recoded file.

    Args:
        files: What is cut.
        split_size: Largest range, in bytes.
        parallelism: How many readers there are; ranges are small enough for each to get some.
        stored_as: Their encoding, if they are recoded to UTF-8.
    """
    splits: list[FileSplit] = []
    share = -(-sum(info.size for info in files) // parallelism)
    for info in files:
        if is_compressed(info.path) or stored_as is not None:
            splits.append(whole_file(info, stored_as))
        else:
            splits.extend(cut_into_ranges(info, split_size, share))
    return splits


class LineReader(ABC, Generic[T]):
    """Reads the records of one split.

    Args:
        on_error: What is done with a bad one.
    """

    def __init__(self, cursor: LineCursor, on_error: OnError) -> None:
        self._cursor = cursor
        self._on_error: OnError = on_error

    def read(self, max_rows: int) -> Polled[T]:
        """The next records; `finished` at the end of the split."""
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
        """The split with how far it was read."""
        return self._cursor.position()

    def close(self) -> None:
        """Close the file."""
        self._cursor.close()

    def _one_by_one(self, lines: Sequence[str | bytes]) -> Polled[T]:
        bad = BadRecords(self._on_error)
        records: list[T] = []
        for index, line in enumerate(lines):
            if isinstance(line, bytes):
                what = "the line is not text in the encoding that the source was given"
                bad.report(line, what, self._cursor.origin(index))
            else:
                self._read_line(line, index, records, bad)
        return bad.polled(records)

    @abstractmethod
    def _all_of(self, lines: Sequence[str]) -> Sequence[T] | None:
        """The records of all lines; `None` when they must be read one by one."""

    @abstractmethod
    def _read_line(self, line: str, index: int, records: list[T], bad: BadRecords) -> None:
        """Add the record of one line, or report it."""


@dataclass(frozen=True, slots=True)
class LineFormat:
    """How files with one record a line are read.

    Attributes:
        encoding: Encoding in which lines are found.
        split_size: Largest range, in bytes.
        on_error: What is done with a bad line.
        block_bytes: Bytes asked for by one read.
        stored_as: Encoding of the files, if they are recoded to UTF-8.
    """

    encoding: str
    split_size: int
    on_error: OnError
    block_bytes: int = BLOCK_BYTES
    stored_as: str | None = None

    #: Reads one split.
    reader: ClassVar[type[LineReader[Any]]]

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        """Cut the files."""
        return line_splits(files, self.split_size, parallelism, self.stored_as)

    def open(self, split: FileSplit, filesystem: FileSystem) -> LineReader[Any]:
        """Open one split."""
        handle = open_for_lines(filesystem, split.path, split.size, self.stored_as)
        return self.reader(LineCursor(handle, split, self.encoding, self.block_bytes), self.on_error)
