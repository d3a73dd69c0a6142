"""Avro's object container files: a header with the schema, then blocks of records.

A marker of 16 bytes follows the header and each block. So a file is cut into byte ranges without reading it.
A range owns the blocks whose preceding marker begins in it. The position is the beginning of the next block;
a block is read as a whole.

Each file is read with the schema in its header. Columns need one schema for all files: the reader's, or else
that of the first file. It is part of each split, so a restored job has the same columns.
"""

from __future__ import annotations

import bz2
import lzma
import os
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from typing import Any, Final, NamedTuple

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.arrow_batches import arrow_rows
from penstock.runtime.io.connectors.errors import BadRecords, OnError, UnreadableInputError
from penstock.runtime.io.connectors.file_formats.line_blocks import BLOCK_BYTES, read_bytes
from penstock.runtime.io.connectors.file_formats.splitting import (
    FileSplit,
    SchemaSplit,
    cut_into_ranges,
    is_compressed,
    open_listed,
    with_schema,
)
from penstock.runtime.io.connectors.filesystem import FileInfo, FileSystem, InputFile
from penstock.runtime.io.formats.avro import Avro, AvroDecoder, schema_text
from penstock.runtime.io.formats.avro_schema import parsed_schema
from penstock.runtime.io.formats.format import Decoded
from penstock.runtime.io.formats.settings import imported
from penstock.runtime.io.formats.varints import read_varint, read_zigzag_varint, zigzag_varint
from penstock.runtime.operators.source import Polled
from penstock.runtime.record.elements import ArrowBatch, Batch, BatchFormat, RowBatch

MAGIC: Final = b"Obj\x01"
MARKER_BYTES: Final = 16
#: Bytes of a block after which a writer ends it.
FULL_BLOCK_BYTES: Final = 64 * 1024
_METADATA: Final = {"type": "map", "values": "bytes"}
_LARGEST_HEADER: Final = 16 * 1024 * 1024
_CHECKSUM_BYTES: Final = 4
#: Maximum expansion of a block: snappy's shortest code has three bytes for 64. A damaged size may be larger.
_MOST_EXPANSION: Final = 22


def _snappy(data: bytes) -> bytes:
    """Decompress a snappy block; it begins with its decompressed size, and a checksum follows it."""
    packed, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    header = read_varint(packed, 0)
    size = 0 if header is None else header[0]
    if size > _MOST_EXPANSION * len(packed):
        msg = f"{len(packed)} bytes of snappy can't become {size} bytes"
        raise ValueError(msg)
    found = bytes(pa.Codec("snappy").decompress(packed, size, asbytes=True))
    if zlib.crc32(found).to_bytes(_CHECKSUM_BYTES, "big") != checksum:
        msg = "its checksum does not match its records"
        raise ValueError(msg)
    return found


def _zstandard(data: bytes) -> bytes:
    return bytes(pa.CompressedInputStream(pa.BufferReader(data), "zstd").read())


_CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": lambda data: data,
    "deflate": lambda data: zlib.decompress(data, -15),
    "bzip2": bz2.decompress,
    "xz": lzma.decompress,
    "snappy": _snappy,
    "zstandard": _zstandard,
}

_DAMAGED: Final = (ValueError, OSError, EOFError, zlib.error, lzma.LZMAError)


class Header(NamedTuple):
    """The header of a container file.

    Attributes:
        schema: The writer's schema, as JSON.
        size: Bytes of the header, with its marker.
    """

    schema: str
    codec: str
    marker: bytes
    size: int


def read_header(handle: InputFile, path: str) -> Header:
    """Read the header at the beginning of a file.

    Raises:
        UnreadableInputError: The file is not a container file, or its codec is unknown.
    """
    read = imported("fastavro", "Avro", "avro").schemaless_reader
    data = b""
    while chunk := read_bytes(handle, max(BLOCK_BYTES, len(data)), path, len(data)):
        data += chunk
        if not data.startswith(MAGIC):
            break
        stream = BytesIO(data)
        stream.seek(len(MAGIC))
        try:
            metadata = read(stream, _METADATA, None)
            marker = stream.read(MARKER_BYTES)
            schema = metadata["avro.schema"].decode()
            codec = metadata.get("avro.codec", b"null").decode()
        except Exception as error:  # damaged bytes raise anything, and so does an incomplete header
            if len(data) < _LARGEST_HEADER:
                continue
            msg = f"{path}: its header can't be read: {type(error).__name__}: {error}"
            raise UnreadableInputError(msg) from error
        if codec not in _CODECS:
            msg = f"{path}: its blocks have the codec {codec!r}; known codecs are {', '.join(_CODECS)}"
            raise UnreadableInputError(msg)
        if len(marker) == MARKER_BYTES:
            return Header(schema, codec, marker, stream.tell())
    msg = f"{path} is not an Avro container file, or its header is damaged. Leave it out, or write it again"
    raise UnreadableInputError(msg)


