"""The snapshots that an ended job has left, and the command that continues from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock import JobStatus
from penstock.actors.shared.job_end import JobEnd, keeps_checkpoints
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.config.checkpointing import Checkpointing, KeepAfter
from penstock.runtime.config.job_config import JobConfig, settings_as_text
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.job.failover import FailureCause, FailureKind, FailureRecord
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus

SAVEPOINT = CheckpointRecord(3, 1, SnapshotKind.SAVEPOINT, CheckpointStatus.COMPLETED, 1.0)


def ended(
    status: JobStatus = JobStatus.FINISHED,
    keep_after: KeepAfter | None = KeepAfter.FAILURE,
    last: int | None = 4,
    restore_from: str | None = None,
) -> JobReport:
    checkpointing = None if keep_after is None else Checkpointing(every=1, keep_after=keep_after)
    statistics = JobStatistics(status, 1, completed_checkpoints=last or 0, last_checkpoint_id=last)
    report = JobReport("words-1", "words", status, 0.0, 1.0, statistics, storage="/kept")
    settings = settings_as_text(JobConfig(checkpointing=checkpointing))
    return replace(report, settings={"restore_from": str(restore_from), **settings})


def end_of(report: JobReport) -> JobEnd:
    assert report.end is not None
    return report.end


def test_a_job_that_was_stopped_continues_from_its_savepoint_unless_it_was_drained() -> None:
    stopped = replace(ended(), savepoint="/saved/savepoint-1")
    assert end_of(stopped).lines() == (
        "kept: the savepoint /saved/savepoint-1",
        "deleted: its checkpoints, by keep_after='failure'",
        "to continue: penstock restore /saved/savepoint-1 python PROGRAM",
    )
    drained = end_of(replace(stopped, drained=True))
    assert (drained.kept, drained.command) == ("the savepoint /saved/savepoint-1", None)


def test_a_job_that_keeps_its_checkpoints_continues_from_its_folder() -> None:
    kept = end_of(ended(JobStatus.FAILED))
    assert kept == JobEnd("its checkpoints in /kept/words-1", None, "/kept/words-1")
    assert kept.command == "penstock restore /kept/words-1 python PROGRAM"


def test_a_job_that_deletes_its_checkpoints_names_the_setting_and_the_savepoints_that_stay() -> None:
    cancelled = ended(JobStatus.CANCELLED)
    assert end_of(cancelled).lines() == (
        "kept: nothing",
        "deleted: its checkpoints, by keep_after='failure'",
    )
    saved = replace(cancelled, checkpoint_history=(SAVEPOINT,))
    assert end_of(saved).kept == "1 earlier savepoint, which `penstock checkpoints` lists"
    assert end_of(saved).deleted == "its checkpoints, by keep_after='failure'"
    only = replace(saved, statistics=replace(saved.statistics, completed_checkpoints=1))
    assert end_of(only).deleted is None, "a savepoint is never deleted"


def test_a_job_without_a_snapshot_of_its_own_continues_from_the_one_that_it_started_from() -> None:
    failed = ended(JobStatus.FAILED, last=None, restore_from="/saved/savepoint-1")
    assert failed.restored_from == "/saved/savepoint-1"
    assert end_of(failed) == JobEnd(snapshot="/saved/savepoint-1")
    incompatible = FailureRecord(1, 0.0, FailureCause("state of 'lines'", recoverable=False))
    assert end_of(replace(failed, failures=(incompatible,))).snapshot == "/saved/savepoint-1"
    missing = FailureRecord(1, 0.0, FailureCause("there is no snapshot", kind=FailureKind.SNAPSHOT))
    assert end_of(replace(failed, failures=(missing,))).lines() == ("kept: nothing",)
    repeats = end_of(ended(JobStatus.CANCELLED, restore_from="/saved/savepoint-1"))
    assert repeats.snapshot is None, "it has committed output since"
    assert end_of(ended(last=None, restore_from="/saved/savepoint-1")).snapshot is None, "it has finished"
    assert end_of(ended(JobStatus.FAILED, None, None)) == JobEnd()
    assert ended().restored_from is None


def test_a_running_job_has_no_end_and_an_ended_one_shows_it_as_json() -> None:
    assert ended(JobStatus.RUNNING).end is None
    assert ended(JobStatus.RUNNING).to_dict()["end"] is None
    shown = ended(JobStatus.FAILED, restore_from="/a").to_dict()
    assert shown["restored_from"] == "/a"
    assert shown["end"]["command"] == "penstock restore /kept/words-1 python PROGRAM"
    assert JobReport.from_dict(shown) == ended(JobStatus.FAILED, restore_from="/a")


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
    settings = ended(keep_after=rule).settings
    assert {end for end in JobStatus if end.is_terminal and keeps_checkpoints(settings, end)} == ends
