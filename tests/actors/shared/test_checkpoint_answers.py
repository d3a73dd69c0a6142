"""The caller's answer to a request for a checkpoint."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock import CheckpointError, CheckpointResult, JobStatus
from penstock.actors.shared.snapshot_answers import SnapshotRefused, checkpoint_reply, reply_of_report
from penstock.actors.shared.snapshot_answers import taken as taken_of
from penstock.runtime.checkpoint.coordinator.requests import CheckpointFailed, CheckpointSucceeded
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointFailureReason,
    CheckpointMetrics,
    CompletedCheckpointStatistics,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.snapshot.ids import SubtaskId


def test_a_complete_checkpoint_gives_its_number_place_sizes_and_duration() -> None:
    measured = {SubtaskId("count", index): CheckpointMetrics(written_bytes=10) for index in (0, 1)}
    taken = CompletedCheckpoint(
        7,
        2,
        SnapshotKind.CHECKPOINT,
        {},
        0.0,
        9.0,
        FileHandle("j/chk-7-2/metadata", 9, ""),
        size=300,
        statistics=CompletedCheckpointStatistics.of(7, 6, 0, 0.4, measured),
    )
    result = taken_of(checkpoint_reply(CheckpointSucceeded(taken, 0.5), "/jobs"), "j", CheckpointError)
    assert result == CheckpointResult(7, "/jobs/j/chk-7-2", 300, 20, 0.5)


def test_a_checkpoint_that_failed_names_its_number_and_why() -> None:
    failed = CheckpointFailed(CheckpointFailureReason.CHECKPOINT_DECLINED, "count[0]: disk full", 7)
    with pytest.raises(
        CheckpointError, match=r"of job j: checkpoint 7 failed: count\[0\]: disk full \(check"
    ):
        taken_of(checkpoint_reply(failed, "/jobs"), "j", CheckpointError)


def test_a_request_that_became_no_checkpoint_says_why() -> None:
    failed = CheckpointFailed(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, "the job is stopping")
    reply = checkpoint_reply(failed, "/jobs")
    assert reply == SnapshotRefused("the job is stopping (not_all_required_tasks_running)")
    without_detail = CheckpointFailed(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING)
    assert checkpoint_reply(without_detail, "/jobs") == SnapshotRefused("not_all_required_tasks_running")


def test_a_job_that_has_ended_says_how() -> None:
    failure = FailureRecord(1, 0.0, FailureCause("out of memory", SubtaskId("count", 0)))
    report = SimpleNamespace(status=JobStatus.FAILED, failure=failure)
    reply = reply_of_report(cast("Any", report))
    assert reply.why.startswith("the job has ended: failed; ")
    assert "out of memory" in reply.why
