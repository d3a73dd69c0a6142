"""Blocks of changes become one, in which the newest word of each key counts."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.state.column_table import ColumnChanges, with_extra
from penstock.runtime.state.keyed_chunk import ColumnBlock
from penstock.runtime.state.stable_hash import MASK64
from penstock.runtime.state.stable_hash_arrays import key_hashes


def block(keys: dict[str, Any], values: dict[str, Any] | None, *, extra: int = 0) -> ColumnBlock:
    batch = pa.record_batch(keys)
    columns = batch.columns[: batch.num_columns - extra]
    groups = (key_hashes(columns) % np.uint64(128)).astype(np.uint16)
    return ColumnBlock("t", batch, groups, None if values is None else pa.record_batch(values), extra)


def merged(*blocks: ColumnBlock, with_deleted: bool = True) -> tuple[dict[Any, Any], set[Any]]:
    """The values of keys that are there, and keys that were deleted."""
    changes = ColumnChanges("t")
    for each in blocks:
        changes.apply(each)
    there: dict[Any, Any] = {}
    gone: set[Any] = set()
    for found in changes.blocks(with_deleted=with_deleted):
        assert (np.diff(found.key_groups.astype(int)) >= 0).all(), "sorted by key group"
        keys = [tuple(row.values()) for row in found.keys.to_pylist()]
        if found.values is None:
            gone |= set(keys)
        else:
            there |= dict(zip(keys, found.values.to_pylist(), strict=True))
    return there, gone


@pytest.mark.parametrize("rows", [20, 60_000])
@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64()], ids=str)
def test_the_newest_word_of_each_key_counts(rows: int, kind: pa.DataType) -> None:
    draws = Random(rows)
    expected: dict[Any, int | None] = {}
    blocks = []
    for number in range(4):
        keys = draws.sample(range(2 * rows), rows)
        column = pa.array(keys).cast(kind)
        is_deletion = number == 2
        blocks.append(block({"k": column}, None if is_deletion else {"v": [number * key for key in keys]}))
        expected |= {
            k: None if is_deletion else number * v for k, v in zip(column.to_pylist(), keys, strict=True)
        }
    there, gone = merged(*blocks)
    assert {key: row["v"] for (key,), row in there.items()} == {
        key: value for key, value in expected.items() if value is not None
    }
    assert {key for (key,) in gone} == {key for key, value in expected.items() if value is None}
    assert merged(*blocks, with_deleted=False) == (there, set())


def test_keys_that_share_a_hash_stay_apart() -> None:
    start = start_that_shares_a_hash(of=(1, 7), key=2)
    first = block({"k": [1, 2], ":start": [7, start]}, {"v": [10, 20]}, extra=1)
    second = block({"k": [2, 3], ":start": [start, 3]}, {"v": [200, 300]}, extra=1)
    deleted = block({"k": [3], ":start": [3]}, None, extra=1)
    there, gone = merged(first, second, deleted)
    assert {key: row["v"] for key, row in there.items()} == {(1, 7): 10, (2, start): 200}
    assert gone == {(3, 3)}


def start_that_shares_a_hash(of: tuple[int, int], key: int) -> int:
    """The extra part with which a key has the hash of another key and extra part."""
    hashes = {number: int(key_hashes([pa.array([number])])[0]) for number in (*of, key)}
    odd = 0x9E3779B97F4A7C15
    wanted = (hashes[of[0]] * odd ^ hashes[of[1]] ^ hashes[key] * odd) & MASK64
    start = unmixed(wanted)
    start -= (start >> 63) << 64
    pairs = {"k": pa.array([of[0], key]), ":start": pa.array([of[1], start])}
    one, other = with_extra(key_hashes([pairs["k"]]), {":start": pairs[":start"]})
    assert one == other
    return start


def unmixed(mixed: int) -> int:
    """The number that `mix64` makes this one of."""
    for shift, factor in ((31, 0x94D049BB133111EB), (27, 0xBF58476D1CE4E5B9), (30, 1)):
        number = mixed
        for _ in range(64 // shift):
            number = mixed ^ (number >> shift)
        mixed = number * pow(factor, -1, 1 << 64) & MASK64
    return (mixed - 0x9E3779B97F4A7C15) & MASK64


def test_nulls_and_nan_are_one_key_each() -> None:
    nan = float("nan")
    there, _ = merged(
        block({"k": pa.array([nan, None, 0.5])}, {"v": [1, 2, 3]}),
        block({"k": pa.array([None, nan])}, {"v": [20, 10]}),
    )
    assert len(there) == 3
    assert {repr(key): row["v"] for (key,), row in there.items()} == {"nan": 10, "None": 20, "0.5": 3}


def test_a_column_that_older_blocks_do_not_have_is_null_there() -> None:
    there, _ = merged(
        block({"k": [1, 2]}, {"v": [1, 2]}),
        block({"k": [2]}, {"v": pa.nulls(1), "w": [5]}),
    )
    assert there == {(1,): {"v": 1, "w": None}, (2,): {"v": None, "w": 5}}


def test_a_column_of_two_types_that_no_row_has_is_refused() -> None:
    small = pa.array([1], pa.int8())
    with pytest.raises(StateMismatchError, match="column 'v' is of type int8 here and of type int64"):
        merged(block({"k": [1]}, {"v": [1]}), block({"k": [1]}, {"v": small}))


def test_values_of_several_types_have_a_column_each() -> None:
    there, _ = merged(
        block({"k": [1, 2]}, {"v": [1, 2]}),
        block({"k": [2, 3]}, {"v": ["x", "y"]}),
        block({"k": [3]}, {"v": pa.nulls(1), "v|double": [0.5]}),
    )
    assert there[(1,)] == {"v": 1, "v|string": None, "v|double": None}
    assert there[(2,)] == {"v": None, "v|string": "x", "v|double": None}
    assert there[(3,)] == {"v": None, "v|string": None, "v|double": 0.5}


def test_keys_of_several_types_are_merged_where_they_are_equal() -> None:
    there, deleted = merged(
        block({"k": [1, 2]}, {"v": [1, 2]}),
        block({"k": ["1", "2", None]}, {"v": [10, 20, 30]}),
        block({"k": [1.0, 2.5]}, {"v": [100, 200]}),
        block({"k": [2.0]}, None),
        block({"k": pa.nulls(1)}, {"v": [3]}),
    )
    values = {key: row["v"] for key, row in there.items()}
    assert values == {(1,): 100, ("1",): 10, ("2",): 20, (2.5,): 200, (None,): 3}
    assert deleted == {(2,)}


def test_keys_without_values_are_merged() -> None:
    keys_only = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    groups = np.zeros(2, np.uint16)
    blocks = [ColumnBlock("t", pa.record_batch({"k": keys}), groups, keys_only) for keys in ([1, 2], [2, 3])]
    assert merged(*blocks) == ({(1,): {}, (2,): {}, (3,): {}}, set())


def test_nothing_makes_no_block() -> None:
    assert merged() == ({}, set())
    assert merged(block({"k": pa.array([], pa.int64())}, None)) == ({}, set())
