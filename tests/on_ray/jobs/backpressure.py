"""Watching jobs that are back-pressured, most of them by `jobs.throttled`."""

from __future__ import annotations

import time

from jobs.driving import PATIENCE, eventually, subtask_statistics, wait_until

from penstock.cluster import JobReport, RayJobHandle
from penstock.runtime.snapshot.checkpoint_record import CheckpointRecord, CheckpointStatus
from penstock.runtime.snapshot.ids import SubtaskId


def completed_records(report: JobReport, attempt: int) -> list[CheckpointRecord]:
    """The completed checkpoints of one attempt that the report still tells of, oldest first."""
    completed = CheckpointStatus.COMPLETED
    return [r for r in report.checkpoint_history if r.status is completed and r.attempt == attempt]


def after_in_flight_checkpoint(job: RayJobHandle, attempt: int, *, completed: int = 0) -> JobReport:
    """Wait until the newest checkpoint of an attempt is complete and holds in-flight data.

    Args:
        completed: So many checkpoints are complete, those of earlier attempts counted in.
    """

    def is_there(report: JobReport) -> bool:
        assert report.statistics.attempt <= attempt, f"an unexpected restart: {report.history}"
        records = completed_records(report, attempt)
        enough = report.statistics.completed_checkpoints >= completed
        return enough and bool(records) and records[-1].in_flight_bytes > 0

    return wait_until(job, f"a checkpoint of attempt {attempt} with in-flight data", is_there)


def checkpoint_that_waits(job: RayJobHandle, sink: str, records: int) -> CheckpointRecord:
    """A checkpoint that runs and does not complete while the sink takes so many more records."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        seen = wait_until(job, "a running checkpoint", lambda report: running(report) is not None)
        begun, taken = running(seen), taken_by(seen, sink)
        assert begun is not None
        later = wait_until(
            job,
            f"{records} more records",
            lambda report, begun=begun, taken=taken: (  # type: ignore[misc]
                running(report) is None
                or running(report).checkpoint_id != begun.checkpoint_id  # type: ignore[union-attr]
                or taken_by(report, sink) >= taken + records
            ),
        )
        still = running(later)
        if still is not None and still.checkpoint_id == begun.checkpoint_id:
            return still
    msg = f"every checkpoint completed before the sink had taken {records} records"
    raise AssertionError(msg)


def past_the_barrier(job: RayJobHandle, source: SubtaskId, taker: str, fan_out: int) -> int:
    """Wait until an operator has taken records that a source sent behind the barrier of a running checkpoint.

    Something else must hold the checkpoint up. The source is asked when it has acknowledged the checkpoint.
    It has then sent its barrier, and in front of it at most what it says that it has sent.

    Args:
        taker: The operator.
        fan_out: Records that it takes for each record of the source.

    Returns:
        The checkpoint's id.
    """
    while True:
        checkpoint_id = acknowledged_by(job, source)
        sent = subtask_statistics(job)[source].records_out

        def has_ended(report: JobReport, checkpoint_id: int = checkpoint_id) -> bool:
            record = record_of(report, checkpoint_id)
            return record is None or record.status is not CheckpointStatus.IN_PROGRESS

        def is_past(report: JobReport, sent: int = sent) -> bool:
            return has_ended(report) or taken_by(report, taker) > fan_out * sent

        report = wait_until(job, f"more than {fan_out * sent} records in {taker}", is_past)
        if not has_ended(report):
            return checkpoint_id


def acknowledged_by(job: RayJobHandle, subtask: SubtaskId) -> int:
    """Wait for a running checkpoint that a subtask has acknowledged; its id."""
    found: list[int] = []

    def is_there() -> bool:
        found.extend(
            each.record.checkpoint_id
            for each in job.checkpoints()
            if each.record.status is CheckpointStatus.IN_PROGRESS and subtask in each.subtasks
        )
        return found != []

    eventually(f"the barrier of {subtask}", is_there)
    return found[0]


def running(report: JobReport) -> CheckpointRecord | None:
    """The checkpoint that runs, if one does."""
    return next(
        (r for r in report.checkpoint_history if r.status is CheckpointStatus.IN_PROGRESS),
        None,
    )


def record_of(report: JobReport, checkpoint_id: int) -> CheckpointRecord | None:
    """A checkpoint's entry in the report."""
    return next((r for r in report.checkpoint_history if r.checkpoint_id == checkpoint_id), None)


def taken_by(report: JobReport, operator: str) -> int:
    """Records that an operator has taken in the running attempt."""
    counters = report.statistics.operators.get(operator)
    return 0 if counters is None else counters.records_in
