"""A JobMaster's answers to requests for snapshots, and the results that a handle makes of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TypeAlias

from penstock.actors.shared.failure_text import failure_text
from penstock.actors.shared.job_report import JobReport
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
    """The savepoint exists.

    Attributes:
        still_needed: Why the job would still restart from it; empty when it would not.
    """

    path: str
    still_needed: str = ""


@dataclass(frozen=True, slots=True)
class SavepointRefused:
    why: str


SavepointAnswer: TypeAlias = SavepointTaken | SavepointRefused


def savepoint_answer(answer: CheckpointAnswer, storage_url: str) -> SavepointAnswer:
    if isinstance(answer, CheckpointSucceeded):
        return SavepointTaken(snapshot_url(answer.checkpoint, storage_url), answer.still_needed)
    return SavepointRefused(refusal_text(answer))


def refusal_text(answer: CheckpointFailed) -> str:
    return f"{answer.detail or 'no reason given'} ({answer.reason.value})"


def answer_of_report(report: JobReport, *, drain: bool = False) -> SavepointAnswer:
    """The answer that follows from a job's last report: the savepoint that it was stopped with, if any.

    Args:
        drain: Whether event time has to have gone to its end first, as a stop asks for.
    """
    if report.savepoint is not None and report.status is JobStatus.FINISHED:
        if not drain or report.drained:
            return SavepointTaken(report.savepoint)
        return SavepointRefused(f"it was stopped before, without a drain, with savepoint {report.savepoint}")
    why = f"the job has ended: {report.status.value}"
    if report.savepoint is not None:
        why += f"; the savepoint {report.savepoint} is complete, but sinks may not have committed all of it"
    if report.failure is not None:
        why += f"; {failure_text(report.failure.root)}"
    return SavepointRefused(why)


def taken_of(answer: SavepointAnswer, job_id: str) -> SavepointTaken:
    """The savepoint.

    Raises:
        SavepointError: There is none; the message says why.
    """
    if isinstance(answer, SavepointTaken):
        return answer
    msg = f"no savepoint of job {job_id}: {answer.why}"
    raise SavepointError(msg)


def warning_of(taken: SavepointTaken, job_id: str) -> SavepointStillNeededWarning | None:
    """The warning that the job still builds on a savepoint; `None` when it does not."""
    if not taken.still_needed:
        return None
    return SavepointStillNeededWarning(taken.path, job_id, taken.still_needed)


def path_of(answer: SavepointAnswer, job_id: str) -> str:
    """The savepoint's URL; warns with a `SavepointStillNeededWarning` when the job still builds on it.

    Raises:
        SavepointError: There is none; the message says why.
    """
    taken = taken_of(answer, job_id)
    warning = warning_of(taken, job_id)
    if warning is not None:
        warnings.warn(warning, stacklevel=3)
    return taken.path


@dataclass(frozen=True, slots=True)
class CheckpointRefused:
    why: str


CheckpointReply: TypeAlias = CheckpointResult | CheckpointRefused


def checkpoint_reply(answer: CheckpointAnswer, storage_url: str) -> CheckpointReply:
    if not isinstance(answer, CheckpointSucceeded):
        number = "" if answer.checkpoint_id is None else f"checkpoint {answer.checkpoint_id} failed: "
        return CheckpointRefused(f"{number}{refusal_text(answer)}")
    checkpoint = answer.checkpoint
    return CheckpointResult(
        checkpoint.checkpoint_id,
        snapshot_url(checkpoint, storage_url),
        checkpoint.size,
        0 if checkpoint.statistics is None else checkpoint.statistics.written_bytes,
        answer.duration,
    )


def reply_of_report(report: JobReport) -> CheckpointRefused:
    why = f"the job has ended: {report.status.value}"
    if report.failure is not None:
        why += f"; {failure_text(report.failure.root)}"
    return CheckpointRefused(why)


def result_of(reply: CheckpointReply, job_id: str) -> CheckpointResult:
    """The checkpoint.

    Raises:
        CheckpointError: There is none; the message says why.
    """
    if isinstance(reply, CheckpointResult):
        return reply
    msg = f"no checkpoint of job {job_id}: {reply.why}"
    raise CheckpointError(msg)
