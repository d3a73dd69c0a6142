"""Arrow batches and elements come back from the codecs as they were."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC
from typing import Any

import pyarrow as pa
import pytest
from codec_values import EPOCH, timestamps
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import StreamCorruptError
from penstock.runtime.record.element_codec import (
    BatchCodec,
    ElementKind,
    decode_element,
    encode_element,
    is_event,
    kind_of,
)
from penstock.runtime.record.elements import (
    ArrowBatch,
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

arrow_arrays = st.sampled_from(
    [
        (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
        (pa.string(), st.text(st.characters(codec="utf-8"))),
        (pa.float32(), st.floats(width=32, allow_nan=False)),
        (
            pa.timestamp("us", "Europe/Berlin"),
            st.datetimes(EPOCH).map(lambda d: d.replace(tzinfo=UTC)),
        ),
        (pa.list_(pa.int8()), st.lists(st.integers(-128, 127))),
        (pa.dictionary(pa.int8(), pa.string()), st.sampled_from(["a", "b", "c"])),
    ]
)


@given(st.integers(0, 20), st.lists(arrow_arrays, max_size=4), st.data())
def test_an_arrow_batch_comes_back_with_its_schema_and_metadata(
    length: int, kinds: list[tuple[Any, Any]], data: st.DataObject
) -> None:
    arrays = [
        pa.array(data.draw(st.lists(st.none() | inner, min_size=length, max_size=length)), kind)
        for kind, inner in kinds
    ]
    schema = pa.schema(
        [pa.field(f"c{i}", a.type, metadata={"i": str(i)}) for i, a in enumerate(arrays)], {"k": "v"}
    )
    batch = pa.record_batch(arrays, schema=schema)
    codec = BatchCodec(allow_pickle=False)
    back = codec.decode(codec.encode(ArrowBatch(batch)))
    assert isinstance(back, ArrowBatch)
    assert back.batch.equals(batch, check_metadata=True)


elements: st.SearchStrategy[StreamElement] = st.one_of(
    st.builds(Buffer, st.binary(), st.integers(0, (1 << 32) - 1)),
    st.builds(Watermark, timestamps),
    st.sampled_from(StreamStatus),
    st.builds(
        CheckpointBarrier,
        timestamps,
        st.floats(allow_nan=False),
        st.builds(
            CheckpointOptions,
            st.sampled_from(SnapshotKind),
            st.booleans(),
            st.none() | st.floats(min_value=0, allow_nan=False),
        ),
        timestamps,
    ),
    st.builds(CancelCheckpointMarker, timestamps),
    st.builds(EndOfData, st.booleans()),
    st.just(EndOfPartition()),
)


@given(elements, st.sampled_from([bytes, bytearray, memoryview]))
def test_an_element_comes_back_equal(element: StreamElement, form: Callable[[bytes], Any]) -> None:
    data = encode_element(element)
    back = decode_element(form(data))
    assert (type(back), back) == (type(element), element)
    assert is_event(data) == (not isinstance(element, Buffer))
    assert (kind_of(data) is ElementKind.BUFFER) == isinstance(element, Buffer)


@given(elements, st.data())
def test_a_truncated_or_lengthened_element_is_corrupt(element: StreamElement, data: st.DataObject) -> None:
    encoded = encode_element(element)
    cut = data.draw(st.integers(0, len(encoded) - 1))
    for damaged in (encoded[:cut], encoded + b"\0"):
        with pytest.raises(StreamCorruptError):
            decode_element(damaged)


@given(st.binary(max_size=60))
def test_garbage_is_an_element_or_corrupt(garbage: bytes) -> None:
    try:
        element = decode_element(garbage)
    except StreamCorruptError:
        return
    assert len(encode_element(element)) == len(garbage)
