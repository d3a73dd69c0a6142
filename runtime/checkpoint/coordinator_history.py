"""What the coordinator remembers about its checkpoints, for people and for metrics."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason
from penstock.runtime.checkpoint.metrics import CheckpointMetrics
from penstock.runtime.checkpoint.pending_values import PendingStatistics
from penstock.runtime.checkpoint.snapshot import SubtaskId
from penstock.runtime.record.elements import SnapshotKind


class CheckpointStatus(Enum):
    """How a checkpoint stands."""

    IN_PROGRESS = "in_progress"
    FINALISING = "finalising"
    COMPLETED = "completed"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """One checkpoint in the history.

    Attributes:
        checkpoint_id: Its id.
        attempt: The attempt that took it.
        kind: Checkpoint or savepoint.
        status: How it stands.
        triggered_at: Wall-clock seconds.
        acknowledged: Subtasks that have acknowledged.
        subtasks: Subtasks that take part.
        duration: Seconds from trigger to end; `None` while it runs.
        size: Bytes of all its state; `None` until it is complete.
        written_bytes: New bytes that its subtasks wrote.
        in_flight_bytes: Of these, data that was between subtasks; 0 when it was aligned everywhere.
        failure: Why it failed.
        detail: More about the failure.
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
        """As plain values that JSON carries."""
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
    """One checkpoint of the history with what each of its subtasks measured.

    Attributes:
        record: How it stands: kind, sizes, durations, why it failed.
        subtasks: By subtask that has acknowledged: start delay, alignment, the two halves, bytes. Empty for
            checkpoints that are too old.
    """

    record: CheckpointRecord
    subtasks: Mapping[SubtaskId, CheckpointMetrics]

    def to_dict(self) -> dict[str, Any]:
        """As plain values that JSON carries."""
        subtasks = [
            {"vertex": s.vertex, "subtask": s.index, **asdict(m)} for s, m in sorted(self.subtasks.items())
        ]
        return {**self.record.to_dict(), "by_subtask": subtasks}


@dataclass(frozen=True, slots=True)
class CoordinatorStatistics:
    """Counters of a coordinator over all attempts that it has served.

    Attributes:
        triggered: Checkpoints that were started.
        completed: Checkpoints that completed.
        failed: Checkpoints that failed or were given up.
        refused: Requests that never became a checkpoint.
        pending: Checkpoints that run.
        queued: Requests that wait.
        failures_in_a_row: Counted failures since the last success.
        stale_messages: Messages of other attempts that were ignored.
        late_messages: Acknowledgements of checkpoints that had ended.
        deleted_files: Files of dead checkpoints that were deleted.
        failed_deletions: Deletions that failed; their files are left behind.
        latest_completed_id: The newest completed checkpoint, -1 for none.
        latest_completed_at: When it completed, wall-clock seconds.
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
        """As plain values that JSON carries."""
        return {name: getattr(self, name) for name in self.__slots__}


class CheckpointHistory:
    """The last checkpoints, each with how it stands, and counters over all of them.

    Args:
        capacity: How many are remembered one by one.
        detailed: Of how many it is remembered what each subtask measured.
    """

    def __init__(self, capacity: int = 100, detailed: int = 20) -> None:
        self._records: deque[CheckpointRecord] = deque(maxlen=capacity)
        self._metrics: OrderedDict[int, Mapping[SubtaskId, CheckpointMetrics]] = OrderedDict()
        self._detailed = detailed
        self._counters = CoordinatorStatistics()

    def started(self, record: CheckpointRecord) -> None:
        """A checkpoint was started."""
        self._records.append(record)
        self._counters = replace(self._counters, triggered=self._counters.triggered + 1)

    def progress(self, pending: PendingStatistics) -> None:
        """A subtask has acknowledged."""
        self._update(
            pending.checkpoint_id,
            acknowledged=pending.acknowledged,
            written_bytes=pending.written_bytes,
            in_flight_bytes=pending.in_flight_bytes,
        )
        self._metrics[pending.checkpoint_id] = pending.metrics
        while len(self._metrics) > self._detailed:
            self._metrics.popitem(last=False)

    def finalising(self, checkpoint_id: int) -> None:
        """The record of a checkpoint is being written."""
        self._update(checkpoint_id, status=CheckpointStatus.FINALISING)

    def completed(self, checkpoint_id: int, at: float, duration: float, size: int) -> None:
        """A checkpoint completed at `at` (wall-clock seconds)."""
        self._update(checkpoint_id, status=CheckpointStatus.COMPLETED, duration=duration, size=size)
        counters = replace(self._counters, completed=self._counters.completed + 1)
        if checkpoint_id > counters.latest_completed_id:
            counters = replace(
                counters,
                latest_completed_id=checkpoint_id,
                latest_completed_at=at,
                latest_duration=duration,
                latest_size=size,
            )
        self._counters = counters

    def failed(
        self, checkpoint_id: int, reason: CheckpointFailureReason, detail: str, duration: float
    ) -> None:
        """A checkpoint failed or was given up."""
        failed = CheckpointStatus.FAILED
        self._update(checkpoint_id, status=failed, failure=reason, detail=detail, duration=duration)
        self._counters = replace(self._counters, failed=self._counters.failed + 1)

    def counters(self) -> CoordinatorStatistics:
        """What was counted; the coordinator adds what only it knows."""
        return self._counters

    def records(self) -> tuple[CheckpointRecord, ...]:
        """All that are remembered, oldest first."""
        return tuple(self._records)

    def details(self) -> tuple[CheckpointDetails, ...]:
        """The same with what each subtask measured."""
        return tuple(CheckpointDetails(r, self._metrics.get(r.checkpoint_id, {})) for r in self._records)

    def _update(self, checkpoint_id: int, **changes: Any) -> None:
        for position in range(len(self._records) - 1, -1, -1):
            if self._records[position].checkpoint_id == checkpoint_id:
                self._records[position] = replace(self._records[position], **changes)
                return
