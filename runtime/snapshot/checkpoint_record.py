"""Checkpoints for display: metrics, records, counters, reasons for failures.

The statistics of a completed checkpoint (counters of the job and metrics of each subtask) are in its
metadata. So reading them needs no extra storage call. They exist as long as the checkpoint, and a new
JobMaster reads them, too.

Metrics are packed into 15 to 36 bytes per subtask: in columns, with whole microseconds. They are unpacked
only for display.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from enum import Enum
from operator import attrgetter
from typing import Any, Final

import msgpack

from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.plain_values import to_plain
from penstock.runtime.snapshot.sealed_file import binary, damaged, items, seconds, whole


@dataclass(frozen=True, slots=True)
class StoredBytes:
    """Bytes of blocked channels that an alignment has stored.

    Attributes:
        stored: Bytes in memory and on the disk of the node.
        spilled: The part on the disk.
    """

    stored: int = 0
    spilled: int = 0


#: Stored bytes of an alignment that does not read blocked channels.
NOTHING_STORED: Final = StoredBytes()


@dataclass(frozen=True, slots=True)
class CheckpointMetrics:
    """Metrics of one subtask for one checkpoint; seconds and bytes.

    Attributes:
        start_delay: Time from the coordinator's trigger to the first barrier here.
        alignment_duration: Time from the first barrier to the start of the checkpoint here; 0 for a handler
            that never aligns.
        sync_duration: Duration of the synchronous part, which blocks the task.
        async_duration: Duration of the asynchronous part.
        written_bytes: New bytes written for this checkpoint.
        full_bytes: Bytes of all the subtask's state in this checkpoint.
        in_flight_bytes: The part of `full_bytes` that is in-flight data; 0 for an aligned checkpoint.
        stored_bytes: Bytes that the alignment stored outside the checkpoint; 0 unless alignments store.
        spilled_bytes: The part of `stored_bytes` on the disk of the node.
    """

    start_delay: float = 0.0
    alignment_duration: float = 0.0
    sync_duration: float = 0.0
    async_duration: float = 0.0
    written_bytes: int = 0
    full_bytes: int = 0
    in_flight_bytes: int = 0
    stored_bytes: int = 0
    spilled_bytes: int = 0


_SECONDS: Final = ("start_delay", "alignment_duration", "sync_duration", "async_duration")

_BYTES: Final = ("written_bytes", "full_bytes", "in_flight_bytes")
#: Written only after an alignment that stored elements.
_STORED: Final = ("stored_bytes", "spilled_bytes")

_MICROSECONDS: Final = 1_000_000

_WHAT: Final = "the metrics of a checkpoint's subtasks"


@dataclass(frozen=True, slots=True)
class CompletedCheckpointStatistics:
    """Counters of the job when a checkpoint completed, and metrics of its subtasks.

    Attributes:
        triggered: Checkpoints of the job that had started when this one completed, including this one.
        completed: Checkpoints that had completed, including this one.
        failed: Checkpoints that had failed or been aborted.
        duration: Monotonic seconds from the trigger to the last acknowledgement.
        subtasks: Number of subtasks that took part.
        written_bytes: New bytes that the subtasks wrote.
        in_flight_bytes: The part of `written_bytes` that is in-flight data.
        packed: Metrics by subtask; `metrics` unpacks them.
    """

    triggered: int
    completed: int
    failed: int
    duration: float
    subtasks: int
    written_bytes: int
    in_flight_bytes: int
    packed: bytes

    @classmethod
    def of(
        cls,
        triggered: int,
        completed: int,
        failed: int,
        duration: float,
        metrics: Mapping[SubtaskId, CheckpointMetrics],
    ) -> CompletedCheckpointStatistics:
        return cls(
            triggered,
            completed,
            failed,
            duration,
            len(metrics),
            sum(m.written_bytes for m in metrics.values()),
            sum(m.in_flight_bytes for m in metrics.values()),
            _pack(metrics),
        )

    def metrics(self) -> dict[SubtaskId, CheckpointMetrics]:
        """Metrics by subtask, to the microsecond."""
        try:
            return dict(_unpacked(self.packed))
        except (ValueError, TypeError) as error:
            raise damaged(_WHAT, "a part of its metadata", f"it can't be decoded ({error})") from error

    def encode(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]

    @classmethod
    def decode(cls, item: list[Any] | None) -> CompletedCheckpointStatistics | None:
        """Decode the result of `encode`; `None` if that fails, since a job can start without statistics."""
        try:
            *counts, duration, subtasks, written, in_flight, packed = items(item, len(fields(cls)))
            triggered, completed, failed = map(whole, counts)
            sizes = whole(subtasks), whole(written), whole(in_flight)
            return cls(triggered, completed, failed, seconds(duration), *sizes, binary(packed))
        except (TypeError, ValueError):
            return None


def subtask_rows(metrics: Mapping[SubtaskId, CheckpointMetrics]) -> list[dict[str, Any]]:
    return [{"vertex": s.vertex, "subtask": s.index, **asdict(m)} for s, m in sorted(metrics.items())]


def _pack(metrics: Mapping[SubtaskId, CheckpointMetrics]) -> bytes:
    by_vertex: dict[str, dict[int, CheckpointMetrics]] = {}
    for subtask, measured in metrics.items():
        by_vertex.setdefault(subtask.vertex, {})[subtask.index] = measured
    packed: bytes = msgpack.packb(
        [[vertex, list(rows), *_columns(list(rows.values()))] for vertex, rows in by_vertex.items()],
        unicode_errors="surrogatepass",
    )
    return packed


def _columns(rows: list[CheckpointMetrics]) -> Iterator[list[int]]:
    for name in _SECONDS:
        yield [round(seconds * _MICROSECONDS) for seconds in map(attrgetter(name), rows)]
    names = (*_BYTES, *_STORED) if any(row.stored_bytes for row in rows) else _BYTES
    for name in names:
        yield list(map(attrgetter(name), rows))


def _unpacked(packed: bytes) -> Iterator[tuple[SubtaskId, CheckpointMetrics]]:
    for vertex, indices, *columns in msgpack.unpackb(packed, unicode_errors="surrogatepass"):
        has_stored = len(columns) > len(_SECONDS) + len(_BYTES)
        names = (*_SECONDS, *_BYTES, *(_STORED if has_stored else ()))
        by_name = dict(zip(names, columns, strict=True))
        for name in _SECONDS:
            by_name[name] = [value / _MICROSECONDS for value in by_name[name]]
        for index, *row in zip(indices, *by_name.values(), strict=True):
            yield SubtaskId(vertex, index), CheckpointMetrics(*row)


class CheckpointFailureReason(Enum):
    """Flink's reasons for failures; the value is the name in messages and in conformance cases."""

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
    #: Not in Flink: there the task fails instead.
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
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One checkpoint in the history.

    Attributes:
        attempt: The attempt that took the checkpoint.
        status: State of the checkpoint.
        triggered_at: Wall-clock seconds.
        acknowledged: Number of subtasks that have acknowledged.
        subtasks: Number of subtasks that take part.
        duration: Seconds from trigger to end, or to the last acknowledgement if it was read from the
            metadata. `None` while the checkpoint runs, or if unknown.
        size: Bytes of all its state; `None` until it is complete.
        written_bytes: New bytes that the subtasks wrote.
        in_flight_bytes: The part of `written_bytes` that is in-flight data.
        failure: Reason for the failure; `None` without one.
        detail: Description of the failure's cause.
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


