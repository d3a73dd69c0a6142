"""The history of a job's checkpoints, for display and for metrics.

A new JobMaster continues the history from two sources. The job's report, written every two seconds, has the
last checkpoints, including failed and running ones. The metadata of retained checkpoints has their final
statistics, which may be newer. Metrics by subtask survive only for retained checkpoints. Checkpoints that
ended after the job's last report, and are not retained, are lost. They are still counted if a later
checkpoint is retained, because each one stores the job's counters.

Failed checkpoints and savepoints are rare, so some of them stay in the history longer than others. Otherwise
a job with a checkpoint each second would drop a failure within minutes, before a user asks for it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final, TypeAlias

from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointFailureReason,
    CheckpointMetrics,
    CheckpointRecord,
    CheckpointStatus,
    CompletedCheckpointStatistics,
    CoordinatorStatistics,
    EarlierHistory,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId

#: Number of checkpoints in the history, of about 300 bytes each.
CAPACITY: Final = 1_000
#: Number of older failed checkpoints, and of older savepoints.
_KEPT: Final = 50


class CheckpointRecords:
    """A bounded number of checkpoint records, in the order in which the checkpoints started.

    Args:
        capacity: Number of checkpoints of any kind.
        kept: Number of older failed checkpoints, and of older savepoints.

    Example:
        >>> records = CheckpointRecords(capacity=2)
        >>> for number, status in enumerate(["failed", "completed", "completed", "completed"]):
        ...     status = CheckpointStatus(status)
        ...     records.append(CheckpointRecord(number, 1, SnapshotKind.CHECKPOINT, status, 0.0))
        >>> [record.checkpoint_id for record in records]
        [0, 2, 3]
    """

    def __init__(self, capacity: int = CAPACITY, kept: int = _KEPT) -> None:
        self._capacity = capacity
        self._kept = kept
        self._newest: deque[CheckpointRecord] = deque()
        self._older: list[CheckpointRecord] = []

    def __iter__(self) -> Iterator[CheckpointRecord]:
        yield from self._older
        yield from self._newest

    def __len__(self) -> int:
        return len(self._older) + len(self._newest)

    def append(self, record: CheckpointRecord) -> None:
        self._newest.append(record)
        while len(self._newest) > self._capacity:
            self._let_go(self._newest.popleft())

    def replace_all(self, records: Iterable[CheckpointRecord]) -> None:
        self._newest.clear()
        self._older.clear()
        for record in records:
            self.append(record)

    def update(self, checkpoint_id: int, **changes: Any) -> CheckpointRecord | None:
        """Change and return the newest record with this id; `None` if it was dropped."""
        for position in range(len(self._newest) - 1, -1, -1):
            if self._newest[position].checkpoint_id == checkpoint_id:
                record = self._newest[position] = replace(self._newest[position], **changes)
                return record
        return None

    def _let_go(self, record: CheckpointRecord) -> None:
        if not is_rare(record):
            return
        self._older.append(record)
        for is_kind in (is_failed, is_savepoint):
            alike = [position for position, older in enumerate(self._older) if is_kind(older)]
            if len(alike) > self._kept:
                del self._older[alike[0]]


def is_failed(record: CheckpointRecord) -> bool:
    return record.status is CheckpointStatus.FAILED


def is_savepoint(record: CheckpointRecord) -> bool:
    return record.kind.is_savepoint and record.status is CheckpointStatus.COMPLETED


def is_rare(record: CheckpointRecord) -> bool:
    return is_failed(record) or is_savepoint(record)


def newest_and_rare(
    records: Sequence[CheckpointRecord], newest: int, rare: int
) -> tuple[CheckpointRecord, ...]:
    """The last `newest` records, preceded by up to `rare` older failed checkpoints and `rare` savepoints."""
    chosen: list[CheckpointRecord] = []
    left = {is_failed: rare, is_savepoint: rare}
    completed, plain = CheckpointStatus.COMPLETED, SnapshotKind.CHECKPOINT
    # Reports are made at least every two seconds, so a thousand ordinary records must cost next to nothing.
    others = [r for r in records[:-newest] if r.status is not completed or r.kind is not plain]
    for record in reversed(others):
        for is_kind in left:
            if left[is_kind] and is_kind(record):
                left[is_kind] -= 1
                chosen.append(record)
        if not any(left.values()):
            break
    return (*reversed(chosen), *records[-newest:])


_Measured: TypeAlias = Mapping[SubtaskId, CheckpointMetrics] | CompletedCheckpointStatistics


class CheckpointHistory:
    """The last checkpoints, metrics by subtask of the last `detailed` ones, and counters of all."""

    def __init__(self, capacity: int = CAPACITY, detailed: int = 20) -> None:
        self._records = CheckpointRecords(capacity)
        #: Metrics by id and attempt: a checkpoint may have the id of one that an earlier attempt refused.
        self._measured: OrderedDict[tuple[int, int], _Measured] = OrderedDict()
        self._detailed = detailed
        self._counters = CoordinatorStatistics()
        self._is_recovered = False

    def recall(self, earlier: EarlierHistory) -> None:
        """Continue the history of earlier JobMasters, before the first attempt; `recover` corrects it."""
        self._records.replace_all((*self._records, *earlier.records))
        self._counters = earlier.counters

    def recover(self, retained: Sequence[CompletedCheckpoint], highest_id: int) -> None:
        """Correct the history of earlier JobMasters from the log, once; `retained` is oldest first."""
        if self._is_recovered:
            return
        self._is_recovered = True
        records = _recovered_records(self._records, retained, highest_id)
        self._records.replace_all(records)
        self._counters = _recovered_counters(self._counters, retained)
        for checkpoint in retained:
            if checkpoint.statistics is not None:
                self._remember(checkpoint.checkpoint_id, checkpoint.attempt, checkpoint.statistics)

    def started(self, pending: PendingCheckpoint) -> None:
        record = CheckpointRecord(
            pending.checkpoint_id,
            pending.attempt,
            pending.kind,
            CheckpointStatus.IN_PROGRESS,
            pending.triggered_at,
            subtasks=len(pending.plan.acknowledge),
        )
        self._records.append(record)
        self._counters = replace(self._counters, triggered=self._counters.triggered + 1)

    def refused(
        self,
        checkpoint_id: int,
        attempt: int,
        kind: SnapshotKind,
        at: float,
        reason: CheckpointFailureReason,
        detail: str,
    ) -> None:
        """Add a checkpoint whose location can't be written, so it did not start; the next one gets its id."""
        record = CheckpointRecord(
            checkpoint_id,
            attempt,
            kind,
            CheckpointStatus.FAILED,
            at,
            duration=0.0,
            failure=reason,
            detail=detail,
        )
        self._records.append(record)
        known = self._counters
        self._counters = replace(known, triggered=known.triggered + 1, failed=known.failed + 1)

    def progress(self, pending: PendingCheckpoint) -> None:
        known = pending.statistics()
        record = self._records.update(
            pending.checkpoint_id,
            acknowledged=known.acknowledged,
            written_bytes=known.written_bytes,
            in_flight_bytes=known.in_flight_bytes,
        )
        if record is not None:
            self._remember(record.checkpoint_id, record.attempt, known.metrics)

    def completing(
        self, duration: float, metrics: Mapping[SubtaskId, CheckpointMetrics]
    ) -> CompletedCheckpointStatistics:
        known = self._counters
        return CompletedCheckpointStatistics.of(
            known.triggered, known.completed + 1, known.failed, duration, metrics
        )

    def finalizing(self, checkpoint_id: int) -> None:
        self._records.update(checkpoint_id, status=CheckpointStatus.FINALIZING)

    def completed(self, checkpoint_id: int, at: float, duration: float, size: int) -> None:
        """Note a checkpoint that completed at `at`, in wall-clock seconds."""
        self._records.update(checkpoint_id, status=CheckpointStatus.COMPLETED, duration=duration, size=size)
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
        failed = CheckpointStatus.FAILED
        self._records.update(checkpoint_id, status=failed, failure=reason, detail=detail, duration=duration)
        self._counters = replace(self._counters, failed=self._counters.failed + 1)

    def counters(self) -> CoordinatorStatistics:
        """The counters that the history keeps; those that the coordinator adds are 0."""
        return self._counters

    def records(self) -> tuple[CheckpointRecord, ...]:
        return tuple(self._records)

    def details(
        self, *, newest: int | None = None, checkpoint_id: int | None = None
    ) -> tuple[CheckpointDetails, ...]:
        """The last `newest` checkpoints, or those with this id, with the metrics of each subtask."""
        chosen: Iterable[CheckpointRecord] = self._records
        if checkpoint_id is not None:
            chosen = (record for record in self._records if record.checkpoint_id == checkpoint_id)
        elif newest is not None:
            chosen = islice(self._records, max(0, len(self._records) - newest), None)
        return tuple(CheckpointDetails(record, self._metrics_of(record)) for record in chosen)

    def newest_completed(self) -> CheckpointDetails | None:
        """The newest completed checkpoint with the metrics of each subtask."""
        completed = (r for r in reversed(self.records()) if r.status is CheckpointStatus.COMPLETED)
        newest = next(completed, None)
        return None if newest is None else CheckpointDetails(newest, self._metrics_of(newest))

    def _metrics_of(self, record: CheckpointRecord) -> Mapping[SubtaskId, CheckpointMetrics]:
        measured = self._measured.get((record.checkpoint_id, record.attempt), {})
        return measured.metrics() if isinstance(measured, CompletedCheckpointStatistics) else measured

    def _remember(self, checkpoint_id: int, attempt: int, measured: _Measured) -> None:
        self._measured[checkpoint_id, attempt] = measured
        while len(self._measured) > self._detailed:
            self._measured.popitem(last=False)


