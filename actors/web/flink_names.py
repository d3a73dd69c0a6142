"""Checkpoints in the words of Flink's REST, beside Penstock's own.

Flink has milliseconds where these are seconds, and states in capital letters. `processed_data` is missing:
subtasks do not count the bytes that pass while barriers are aligned.
"""

from __future__ import annotations

from typing import Any

from penstock.runtime.snapshot.checkpoint_record import CheckpointDetails, CheckpointRecord, CheckpointStatus


def record_of(record: CheckpointRecord) -> dict[str, Any]:
    """A checkpoint of the history as plain values, under both names."""
    failure = None
    if record.status is CheckpointStatus.FAILED:
        reason = "" if record.failure is None else record.failure.value.replace("_", " ")
        failure = ": ".join(filter(None, (reason, record.detail)))
    return {
        **record.to_dict(),
        "id": record.checkpoint_id,
        "is_savepoint": record.kind.is_savepoint,
        "trigger_timestamp": record.triggered_at,
        "end_to_end_duration": record.duration,
        "state_size": record.size,
        "checkpointed_size": record.written_bytes,
        "persisted_data": record.in_flight_bytes,
        "num_subtasks": record.subtasks,
        "num_acknowledged_subtasks": record.acknowledged,
        "failure_message": failure,
    }


def details_of(details: CheckpointDetails) -> dict[str, Any]:
    """A checkpoint with what each subtask measured, as plain values under both names."""
    rows = [{**row, **_subtask(row)} for row in details.to_dict()["by_subtask"]]
    return {**record_of(details.record), "by_subtask": rows}


def _subtask(row: dict[str, Any]) -> dict[str, Any]:
    return {
        "index": row["subtask"],
        "state_size": row["full_bytes"],
        "checkpointed_size": row["written_bytes"],
        "checkpoint": {"sync": row["sync_duration"], "async": row["async_duration"]},
        "alignment": {"duration": row["alignment_duration"], "persisted": row["in_flight_bytes"]},
    }