@dataclass(frozen=True, slots=True)
class CheckpointDetails:
    """One checkpoint of the history with the metrics of its subtasks.

    Attributes:
        record: Kind, state, sizes and durations of the checkpoint.
        subtasks: Metrics of the subtasks that have acknowledged. Empty for old checkpoints, and for failed
            or deleted checkpoints of an earlier JobMaster.
    """

    record: CheckpointRecord
    subtasks: Mapping[SubtaskId, CheckpointMetrics]

    def to_dict(self) -> dict[str, Any]:
        return {**to_plain(self.record), "by_subtask": subtask_rows(self.subtasks)}


@dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """Counters of a coordinator over all attempts.

    `triggered`, `completed`, `failed` and `latest_...` include earlier JobMasters of the job. The others
    begin at 0 with each JobMaster.

    Attributes:
        triggered: Number of started checkpoints, and of requests without a writable location.
        completed: Number of completed checkpoints.
        failed: Number of failed and aborted checkpoints.
        refused: Number of requests that were refused.
        pending: Number of running checkpoints.
        queued: Number of waiting requests.
        failures_in_a_row: Failures since the last success that count towards `tolerable_failures`.
        stale_messages: Messages of other attempts that were ignored.
        late_messages: Acknowledgements of checkpoints that have ended or are unknown.
        deleted_files: Number of deleted files, which no checkpoint needed.
        failed_deletions: Deletions that failed; their files stay.
        latest_completed_id: Id of the newest completed checkpoint; -1 for none.
        latest_completed_at: Completion time of the newest completed checkpoint, in wall-clock seconds.
        latest_duration: Duration of the newest completed checkpoint, in seconds.
        latest_size: Bytes of state in the newest completed checkpoint.
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


@dataclass(frozen=True, slots=True)
class EarlierHistory:
    """Checkpoints of earlier JobMasters, from their last report; the log corrects them later."""

    records: tuple[CheckpointRecord, ...]
    counters: CoordinatorStatistics
