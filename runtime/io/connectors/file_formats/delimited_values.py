"""Files of values, each preceded by its length in bytes as a varint.

Protobuf's `writeDelimitedTo` and `parseDelimitedFrom` use this framing. A value may hold any bytes, so a file
can't be read from its middle: it is one split. A file is damaged if it ends within a value, or if a length is
not a valid varint or too large. Its reader then fails, because it can't find the next value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from penstock.runtime.io.connectors.arrow_batches import arrow_rows
from penstock.runtime.io.connectors.errors import BadRecords, OnError, UnreadableInputError
from penstock.runtime.io.connectors.file_formats.line_blocks import BLOCK_BYTES, SKIP_BYTES, read_bytes
from penstock.runtime.io.connectors.file_formats.splitting import FileSplit, open_for_lines, whole_file
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.formats.format import Format
from penstock.runtime.io.formats.varints import read_varint
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import BatchFormat

#: Maximum size of a value in bytes, as in Protobuf.
LARGEST_VALUE: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class DelimitedValues:
    """A file format: values of `format`, each preceded by its length."""

    format: Format
    batch_format: BatchFormat
    on_error: OnError

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        return [whole_file(info) for info in files if info.size]

    def open(self, split: FileSplit, filesystem: FileSystem) -> DelimitedReader:
        return DelimitedReader(open_for_lines(filesystem, split.path, split.size), split, self)


class DelimitedReader:
    """Reads the values of one file; the position is the byte after the last value."""

    def __init__(self, handle: InputFile, split: FileSplit, form: DelimitedValues) -> None:
        self._handle = handle
        self._split = split
        self._form = form
        self._decoder = form.format.decoder(form.batch_format)
        #: Bytes that were read, and the offset of the first of them in the file.
        self._data = b""
        self._offset = 0
        self._target = split.position or 0

    def read(self, max_rows: int) -> Polled[Any]:
        if not self._find_start():
            return Polled()
        wanted = arrow_rows(max_rows) if self._form.batch_format == "arrow" else max_rows
        values: list[bytes] = []
        starts: list[int] = []
        at = 0
        while len(values) < wanted:
            found = self._next(at)
            if found is None:
                if values or not self._more(at):
                    break
                at = 0
                continue
            start, at = found
            starts.append(self._offset + start)
            values.append(self._data[start:at])
        self._drop(at)
        if not values:
            return Polled(finished=True)
        decoded = self._decoder.decode(values)
        bad = BadRecords(self._form.on_error)
        for index, why in decoded.bad:
            bad.report(values[index], why, f"{self._split.path}:{starts[index]}")
        return bad.polled(decoded.batch)

    def position(self) -> FileSplit:
        return replace(self._split, position=max(self._offset, self._target))

    def close(self) -> None:
        self._decoder.close()
        self._handle.close()

    def _next(self, at: int) -> tuple[int, int] | None:
        """Start and end of the value at an offset of the data; `None` if more bytes are needed."""
        try:
            header = read_varint(self._data, at)
        except ValueError as error:
            raise self._damaged(at, str(error)) from error
        if header is None:
            return None
        size, start = header
        if size > LARGEST_VALUE:
            raise self._damaged(at, f"a value would have {size} bytes")
        return (start, start + size) if start + size <= len(self._data) else None

    def _more(self, at: int) -> bool:
        """Drop the data before an offset, and read more; return `False` at the end of the file."""
        self._drop(at)
        # Doubled for large values, so that their bytes are not copied once for each block.
        size = max(BLOCK_BYTES, len(self._data))
        chunk = read_bytes(self._handle, size, self._split.path, self._offset + len(self._data))
        self._data += chunk
        if not chunk and self._data:
            raise self._damaged(0, "it ends within a value")
        return bool(chunk)

    def _drop(self, count: int) -> None:
        self._data = self._data[count:]
        self._offset += count

    def _find_start(self) -> bool:
        """Go to the position; return `False` if another call must continue, as in a compressed file."""
        if self._offset < self._target and self._split.end == self._split.size:
            self._handle.seek(self._target)
            self._offset = self._target
        for _ in range(SKIP_BYTES // BLOCK_BYTES):
            if self._offset >= self._target:
                return True
            size = min(BLOCK_BYTES, self._target - self._offset)
            chunk = read_bytes(self._handle, size, self._split.path, self._offset)
            self._offset += len(chunk)
            if not chunk:
                raise self._damaged(0, f"it ends before byte {self._target}, up to which it was read before")
        return False

    def _damaged(self, at: int, why: str) -> UnreadableInputError:
        msg = (
            f"{self._split.path} is damaged at byte {self._offset + at}: {why}. Check that each value "
            "follows its length (framing='length_delimited'), write it again, or leave it out"
        )
        return UnreadableInputError(msg)
