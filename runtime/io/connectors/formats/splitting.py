"""Splits of files: parts that subtasks read on their own, each with how far it was read.

A file of lines is cut into byte ranges without looking into it. A range owns the lines that *begin* in it.
Its reader skips the line that reaches in from before. It reads the last line to the end, however far that
goes. So every line belongs to exactly one range, wherever the cuts fall. Compressed and recoded files, and
CSV (where a newline may stand in quotes), can't be entered in the middle and are one split each. (Hadoop's
`TextInputFormat` reads by the same rule.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo
from penstock.runtime.io.connectors.formats.compression import is_compressed

#: The end of a range whose length is not known, as in a compressed or recoded file.
UNKNOWN_END: Final = (1 << 63) - 1

#: Ranges are not cut smaller than this to occupy all subtasks.
SMALLEST_USEFUL_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A byte range of a file.

    Attributes:
        size: Its bytes when it was listed; a file that has changed since is refused.
        start: First byte of the range.
        end: First byte after the range, or `UNKNOWN_END`.
        position: Where the next record begins, in bytes (of the decompressed file, in UTF-8 if it is
            recoded); `None` before the start.
    """

    path: str
    size: int
    start: int
    end: int
    position: int | None = None


@dataclass(frozen=True, slots=True)
class SchemaSplit(FileSplit):
    """A byte range of a file whose columns were decided when the job started.

    Attributes:
        schema: The columns, as Arrow serialises a schema.
    """

    schema: bytes = b""


@dataclass(frozen=True, slots=True)
class RowGroupSplit:
    """One row group of a Parquet file.

    Attributes:
        path: The file.
        size: Its bytes when it was listed.
        row_group: Which row group, from 0.
        position: How many of its rows were read.
    """

    path: str
    size: int
    row_group: int
    position: int = 0


def cut_into_ranges(info: FileInfo, split_size: int, share: int) -> list[FileSplit]:
    """Cut a file into ranges of at most `split_size` bytes, smaller when that occupies more subtasks.

    Args:
        split_size: Largest range, in bytes.
        share: Bytes that one subtask would read if all read the same.

    Example:
        >>> [(s.start, s.end) for s in cut_into_ranges(FileInfo("/a", 10), 4, 10)]
        [(0, 4), (4, 8), (8, 10)]
    """
    step = min(split_size, max(SMALLEST_USEFUL_BYTES, share))
    return [
        FileSplit(info.path, info.size, start, min(start + step, info.size))
        for start in range(0, info.size, step)
    ]


def with_schema(split: FileSplit, schema: bytes) -> SchemaSplit:
    """The split with the columns of its source."""
    return SchemaSplit(split.path, split.size, split.start, split.end, split.position, schema)


def whole_file(info: FileInfo, stored_as: str | None = None) -> FileSplit:
    """One split for a file that can only be read from its beginning.

    Args:
        stored_as: Its encoding, if it is recoded to UTF-8.
    """
    has_other_bytes = is_compressed(info.path) or stored_as is not None
    return FileSplit(info.path, info.size, 0, UNKNOWN_END if has_other_bytes else info.size)
