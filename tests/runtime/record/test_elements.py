"""Batches: what cutting and choosing rows keeps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.errors import PenstockError
from penstock.runtime.record.elements import ArrowBatch


def batch(stamps: list[int] | None) -> ArrowBatch:
    return ArrowBatch(pa.record_batch({"n": [1, 2, 3]}), None if stamps is None else pa.array(stamps))


def content(batch: ArrowBatch) -> tuple[list[int], list[int] | None]:
    stamps = batch.timestamps
    return batch.batch["n"].to_pylist(), None if stamps is None else stamps.to_pylist()


@pytest.mark.parametrize(
    ("stamps", "expected"), [(None, None), ([10, 20, 30], [20, 30])], ids=["without", "with timestamps"]
)
def test_rows_that_are_cut_taken_or_filtered_keep_their_timestamps(
    stamps: list[int] | None, expected: list[int] | None
) -> None:
    whole = batch(stamps)
    assert content(whole.slice(1)) == ([2, 3], expected)
    assert content(whole.slice(1, 1)) == ([2], expected and expected[:1])
    assert content(whole.take(pa.array([1, 2]))) == ([2, 3], expected)
    assert content(whole.filter(pa.array([None, True, True]))) == ([2, 3], expected)
    assert [content(part)[0] for part in whole.slices(2)] == [[1, 2], [3]]
    assert list(whole.slices(3)) == [whole]


@pytest.mark.parametrize(
    ("stamps", "message"),
    [
        ([1, 2, 3], "are list; give a pyarrow array of type int64"),
        (pa.array([1.0, 2.0, 3.0]), "are DoubleArray"),
        (pa.array([1, None, 3]), "are an array with nulls"),
        (pa.array([1, 2]), "length 3 has timestamps of length 2"),
    ],
    ids=["list", "floats", "null", "too few"],
)
def test_timestamps_that_are_not_one_whole_number_for_each_row_are_refused(stamps: Any, message: str) -> None:
    with pytest.raises(PenstockError, match=message):
        ArrowBatch(pa.record_batch({"n": [1, 2, 3]}), stamps)
