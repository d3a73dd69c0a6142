"""Elements of a channel to bytes and back, for frames between subtasks and for captured in-flight data.

The first byte says the kind, so that a reader can tell a buffer from an event, and a barrier from a
watermark, without decoding. A buffer's payload is not looked into. Numbers are little endian.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from typing import Final

from penstock.runtime.errors import CodecError, StreamCorruptError
from penstock.runtime.record.elements import (
    Buffer,
    CancelCheckpointMarker,
    CheckpointBarrier,
    CheckpointOptions,
    EndOfData,
    EndOfPartition,
    SnapshotKind,
    StreamElement,
    StreamStatus,
    Watermark,
)


class ElementKind(IntEnum):
    """The first byte of an encoded element; the numbers are the format and are never changed."""

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
# kind, id, timestamp, why, unaligned, has timeout, timeout, confirmed, drain, bytes of location that follow
_BARRIER: Final = struct.Struct("<BqdBBBdqBH")
_STATUSES: Final = (StreamStatus.ACTIVE, StreamStatus.IDLE)
_SNAPSHOTS: Final = (SnapshotKind.CHECKPOINT, SnapshotKind.SAVEPOINT, SnapshotKind.SYNC_SAVEPOINT)


def kind_of(data: bytes | bytearray | memoryview) -> ElementKind:
    """The kind of an encoded element, without decoding it.

    Raises:
        StreamCorruptError: There is no such kind, or no data.

    Example:
        >>> kind_of(encode_element(EndOfData())).name
        'END_OF_DATA'
    """
    kind = _KINDS.get(data[0]) if len(data) else None
    if kind is None:
        what = f"begins with the unknown kind {data[0]}" if len(data) else "is empty"
        msg = f"an element of {len(data)} bytes {what}: it is damaged, or a newer version wrote it"
        raise StreamCorruptError(msg)
    return kind


def is_event(data: bytes | bytearray | memoryview) -> bool:
    """Whether an encoded element is an event and not a buffer, without decoding it.

    Raises:
        StreamCorruptError: There is no such kind, or no data.

    Example:
        >>> is_event(encode_element(Watermark(5))), is_event(encode_element(Buffer(b"rows", 2)))
        (True, False)
    """
    return kind_of(data) is not ElementKind.BUFFER


def rows_in(data: bytes | bytearray | memoryview) -> int:
    """Records of an encoded element, without decoding it; none of an event.

    Raises:
        StreamCorruptError: There is no such kind, or the header is cut off.

    Example:
        >>> rows_in(encode_element(Buffer(b"rows", 2))), rows_in(encode_element(Watermark(5)))
        (2, 0)
    """
    if is_event(data):
        return 0
    try:
        rows: int = _BUFFER.unpack_from(data)[1]
    except struct.error as error:
        msg = f"a buffer of {len(data)} bytes has no complete header: {error}"
        raise StreamCorruptError(msg) from error
    return rows


def encode_element(element: StreamElement) -> bytes:
    """Encode a buffer or an event.

    Raises:
        CodecError: It is no element of a stream, or a number in it does not fit.

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
    """Decode what `encode_element` wrote.

    Raises:
        StreamCorruptError: The kind is unknown, data is missing, left over or out of range.
    """
    kind = kind_of(data)
    try:
        return _decode(kind, data)
    except (struct.error, IndexError) as error:
        msg = f"an element of kind {kind.name} with {len(data)} bytes is damaged: {error}"
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
    msg = f"a {type(element).__name__} is no element of a stream"
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
        msg = f"an element of kind {kind.name} holds {actual} bytes instead of {expected}: it is damaged"
        raise StreamCorruptError(msg)
