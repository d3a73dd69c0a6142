"""`ColumnTable`: rows of a batch by slot."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.state.column_table import ColumnTable

KEYS = st.lists(st.integers(0, 9), max_size=12)


@given(st.lists(st.tuples(KEYS, KEYS), max_size=4))
def test_the_last_row_of_a_slot_is_found_whatever_was_asked_before(
    batches: list[tuple[list[int], list[int]]],
) -> None:
    table = ColumnTable("t", 8)
    for keys, probes in batches:
        slots = table.slots_of({"k": pa.array(keys, pa.int64())})
        wanted = table.find({"k": pa.array(probes, pa.int64())})
        last = {key: row for row, key in enumerate(keys)}
        assert table.last_rows(slots, wanted).tolist() == [last.get(key, -1) for key in probes]
        assert np.flatnonzero(table.are_last(slots)).tolist() == sorted(last.values())
