"""Blocks are as small as Spark can read them, and well filled."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.bridge.blocks import GatheredBlocks

SIZE = 100_000


@pytest.mark.parametrize("rows_at_once", [1, 7, 200])
def test_a_block_is_not_larger_than_said_whatever_the_batches_are(rows_at_once: int) -> None:
    batch = pa.record_batch({"n": range(200), "text": ["x" * (10 * i) for i in range(200)]})
    gathered = GatheredBlocks(SIZE)
    assert gathered.rest() is None
    full = [
        block
        for start in range(0, 200, rows_at_once)
        for block in gathered.add(batch.slice(start, rows_at_once))
    ]
    rest = gathered.rest()
    assert rest is not None
    assert gathered.rest() is None
    data = [block.close() for block in [*full, rest]]
    assert all(len(each) <= SIZE for each in data)
    assert all(len(each) > SIZE / 2 for each in data[:-1])
    tables = [pa.ipc.open_stream(each).read_all() for each in data]
    assert pa.concat_tables(tables)["n"].to_pylist() == list(range(200))


def test_a_row_that_is_larger_than_a_block_has_one_of_its_own() -> None:
    gathered = GatheredBlocks(SIZE)
    rows = [block.rows for block in gathered.add(pa.record_batch({"text": ["a", "x" * (2 * SIZE), "b"]}))]
    assert rows == [1, 1]
