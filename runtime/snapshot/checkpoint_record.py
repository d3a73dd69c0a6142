"""Checkpoints as people are shown them: records, details, counters, reasons of failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metrics import CheckpointMetrics, subtask_rows


class CheckpointFailureReason(Enum):
    """The reason; the value is its name in messages and in conformance cases."""

    PERIODIC_SCHEDULER_SHUTDOWN = "periodic_scheduler_shutdown"
    TOO_MANY_CONCURRENT_CHECKPOINTS = "too_many_concurrent_checkpoints"
    TOO_MANY_CHECKPOINT_REQUESTS = "too_many_checkpoint_requests"
    MINIMUM_TIME_BETWEEN_CHECKPOINTS = "minimum_time_between_checkpoints"
    NOT_ALL_REQUIRED_TASKS_RUNNING = "not_all_required_tasks_running"
    EXCEPTION = "exception"
    CHECKPOINT_EXPIRED = "checkpoint_expired"
    CHECKPOINT_SUBSUMED = "checkpoint_subsumed"
    CHECKPOINT_DECLINED = "checkpoint_declined"
    CHECKPOINT_DECLINED_TASK_NOT_READY = "checkpoint_declined_task_not_ready"
    CHECKPOINT_DECLINED_TASK_CLOSING = "checkpoint_declined_task_closing"
    CHECKPOINT_DECLINED_TASK_NOT_CHECKPOINTING = "checkpoint_declined_task_not_checkpointing"
    CHECKPOINT_DECLINED_SUBSUMED = "checkpoint_declined_subsumed"
    CHECKPOINT_DECLINED_ON_CANCELLATION_BARRIER = "checkpoint_declined_on_cancellation_barrier"
    CHECKPOINT_DECLINED_ALIGNMENT_LIMIT_EXCEEDED = "checkpoint_declined_alignment_limit_exceeded"
    #: Not in Flink, where a task fails whose elements can't be spilled.
    CHECKPOINT_DECLINED_ALIGNMENT_NOT_STORED = "checkpoint_declined_alignment_not_stored"
    CHECKPOINT_DECLINED_INPUT_END_OF_STREAM = "checkpoint_declined_input_end_of_stream"
    CHECKPOINT_COORDINATOR_SHUTDOWN = "checkpoint_coordinator_shutdown"
    CHECKPOINT_COORDINATOR_SUSPEND = "checkpoint_coordinator_suspend"
    JOB_FAILURE = "job_failure"
    JOB_FAILOVER_REGION = "job_failover_region"
    TASK_FAILURE = "task_failure"
    TASK_CHECKPOINT_FAILURE = "task_checkpoint_failure"
    UNKNOWN_TASK_CHECKPOINT_NOTIFICATION_FAILURE = "unknown_task_checkpoint_notification_failure"
    FINALIZE_CHECKPOINT_FAILURE = "finalize_checkpoint_failure"
    TRIGGER_CHECKPOINT_FAILURE = "trigger_checkpoint_failure"


class CheckpointStatus(Enum):
    """The state of a checkpoint."""

    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One checkpoint in the history.

    Attributes:
        attempt: The attempt that took it.
        status: Its state.
        triggered_at: Wall-clock seconds.
        acknowledged: Subtasks that have acknowledged.
        subtasks: Subtasks that take part.
        duration: Seconds from trigger to end; `None` while it runs.
        size: Bytes of all its state; `None` until it is complete.
        written_bytes: New bytes that its subtasks wrote.
        in_flight_bytes: The part of them that was data between subtasks; 0 when all of it was aligned.
        failure: `None` unless it failed.
        detail: The cause of the failure in words.
    """

    checkpoint_id: int
    attempt: int
    kind: SnapshotKind
    status: CheckpointStatus
    triggered_at: float
    acknowledged: int = 0
    subtasks: int = 0
    duration: float | None = None
    size: int | None = None
    written_bytes: int = 0
    in_flight_bytes: int = 0
    failure: CheckpointFailureReason | None = None
    detail: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "checkpoint_id": self.checkpoint_id,
            "attempt": self.attempt,
            "kind": self.kind.value,
            "status": self.status.value,
            "triggered_at": self.triggered_at,
            "acknowledged": self.acknowledged,
            "subtasks": self.subtasks,
            "duration": self.duration,
            "size": self.size,
            "written_bytes": self.written_bytes,
            "in_flight_bytes": self.in_flight_bytes,
            "failure": None if self.failure is None else self.failure.value,
            "detail": self.detail,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> CheckpointRecord:
        """The record that `to_dict` gave."""
        failure = data["failure"]
        return cls(
            **{
                **data,
                "kind": SnapshotKind(data["kind"]),
                "status": CheckpointStatus(data["status"]),
                "failure": None if failure is None else CheckpointFailureReason(failure),
            }
        )


@dataclass(frozen=True, slots=True)
class CheckpointDetails:
    """One checkpoint of the history with the metrics of its subtasks.

    Attributes:
        record: Its kind, state, sizes and durations.
        subtasks: Metrics of the subtasks that have acknowledged. Empty for old checkpoints, and for those of
            an earlier JobMaster that failed or are not retained.
    """

    record: CheckpointRecord
    subtasks: Mapping[SubtaskId, CheckpointMetrics]

    def to_dict(self) -> dict[str, Any]:
        return {**self.record.to_dict(), "by_subtask": subtask_rows(self.subtasks)}


@dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """Counters of a coordinator over all attempts that it has served.

    `triggered`, `completed`, `failed` and `latest_...` include earlier JobMasters of the job. The others
    begin at 0 with each JobMaster.

    Attributes:
        triggered: Checkpoints that were started.
        completed: Checkpoints that completed.
        failed: Checkpoints that failed or were aborted.
        refused: Requests that never became a checkpoint.
        pending: Checkpoints that run.
        queued: Requests that wait.
        failures_in_a_row: Counted failures since the last success.
        stale_messages: Messages of other attempts that were ignored.
        late_messages: Acknowledgements of checkpoints that had ended.
        deleted_files: Files that were deleted because no checkpoint needs them.
        failed_deletions: Deletions that failed; their files stay.
        latest_completed_id: The newest completed checkpoint, -1 for none.
        latest_completed_at: Wall-clock seconds.
        latest_duration: Seconds it took.
        latest_size: Bytes of its state.
    """

    triggered: int = 0
    completed: int = 0
    failed: int = 0
    refused: int = 0
    pending: int = 0
    queued: int = 0
    failures_in_a_row: int = 0
    stale_messages: int = 0
    late_messages: int = 0
    deleted_files: int = 0
    failed_deletions: int = 0
    latest_completed_id: int = -1
    latest_completed_at: float | None = None
    latest_duration: float | None = None
    latest_size: int | None = None

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class EarlierHistory:
    """The last that is known of the checkpoints of earlier JobMasters, before the log has been read.

    Attributes:
        records: The last checkpoints, oldest first; some may have run then.
        counters: Counters then.
    """

    records: tuple[CheckpointRecord, ...]
    counters: CoordinatorStatistics
