"""The number of rows of a slice, and cutting batches."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.task.work_in_progress import MOST_ROWS, BatchRemainder, SliceSizer


def pieces(batch: Batch, size: int) -> list[Batch]:
    remainder = BatchRemainder(batch)
    taken = []
    while not remainder.is_empty:
        taken.append(remainder.take(size))
    return taken


@given(st.lists(st.integers(), min_size=1), st.integers(1, 10), st.booleans())
def test_pieces_of_rows_make_up_the_batch(values: list[int], size: int, stamped: bool) -> None:
    batch = RowBatch(values, list(range(len(values))) if stamped else None)
    taken = [piece for piece in pieces(batch, size) if isinstance(piece, RowBatch)]
    assert [row for piece in taken for row in piece.rows] == values
    assert all(1 <= len(piece) <= size for piece in taken)
    if stamped:
        assert [s for piece in taken for s in piece.timestamps or ()] == list(range(len(values)))
    else:
        assert all(piece.timestamps is None for piece in taken)


@given(st.integers(1, 40), st.integers(1, 10))
def test_pieces_of_an_arrow_batch_make_up_the_batch(length: int, size: int) -> None:
    batch = ArrowBatch(pa.RecordBatch.from_pydict({"n": list(range(length))}))
    taken = [piece.batch for piece in pieces(batch, size) if isinstance(piece, ArrowBatch)]
    assert pa.Table.from_batches(taken)["n"].to_pylist() == list(range(length))


def test_batch_that_fits_is_not_copied() -> None:
    batch = RowBatch([1, 2, 3])
    assert BatchRemainder(batch).take(3) is batch


def test_empty_batch_has_no_pieces() -> None:
    assert pieces(RowBatch([]), 4) == []


def test_slices_follow_the_time_that_a_row_takes() -> None:
    sizer = SliceSizer(target=0.01, initial=100)
    sizer.observe(rows=100, seconds=0.1)
    assert sizer.rows == 10
    sizer.observe(rows=10, seconds=0.02)
    assert sizer.rows == 5


def test_slices_grow_step_by_step_and_not_without_end() -> None:
    sizer = SliceSizer(target=0.01, initial=100, maximum=1000)
    sizers = []
    for _ in range(3):
        sizer.observe(rows=10, seconds=0.0)
        sizers.append(sizer.rows)
    assert sizers == [400, 1000, 1000]


def test_slice_is_never_empty() -> None:
    sizer = SliceSizer(target=0.01)
    sizer.observe(rows=1, seconds=5.0)
    assert sizer.rows == 1


def test_only_slices_that_took_far_too_long_are_overruns() -> None:
    sizer = SliceSizer(target=0.01)
    sizer.observe(rows=1, seconds=0.1)
    sizer.observe(rows=0, seconds=9.0)
    assert sizer.overruns == 0
    sizer.observe(rows=1, seconds=0.11)
    assert sizer.overruns == 1


def test_a_list_of_records_is_cut_at_some_thousand_and_an_arrow_batch_is_not() -> None:
    sizer = SliceSizer(initial=50_000)
    arrow = ArrowBatch(pa.RecordBatch.from_pydict({"n": [1, 2]}))
    assert sizer.rows_of(RowBatch([1, 2])) == MOST_ROWS
    assert sizer.rows_of(arrow) == 50_000


def test_slow_rows_are_cut_finer_than_that() -> None:
    sizer = SliceSizer(initial=10)
    assert sizer.rows_of(RowBatch([1, 2])) == 10
