"""The history of checkpoints when another JobMaster goes on with the job.

Two things are left of it. The job's record, which is kept every two seconds, tells of the last checkpoints,
failed ones too; some of them still ran then. And the checkpoints that are retained tell of themselves in
their metadata: they are certain, and newer than the record at times.

What neither knows is gone: what each subtask measured of checkpoints that failed, and records of checkpoints
that ended behind the last record of the job and were let go before the JobMaster died. Those are counted all
the same, because each retained checkpoint tells how many there were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason


def recovered_record(checkpoint: CompletedCheckpoint) -> CheckpointRecord:
    """A retained checkpoint as its metadata tells it.

    Its duration ends with the last acknowledgement, as Flink's end-to-end duration does: metadata does not
    know how long it took to be written.
    """
    known = checkpoint.statistics
    subtasks = 0 if known is None else known.subtasks
    return CheckpointRecord(
        checkpoint.checkpoint_id,
        checkpoint.attempt,
        checkpoint.kind,
        CheckpointStatus.COMPLETED,
        checkpoint.triggered_at,
        acknowledged=subtasks,
        subtasks=subtasks,
        duration=None if known is None else known.duration,
        size=checkpoint.size,
        written_bytes=0 if known is None else known.written_bytes,
        in_flight_bytes=0 if known is None else known.in_flight_bytes,
    )


def recovered_records(
    records: Iterable[CheckpointRecord], retained: Iterable[CompletedCheckpoint], highest_id: int
) -> list[CheckpointRecord]:
    """The records of earlier JobMasters, brought in line with what the log says, in the order of their start.

    Args:
        records: The last that is known of them.
        retained: The completed checkpoints that the job can be restored from.
        highest_id: Of all that ever completed; -1 for none.
    """
    certain = {(c.checkpoint_id, c.attempt): recovered_record(c) for c in retained}
    found = []
    for record in records:
        completed = certain.pop((record.checkpoint_id, record.attempt), None)
        if record.status is CheckpointStatus.COMPLETED or completed is None:
            known = _outcome(record, highest_id)
            found += [] if known is None else [known]
        else:
            found.append(completed)
    return sorted((*found, *certain.values()), key=lambda r: (r.attempt, r.checkpoint_id))


def recovered_counters(
    counters: CoordinatorStatistics, retained: Sequence[CompletedCheckpoint]
) -> CoordinatorStatistics:
    """The counters of earlier JobMasters, brought in line likewise.

    Nothing of theirs runs any more, so what was started and did not complete has failed.

    Args:
        counters: The last that is known of them.
        retained: The completed checkpoints that the job can be restored from.
    """
    told = [checkpoint.statistics for checkpoint in retained if checkpoint.statistics is not None]
    completed = max(counters.completed, len(retained), *(each.completed for each in told))
    triggered = max(counters.triggered, completed, *(each.triggered for each in told))
    counters = replace(counters, triggered=triggered, completed=completed, failed=triggered - completed)
    newest = max(retained, key=lambda c: c.checkpoint_id, default=None)
    if newest is None or newest.checkpoint_id <= counters.latest_completed_id:
        return counters
    return replace(
        counters,
        latest_completed_id=newest.checkpoint_id,
        latest_completed_at=newest.completed_at,
        latest_duration=recovered_record(newest).duration,
        latest_size=newest.size,
    )


def _outcome(record: CheckpointRecord, highest_id: int) -> CheckpointRecord | None:
    """How a checkpoint ended that is not retained; `None` when nobody knows."""
    if record.status in (CheckpointStatus.COMPLETED, CheckpointStatus.FAILED):
        return record
    if record.checkpoint_id <= highest_id:
        return None
    return replace(
        record,
        status=CheckpointStatus.FAILED,
        failure=CheckpointFailureReason.CHECKPOINT_COORDINATOR_SHUTDOWN,
        detail="the JobMaster died",
    )
