"""Small Arrow batches leave together, and no buffer is larger than it may be."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from penstock.runtime.network.result_subpartition import OpenArrowBuffer
from penstock.runtime.record.elements import ArrowBatch

LARGE = 1 << 30


def batch(*numbers: int, stamps: list[int] | None = None) -> ArrowBatch:
    columns = pa.record_batch({"n": pa.array(numbers, pa.int64())})
    return ArrowBatch(columns, None if stamps is None else pa.array(stamps))


def numbers(batches: list[ArrowBatch]) -> list[list[int]]:
    return [part.batch["n"].to_pylist() for part in batches]


def through(buffer: OpenArrowBuffer, *batches: ArrowBatch) -> list[ArrowBatch]:
    """Everything that leaves, the rest by a flush."""
    full = [part for given in batches for part in buffer.add(given)]
    rest = buffer.take()
    assert (len(buffer), buffer.take()) == (0, [])
    return full + rest


def test_small_batches_are_joined_with_their_timestamps() -> None:
    joined = through(OpenArrowBuffer(100, LARGE), batch(1, 2, stamps=[10, 20]), batch(3, stamps=[30]))
    assert joined == [batch(1, 2, 3, stamps=[10, 20, 30])]


def test_a_batch_that_does_not_fit_closes_the_buffer_and_begins_the_next_one() -> None:
    buffer = OpenArrowBuffer(5, LARGE)
    assert numbers(list(buffer.add(batch(1, 2, 3)))) == []
    assert numbers(list(buffer.add(batch(4, 5, 6)))) == [[1, 2, 3]]
    assert len(buffer) == 3


def test_a_full_buffer_leaves_at_once_and_a_larger_batch_is_cut() -> None:
    buffer = OpenArrowBuffer(2, LARGE)
    assert numbers(list(buffer.add(batch(1, 2)))) == [[1, 2]]
    assert numbers(through(buffer, batch(1), batch(2, 3, 4, 5, 6))) == [[1], [2, 3], [4, 5], [6]]


def test_a_buffer_keeps_to_its_bytes_whatever_the_rows() -> None:
    wide = ArrowBatch(pa.record_batch({"n": range(40), "text": ["x" * 1000] * 40}))
    for given in ([wide], list(wide.slices(1))):
        parts = through(OpenArrowBuffer(1000, 10_000), *given)
        assert [n for part in numbers(parts) for n in part] == list(range(40))
        assert max(part.batch.nbytes for part in parts) <= 10_000
        assert len(parts) == 5


def test_a_row_that_is_larger_than_a_buffer_is_a_buffer() -> None:
    huge = ArrowBatch(pa.record_batch({"text": ["x" * 100] * 3}))
    assert [len(part) for part in through(OpenArrowBuffer(1000, 10), huge)] == [1, 1, 1]


def test_a_large_dictionary_does_not_cut_its_batch_into_rows() -> None:
    values = pa.array([f"{n:1000}" for n in range(50)])
    column = pa.DictionaryArray.from_arrays(pa.array([n % 50 for n in range(100)], pa.int32()), values)
    parts = through(OpenArrowBuffer(1000, 2_000), ArrowBatch(pa.record_batch({"k": column})))
    assert len(parts) == 1


@pytest.mark.parametrize(
    "other",
    [
        ArrowBatch(pa.record_batch({"n": ["text"]})),
        ArrowBatch(pa.record_batch({"m": [1]})),
        ArrowBatch(pa.record_batch([pa.array([1])], pa.schema([pa.field("n", pa.int64(), nullable=False)]))),
        ArrowBatch(pa.record_batch([pa.array([1])], pa.schema([pa.field("n", pa.int64())], {"k": "v"}))),
        batch(1, stamps=[10]),
    ],
    ids=["type", "name", "nullable", "metadata", "timestamps"],
)
def test_batches_of_another_schema_do_not_share_a_buffer(other: ArrowBatch) -> None:
    assert through(OpenArrowBuffer(100, LARGE), batch(1), other, batch(2)) == [batch(1), other, batch(2)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None, "b"]).dictionary_encode(),
        pa.array([[1], None, []]),
        pa.array([{"a": 1}, None, {"a": 2}]),
        pa.array([None, None, None]),
        pa.array(["a", "b", None], pa.string_view()),
        pa.array([b"0123456789abcdef"] * 3, pa.uuid()),
    ],
    ids=lambda column: str(column.type),
)
def test_columns_of_every_type_are_joined_as_they_are(column: Any) -> None:
    whole = ArrowBatch(pa.record_batch({"c": column}))
    assert through(OpenArrowBuffer(100, LARGE), *whole.slices(1)) == [whole]


def test_dictionaries_that_differ_become_one() -> None:
    one, two = (ArrowBatch(pa.record_batch({"c": pa.array([v, "x"]).dictionary_encode()})) for v in "ab")
    (joined,) = through(OpenArrowBuffer(100, LARGE), one, two)
    assert joined.batch["c"].to_pylist() == ["a", "x", "b", "x"]
    assert joined.batch.schema == one.batch.schema


def test_batches_without_columns_keep_their_number_of_rows() -> None:
    empty = ArrowBatch(pa.RecordBatch.from_struct_array(pa.array([{}] * 3, pa.struct([]))))
    assert sum(map(len, through(OpenArrowBuffer(100, LARGE), empty, empty))) == 6
