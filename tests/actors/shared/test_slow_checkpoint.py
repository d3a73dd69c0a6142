"""The sentence that says why a checkpoint takes long."""

from __future__ import annotations

import pytest

from penstock.actors.shared.slow_checkpoint import (
    CheckpointPart,
    SlowCheckpoint,
    explain_completed,
    explain_running,
    takes_long,
)
from penstock.runtime.graph.graph_info import EdgeInfo, GraphInfo, VertexInfo
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointMetrics,
    CheckpointRecord,
    CheckpointStatus,
)
from penstock.runtime.snapshot.ids import SubtaskId

Measured = dict[tuple[str, int], tuple[float, float, float, float]]


def graph(*edges: tuple[str, str], partitioning: str = "rebalance") -> GraphInfo:
    names = dict.fromkeys(name for edge in edges for name in edge)
    return GraphInfo(
        "words",
        tuple(VertexInfo(name, 2, 128, ()) for name in names),
        tuple(EdgeInfo(source, target, partitioning) for source, target in edges),
    )


CHAIN = graph(("lines", "enrich"), ("enrich", "out"))


def reason(measured: Measured, of: GraphInfo = CHAIN) -> SlowCheckpoint:
    """The reason of a checkpoint whose subtasks measured start delay, alignment, sync and async seconds."""
    record = CheckpointRecord(
        7, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 100.0, duration=12.0, size=9
    )
    metrics = {SubtaskId(*subtask): CheckpointMetrics(*parts) for subtask, parts in measured.items()}
    found = explain_completed(of, CheckpointDetails(record, metrics))
    assert found is not None
    return found


def test_a_barrier_that_waits_in_front_of_a_slow_subtask_is_the_start_delay_of_this_one_only() -> None:
    found = reason(
        {
            ("lines", 0): (0.1, 0, 0, 0.1),
            ("enrich", 0): (10.0, 0, 0.1, 0.1),
            ("out", 0): (10.5, 0, 0.1, 1.0),
        }
    )
    assert (found.vertex, found.subtask, found.part) == ("enrich", 0, CheckpointPart.START_DELAY)
    assert found.seconds == pytest.approx(9.9)
    assert str(found) == (
        "Checkpoint 7 took 12 s: its barrier waited 9.9 s in front of `enrich[0]` (start delay)."
    )


def test_an_input_that_comes_late_is_an_alignment() -> None:
    found = reason(
        {
            ("lines", 0): (0.1, 0, 0, 0.1),
            ("lines", 1): (0.3, 0, 0, 0.1),
            ("enrich", 0): (0.2, 11.0, 0.0, 0.5),
        }
    )
    assert (found.vertex, found.part) == ("enrich", CheckpointPart.ALIGNMENT)
    assert str(found) == (
        "Checkpoint 7 took 12 s: `enrich[0]` waited 11 s for the barriers of its other inputs (alignment)."
    )


def test_a_late_input_is_put_down_to_the_sender_that_stood_still() -> None:
    found = reason(
        {
            ("lines", 0): (0.1, 0, 0, 0.1),
            ("lines", 1): (0.1, 0, 10.9, 0.1),
            ("enrich", 0): (0.2, 11.0, 0.0, 0.5),
        }
    )
    assert (found.vertex, found.subtask, found.part) == ("lines", 1, CheckpointPart.SYNC)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((0.1, 0, 8.0, 0.1), "`enrich[1]` stopped for 8.0 s to capture its state (synchronous part)"),
        ((0.1, 0, 0.1, 71.0), "`enrich[1]` uploaded its state for 1 min 11 s (asynchronous part)"),
    ],
)
def test_the_last_subtask_may_have_taken_long_itself(
    parts: tuple[float, float, float, float], text: str
) -> None:
    found = reason({("lines", 0): (0.1, 0, 0, 0), ("enrich", 0): (0.1, 0, 0, 0), ("enrich", 1): parts})
    assert text in str(found)


def test_a_source_that_takes_the_barrier_late_has_a_start_delay() -> None:
    found = reason({("lines", 0): (8.0, 0, 0, 0), ("enrich", 0): (8.1, 0, 0, 0.1)})
    assert (found.vertex, found.part, found.seconds) == ("lines", CheckpointPart.START_DELAY, 8.0)


def test_the_sender_of_a_forward_edge_is_the_subtask_with_the_same_index() -> None:
    forward = graph(("lines", "enrich"), partitioning="forward")
    found = reason(
        {
            ("lines", 0): (0.0, 0, 0, 0),
            ("lines", 1): (9.0, 0, 0, 0),
            ("enrich", 0): (10.0, 0, 0, 2.0),
            ("enrich", 1): (9.0, 0, 0, 0),
        },
        forward,
    )
    assert (found.vertex, found.subtask, found.seconds) == ("enrich", 0, 10.0)


def test_nothing_measured_is_no_reason() -> None:
    record = CheckpointRecord(7, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 100.0)
    assert explain_completed(CHAIN, CheckpointDetails(record, {})) is None


@pytest.mark.parametrize(("upload", "is_reason"), [(0.3, False), (5.0, False), (7.0, True)])
def test_time_that_was_not_measured_is_put_down_to_no_subtask(upload: float, is_reason: bool) -> None:
    record = CheckpointRecord(
        7, 1, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 100.0, duration=12.0, size=9
    )
    metrics = {SubtaskId("lines", 0): CheckpointMetrics(0.0, 0, 0, upload)}
    assert (explain_completed(CHAIN, CheckpointDetails(record, metrics)) is not None) == is_reason


def test_a_running_checkpoint_waits_for_a_subtask_that_waits_for_no_other_one() -> None:
    missing = [SubtaskId("out", 0), SubtaskId("enrich", 1), SubtaskId("out", 1)]
    found = explain_running(CHAIN, 8, 40.0, missing)
    assert str(found) == "Checkpoint 8 has run for 40 s: `enrich[1]` has not acknowledged it."
    assert explain_running(CHAIN, 8, 40.0, [SubtaskId("gone", 0)]) is None


def test_long_is_ten_seconds_or_more_than_half_of_the_interval_but_never_less_than_one_second() -> None:
    assert takes_long(10.0, every=600.0)
    assert not takes_long(9.0, every=600.0)
    assert takes_long(1.5, every=2.0)
    assert not takes_long(0.9, every=0.5)
    assert not takes_long(9.0, every=None)
