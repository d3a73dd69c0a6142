"""The body of a chunk is read as msgpack reads it, but its bytes stay views; damage is a `ValueError`."""

from __future__ import annotations

from typing import Any

import msgpack
import pyarrow as pa
import pytest
from heap_setup import ALL
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import InlineHandle
from penstock.runtime.state.captured_rows import CapturedRows, write_chunk
from penstock.runtime.state.chunk_body import unpack_body
from penstock.runtime.state.key_groups import key_group_array
from penstock.runtime.state.keyed_chunk import ColumnBlock, RowBlock, read_chunk

SIZES = [0, 1, 15, 16, 31, 32, 127, 128, 255, 256, 65_535, 65_536]
WHOLE = st.integers(-(2**63), 2**64 - 1) | st.sampled_from(
    [sign * 2**bits + more for bits in (5, 7, 8, 15, 16, 31, 32, 62) for sign in (1, -1) for more in (-1, 0)]
)
PARTS = st.lists(st.none() | WHOLE | st.text() | st.binary(), max_size=20)
BODIES = st.tuples(WHOLE, st.lists(PARTS, max_size=20))


def plain(value: Any) -> Any:
    if isinstance(value, memoryview):
        return bytes(value)
    return [plain(part) for part in value] if isinstance(value, list) else value


@given(BODIES)
def test_body_is_read_as_msgpack_reads_it(body: tuple[int, list[Any]]) -> None:
    packed = msgpack.packb(body)
    assert plain(unpack_body(memoryview(packed))) == msgpack.unpackb(packed)


@pytest.mark.parametrize("size", SIZES)
def test_parts_and_arrays_of_all_sizes_are_read(size: int) -> None:
    for part in (b"x" * size, "x" * size, [None] * size):
        body = [1, [part]]
        assert plain(unpack_body(memoryview(msgpack.packb(body)))) == body


def test_bytes_are_views_of_the_body() -> None:
    packed = msgpack.packb([1, [["t", b"value" * 100]]])
    _, ((_, part),) = unpack_body(memoryview(packed))
    assert part.obj is packed
    assert part == b"value" * 100


@given(BODIES, st.data())
def test_cut_body_is_refused(body: tuple[int, list[Any]], data: st.DataObject) -> None:
    packed = msgpack.packb(body)
    cut = data.draw(st.integers(0, len(packed) - 1))
    with pytest.raises(ValueError, match="byte"):
        unpack_body(memoryview(packed)[:cut])


@given(st.binary(max_size=60))
def test_any_bytes_are_read_as_msgpack_reads_them_or_refused(data: bytes) -> None:
    try:
        value = unpack_body(memoryview(data))
    except ValueError:
        return
    assert plain(value) == msgpack.unpackb(data)


@pytest.mark.parametrize(
    ("packed", "told"),
    [
        (msgpack.packb([1, []]) + b"\x01", "1 bytes are left over"),
        (msgpack.packb([1, [[[["deep"]]]]]), "nested too deeply"),
        (b"\x92\x01\xdd\xff\xff\xff\xff", "an array of 4294967295 parts"),
        (b"\x92\x01\xc6\xff\xff\xff\xff", "4294967295 bytes should follow"),
        (msgpack.packb([1, {"a": 1}]), "begins with 0x81"),
        (msgpack.packb([1, 1.5]), "begins with 0xcb"),
        (msgpack.packb([1, True]), "begins with 0xc3"),
        (msgpack.packb([1, msgpack.ExtType(1, b"x")]), "begins with 0xd4"),
        (b"\x91\xa2\xff\xfe", "invalid start byte"),
    ],
)
def test_damaged_body_is_refused(packed: bytes, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        unpack_body(memoryview(packed))


def test_restored_entries_keep_nothing_of_the_file() -> None:
    """Values of a table would otherwise hold a whole file in memory."""
    codec = ValueCodec()
    keys, values = ["a", b"b", ("c", b"d")], [b"x" * 1_000, [b"y"], "z"]
    rows = CapturedRows.encoded("t", keys, values, codec)
    data = bytearray(write_chunk([rows], 128, ALL, codec))
    blocks = list(read_chunk(data, InlineHandle(bytes(data)), 128, codec))
    found: dict[Any, Any] = {}
    for block in blocks:
        assert isinstance(block, RowBlock)
        block.put_into(found)
    del blocks, block
    data.clear()  # raises a BufferError while a view of it is left
    assert found == dict(zip(keys, values, strict=True))


def test_restored_columns_keep_nothing_of_the_file() -> None:
    """Arrow's columns are views of the bytes that they are read from."""
    codec = ValueCodec()
    keys = pa.RecordBatch.from_pydict({"k": pa.array(range(500))})
    values = pa.RecordBatch.from_pydict({"v": pa.array(range(500))})
    taken = ColumnBlock("t", keys, key_group_array(list(range(500)), 128), values)
    data = bytearray(write_chunk([taken], 128, ALL, codec))
    (block,) = read_chunk(data, InlineHandle(bytes(data)), 128, codec)
    data.clear()  # raises a BufferError while a view of it is left
    assert isinstance(block, ColumnBlock)
    assert (block.keys, block.values) == (keys, values)
    assert block.key_groups.tolist() == taken.key_groups.tolist()
