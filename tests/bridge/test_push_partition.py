"""Cutting a partition into frames."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bridge import push_partition
from penstock.bridge.push_partition import FRAME_BYTES, STEP_ROWS, encoded, fitted, frames, joined
from penstock.bridge.receive_buffer_messages import TransferError


def numbers(count: int) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(range(count), pa.int64())})


def test_large_batches_are_cut_and_rows_never() -> None:
    wide = pa.record_batch({"text": ["x" * 1_000_000] * 9})
    cut = list(frames([wide]))
    assert sum(batch.num_rows for frame in cut for batch in frame) == 9
    assert all(len(encoded(frame)) <= FRAME_BYTES + 1_000 for frame in cut)
    assert len(cut) == 3
    huge = pa.record_batch({"text": ["x" * (FRAME_BYTES + 1)] * 2})
    assert [len(frame) for frame in frames([huge])] == [1, 1]


def test_small_batches_are_gathered_and_empty_ones_dropped() -> None:
    batch = numbers(10)
    assert list(frames([batch.slice(0, 0)] * 3)) == []
    (only,) = frames([batch, batch.slice(0, 0), batch])
    assert [each.num_rows for each in only] == [10, 10]


def test_a_frame_has_batches_of_one_schema() -> None:
    batch = numbers(2)
    partial = batch.replace_schema_metadata({"penstock": "reduced"})
    cut = list(frames([batch, batch, partial, partial, batch]))
    assert [[each.schema.metadata for each in frame] for frame in cut] == [
        [None, None],
        [{b"penstock": b"reduced"}] * 2,
        [None],
    ]


def test_partial_results_can_end_a_frame() -> None:
    batch = numbers(2)
    assert [len(frame) for frame in frames([None, batch, batch, None, None, batch, None])] == [2, 1]


@given(sizes=st.lists(st.integers(0, 50), max_size=8), limit=st.integers(1, 40))
def test_the_same_batches_give_the_same_frames_and_all_rows(sizes: list[int], limit: int) -> None:
    batches = [numbers(size) for size in sizes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(push_partition, "FRAME_ROWS", limit)
        once = [encoded(frame) for frame in frames(batches)]
        again = [encoded(frame) for frame in frames(batches)]
    assert once == again
    rows = [n for data in once for n in pa.ipc.open_stream(data).read_all()["n"].to_pylist()]
    assert rows == [n for size in sizes for n in range(size)]


def test_maps_without_entries_are_measured_without_a_crash() -> None:
    """Arrow's Java writer leaves their offsets out, and `nbytes` reads them all the same."""
    kind = pa.map_(pa.string(), pa.date32())
    inner = pa.Array.from_buffers(
        kind,
        0,
        [None, None],
        children=[pa.array([], pa.struct([("key", pa.string()), ("value", pa.date32())]))],
    )
    lists = pa.Array.from_buffers(pa.list_(kind), 2, [None, pa.py_buffer(b"\0" * 12)], children=[inner])
    batch = pa.RecordBatch.from_arrays([lists], ["maps"])
    (frame,) = frames([batch])
    assert pa.ipc.open_stream(encoded(frame)).read_all().num_rows == 2


def test_small_batches_are_joined_for_the_steps_of_the_job_and_large_ones_are_not() -> None:
    small, wide = numbers(STEP_ROWS // 2), pa.record_batch({"text": ["x" * FRAME_BYTES]})
    assert [batch.num_rows for batch in joined([small] * 5)] == [STEP_ROWS, STEP_ROWS, STEP_ROWS // 2]
    assert [batch.num_rows for batch in joined([wide, wide])] == [1, 1]
    assert list(joined([])) == []


def test_what_can_not_be_cast_is_an_error_that_shows_both() -> None:
    with pytest.raises(TransferError, match=r"Spark gave columns n: int64, which can't be cast"):
        list(fitted([numbers(1)], pa.schema({"n": pa.date32()})))
