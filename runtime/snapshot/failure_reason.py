"""Why a checkpoint failed or was aborted (Flink's `CheckpointFailureReason`)."""

from __future__ import annotations

from enum import Enum


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
