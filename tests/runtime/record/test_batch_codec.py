"""Batches in their wire form."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.errors import CodecError
from penstock.runtime.record.element_codec import BatchCodec
from penstock.runtime.record.elements import ArrowBatch, Buffer, RowBatch


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [()],
        [(), ()],
        [("a", 1), ("b", 2)],
        [("a", 1), ("b",)],
        [(1,), [1]],
        [("a", 1 << 70), ("b", True), ("c", None)],
        [{"a": 1}, {"a": 2.0}],
        [None, None],
        [[1, 2], [3, 4], [5, 6]],
        [("k", ("x", [1])), ("l", ("y", [2]))],
    ],
    ids=repr,
)
def test_rows_come_back(rows: list[Any]) -> None:
    codec = BatchCodec(allow_pickle=False)
    batch = codec.decode(codec.encode(RowBatch(rows)))
    assert isinstance(batch, RowBatch)
    assert repr(batch.rows) == repr(rows)
    assert batch.timestamps is None


def test_rows_of_any_sequence_come_back_as_a_list() -> None:
    codec = BatchCodec()
    assert codec.decode(codec.encode(RowBatch(("a", "b"), (1, 2)))) == RowBatch(["a", "b"], [1, 2])
    assert codec.decode(codec.encode(RowBatch(range(3)))) == RowBatch([0, 1, 2])


def test_no_timestamps_and_timestamps_of_no_rows_are_told_apart() -> None:
    codec = BatchCodec()
    assert codec.decode(codec.encode(RowBatch([], []))) == RowBatch([], [])
    assert codec.decode(codec.encode(RowBatch([], None))) == RowBatch([], None)


def test_keys_of_dicts_are_written_once() -> None:
    codec = BatchCodec()
    one = codec.encode(RowBatch([{"a_rather_long_key": i} for i in range(10)])).size
    many = codec.encode(RowBatch([{"a_rather_long_key": i} for i in range(100)])).size
    assert many - one < 3 * 90


def test_there_is_one_timestamp_per_row() -> None:
    with pytest.raises(CodecError, match="rows of length 2 and timestamps of length 1"):
        BatchCodec().encode(RowBatch(["a", "b"], [1]))
    with pytest.raises(CodecError, match="64 bits"):
        BatchCodec().encode(RowBatch(["a"], [1 << 63]))


def test_a_buffer_that_holds_another_number_of_rows_is_refused() -> None:
    codec = BatchCodec()
    for batch in (RowBatch([1, 2]), RowBatch([1, 2], [3, 4]), ArrowBatch(pa.record_batch({"a": [1, 2]}))):
        payload = codec.encode(batch).payload
        with pytest.raises(CodecError, match="a buffer has 2 rows instead of 3"):
            codec.decode(Buffer(payload, 3))


@pytest.mark.parametrize(
    "payload", [b"", b"\x21\x90", b"\x11\x01", b"\x12\xff\xff\xff\xff", b"\x13", b"\x13" * 30]
)
def test_a_damaged_buffer_is_refused(payload: bytes) -> None:
    with pytest.raises(CodecError):
        BatchCodec().decode(Buffer(payload, 0))


def test_pickle_is_refused_in_rows_both_ways() -> None:
    buffer = BatchCodec().encode(RowBatch([range(2), range(3)]))
    with pytest.raises(CodecError, match="pickled value"):
        BatchCodec(allow_pickle=False).decode(buffer)
    with pytest.raises(CodecError, match="range can only be pickled"):
        BatchCodec(allow_pickle=False).encode(RowBatch([("a", range(2))]))


class Pickled(pa.ExtensionType):  # type: ignore[misc]
    """As Ray's type of pickled objects: where it is read, its class decides what happens."""

    def __init__(self) -> None:
        super().__init__(pa.large_binary(), "test.pickled")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""


