"""Splits of files: parts that subtasks read on their own, each with how far it was read.

A file of lines is cut into byte ranges without looking into it. A range owns the lines that *begin* in it.
Its reader skips the line that reaches in from before. It reads the last line to the end, however far that
goes. So every line belongs to exactly one range, wherever the cuts fall. Compressed and recoded files, and
CSV (where a newline may stand in quotes), can't be entered in the middle and are one split each. (Hadoop's
`TextInputFormat` reads by the same rule.)

A file is opened here, too. Compressed files are known by their ending. A file that is no longer the one that
was listed is refused.
"""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.errors import ConnectorError
from penstock.runtime.io.connectors.filesystems.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.connectors.formats.recoding import RecodedFile

_OPENERS: Final[dict[str, Callable[[Any], Any]]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}

_REFUSED: Final = (".zst", ".zip", ".lz4", ".snappy", ".br", ".7z")

#: What a damaged or cut-off compressed file raises.
DAMAGED: Final = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


def is_compressed(path: str) -> bool:
    """Whether a file is decompressed while it is read.

    Raises:
        ConfigurationError: It is compressed in a way that can't be read here.

    Example:
        >>> is_compressed("/in/a.jsonl.gz"), is_compressed("/in/a.jsonl")
        (True, False)
    """
    lowered = path.lower()
    if lowered.endswith(_REFUSED):
        msg = (
            f"{path}: this compression can't be read; use one of {', '.join(_OPENERS)} or decompress the file"
        )
        raise ConfigurationError(msg)
    return lowered.endswith(tuple(_OPENERS))


class DecompressedFile:
    """The decompressed bytes of a file; going backwards starts over, so readers only go forwards.

    Args:
        path: The file's name, whose ending tells how it is compressed.
        raw: The compressed bytes; closed with this one.
    """

    def __init__(self, path: str, raw: InputFile) -> None:
        self._raw = raw
        self._file = next(make for end, make in _OPENERS.items() if path.lower().endswith(end))(raw)

    def read(self, size: int = -1, /) -> bytes:
        return bytes(self._file.read(size))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return int(self._file.seek(offset, whence))

    def close(self) -> None:
        """Close the file and what is under it."""
        try:
            self._file.close()
        finally:
            self._raw.close()


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


def open_listed(filesystem: FileSystem, path: str, size: int) -> InputFile:
    """Open a file as it is stored.

    Args:
        filesystem: What serves it.
        path: Its full path.
        size: Its bytes when it was listed.

    Raises:
        ConnectorError: It is gone, has another size now, or can't be opened.
    """
    try:
        now = filesystem.size(path)
        if now is None:
            msg = (
                f"{path} is gone: it was there when the job listed its files. Put it back (a restart goes on "
                "where it was), make sure that every node sees it, or start the job anew without it"
            )
            raise ConnectorError(msg)
        if now != size:
            raise ConnectorError(changed(path, size, now))
        return filesystem.open_input(path)
    except OSError as error:
        msg = f"{path} can't be opened: {error}. Check that the user of the Ray workers may read it"
        raise ConnectorError(msg) from error


def open_for_lines(filesystem: FileSystem, path: str, size: int, stored_as: str | None = None) -> InputFile:
    """Open a file of text, decompressed when its name says that it is compressed.

    Args:
        filesystem: What serves it.
        path: Its full path.
        size: Its bytes when it was listed.
        stored_as: Its encoding, if it is recoded to UTF-8.

    Raises:
        ConnectorError: As `open_listed`.
    """
    handle: InputFile = open_listed(filesystem, path, size)
    compressed = is_compressed(path)
    if compressed:
        handle = DecompressedFile(path, handle)
    if stored_as is not None:
        handle = RecodedFile(path, handle, stored_as, None if compressed else size)
    return handle


def changed(path: str, listed: int, now: int) -> str:
    """Say that a file is not what it was."""
    return (
        f"{path} has changed since it was listed: {listed} bytes then, {now} now. Positions in "
        "it mean nothing any more; put the old file back, or start the job anew. Write new data as new files"
    )
