"""What the coordinator remembers about its checkpoints, for people and for metrics."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from penstock.runtime.checkpoint.coordinator.pending_values import PendingStatistics
from penstock.runtime.checkpoint.coordinator.recovered_history import recovered_counters, recovered_records
from penstock.runtime.snapshot.checkpoint_record import (
    CheckpointDetails,
    CheckpointRecord,
    CheckpointStatus,
    CoordinatorStatistics,
    EarlierHistory,
)
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.completed_statistics import CompletedCheckpointStatistics
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId

_Measured: TypeAlias = Mapping[SubtaskId, CheckpointMetrics] | CompletedCheckpointStatistics


class CheckpointHistory:
    """The last checkpoints, each with how it stands, and counters over all of them.

    Args:
        capacity: How many are remembered one by one.
        detailed: Of how many it is remembered what each subtask measured.
    """

    def __init__(self, capacity: int = 100, detailed: int = 20) -> None:
        self._records: deque[CheckpointRecord] = deque(maxlen=capacity)
        #: By id and attempt: another JobMaster gives the id of one that did not complete out once more.
        self._measured: OrderedDict[tuple[int, int], _Measured] = OrderedDict()
        self._detailed = detailed
        self._counters = CoordinatorStatistics()
        self._is_recovered = False

    def recall(self, earlier: EarlierHistory) -> None:
        """Go on with what is known of earlier JobMasters, until `recover` says what is certain."""
        self._records.extend(earlier.records)
        self._counters = earlier.counters

    def recover(self, retained: Sequence[CompletedCheckpoint], highest_id: int) -> None:
        """The log has been read: bring what is known of earlier JobMasters in line; does so once.

        Args:
            retained: The completed checkpoints that the job can be restored from, oldest first.
            highest_id: Of all that ever completed; -1 for none.
        """
        if self._is_recovered:
            return
        self._is_recovered = True
        records = recovered_records(self._records, retained, highest_id)
        self._records.clear()
        self._records.extend(records)
        self._counters = recovered_counters(self._counters, retained)
        for checkpoint in retained:
            if checkpoint.statistics is not None:
                self._remember(checkpoint.checkpoint_id, checkpoint.attempt, checkpoint.statistics)

    def started(self, record: CheckpointRecord) -> None:
        """A checkpoint was started."""
        self._records.append(record)
        self._counters = replace(self._counters, triggered=self._counters.triggered + 1)

    def progress(self, pending: PendingStatistics) -> None:
        """A subtask has acknowledged."""
        record = self._update(
            pending.checkpoint_id,
            acknowledged=pending.acknowledged,
            written_bytes=pending.written_bytes,
            in_flight_bytes=pending.in_flight_bytes,
        )
        if record is not None:
            self._remember(record.checkpoint_id, record.attempt, pending.metrics)

    def completing(
        self, duration: float, metrics: Mapping[SubtaskId, CheckpointMetrics]
    ) -> CompletedCheckpointStatistics:
        """What is written down with a checkpoint whose record is about to be written."""
        known = self._counters
        return CompletedCheckpointStatistics.of(
            known.triggered, known.completed + 1, known.failed, duration, metrics
        )

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
        """The same with what each subtask measured.

        Raises:
            CorruptSnapshotError: What another JobMaster has left of it can't be read.
        """
        return tuple(CheckpointDetails(record, self._metrics_of(record)) for record in self._records)

    def _metrics_of(self, record: CheckpointRecord) -> Mapping[SubtaskId, CheckpointMetrics]:
        measured = self._measured.get((record.checkpoint_id, record.attempt), {})
        return measured.metrics() if isinstance(measured, CompletedCheckpointStatistics) else measured

    def _remember(self, checkpoint_id: int, attempt: int, measured: _Measured) -> None:
        self._measured[checkpoint_id, attempt] = measured
        while len(self._measured) > self._detailed:
            self._measured.popitem(last=False)

    def _update(self, checkpoint_id: int, **changes: Any) -> CheckpointRecord | None:
        for position in range(len(self._records) - 1, -1, -1):
            if self._records[position].checkpoint_id == checkpoint_id:
                record = self._records[position] = replace(self._records[position], **changes)
                return record
        return None
