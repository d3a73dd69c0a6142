"""Encodes and decodes batches and the elements of a channel.

**Elements** are sent in frames between subtasks, and stored as captured in-flight data. The first byte is the
kind. So a reader can distinguish a buffer from an event, and a barrier from a watermark, without decoding. A
buffer's payload is not read. Numbers are little-endian.

**Batches** become buffers. A payload begins with one byte: the version of the format in the upper half, the
kind of batch in the lower. The value codec encodes rows as one list. It stores tuples, dicts and records
column by column. Timestamps precede the rows as raw 64-bit integers. Columns of numbers are plain msgpack.
Compared with raw bytes, msgpack takes a few nanoseconds more per value. For small integers it is faster and
smaller.

An Arrow stream begins at a multiple of 8 bytes, so that the reader's columns are views into the payload. The
timestamps of an Arrow batch precede it as raw 64-bit integers, and are read as a view, too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import Final, TypeAlias

import pyarrow as pa

from penstock.runtime.errors import CodecError, StreamCorruptError
from penstock.runtime.record.elements import (
    ArrowBatch,
    Batch,
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    RowBatch,
    SnapshotKind,
    StreamElement,
    StreamStatus,
    Watermark,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.trust.data import BatchStream, read_batch


class ElementKind(IntEnum):
    """The first byte of an encoded element; the numbers are part of the format and never change."""

    BUFFER = 1
    WATERMARK = 2
    STREAM_STATUS = 3
    BARRIER = 4
    CANCEL_MARKER = 5
    END_OF_DATA = 6
    END_OF_PARTITION = 7


_KINDS: Final = {int(kind): kind for kind in ElementKind}

_BUFFER: Final = struct.Struct("<BIQ")  # kind, rows, bytes that follow

_NUMBER: Final = struct.Struct("<Bq")

_CHOICE: Final = struct.Struct("<BB")

_STOP: Final = struct.Struct("<BBq")  # kind, drain, id of the savepoint
# kind, id, timestamp, snapshot, unaligned, has timeout, timeout, confirmed, drain, bytes of location
_BARRIER: Final = struct.Struct("<BqdBBBdqBH")

#: An encoded element as a channel receives it: a view belongs to memory of the transport.
EncodedElement: TypeAlias = bytes | memoryview

_STATUSES: Final = (StreamStatus.ACTIVE, StreamStatus.IDLE)

_SNAPSHOTS: Final = (SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT, SnapshotKind.SYNC_SAVEPOINT)


def kind_of(data: bytes | bytearray | memoryview) -> ElementKind:
    kind = _KINDS.get(data[0]) if len(data) else None
    if kind is None:
        what = f"begins with the unknown kind {data[0]}" if len(data) else "is empty"
        msg = f"an element of length {len(data)} {what}: it is damaged, or a newer version wrote it"
        raise StreamCorruptError(msg)
    return kind


def is_event(data: bytes | bytearray | memoryview) -> bool:
    """Return whether an encoded element is an event and not a buffer, without decoding it."""
    return kind_of(data) is not ElementKind.BUFFER


def rows_in(data: bytes | bytearray | memoryview) -> int:
    """Return the number of records in an encoded element, without decoding it; 0 for an event."""
    if is_event(data):
        return 0
    try:
        rows: int = _BUFFER.unpack_from(data)[1]
    except struct.error as error:
        msg = f"a buffer of length {len(data)} has no complete header: {error}"
        raise StreamCorruptError(msg) from error
    return rows


def encode_element(element: StreamElement) -> bytes:
    """Encode a buffer or an event.

    Example:
        >>> decode_element(encode_element(Watermark(5)))
        Watermark(timestamp=5)
    """
    try:
        return _encode(element)
    except struct.error as error:
        msg = f"{element!r:.200} can't be encoded: {error}"
        raise CodecError(msg) from error


def decode_element(data: bytes | bytearray | memoryview) -> StreamElement:
    """Decode the bytes of `encode_element`; raises `StreamCorruptError` for damaged bytes."""
    kind = kind_of(data)
    try:
        return _decode(kind, data)
    except (struct.error, IndexError) as error:
        msg = f"an element of kind {kind.name} and length {len(data)} is damaged: {error}"
        raise StreamCorruptError(msg) from error


def _encode(element: StreamElement) -> bytes:
    match element:
        case Buffer(payload, rows):
            return _BUFFER.pack(ElementKind.BUFFER, rows, len(payload)) + payload
        case Watermark(timestamp):
            return _NUMBER.pack(ElementKind.WATERMARK, timestamp)
        case StreamStatus():
            return _CHOICE.pack(ElementKind.STREAM_STATUS, _STATUSES.index(element))
        case CheckpointBarrier():
            return _encode_barrier(element)
        case CancelCheckpointMarker(checkpoint_id):
            return _NUMBER.pack(ElementKind.CANCEL_MARKER, checkpoint_id)
        case EndOfData(drain, None):
            return _CHOICE.pack(ElementKind.END_OF_DATA, drain)
        case EndOfData(drain, savepoint_id):
            return _STOP.pack(ElementKind.END_OF_DATA, drain, savepoint_id)
        case EndOfPartition():
            return bytes([ElementKind.END_OF_PARTITION])
    msg = f"a {type(element).__name__} is not an element of a stream"
    raise CodecError(msg)


def _encode_barrier(barrier: CheckpointBarrier) -> bytes:
    options = barrier.options
    location = (options.location or "").encode()
    numbers = _BARRIER.pack(
        ElementKind.BARRIER,
        barrier.checkpoint_id,
        barrier.timestamp,
        _SNAPSHOTS.index(options.kind),
        options.unaligned,
        options.aligned_timeout is not None,
        options.aligned_timeout or 0.0,
        barrier.confirmed_id,
        options.drain,
        len(location),
    )
    return numbers + location


def _decode(kind: ElementKind, data: bytes | bytearray | memoryview) -> StreamElement:
    match kind:
        case ElementKind.BUFFER:
            _, rows, size = _BUFFER.unpack_from(data)
            _check_size(kind, len(data) - _BUFFER.size, size)
            return Buffer(bytes(data[_BUFFER.size :]), rows)
        case ElementKind.WATERMARK:
            return Watermark(_NUMBER.unpack(data)[1])
        case ElementKind.STREAM_STATUS:
            return _STATUSES[_CHOICE.unpack(data)[1]]
        case ElementKind.BARRIER:
            return _decode_barrier(data)
        case ElementKind.CANCEL_MARKER:
            return CancelCheckpointMarker(_NUMBER.unpack(data)[1])
        case ElementKind.END_OF_DATA:
            if len(data) == _CHOICE.size:
                return EndOfData(_flag(_CHOICE.unpack(data)[1]))
            _, drain, savepoint_id = _STOP.unpack(data)
            return EndOfData(_flag(drain), savepoint_id)
        case ElementKind.END_OF_PARTITION:
            _check_size(kind, len(data), 1)
            return EndOfPartition()


def _decode_barrier(data: bytes | bytearray | memoryview) -> CheckpointBarrier:
    numbers = _BARRIER.unpack_from(data)
    _, checkpoint_id, timestamp, why, unaligned, has_timeout, timeout, confirmed_id, drain, size = numbers
    _check_size(ElementKind.BARRIER, len(data) - _BARRIER.size, size)
    options = CheckpointOptions(
        _SNAPSHOTS[why],
        _flag(unaligned),
        timeout if _flag(has_timeout) else None,
        _flag(drain),
        str(data[_BARRIER.size :], "utf-8") or None,
    )
    return CheckpointBarrier(checkpoint_id, timestamp, options, confirmed_id)


def _flag(number: int) -> bool:
    return (False, True)[number]


def _check_size(kind: ElementKind, actual: int, expected: int) -> None:
    if actual != expected:
        msg = (
            f"an element of kind {kind.name} has content of length {actual} "
            f"instead of {expected}: it is damaged"
        )
        raise StreamCorruptError(msg)


_ROWS: Final = 0x11

_ROWS_WITH_TIMESTAMPS: Final = 0x12

_ARROW: Final = 0x13

_ARROW_WITH_TIMESTAMPS: Final = 0x14

_ROWS_HEADER: Final = bytes([_ROWS])

_ARROW_HEADER: Final = bytes([_ARROW, 0, 0, 0, 0, 0, 0, 0])

_TIMESTAMPS_HEADER: Final = struct.Struct("<BI")

_ARROW_TIMESTAMPS_HEADER: Final = struct.Struct("<B3xI")


class BatchCodec:
    """Encodes batches into buffers, and decodes them.

    Args:
        allow_pickle: Whether values that have no codec of their own may be pickled. Without it, Arrow
            extension types are refused, because they may run code.
        thorough: Whether every value of a decoded Arrow batch is checked, for bytes of an untrusted source.
    """

    def __init__(
        self, allow_pickle: bool = True, classes: Iterable[type] = (), *, thorough: bool = False
    ) -> None:
        self._allow_pickle = allow_pickle
        self._thorough = thorough
        self._values = ValueCodec(allow_pickle, classes)

    def encode(self, batch: Batch) -> Buffer:
        payload = self._encode_arrow(batch) if isinstance(batch, ArrowBatch) else self._encode_rows(batch)
        return Buffer(payload, len(batch))

    def decode(self, buffer: Buffer) -> Batch:
        """Decode a buffer; the columns of an Arrow batch are views into it."""
        payload = buffer.payload
        kind = payload[0] if payload else None
        batch: Batch
        if kind == _ROWS:
            batch = RowBatch(self._decode_rows(memoryview(payload)[1:]))
        elif kind == _ROWS_WITH_TIMESTAMPS:
            batch = self._decode_rows_with_timestamps(payload)
        elif kind == _ARROW:
            batch = ArrowBatch(self._decode_arrow(payload, len(_ARROW_HEADER)))
        elif kind == _ARROW_WITH_TIMESTAMPS:
            batch = self._decode_arrow_with_timestamps(payload)
        else:
            what = "is empty" if kind is None else f"has the unknown format {kind:#04x}"
            msg = f"a buffer {what}: it is damaged, or a newer version wrote it"
            raise CodecError(msg)
        if len(batch) != buffer.rows:
            msg = f"a buffer has {len(batch)} rows instead of {buffer.rows}: it is damaged"
            raise CodecError(msg)
        return batch

    @property
    def pickled(self) -> int:
        return self._values.pickled

    def _encode_rows(self, batch: RowBatch) -> bytes:
        rows = batch.rows if type(batch.rows) is list else list(batch.rows)
        body = self._values.dumps(rows)
        stamps = batch.timestamps
        return _ROWS_HEADER + body if stamps is None else _encode_timestamps(stamps, len(rows)) + body

    def _decode_rows(self, data: memoryview) -> list[object]:
        rows = self._values.loads(data)
        if type(rows) is not list:
            msg = f"a buffer of rows holds a {type(rows).__name__} instead of a list: it is damaged"
            raise CodecError(msg)
        return rows

    def _decode_rows_with_timestamps(self, payload: bytes) -> RowBatch:
        try:
            _, count = _TIMESTAMPS_HEADER.unpack_from(payload)
            stamps = struct.unpack_from(f"<{count}q", payload, _TIMESTAMPS_HEADER.size)
        except struct.error as error:
            msg = f"the timestamps of a buffer are damaged: {error}"
            raise CodecError(msg) from error
        rows = self._decode_rows(memoryview(payload)[_TIMESTAMPS_HEADER.size + 8 * count :])
        if len(rows) != count:
            msg = (
                f"the numbers of timestamps ({count}) and rows ({len(rows)}) "
                "of a buffer differ: it is damaged"
            )
            raise CodecError(msg)
        return RowBatch(rows, list(stamps))

    def _encode_arrow(self, batch: ArrowBatch) -> bytes:
        columns, stamps = batch.batch, batch.timestamps
        before: list[bytes | pa.Buffer] = [_ARROW_HEADER]
        if stamps is not None:
            header = _ARROW_TIMESTAMPS_HEADER.pack(_ARROW_WITH_TIMESTAMPS, len(stamps))
            before = [header, stamps.buffers()[1].slice(8 * stamps.offset, 8 * len(stamps))]
        try:
            return BatchStream(columns, *before, any_type=self._allow_pickle).to_bytes()
        except pa.ArrowException as error:
            msg = f"an Arrow batch with the schema {columns.schema} can't be encoded: {error}"
            raise CodecError(msg) from error

    def _decode_arrow(self, payload: bytes, start: int) -> pa.RecordBatch:
        return read_batch(payload, start, any_type=self._allow_pickle, thorough=self._thorough)

    def _decode_arrow_with_timestamps(self, payload: bytes) -> ArrowBatch:
        header = _ARROW_TIMESTAMPS_HEADER.size
        count = _ARROW_TIMESTAMPS_HEADER.unpack_from(payload)[1] if len(payload) >= header else -1
        if not 0 <= 8 * count <= len(payload) - header:
            msg = f"the timestamps of an Arrow batch of length {len(payload)} are damaged"
            raise CodecError(msg)
        batch = self._decode_arrow(payload, header + 8 * count)
        if batch.num_rows != count:
            msg = (
                f"the numbers of timestamps ({count}) and rows ({batch.num_rows}) "
                "of a buffer differ: it is damaged"
            )
            raise CodecError(msg)
        data = pa.py_buffer(payload).slice(header, 8 * count)
        return ArrowBatch(batch, pa.Array.from_buffers(pa.int64(), count, [None, data]))


def _encode_timestamps(stamps: Sequence[int], rows: int) -> bytes:
    if len(stamps) != rows:
        msg = (
            f"a batch has rows of length {rows} and timestamps of length {len(stamps)}; "
            "give one timestamp for each row, or none"
        )
        raise CodecError(msg)
    try:
        return _TIMESTAMPS_HEADER.pack(_ROWS_WITH_TIMESTAMPS, rows) + struct.pack(f"<{rows}q", *stamps)
    except struct.error as error:
        msg = f"a timestamp is not a whole number of microseconds in 64 bits: {error}"
        raise CodecError(msg) from error
