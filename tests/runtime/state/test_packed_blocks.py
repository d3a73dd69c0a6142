"""Blocks of keyed state that were changed, with their checksums."""

from __future__ import annotations

from typing import Any

import msgpack
import numpy as np
import pyarrow as pa
import pytest
from xxhash import xxh3_64_digest

from penstock.runtime.errors import CodecError, CorruptSnapshotError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import InlineHandle, KeyGroupRange
from penstock.runtime.state.captured_rows import write_chunk
from penstock.runtime.state.keyed_chunk import (
    ColumnBlock,
    read_chunk,
    read_keys,
    unpack_block,
)
from penstock.runtime.trust.data import write_batch

CODEC = ValueCodec(allow_pickle=False)
HERE = InlineHandle(b"")


def nested(counts: list[int], keys: list[str], parts: list[Any]) -> tuple[Any, ...]:
    groups = np.zeros(len(keys), "<u2").tobytes()
    numbers = np.array(counts, "<u4").tobytes()
    return ("t", len(parts), groups, CODEC.dumps(keys), None, None, numbers, CODEC.dumps(parts))


def chunk(*blocks: Any) -> bytes:
    body: bytes = msgpack.packb([8, list(blocks)])
    return b"PSKS\x01" + xxh3_64_digest(body) + body


@pytest.mark.parametrize("counts", [[0xFFFFFFFF], [2], [0]])
def test_counts_of_a_nested_table_that_do_not_fit_its_entries_are_refused(counts: list[int]) -> None:
    """Before any entry is made: four bytes may say four billions."""
    block = nested(counts, ["k"], [1])
    with pytest.raises(ValueError, match=f"should have 1 entries, but have {counts[0]}"):
        unpack_block(block, CODEC)
    with pytest.raises(CorruptSnapshotError, match="should have 1 entries"):
        list(read_chunk(chunk(block), HERE, 8, CODEC))
    with pytest.raises(CorruptSnapshotError, match="should have 1 entries"):
        list(read_keys(chunk(block), HERE, CODEC))


@pytest.mark.parametrize(("counts", "keys"), [([2], ["k", "l"]), ([2, 0], ["k"]), ([1, 1], ["k"])])
def test_a_nested_table_has_one_count_for_each_first_key(counts: list[int], keys: list[str]) -> None:
    table, length, _, *rest = nested(counts, keys, [1, 2])
    groups = np.zeros(len(counts), "<u2").tobytes()
    with pytest.raises(ValueError, match="zip"):
        unpack_block((table, length, groups, *rest), CODEC)
    with pytest.raises(CorruptSnapshotError):
        list(read_chunk(chunk((table, length, groups, *rest)), HERE, 8, CODEC))
    with pytest.raises(CorruptSnapshotError):
        list(read_keys(chunk((table, length, groups, *rest)), HERE, CODEC))


def test_counts_that_overflow_together_are_refused() -> None:
    with pytest.raises(ValueError, match="should have 2 entries, but have 8589934590"):
        unpack_block(nested([0xFFFFFFFF] * 2, ["k", "l"], [1, 2]), CODEC)


def test_a_nested_table_comes_back() -> None:
    [(table, keys, is_deleted)] = read_keys(chunk(nested([2, 1], ["k", "l"], [1, 2, 3])), HERE, CODEC)
    assert (table, keys, is_deleted) == ("t", [("k", 1), ("k", 2), ("l", 3)], True)


@pytest.mark.parametrize("block", [["t", 1], ["t", 1, b"", b"\xc1", None], ["t", 1, b"", 3, None, 0]])
def test_a_block_of_another_shape_is_damaged_for_who_reads_its_keys(block: list[Any]) -> None:
    with pytest.raises((CorruptSnapshotError, CodecError)):
        list(read_keys(chunk(block), HERE, CODEC))


def test_a_table_that_is_nested_as_deep_as_can_be_is_damaged() -> None:
    body = b"\x92\x08\x91\x92" + b"\x91" * 1_015 + b"\x90\x01"
    with pytest.raises(CorruptSnapshotError, match="can't be decoded"):
        list(read_chunk(b"PSKS\x01" + xxh3_64_digest(body) + body, HERE, 8, CODEC))


def test_columns_that_may_run_code_are_refused_both_ways_unless_pickle_is_allowed() -> None:
    field = pa.field("v", pa.binary(), metadata={b"ARROW:extension:name": b"test.pickled"})
    values = pa.record_batch([pa.array([b"any code"])], schema=pa.schema([field]))
    block = ColumnBlock("t", pa.record_batch({"k": [1]}), np.zeros(1, np.uint16), values)
    data = write_chunk([block], 8, KeyGroupRange(0, 7), ValueCodec())
    assert len(list(read_chunk(data, HERE, 8, ValueCodec()))) == 1
    with pytest.raises(CorruptSnapshotError, match=r"extension type 'test\.pickled'"):
        list(read_chunk(data, HERE, 8, CODEC))
    with pytest.raises(CodecError, match=r"extension type 'test\.pickled'"):
        write_chunk([block], 8, KeyGroupRange(0, 7), CODEC)


def test_keys_that_may_run_code_are_refused_by_who_reads_only_keys() -> None:
    field = pa.field("k", pa.binary(), metadata={b"ARROW:extension:name": b"test.pickled"})
    keys = write_batch(pa.record_batch([pa.array([b"any code"])], schema=pa.schema([field])))
    data = chunk(("t", 1, b"\0\0", keys, None, 0))
    with pytest.raises(CodecError, match=r"extension type 'test\.pickled'"):
        list(read_keys(data, HERE, CODEC))
    assert list(read_keys(data, HERE, ValueCodec())) == [("t", [b"any code"], True)]
