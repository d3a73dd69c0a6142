"""A JobMaster's answers to requests for a checkpoint, and the results that a handle makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from penstock.actors.shared.failure_text import failure_text
from penstock.actors.shared.job_report import JobReport
from penstock.actors.shared.savepoint_answers import refusal_text
from penstock.runtime.checkpoint.coordinator.requests import CheckpointAnswer, CheckpointSucceeded
from penstock.runtime.errors import CheckpointError
from penstock.runtime.graph.job_handle import CheckpointResult
from penstock.runtime.snapshot.completed_checkpoint import snapshot_url


@dataclass(frozen=True, slots=True)
class CheckpointRefused:
    """There is no checkpoint.

    Attributes:
        why: For people.
    """

    why: str


CheckpointReply: TypeAlias = CheckpointResult | CheckpointRefused


def checkpoint_reply(answer: CheckpointAnswer, storage_url: str) -> CheckpointReply:
    """The JobMaster's reply that follows from the coordinator's answer."""
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
    """The reply that follows from the last report of a job."""
    why = f"the job has ended: {report.status.value}"
    if report.failure is not None:
        why += f"; {failure_text(report.failure.root)}"
    return CheckpointRefused(why)


def result_of(reply: CheckpointReply, job_id: str) -> CheckpointResult:
    """The checkpoint.

    Raises:
        CheckpointError: There is none; says why.
    """
    if isinstance(reply, CheckpointResult):
        return reply
    msg = f"no checkpoint of job {job_id}: {reply.why}"
    raise CheckpointError(msg)
