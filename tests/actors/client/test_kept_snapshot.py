"""The snapshot from which a program continues a finished job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import JobStatus
from penstock.actors.client.job_handle import kept_snapshot
from penstock.actors.shared.job_report import JobReport, keeps_checkpoints
from penstock.runtime.config.checkpointing import Checkpointing, KeepAfter
from penstock.runtime.config.job_config import JobConfig, settings_as_text
from penstock.runtime.graph.executor import JobStatistics


def finished(keep_after: KeepAfter | None = KeepAfter.ALWAYS, last: int | None = 4) -> JobReport:
    checkpointing = None if keep_after is None else Checkpointing(every=1, keep_after=keep_after)
    statistics = JobStatistics(JobStatus.FINISHED, 1, last_checkpoint_id=last)
    report = JobReport("words-1", "words", JobStatus.FINISHED, 0.0, 1.0, statistics, storage="/kept")
    return replace(report, settings=settings_as_text(JobConfig(checkpointing=checkpointing)))


def test_a_job_that_was_stopped_continues_from_its_savepoint_unless_it_was_drained() -> None:
    stopped = replace(finished(), savepoint="/saved/savepoint-1")
    assert kept_snapshot(stopped) == "/saved/savepoint-1"
    assert kept_snapshot(replace(stopped, drained=True)) is None


def test_a_job_that_keeps_its_checkpoints_continues_from_its_folder() -> None:
    assert kept_snapshot(finished()) == "/kept/words-1"
    assert kept_snapshot(finished(last=None)) is None
    assert kept_snapshot(finished(KeepAfter.FAILURE)) is None
    assert kept_snapshot(finished(None)) is None


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        (KeepAfter.NEVER, set()),
        (KeepAfter.FAILURE, {JobStatus.FAILED}),
        (KeepAfter.FAILURE_OR_CANCELLATION, {JobStatus.FAILED, JobStatus.CANCELLED}),
        (KeepAfter.ALWAYS, {JobStatus.FAILED, JobStatus.CANCELLED, JobStatus.FINISHED}),
    ],
)
def test_the_settings_of_a_report_say_which_ends_keep_checkpoints(
    rule: KeepAfter, ends: set[JobStatus]
) -> None:
    report = finished(rule)
    assert {end for end in JobStatus if end.is_terminal and keeps_checkpoints(report, end)} == ends
