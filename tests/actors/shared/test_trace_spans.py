"""Checkpoints and the episodes of a job as traces."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from penstock.actors.shared.telemetry import checkpoint_span, episodes
from penstock.runtime.job.job_state import JobState, Transition
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointRecord,
    CheckpointStatus,
)
from penstock.runtime.snapshot.ids import SubtaskId

RECORD = CheckpointRecord(
    7, 2, SnapshotKind.CHECKPOINT, CheckpointStatus.COMPLETED, 100.0, 1, 1, duration=2.0, size=500
)
MEASURED = {SubtaskId("sum", 0): CheckpointMetrics(0.5, 0.25, 0.125, 0.0625, 40, 500)}


def test_a_checkpoint_is_a_trace_of_its_subtasks_and_their_parts() -> None:
    span = checkpoint_span(CheckpointDetails(RECORD, MEASURED))
    assert span is not None
    assert (span.name, span.begun, span.ended, span.failure) == ("checkpoint", 100.0, 102.0, "")
    assert span.attributes["penstock.checkpoint.id"] == 7
    (subtask,) = span.parts
    assert (subtask.name, subtask.ended) == ("sum[0]", 100.9375)
    assert subtask.attributes["penstock.checkpoint.written_bytes"] == 40
    assert [(part.name, part.begun, part.ended) for part in subtask.parts] == [
        ("start delay", 100.0, 100.5),
        ("alignment", 100.5, 100.75),
        ("synchronous part", 100.75, 100.875),
        ("asynchronous part", 100.875, 100.9375),
    ]


def test_a_failed_checkpoint_has_its_reason() -> None:
    reason = CheckpointFailureReason.CHECKPOINT_EXPIRED
    failed = replace(RECORD, status=CheckpointStatus.FAILED, failure=reason, detail="too slow", size=None)
    span = checkpoint_span(CheckpointDetails(failed, {}))
    assert span is not None
    assert span.failure == f"{reason.value} too slow"


def test_a_checkpoint_that_runs_is_no_trace_yet() -> None:
    running = replace(RECORD, status=CheckpointStatus.IN_PROGRESS, duration=None)
    assert checkpoint_span(CheckpointDetails(running, {})) is None


def history(*states: str, cause: str = "") -> list[Transition]:
    """The transitions of a job that spends one second in each state."""
    known = [JobState(state) for state in states]
    return [
        Transition(source, target, float(at), cause if target is JobState.FAILING else "")
        for at, (source, target) in enumerate(pairwise(known))
    ]


UP = ("created", "deploying", "initialising", "running")
AGAIN = ("failing", "restarting", "deploying", "initialising", "running")


def test_a_start_and_a_restart_are_traces_of_their_states() -> None:
    start, restart = episodes(history(*UP, *AGAIN, cause="sum[0]: broke"))
    assert (start.name, start.begun, start.ended) == ("start", 0.0, 2.0)
    assert [(part.name, part.begun, part.ended) for part in start.parts] == [
        ("deploying", 0.0, 1.0),
        ("initialising", 1.0, 2.0),
    ]
    assert (restart.name, restart.begun, restart.ended) == ("restart", 3.0, 7.0)
    assert restart.failure == "sum[0]: broke"
    assert [part.name for part in restart.parts] == list(AGAIN[:-1])


@pytest.mark.parametrize(
    ("states", "names"),
    [
        (UP[:3], []),
        ((*UP, "rescaling", "deploying", "initialising", "running"), ["start", "rescale"]),
        ((*UP, "rescaling", "running"), ["start", "rescale"]),
        ((*UP, "finished"), ["start"]),
        ((*UP, "stopping", "finished"), ["start"]),
        ((*UP, "stopping", "running"), ["start"]),
        ((*UP, "failing", "failed"), ["start", "end"]),
        ((*UP, "failing", "restarting"), ["start"]),
        ((*UP, "stopping", *AGAIN), ["start", "restart"]),
        ((*UP, "cancelling", "cancelled"), ["start", "end"]),
        (("deploying", "running", *AGAIN), ["start", "restart"]),
    ],
)
def test_an_episode_is_named_after_what_happened(states: tuple[str, ...], names: list[str]) -> None:
    assert [episode.name for episode in episodes(history(*states))] == names
