"""Splits of files: parts that subtasks read independently, each with its read position.

A file of lines is cut into byte ranges without reading it. A range owns the lines that *begin* in it. Its
reader skips a line that began before the range, and reads its last line to the end, even past the range. So
every line belongs to exactly one range, wherever the cuts fall. (Hadoop's `TextInputFormat` uses the same
rule.) Compressed and recoded files, and CSV (where quotes may contain a newline), can't be read from the
middle and are one split each.

This module also opens files. Compressed files are recognised by their extension. A file whose size has
changed since it was listed is refused. Bytes of files in UTF-16, UTF-32, ISO-2022-KR and HZ are converted to
UTF-8 while reading. In these encodings the byte 10 may be part of a character, or the meaning of a byte may
depend on bytes far before it. Positions count the bytes of the text in UTF-8. Invalid text becomes invalid
UTF-8, so that its line is a bad record.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import UnreadableInputError
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile

#: UTF-32 marks come first: one of them begins with a UTF-16 mark.
_MARKS: Final = (
    ("utf-32-le", codecs.BOM_UTF32_LE),
    ("utf-32-be", codecs.BOM_UTF32_BE),
    ("utf-16-le", codecs.BOM_UTF16_LE),
    ("utf-16-be", codecs.BOM_UTF16_BE),
)

_WITH_MARKS: Final = ("utf-16", "utf-32")

_LONGEST_MARK: Final = 4

_READ_BYTES: Final = 256 * 1024


def is_recoded(encoding: str) -> bool:
    """Whether files in this encoding, a canonical name, are recoded."""
    return encoding.startswith(_WITH_MARKS) or encoding in ("iso2022_kr", "hz")


def mark_of(head: bytes) -> str | None:
    """Return the encoding of a file's byte order mark, as users name it."""
    return next((name[:6] for name, mark in _MARKS if head.startswith(mark)), None)


def _no_text(error: UnicodeError) -> tuple[str | bytes, int]:
    try:
        return codecs.lookup_error("surrogatepass")(error)
    except UnicodeDecodeError as other:
        return "\udcff", other.end


_ERRORS: Final = "penstock.no_text"

codecs.register_error(_ERRORS, _no_text)


class RecodedFile:
    """The UTF-8 bytes of a file's text. Every seek decodes from the beginning, so readers avoid seeking.

    Args:
        raw: The raw bytes; closed with this file.
        size: Size in bytes when the file was listed; `None` if `raw` checks it.
    """

    def __init__(self, path: str, raw: InputFile, encoding: str, size: int | None) -> None:
        self._path = path
        self._raw = raw
        self._encoding = encoding
        self._size = size
        self._decoder: codecs.IncrementalDecoder | None = None
        self._ready = b""
        self._taken = 0
        self._is_read = False

    def read(self, size: int = -1, /) -> bytes:
        while not self._is_read and (size < 0 or len(self._ready) < size):
            self._ready += self._more()
        end = len(self._ready) if size < 0 else size
        found, self._ready = self._ready[:end], self._ready[end:]
        return found

    def seek(self, offset: int, whence: int = 0, /) -> int:
        assert whence == 0, "readers count from the beginning"
        self._raw.seek(0)
        self._decoder, self._ready, self._taken, self._is_read = None, b"", 0, False
        return len(self.read(offset))

    def close(self) -> None:
        self._raw.close()

    def _more(self) -> bytes:
        raw = self._raw.read(_READ_BYTES)
        self._taken += len(raw)
        self._is_read = not raw
        if self._decoder is None:
            while raw and len(raw) < _LONGEST_MARK and (rest := self._raw.read(_READ_BYTES)):
                raw, self._taken = raw + rest, self._taken + len(rest)
            if not raw:
                return b""
            self._decoder, raw = self._decoder_of(raw)
        if self._is_read and self._size is not None and self._taken < self._size:
            msg = f"{self._path} was truncated during the read: {self._size} bytes before, {self._taken} now"
            raise ConnectorError(msg)
        return self._decoder.decode(raw, final=self._is_read).encode("utf-8", "surrogatepass")

    def _decoder_of(self, head: bytes) -> tuple[codecs.IncrementalDecoder, bytes]:
        """Return the decoder for the byte order, and the first bytes without the mark."""
        family = self._encoding[:6]
        # A UTF-16 text that begins with NUL has the mark of UTF-32, so only marks of the family count.
        for name, mark in _MARKS:
            if name.startswith(family) and head.startswith(mark):
                if self._encoding not in (name, family):
                    msg = (
                        f"{self._path} begins with the byte order mark of {name}, but is read as "
                        f"{self._encoding}. Set encoding={family!r}"
                    )
                    raise UnreadableInputError(msg)
                return codecs.getincrementaldecoder(name)(_ERRORS), head[len(mark) :]
        if self._encoding in _WITH_MARKS:
            msg = (
                f"{self._path} has no byte order mark, so its byte order is unknown. Set encoding="
                f"'{family}-le' (as Windows writes it) or '{family}-be'"
            )
            raise UnreadableInputError(msg)
        return codecs.getincrementaldecoder(self._encoding)(_ERRORS), head


