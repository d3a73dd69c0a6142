"""Elements in their wire form."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.runtime.errors import CodecError, StreamCorruptError
from penstock.runtime.record.element_codec import (
    ElementKind,
    decode_element,
    encode_element,
    is_event,
    kind_of,
)
from penstock.runtime.record.elements import (
    END_OF_TIME,
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

ELEMENTS: list[tuple[StreamElement, ElementKind]] = [
    (Buffer(b"payload", 3), ElementKind.BUFFER),
    (Buffer(b"", 0), ElementKind.BUFFER),
    (Watermark(-5), ElementKind.WATERMARK),
    (Watermark(END_OF_TIME), ElementKind.WATERMARK),
    (StreamStatus.ACTIVE, ElementKind.STREAM_STATUS),
    (StreamStatus.IDLE, ElementKind.STREAM_STATUS),
    (CheckpointBarrier(7, 1.5), ElementKind.BARRIER),
    (
        CheckpointBarrier(8, 2.5, CheckpointOptions(SnapshotKind.SYNC_SAVEPOINT, True, 0.0), 7),
        ElementKind.BARRIER,
    ),
    (CheckpointBarrier(9, 0.0, CheckpointOptions(aligned_timeout=30.0), 8), ElementKind.BARRIER),
    (
        CheckpointBarrier(
            9, 0.0, CheckpointOptions(SnapshotKind.SYNC_SAVEPOINT, drain=True, location="s3://b/ä"), 8
        ),
        ElementKind.BARRIER,
    ),
    (CancelCheckpointMarker(9), ElementKind.CANCEL_MARKER),
    (EndOfData(), ElementKind.END_OF_DATA),
    (EndOfData(drain=False), ElementKind.END_OF_DATA),
    (EndOfData(drain=False, savepoint_id=7), ElementKind.END_OF_DATA),
    (EndOfPartition(), ElementKind.END_OF_PARTITION),
]


@pytest.mark.parametrize(("element", "kind"), ELEMENTS, ids=repr)
def test_an_element_comes_back_and_tells_its_kind(element: StreamElement, kind: ElementKind) -> None:
    data = encode_element(element)
    assert decode_element(data) == element
    assert kind_of(data) is kind
    assert data[0] == kind
    assert is_event(data) == (kind is not ElementKind.BUFFER)


def test_a_barrier_keeps_its_options_and_the_confirmed_checkpoint() -> None:
    barrier = CheckpointBarrier(8, 2.5, CheckpointOptions(SnapshotKind.SAVEPOINT, False, 12.25), 6)
    back = decode_element(encode_element(barrier))
    assert isinstance(back, CheckpointBarrier)
    assert back.options == CheckpointOptions(SnapshotKind.SAVEPOINT, False, 12.25)
    assert back.options.unaligned is False
    assert back.confirmed_id == 6


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff123"])
def test_an_unknown_kind_is_corrupt(data: bytes) -> None:
    for read in (kind_of, is_event, decode_element):
        with pytest.raises(StreamCorruptError, match=r"unknown kind|is empty"):
            read(data)


def damaged(element: StreamElement, index: int, value: int) -> bytes:
    data = bytearray(encode_element(element))
    data[index] = value
    return bytes(data)


@pytest.mark.parametrize(
    "data",
    [
        damaged(StreamStatus.IDLE, 1, 2),
        damaged(EndOfData(), 1, 2),
        damaged(EndOfData(False, 7), 1, 2),
        encode_element(EndOfData(False, 7))[:-1],
        damaged(CheckpointBarrier(1, 0.0), 17, 3),
        damaged(CheckpointBarrier(1, 0.0), 18, 2),
        damaged(CheckpointBarrier(1, 0.0), 19, 9),
        damaged(Buffer(b"abc", 1), 5, 4),
    ],
)
def test_a_value_out_of_range_is_corrupt(data: bytes) -> None:
    with pytest.raises(StreamCorruptError, match="damaged"):
        decode_element(data)


@pytest.mark.parametrize(
    "element", [Watermark(1 << 63), Buffer(b"", -1), CancelCheckpointMarker(1 << 70), "text"]
)
def test_what_is_no_element_or_does_not_fit_is_refused(element: Any) -> None:
    with pytest.raises(CodecError):
        encode_element(element)