def _recovered_record(checkpoint: CompletedCheckpoint) -> CheckpointRecord:
    """The record of a retained checkpoint, from its metadata.

    As in Flink, its duration excludes writing the metadata.
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


def _recovered_records(
    records: Iterable[CheckpointRecord], retained: Iterable[CompletedCheckpoint], highest_id: int
) -> list[CheckpointRecord]:
    """The records of earlier JobMasters, corrected from the log; the oldest checkpoint comes first."""
    certain = {(c.checkpoint_id, c.attempt): _recovered_record(c) for c in retained}
    found = []
    for record in records:
        completed = certain.pop((record.checkpoint_id, record.attempt), None)
        if record.status is CheckpointStatus.COMPLETED or completed is None:
            known = _outcome(record, highest_id)
            found += [] if known is None else [known]
        else:
            found.append(completed)
    return sorted((*found, *certain.values()), key=lambda r: (r.attempt, r.checkpoint_id))


def _recovered_counters(
    counters: CoordinatorStatistics, retained: Sequence[CompletedCheckpoint]
) -> CoordinatorStatistics:
    """The counters of earlier JobMasters; checkpoints that did not complete count as failed."""
    known = [checkpoint.statistics for checkpoint in retained if checkpoint.statistics is not None]
    completed = max(counters.completed, len(retained), *(statistics.completed for statistics in known))
    triggered = max(counters.triggered, completed, *(statistics.triggered for statistics in known))
    counters = replace(counters, triggered=triggered, completed=completed, failed=triggered - completed)
    newest = max(retained, key=lambda c: c.checkpoint_id, default=None)
    if newest is None or newest.checkpoint_id <= counters.latest_completed_id:
        return counters
    return replace(
        counters,
        latest_completed_id=newest.checkpoint_id,
        latest_completed_at=newest.completed_at,
        latest_duration=_recovered_record(newest).duration,
        latest_size=newest.size,
    )


def _outcome(record: CheckpointRecord, highest_id: int) -> CheckpointRecord | None:
    """The final record of an earlier JobMaster's checkpoint; `None` if its end is unknown."""
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
