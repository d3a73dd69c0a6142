"""A checkpoint that was started and is not complete (Flink's `PendingCheckpoint`).

It collects one acknowledgement from each subtask that takes part. Its life has three ways to end: it is
finalised (all have acknowledged and its record was written), it is aborted, or, after all have acknowledged,
it is *finalising*: its record is being written and nobody can say any more that it failed, except the
writer. Whoever aborts it gets the snapshots that came in, because their files have no owner any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason
from penstock.runtime.checkpoint.snapshot import CheckpointMetrics, SubtaskId, SubtaskSnapshot
from penstock.runtime.ports import Cancellable
from penstock.runtime.record.elements import SnapshotKind


class AcknowledgeResult(Enum):
    """What became of one acknowledgement."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"
    DISCARDED = "discarded"


class PendingState(Enum):
    """Where a pending checkpoint is in its life."""

    COLLECTING = "collecting"
    FINALISING = "finalising"
    COMPLETED = "completed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One subtask's part.

    Attributes:
        snapshot: Its state; `None` when it has none.
        metrics: What it measured.
    """

    snapshot: SubtaskSnapshot | None
    metrics: CheckpointMetrics


@dataclass(frozen=True, slots=True)
class PendingStatistics:
    """How far a pending checkpoint is.

    Attributes:
        checkpoint_id: Which.
        state: Where it is in its life.
        acknowledged: Subtasks that have acknowledged.
        missing: Subtasks that have not, sorted.
        written_bytes: New bytes written by those that have.
        metrics: What each of them measured.
    """

    checkpoint_id: int
    state: PendingState
    acknowledged: int
    missing: tuple[SubtaskId, ...]
    written_bytes: int
    metrics: Mapping[SubtaskId, CheckpointMetrics] = field(default_factory=dict)


class PendingCheckpoint:
    """Collects the acknowledgements of one checkpoint.

    Args:
        checkpoint_id: Its id.
        kind: Checkpoint or savepoint.
        subtasks: Who has to acknowledge; at least one.
        triggered_at: Wall-clock seconds.
        base_id: The completed checkpoint whose files this one may name again (-1 for none).
        forced: It was forced and can't be subsumed.
    """

    def __init__(
        self,
        checkpoint_id: int,
        kind: SnapshotKind,
        subtasks: Iterable[SubtaskId],
        *,
        triggered_at: float = 0.0,
        base_id: int = -1,
        forced: bool = False,
    ) -> None:
        self.checkpoint_id = checkpoint_id
        self.kind = kind
        self.triggered_at = triggered_at
        self.base_id = base_id
        self.forced = forced
        self.failure: CheckpointFailureReason | None = None
        self.state = PendingState.COLLECTING
        self._missing = set(subtasks)
        self._acknowledged: dict[SubtaskId, Acknowledgement] = {}
        self._canceller: Cancellable | None = None

    @property
    def missing(self) -> frozenset[SubtaskId]:
        """Who has not acknowledged yet."""
        return frozenset(self._missing)

    def waits_for(self, subtask: SubtaskId) -> bool:
        """Whether this subtask has to acknowledge and has not."""
        return subtask in self._missing

    @property
    def is_a_step_further(self) -> bool:
        """Whether enough has come in since the last step to tell of it: there are at most 20 or so.

        To tell of every acknowledgement would cost the square of the number of subtasks.
        """
        total = len(self._acknowledged) + len(self._missing)
        return not self._missing or len(self._acknowledged) % max(1, total // 20) == 0

    @property
    def acknowledged(self) -> Mapping[SubtaskId, Acknowledgement]:
        """What has come in so far."""
        return self._acknowledged

    @property
    def is_fully_acknowledged(self) -> bool:
        """Whether nobody is missing."""
        return not self._missing

    @property
    def is_disposed(self) -> bool:
        """Whether it has ended, well or not."""
        return self.state in (PendingState.COMPLETED, PendingState.ABORTED)

    @property
    def can_be_subsumed(self) -> bool:
        """Whether a newer completed checkpoint makes this one superfluous: somebody waits for the others."""
        return not self.kind.is_savepoint and not self.forced

    def set_canceller(self, timeout: Cancellable) -> bool:
        """Take the handle of the timeout; refused (`False`) when the checkpoint has ended."""
        if self.is_disposed:
            return False
        self._canceller = timeout
        return True

    def acknowledge(
        self,
        subtask: SubtaskId,
        snapshot: SubtaskSnapshot | None = None,
        metrics: CheckpointMetrics | None = None,
    ) -> AcknowledgeResult:
        """Take the acknowledgement of one subtask."""
        if self.is_disposed:
            return AcknowledgeResult.DISCARDED
        if subtask in self._acknowledged:
            return AcknowledgeResult.DUPLICATE
        if subtask not in self._missing:
            return AcknowledgeResult.UNKNOWN
        self._missing.remove(subtask)
        self._acknowledged[subtask] = Acknowledgement(snapshot, metrics or CheckpointMetrics())
        return AcknowledgeResult.SUCCESS

    def begin_finalising(self) -> None:
        """All have acknowledged and the record is being written: the timeout is over.

        Raises:
            RuntimeError: Somebody is missing, or the checkpoint has ended.
        """
        self._check_complete()
        self.state = PendingState.FINALISING
        self._cancel_timeout()

    def complete(self) -> None:
        """Its record is written.

        Raises:
            RuntimeError: Somebody is missing, or the checkpoint has ended.
        """
        self._check_complete()
        self.state = PendingState.COMPLETED
        self._cancel_timeout()

    def abort(self, reason: CheckpointFailureReason) -> tuple[SubtaskSnapshot, ...]:
        """Give it up; returns the snapshots that came in, whose files have no owner any more.

        Raises:
            RuntimeError: It has ended before; or it was subsumed although it can't be (it is aborted all
                the same: the caller has a bug).
        """
        if self.is_disposed:
            msg = f"checkpoint {self.checkpoint_id} is {self.state.value} and can't be aborted"
            raise RuntimeError(msg)
        self.state = PendingState.ABORTED
        self.failure = reason
        self._cancel_timeout()
        if reason is CheckpointFailureReason.CHECKPOINT_SUBSUMED and not self.can_be_subsumed:
            msg = f"checkpoint {self.checkpoint_id} is forced or a savepoint and can't be subsumed"
            raise RuntimeError(msg)
        parts = self._acknowledged.values()
        return tuple(part.snapshot for part in parts if part.snapshot is not None)

    def statistics(self) -> PendingStatistics:
        """How far it is."""
        metrics = {subtask: part.metrics for subtask, part in self._acknowledged.items()}
        written = sum(m.written_bytes for m in metrics.values())
        missing = tuple(sorted(self._missing, key=lambda s: (s.vertex, s.index)))
        return PendingStatistics(
            self.checkpoint_id, self.state, len(self._acknowledged), missing, written, metrics
        )

    def _check_complete(self) -> None:
        if self._missing or self.is_disposed:
            missing = ", ".join(map(str, sorted(self._missing))) or "nobody"
            msg = f"checkpoint {self.checkpoint_id} is {self.state.value} and waits for {missing}"
            raise RuntimeError(msg)

    def _cancel_timeout(self) -> None:
        if self._canceller is not None:
            self._canceller.cancel()
            self._canceller = None