@dataclass(frozen=True, slots=True)
class AvroFiles:
    """The format of container files.

    Attributes:
        split_size: Maximum size of a range, in bytes.
    """

    format: Avro
    batch_format: BatchFormat
    split_size: int
    on_error: OnError

    def splits(self, files: Sequence[FileInfo], filesystem: Any, parallelism: int) -> Sequence[FileSplit]:
        for info in files:
            if is_compressed(info.path):
                msg = (
                    f"{info.path}: Avro files have compressed blocks, so they can't be compressed as a whole"
                )
                raise ConnectorError(msg)
        present = [info for info in files if info.size]
        share = -(-sum(info.size for info in present) // parallelism)
        splits = [split for info in present for split in cut_into_ranges(info, self.split_size, share)]
        if self.batch_format == "rows" or not present:
            return splits
        wanted = self.format.read_schema
        if wanted is None:
            handle = open_listed(filesystem, present[0].path, present[0].size)
            try:
                wanted = read_header(handle, present[0].path).schema
            finally:
                handle.close()
        data = schema_text(wanted).encode()
        return [with_schema(split, data) for split in splits]

    def open(self, split: FileSplit, filesystem: FileSystem) -> AvroFileReader:
        handle = open_listed(filesystem, split.path, split.size)
        try:
            return AvroFileReader(handle, split, self)
        except BaseException:
            handle.close()
            raise


class AvroFileReader:
    """Reads the blocks of one range."""

    def __init__(self, handle: InputFile, split: FileSplit, form: AvroFiles) -> None:
        self._handle = handle
        self._split = split
        self._form = form
        self._header = read_header(handle, split.path)
        writer = parsed_schema(self._header.schema)
        given: Any = form.format.read_schema
        if form.batch_format == "arrow":
            if not isinstance(split, SchemaSplit):
                msg = (
                    f"{split.path}: the snapshot was taken when this source read rows, so it names no "
                    'columns. Start with batch_format="rows" as before, or without the snapshot'
                )
                raise ConnectorError(msg)
            # The schema of the program may be newer than that of the snapshot.
            given = split.schema.decode() if given is None else given
        reader = writer if given is None else parsed_schema(given)
        self._decoder = AvroDecoder(writer, writer if reader == writer else reader, form.batch_format)
        #: Bytes that were read, and the offset of the first of them in the file.
        self._data = b""
        self._offset = split.start if split.position is None else split.position
        self._is_at_block = split.position is not None
        handle.seek(self._offset)

    def read(self, max_rows: int) -> Polled[Any]:
        if not self._is_at_block and not self._find_marker():
            return Polled(finished=True)
        wanted = arrow_rows(max_rows) if self._form.batch_format == "arrow" else max_rows
        bad = BadRecords(self._form.on_error)
        found: list[Batch] = []
        rows, is_last = 0, True
        while rows < wanted:
            start = self._offset
            block = self._next_block()
            if block is None:
                break
            is_last = False
            decoded = self._decoded(*block, start, bad)
            found.append(decoded.batch)
            rows += len(decoded.batch)
        if is_last:
            return Polled(finished=True)
        return bad.polled(self._joined(found))

    def position(self) -> FileSplit:
        return replace(self._split, position=self._offset) if self._is_at_block else self._split

    def close(self) -> None:
        self._handle.close()

    def _find_marker(self) -> bool:
        """Go to the first block of the range; return `False` if no marker begins in it."""
        marker = self._header.marker
        while True:
            at = self._data.find(marker)
            if at >= 0 and self._offset + at < self._split.end:
                self._drop(at + MARKER_BYTES)
                self._is_at_block = True
                return True
            if self._offset + len(self._data) >= self._split.end + MARKER_BYTES or at >= 0:
                return False
            self._drop(max(0, len(self._data) - MARKER_BYTES + 1))
            if not self._more():
                return False

    def _next_block(self) -> tuple[bytes, int] | None:
        """The bytes and the number of records of the next block; `None` at the end of the range."""
        if self._offset - MARKER_BYTES >= self._split.end:
            return None
        while (header := self._block_header()) is None:
            if not self._more():
                if self._data:
                    raise self._damaged(self._offset, "it ends within a block")
                return None
        count, size, at = header
        end = at + size
        while len(self._data) < end + MARKER_BYTES:
            if not self._more():
                raise self._damaged(self._offset, "it ends within a block")
        if self._data[end : end + MARKER_BYTES] != self._header.marker:
            raise self._damaged(self._offset, "no marker follows the block")
        data = self._data[at:end]
        self._drop(end + MARKER_BYTES)
        return data, count

    def _block_header(self) -> tuple[int, int, int] | None:
        """Number of records, size and offset of the block's data; `None` if more bytes are needed."""
        try:
            count = read_zigzag_varint(self._data, 0)
            size = None if count is None else read_zigzag_varint(self._data, count[1])
        except ValueError as error:
            raise self._damaged(self._offset, str(error)) from error
        if count is None or size is None:
            return None
        if count[0] < 0 or not 0 <= size[0] <= self._split.size:
            raise self._damaged(self._offset, f"a block would have {count[0]} records in {size[0]} bytes")
        return count[0], size[0], size[1]

    def _decoded(self, data: bytes, count: int, start: int, bad: BadRecords) -> Decoded:
        origin = f"{self._split.path}:{start}"
        try:
            plain = _CODECS[self._header.codec](data)
            decoded = self._decoder.decode_block(plain, count)
        except _DAMAGED as error:
            bad.report(data, f"the block of {count} records can't be read: {error}", origin)
            return self._decoder.decode([])
        values = self._decoder.values_of(plain, count) if decoded.bad else []
        for index, why in decoded.bad:
            bad.report(values[index], f"{why} (record {index} of the block)", origin)
        return decoded

    def _joined(self, found: Sequence[Batch]) -> Batch:
        if len(found) == 1:
            return found[0]
        columns = [batch.batch for batch in found if isinstance(batch, ArrowBatch)]
        if columns:
            return ArrowBatch(pa.concat_batches(columns))
        return RowBatch([row for batch in found if isinstance(batch, RowBatch) for row in batch.rows])

    def _more(self) -> bool:
        # Doubled for large blocks, so that their bytes are not copied once for each read.
        size = max(BLOCK_BYTES, len(self._data))
        chunk = read_bytes(self._handle, size, self._split.path, self._offset + len(self._data))
        self._data += chunk
        return bool(chunk)

    def _drop(self, count: int) -> None:
        self._data = self._data[count:]
        self._offset += count

    def _damaged(self, offset: int, why: str) -> UnreadableInputError:
        msg = f"{self._split.path} is damaged at byte {offset}: {why}. Write it again, or leave it out"
        return UnreadableInputError(msg)


def header_of(schema: str) -> tuple[bytes, bytes]:
    """The header of a file of this schema, and its marker."""
    output = BytesIO()
    metadata = {"avro.schema": schema.encode(), "avro.codec": b"null"}
    imported("fastavro", "Avro", "avro").schemaless_writer(output, _METADATA, metadata)
    marker = os.urandom(MARKER_BYTES)
    return MAGIC + output.getvalue() + marker, marker


def blocks_of(values: Sequence[bytes], marker: bytes) -> bytes:
    """Encoded records as blocks of about `FULL_BLOCK_BYTES`."""
    found: list[bytes] = []
    first, size = 0, 0
    for index, value in enumerate(values):
        size += len(value)
        if size >= FULL_BLOCK_BYTES or index == len(values) - 1:
            part = values[first : index + 1]
            found += [zigzag_varint(len(part)), zigzag_varint(size), *part, marker]
            first, size = index + 1, 0
    return b"".join(found)