_OPENERS: Final[dict[str, Callable[[Any], Any]]] = {
    ".gz": lambda raw: gzip.GzipFile(fileobj=raw, mode="rb"),
    ".bz2": bz2.BZ2File,
    ".xz": lzma.LZMAFile,
}

_REFUSED: Final = (".zst", ".zip", ".lz4", ".snappy", ".br", ".7z")

#: Exceptions raised by a damaged or truncated compressed file.
DAMAGED: Final = (EOFError, zlib.error, gzip.BadGzipFile, lzma.LZMAError)


def is_compressed(path: str) -> bool:
    """Whether a file is decompressed while it is read; refuses a compression that is not supported."""
    lowered = path.lower()
    if lowered.endswith(_REFUSED):
        msg = (
            f"{path}: this compression can't be read; use one of {', '.join(_OPENERS)} or decompress the file"
        )
        raise ConfigurationError(msg)
    return lowered.endswith(tuple(_OPENERS))


class DecompressedFile:
    """The decompressed bytes of a file. Seeking backwards starts over; `close` closes `raw`, too."""

    def __init__(self, path: str, raw: InputFile) -> None:
        self._raw = raw
        self._file = next(make for end, make in _OPENERS.items() if path.lower().endswith(end))(raw)

    def read(self, size: int = -1, /) -> bytes:
        return bytes(self._file.read(size))

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return int(self._file.seek(offset, whence))

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self._raw.close()


#: The end of a range of unknown length, as in a compressed or recoded file.
UNKNOWN_END: Final = (1 << 63) - 1

#: Minimum size of ranges that are cut to occupy all subtasks.
SMALLEST_USEFUL_BYTES: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class FileSplit:
    """A byte range of a file.

    Attributes:
        size: Size in bytes when the file was listed; a file whose size has changed since is refused.
        start: First byte of the range.
        end: First byte after the range, or `UNKNOWN_END`.
        position: Start of the next record, in bytes (of the decompressed file, in UTF-8 if it is recoded);
            `None` before the first read.
    """

    path: str
    size: int
    start: int
    end: int
    position: int | None = None

    @property
    def bytes_left(self) -> int | None:
        """Bytes after the position; `None` for a compressed or recoded file."""
        begin = self.start if self.position is None else self.position
        return None if self.end == UNKNOWN_END else max(0, self.end - begin)


@dataclass(frozen=True, slots=True)
class SchemaSplit(FileSplit):
    """A byte range of a file whose columns were decided when the job started."""

    schema: bytes = b""


@dataclass(frozen=True, slots=True)
class RowGroupSplit:
    """One row group of a Parquet file.

    Attributes:
        size: Size in bytes when the file was listed.
        row_group: Index of the row group, from 0.
    """

    path: str
    size: int
    row_group: int
    position: int = 0

    @property
    def bytes_left(self) -> int | None:
        """Unknown: the size of a row group is in the file."""
        return None


def cut_into_ranges(info: FileInfo, split_size: int, share: int) -> list[FileSplit]:
    """Cut a file into ranges of at most `split_size` bytes, smaller when that occupies more subtasks.

    Args:
        share: Bytes per subtask if all subtasks read the same amount.

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
    return SchemaSplit(split.path, split.size, split.start, split.end, split.position, schema)


def whole_file(info: FileInfo, stored_as: str | None = None) -> FileSplit:
    """Return one split for a file that can only be read from its beginning."""
    has_other_bytes = is_compressed(info.path) or stored_as is not None
    return FileSplit(info.path, info.size, 0, UNKNOWN_END if has_other_bytes else info.size)


def open_listed(filesystem: FileSystem, path: str, size: int) -> InputFile:
    """Open a file as it is stored; refuse a file whose size differs from `size`, its size when listed."""
    try:
        now = filesystem.size(path)
        if now is None:
            msg = (
                f"{path} is gone: it was there when the job listed its files. Put it back (the job then "
                "continues), make sure that every node sees it, or start a new job without it"
            )
            raise ConnectorError(msg)
        if now != size:
            raise ConnectorError(changed(path, size, now))
        return filesystem.open_input(path)
    except OSError as error:
        msg = f"{path} can't be opened: {error}. Check that the user of the Ray workers may read it"
        raise ConnectorError(msg) from error


def open_for_lines(filesystem: FileSystem, path: str, size: int, stored_as: str | None = None) -> InputFile:
    """Open a file of text as `open_listed` does; its bytes are decompressed and recoded to UTF-8."""
    handle: InputFile = open_listed(filesystem, path, size)
    compressed = is_compressed(path)
    if compressed:
        handle = DecompressedFile(path, handle)
    if stored_as is not None:
        handle = RecodedFile(path, handle, stored_as, None if compressed else size)
    return handle


def changed(path: str, listed: int, now: int) -> str:
    return (
        f"{path} has changed since it was listed: {listed} bytes then, {now} now. Positions in "
        "it are no longer valid; put the old file back, or start a new job. Write new data as new files"
    )
