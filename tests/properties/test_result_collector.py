"""Whatever shape results have and however slow they are, the collector emits exactly their rows, in order."""

from __future__ import annotations

from itertools import count, repeat

from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.runtime.operators.user_code.result_collector import OUTPUT_SLICE, ResultCollector

SHAPES = {
    "nothing": lambda rows: None,
    "list": list,
    "tuple": tuple,
    "generator": lambda rows: (row for row in rows),
    "iterator": iter,
}

results = st.lists(
    st.tuples(
        st.sampled_from(sorted(SHAPES)), st.one_of(st.integers(0, 5), st.sampled_from([64, 4096, 9000]))
    ),
    max_size=12,
)


@settings(max_examples=15 * DEEP)
@given(results, st.booleans(), st.floats(0, 0.02))
def test_rows_and_timestamps_are_those_of_the_results(shapes, stamped, step):
    clock = count(0, step) if step else repeat(0.0)
    made = [SHAPES[shape]([(i, n) for n in range(size)]) for i, (shape, size) in enumerate(shapes)]
    rows = [(i, n) for i, (shape, size) in enumerate(shapes) if shape != "nothing" for n in range(size)]
    times = [1000 + i for i in range(len(shapes))] if stamped else None
    batches = list(ResultCollector(lambda: next(clock)).collect(iter(made), times))
    assert [row for batch in batches for row in batch.rows] == rows
    assert all(0 < len(batch) <= OUTPUT_SLICE for batch in batches)
    if stamped:
        assert [t for batch in batches for t in batch.timestamps or ()] == [1000 + i for i, _ in rows]
    else:
        assert all(batch.timestamps is None for batch in batches)
