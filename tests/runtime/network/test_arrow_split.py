"""An Arrow batch split by key: the same channels as for rows, and nothing lost on the way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from penstock.runtime.errors import KeyTypeError
from penstock.runtime.network.result_partition import ArrowSplitter, KeyGroupSelector
from penstock.runtime.operators.functions.function_operator import rows_of
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import ArrowBatch, Batch

KEYS = [f"key-{n % 37}" if n % 5 else None for n in range(300)]


def batch() -> ArrowBatch:
    columns = pa.record_batch({"k": KEYS, "n": range(300), "list": [[n] for n in range(300)]})
    return ArrowBatch(columns, pa.array(range(0, 3000, 10)))


def as_rows(parts: Any) -> list[tuple[int, list[Any], Any]]:
    def plain(part: Batch) -> tuple[list[Any], Any]:
        rows = rows_of(part)
        return list(rows.rows), rows.timestamps

    return [(channel, *plain(part)) for channel, part in parts]


@pytest.mark.parametrize("channels", [1, 2, 3, 4, 5, 16, 300])
@pytest.mark.parametrize("groups", [128, 300, 1024, 5000])
def test_every_row_goes_where_its_dict_would_go(channels: int, groups: int) -> None:
    if channels > groups:
        return
    key = ColumnKey(("k", "n"))
    split = ArrowSplitter(key, channels, groups).split(batch())
    expected = KeyGroupSelector(key, channels, groups).select(rows_of(batch()))
    assert as_rows(split) == as_rows(expected)


def test_a_batch_of_one_channel_is_not_copied() -> None:
    one = batch().slice(0, 1)
    for channels in (1, 2, 16):
        ((_, part),) = ArrowSplitter(ColumnKey(("k",)), channels, 128).split(one)
        assert part is one


def test_nothing_is_split_from_nothing() -> None:
    assert ArrowSplitter(ColumnKey(("k",)), 2, 128).split(batch().slice(0, 0)) == []


@pytest.mark.parametrize("channels", [1, 2])
def test_a_key_column_that_is_missing_or_a_list_is_named(channels: int) -> None:
    for name, message in (("missing", "has no column 'missing'"), ("list", "column 'list' of type list")):
        with pytest.raises(KeyTypeError, match=message):
            ArrowSplitter(ColumnKey((name,)), channels, 128).split(batch())


@pytest.mark.parametrize("channels", [2, 16])
@pytest.mark.parametrize(
    "column",
    [
        pc.run_end_encode(pa.array(["a", "a", None] * 10)),
        pa.array(["a", "b", None] * 10, pa.string_view()),
        pa.array([b"a", b"b", None] * 10, pa.binary_view()),
        pa.array(["a", "b", None] * 10).dictionary_encode(),
        pa.array([{"a": [1]}, None, {"a": []}] * 10),
        pa.array([b"0123456789abcdef"] * 30, pa.uuid()),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_every_type_keep_it(column: Any, channels: int) -> None:
    given = ArrowBatch(pa.record_batch({"k": range(30), "c": column}))
    parts = [part for _, part in ArrowSplitter(ColumnKey(("k",)), channels, 128).split(given)]
    assert {part.batch.schema for part in parts} == {given.batch.schema}
    pairs = [pair for part in parts for pair in zip(part.batch["k"], part.batch["c"], strict=True)]
    found = {key.as_py(): value.as_py() for key, value in pairs}
    assert [found[key] for key in range(30)] == column.to_pylist()


def test_rows_without_other_columns_than_the_key_are_split_too() -> None:
    keys = pa.array(np.arange(1000))
    parts = ArrowSplitter(ColumnKey(("k",)), 3, 128).split(ArrowBatch(pa.record_batch({"k": keys})))
    assert sum(len(part) for _, part in parts) == 1000
