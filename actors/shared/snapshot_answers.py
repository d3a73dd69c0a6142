"""A JobMaster's answers to requests for snapshots, and the results that a handle returns."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TypeAlias, TypeVar

from penstock.actors.shared.job_report import JobReport, failure_text
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointFailed,
    CheckpointSucceeded,
)
from penstock.runtime.errors import CheckpointError, SavepointError, SavepointStillNeededWarning
from penstock.runtime.graph.executor import CheckpointResult, JobStatus
from penstock.runtime.snapshot.completed_checkpoint import snapshot_url


@dataclass(frozen=True, slots=True)
class SavepointTaken:
    """A completed savepoint; `still_needed` is the reason why a restart needs the savepoint, or empty."""

    path: str
    still_needed: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotRefused:
    """A failed checkpoint or savepoint."""

    why: str


SavepointAnswer: TypeAlias = SavepointTaken | SnapshotRefused
CheckpointReply: TypeAlias = CheckpointResult | SnapshotRefused

T = TypeVar("T")


def savepoint_answer(answer: CheckpointAnswer, storage_url: str) -> SavepointAnswer:
    if isinstance(answer, CheckpointSucceeded):
        return SavepointTaken(snapshot_url(answer.checkpoint, storage_url), answer.still_needed)
    return SnapshotRefused(_refusal(answer))


def checkpoint_reply(answer: CheckpointAnswer, storage_url: str) -> CheckpointReply:
    if not isinstance(answer, CheckpointSucceeded):
        number = "" if answer.checkpoint_id is None else f"checkpoint {answer.checkpoint_id} failed: "
        return SnapshotRefused(f"{number}{_refusal(answer)}")
    checkpoint = answer.checkpoint
    return CheckpointResult(
        checkpoint.checkpoint_id,
        snapshot_url(checkpoint, storage_url),
        checkpoint.size,
        0 if checkpoint.statistics is None else checkpoint.statistics.written_bytes,
        answer.duration,
    )


def answer_of_report(report: JobReport, *, drain: bool = False) -> SavepointAnswer:
    """The final savepoint in the last report of a stopped job, or a refusal.

    With `drain`, refuses a job that was stopped without a drain.
    """
    if report.savepoint is not None and report.status is JobStatus.FINISHED:
        if not drain or report.drained:
            return SavepointTaken(report.savepoint)
        return SnapshotRefused(f"it was already stopped without a drain; its savepoint is {report.savepoint}")
    if report.savepoint is None:
        return reply_of_report(report)
    why = f"; the savepoint {report.savepoint} is complete, but sinks may not have committed all of it"
    return reply_of_report(report, why)


def reply_of_report(report: JobReport, more: str = "") -> SnapshotRefused:
    """The refusal of a request to an ended job; `more` is appended to the final status in the message."""
    why = f"the job has ended: {report.status.value}{more}"
    if report.failure is not None:
        why += f"; {failure_text(report.failure.root)}"
    return SnapshotRefused(why)


def taken(answer: T | SnapshotRefused, job_id: str, error: type[CheckpointError | SavepointError]) -> T:
    """Return the checkpoint or savepoint; raise `error` with the reason for a refusal."""
    if isinstance(answer, SnapshotRefused):
        kind = "savepoint" if error is SavepointError else "checkpoint"
        msg = f"no {kind} of job {job_id}: {answer.why}"
        raise error(msg)
    return answer


def warning_of(savepoint: SavepointTaken, job_id: str) -> SavepointStillNeededWarning | None:
    if not savepoint.still_needed:
        return None
    return SavepointStillNeededWarning(savepoint.path, job_id, savepoint.still_needed)


def path_of(answer: SavepointAnswer, job_id: str) -> str:
    """The savepoint's URL; warns with a `SavepointStillNeededWarning` when a restart would need it.

    Raises:
        SavepointError: The savepoint failed; the message says why.
    """
    savepoint = taken(answer, job_id, SavepointError)
    warning = warning_of(savepoint, job_id)
    if warning is not None:
        warnings.warn(warning, stacklevel=3)
    return savepoint.path


def _refusal(answer: CheckpointFailed) -> str:
    return answer.why
