"""Cutting large batches."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge.arrow import cut_strictly, message_size

LIMIT = 20_000


@given(st.lists(st.integers(0, 3 * LIMIT), min_size=1, max_size=30))
def test_pieces_are_small_or_one_row_and_hold_all_rows_in_order(lengths: list[int]) -> None:
    batch = pa.record_batch({"n": range(len(lengths)), "text": ["x" * length for length in lengths]})
    pieces = list(cut_strictly(batch, LIMIT))
    assert pa.Table.from_batches(pieces).equals(pa.Table.from_batches([batch]))
    assert all(piece.num_rows == 1 or message_size(piece) <= LIMIT for piece in pieces)