def test_a_column_that_may_be_pickled_is_refused_both_ways_where_pickle_is() -> None:
    column = pa.ExtensionArray.from_storage(Pickled(), pa.array([b"any code"], pa.large_binary()))
    for batch in (
        ArrowBatch(pa.record_batch([column], ["a"])),
        ArrowBatch(pa.record_batch([column], ["a"]), pa.array([1])),
    ):
        buffer = BatchCodec().encode(batch)
        assert len(BatchCodec().decode(buffer)) == 1
        with pytest.raises(CodecError, match=r"column 'a' has the Arrow extension type 'test\.pickled'"):
            BatchCodec(allow_pickle=False).decode(buffer)
        with pytest.raises(CodecError, match="Take its storage"):
            BatchCodec(allow_pickle=False).encode(batch)


def test_a_thorough_codec_refuses_values_outside_of_the_data() -> None:
    outside = pa.DictionaryArray.from_arrays(
        pa.array([0, 1_000_000], pa.int32()), pa.array(["a"]), safe=False
    )
    buffer = BatchCodec().encode(ArrowBatch(pa.record_batch([outside], ["a"])))
    with pytest.raises(CodecError, match="out of bounds"):
        BatchCodec(thorough=True).decode(buffer)


def test_an_arrow_batch_is_read_without_a_copy() -> None:
    codec = BatchCodec()
    buffer = codec.encode(ArrowBatch(pa.record_batch({"a": list(range(100))})))
    batch = codec.decode(buffer)
    assert isinstance(batch, ArrowBatch)
    column = batch.batch.column(0).buffers()[1]
    start = pa.py_buffer(buffer.payload).address
    assert start <= column.address < start + buffer.size
    assert column.address % 8 == 0


@pytest.mark.parametrize(
    "batch",
    [
        pa.record_batch({"a": [1, None, 3]}).slice(1, 2),
        pa.record_batch([], schema=pa.schema([])),
        pa.record_batch({"a": pa.array([], pa.string())}),
        pa.record_batch({"d": pa.array(["x", "y", "x", None]).dictionary_encode()}),
        pa.record_batch({"n": pa.array([{"p": [1, 2]}, None])}),
    ],
    ids=str,
)
def test_an_arrow_batch_comes_back(batch: pa.RecordBatch) -> None:
    codec = BatchCodec()
    back = codec.decode(codec.encode(ArrowBatch(batch)))
    assert isinstance(back, ArrowBatch)
    assert back.batch.equals(batch, check_metadata=True)


@pytest.mark.parametrize("rows", [0, 1, 100])
def test_an_arrow_batch_comes_back_with_its_timestamps_which_are_read_without_a_copy(rows: int) -> None:
    codec = BatchCodec()
    batch = ArrowBatch(pa.record_batch({"a": list(range(rows + 2))}), pa.array(range(rows + 2), pa.int64()))
    buffer = codec.encode(batch.slice(1, rows))
    back = codec.decode(buffer)
    assert back == batch.slice(1, rows)
    assert isinstance(back, ArrowBatch)
    assert back.timestamps is not None
    data, start = back.timestamps.buffers()[1], pa.py_buffer(buffer.payload).address
    assert start <= data.address < start + buffer.size
    assert (data.address % 8, back.batch.column(0).buffers()[1].address % 8) == (0, 0)


def test_timestamps_of_an_arrow_batch_that_are_cut_or_do_not_fit_its_rows_are_refused() -> None:
    codec = BatchCodec()
    payload = codec.encode(ArrowBatch(pa.record_batch({"a": [1, 2]}), pa.array([1, 2]))).payload
    foreign = codec.encode(ArrowBatch(pa.record_batch({"a": [1]}))).payload
    for damaged in (payload[:5], payload[:20], payload[:24] + foreign[8:]):
        with pytest.raises(CodecError):
            codec.decode(Buffer(damaged, 2))


def test_pickled_values_are_counted() -> None:
    codec = BatchCodec()
    codec.decode(codec.encode(RowBatch([range(1), range(2)])))
    assert codec.pickled == 2
