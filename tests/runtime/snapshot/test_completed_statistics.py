"""Statistics of a completed checkpoint, in its metadata."""

from __future__ import annotations

from dataclasses import astuple, replace
from random import Random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointMetrics,
    CompletedCheckpointStatistics,
    subtask_rows,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import decode_metadata, encode_metadata
from penstock.runtime.snapshot.sealed_file import seal

SECONDS = st.floats(-1e9, 1e9)  # clocks of two nodes differ: a start delay may be negative
BYTES = st.integers(0, 2**60)
METRICS = st.builds(CheckpointMetrics, SECONDS, SECONDS, SECONDS, SECONDS, BYTES, BYTES, BYTES)
SUBTASKS = st.builds(SubtaskId, st.text(st.characters(exclude_categories=())), st.integers(0, 2**15))


def measured(subtasks: int) -> dict[SubtaskId, CheckpointMetrics]:
    """Measurements of the subtasks of two vertices of a busy job: up to some seconds, up to gigabytes."""
    draw = Random(3)
    return {
        SubtaskId(vertex, index): CheckpointMetrics(
            draw.uniform(0, 0.5),
            draw.uniform(0, 5),
            draw.uniform(0, 0.05),
            draw.uniform(0, 20),
            draw.randrange(50_000_000),
            draw.randrange(4_000_000_000),
            draw.randrange(1_000_000),
        )
        for vertex in ("lines", "count")
        for index in range(subtasks // 2)
    }


def checkpoint(statistics: CompletedCheckpointStatistics | None) -> CompletedCheckpoint:
    return CompletedCheckpoint(7, 2, SnapshotKind.CHECKPOINT, {}, 1.0, 3.5, statistics=statistics)


@given(st.dictionaries(SUBTASKS, METRICS, max_size=8))
def test_what_each_subtask_measured_comes_back_to_the_microsecond(
    metrics: dict[SubtaskId, CheckpointMetrics],
) -> None:
    statistics = CompletedCheckpointStatistics.of(9, 7, 1, 0.25, metrics)
    assert statistics.subtasks == len(metrics)
    found = statistics.metrics()
    assert found.keys() == metrics.keys()
    for subtask, expected in metrics.items():
        assert astuple(found[subtask])[:4] == pytest.approx(astuple(expected)[:4], abs=0.6e-6)
        assert astuple(found[subtask])[4:] == astuple(expected)[4:]


def test_statistics_are_a_part_of_the_metadata() -> None:
    statistics = CompletedCheckpointStatistics.of(9, 7, 1, 0.25, measured(10))
    decoded = decode_metadata(encode_metadata(checkpoint(statistics), "m"), "m")
    assert decoded.statistics == statistics
    assert decoded.statistics.written_bytes == sum(m.written_bytes for m in measured(10).values())
    assert decoded.statistics.in_flight_bytes == sum(m.in_flight_bytes for m in measured(10).values())


def test_bytes_that_alignments_stored_come_back_and_take_no_room_where_none_were() -> None:
    storing = {
        SubtaskId("join", 0): CheckpointMetrics(alignment_duration=2.0, stored_bytes=900, spilled_bytes=700),
        SubtaskId("join", 1): CheckpointMetrics(),
        SubtaskId("sink", 0): CheckpointMetrics(written_bytes=1),
    }
    statistics = CompletedCheckpointStatistics.of(1, 1, 0, 0.25, storing)
    assert statistics.metrics() == storing
    columns = {vertex: len(columns) for vertex, _, *columns in msgpack.unpackb(statistics.packed)}
    assert columns == {"join": 9, "sink": 7}


def test_metadata_without_a_part_is_damaged() -> None:
    body = msgpack.unpackb(encode_metadata(checkpoint(None))[26:])
    for part in body:
        left = {name: value for name, value in body.items() if name != part}
        with pytest.raises(CorruptSnapshotError, match=f"a part is missing or wrong .*{part}"):
            decode_metadata(seal(b"PENSTKCP", 1, left), "m")


def test_statistics_of_another_version_do_not_keep_a_job_from_starting() -> None:
    body = msgpack.unpackb(encode_metadata(checkpoint(None))[26:])
    decoded = decode_metadata(seal(b"PENSTKCP", 1, {**body, "statistics": [9, 7, 1, 2, 7, 3, b""]}), "m")
    assert decoded == replace(checkpoint(None), metadata=decoded.metadata)


@pytest.mark.parametrize("statistics", [3, "", [1] * 8, [1, 1, 0, float("inf"), 1, 1, 1, b""]])
def test_statistics_that_are_none_are_left_aside(statistics: object) -> None:
    """They are for people: the snapshot is good without them."""
    body = msgpack.unpackb(encode_metadata(checkpoint(None))[26:])
    decoded = decode_metadata(seal(b"PENSTKCP", 1, {**body, "statistics": statistics}), "j/metadata")
    assert (decoded.checkpoint_id, decoded.statistics) == (7, None)


@pytest.mark.parametrize("packed", [b"", b"\xc1", msgpack.packb([["count", [0], [1]]]), msgpack.packb(3)])
def test_what_can_not_be_unpacked_stops_nobody_who_does_not_ask_for_it(packed: bytes) -> None:
    statistics = replace(CompletedCheckpointStatistics.of(1, 1, 0, 0.25, {}), packed=packed)
    decoded = decode_metadata(encode_metadata(checkpoint(statistics)), "m")
    assert decoded.checkpoint_id == 7
    assert decoded.statistics is not None
    with pytest.raises(CorruptSnapshotError, match="the metrics of a checkpoint's subtasks"):
        decoded.statistics.metrics()


def test_a_subtask_takes_a_few_bytes_in_a_wide_job_as_in_a_narrow_one() -> None:
    without = len(encode_metadata(checkpoint(None)))

    def bytes_of_each(subtasks: int) -> float:
        statistics = CompletedCheckpointStatistics.of(9, 7, 1, 0.25, measured(subtasks))
        return (len(encode_metadata(checkpoint(statistics))) - without) / subtasks

    each = {subtasks: bytes_of_each(subtasks) for subtasks in (100, 1_000, 10_000)}
    assert all(25 < size < 36 for size in each.values()), each
    assert each[10_000] == pytest.approx(each[100], abs=2)


def test_rows_are_plain_and_sorted() -> None:
    rows = subtask_rows(measured(4))
    assert [(row["vertex"], row["subtask"]) for row in rows] == [
        ("count", 0),
        ("count", 1),
        ("lines", 0),
        ("lines", 1),
    ]
    assert rows[2]["alignment_duration"] == measured(4)[SubtaskId("lines", 0)].alignment_duration
