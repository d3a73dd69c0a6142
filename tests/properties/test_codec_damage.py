"""Codecs report damaged bytes as such, and raise nothing else."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from codec_values import rows, values
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import CodecError
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import (
    ArrowBatch,
    Buffer,
)
from penstock.runtime.record.row_columns import NoPythonValueError, dicts_of_arrow
from penstock.runtime.record.value_codec import ValueCodec

#: A column of each kind of layout.
COLUMNS = pa.record_batch(
    {
        "number": [1, None, 3],
        "text": ["a", "bb", None],
        "long text": pa.array(["a", None, "b" * 20], pa.large_string()),
        "view": pa.array(["a", None, "b" * 20], pa.string_view()),
        "list": [[1, 2], None, []],
        "list view": pa.array([[1], [2], None], pa.list_view(pa.int8())),
        "struct": [{"x": "y"}, None, {"x": None}],
        "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int8())),
        "dictionary": pa.array(["x", "y", "x"]).dictionary_encode(),
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([2, 3], pa.int32()), pa.array(["x", "y"])),
        "union": pa.UnionArray.from_dense(
            pa.array([0, 1, 0], pa.int8()),
            pa.array([0, 0, 1], pa.int32()),
            [pa.array([1, 2]), pa.array(["s"])],
        ),
    }
)


@given(values, st.data())
def test_a_truncated_value_is_refused(value: Any, data: st.DataObject) -> None:
    codec = ValueCodec(allow_pickle=False)
    encoded = codec.dumps(value)
    with pytest.raises(CodecError):
        codec.loads(encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@given(values | rows, st.data())
def test_damaged_bytes_are_a_value_or_refused(value: Any, data: st.DataObject) -> None:
    codec = ValueCodec(allow_pickle=False)
    damaged = bytearray(codec.dumps(value))
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    raises_only_codec_error(lambda: codec.loads(bytes(damaged)))


@given(st.integers(1, 40), st.binary(max_size=40))
def test_a_garbage_extension_is_a_value_or_refused(code: int, garbage: bytes) -> None:
    codec = ValueCodec(allow_pickle=False)
    raises_only_codec_error(lambda: codec.loads(bytes([0xC7, len(garbage), code]) + garbage))


@given(st.sampled_from([0x11, 0x12, 0x13, 0x14]), st.binary(max_size=60), st.integers(0, 3))
def test_a_garbage_buffer_is_a_batch_or_refused(kind: int, garbage: bytes, count: int) -> None:
    codec = BatchCodec(allow_pickle=False)
    raises_only_codec_error(lambda: codec.decode(Buffer(bytes([kind]) + garbage, count)))


@given(st.data())
def test_a_truncated_arrow_buffer_is_refused(data: st.DataObject) -> None:
    codec = BatchCodec(allow_pickle=False)
    buffer = codec.encode(ArrowBatch(pa.record_batch({"a": [1, 2, 3], "s": ["x", "y", None]})))
    # The last 8 bytes mark the end of the stream; the batch is complete before them.
    cut = data.draw(st.integers(0, buffer.size - 9))
    with pytest.raises(CodecError):
        codec.decode(Buffer(buffer.payload[:cut], buffer.rows))


@given(st.data())
def test_a_damaged_arrow_buffer_that_a_thorough_codec_takes_has_values_that_can_be_read(
    data: st.DataObject,
) -> None:
    """None of them is outside of the buffer: the process would end, or show what is there."""
    stamps = data.draw(st.sampled_from([None, pa.array([1, 2, 3])]))
    buffer = BatchCodec().encode(ArrowBatch(COLUMNS, stamps))
    damaged = bytearray(buffer.payload)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(1, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CodecError):
        batch = BatchCodec(False, thorough=True).decode(Buffer(bytes(damaged), buffer.rows))
        assert isinstance(batch, ArrowBatch)
        with contextlib.suppress(NoPythonValueError):
            assert len(dicts_of_arrow(batch.batch)) == 3


def raises_only_codec_error(attempt: Callable[[], Any]) -> None:
    with contextlib.suppress(CodecError):
        attempt()
