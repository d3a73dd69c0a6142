"""A checkpoint that was started and is not complete (Flink's `PendingCheckpoint`).

It collects one acknowledgement from each subtask, operator coordinator and master hook that takes part. Its
life has three ways to end: it is finalised (all have acknowledged and its record was written), it is aborted,
or, after all have acknowledged, it is *finalising*: its record is being written and nobody can say any more
that it failed, except the writer. Whoever aborts it gets the files that came in, because they have no owner
any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.runtime.checkpoint.coordinator.pending_values import (
    Acknowledgement,
    AcknowledgeResult,
    PendingState,
    PendingStatistics,
)
from penstock.runtime.ports import Cancellable
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import FileHandle, MasterState, StateHandle, SubtaskSnapshot
from penstock.runtime.snapshot.metrics import CheckpointMetrics
from penstock.runtime.snapshot.subtask_id import SubtaskId


class PendingCheckpoint:
    """Collects the acknowledgements of one checkpoint.

    Args:
        checkpoint_id: Its id.
        kind: Checkpoint or savepoint.
        subtasks: Who has to acknowledge; at least one.
        triggered_at: Wall-clock seconds.
        base_id: The completed checkpoint whose files this one may name again (-1 for none).
        forced: It was forced and can't be subsumed.
        coordinators: Operators whose coordinator has to acknowledge.
        masters: Identifiers of the master hooks that have to acknowledge.
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
        coordinators: Iterable[str] = (),
        masters: Iterable[str] = (),
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
        self._missing_coordinators = set(coordinators)
        self._coordinator_states: dict[str, StateHandle] = {}
        self._missing_masters = set(masters)
        self._master_states: dict[str, MasterState] = {}
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
    def missing_coordinators(self) -> frozenset[str]:
        """Operators whose coordinator has not acknowledged yet."""
        return frozenset(self._missing_coordinators)

    @property
    def coordinator_states(self) -> Mapping[str, StateHandle]:
        """What operator coordinators gave; those without state have no entry."""
        return self._coordinator_states

    @property
    def missing_masters(self) -> frozenset[str]:
        """Master hooks that have not acknowledged yet."""
        return frozenset(self._missing_masters)

    @property
    def master_states(self) -> tuple[MasterState, ...]:
        """What master hooks gave; those without state have no entry."""
        return tuple(self._master_states.values())

    @property
    def is_fully_acknowledged(self) -> bool:
        """Whether nobody is missing."""
        return not (self._missing or self._missing_coordinators or self._missing_masters)

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

    def acknowledge_coordinator(self, operator_id: str, state: StateHandle | None) -> AcknowledgeResult:
        """Take the acknowledgement of an operator's coordinator; `None` says that it has no state.

        As in Flink, a second one of a coordinator without state is `UNKNOWN`: nothing is left of the first.
        """
        if self.is_disposed:
            return AcknowledgeResult.DISCARDED
        if operator_id not in self._missing_coordinators:
            known = operator_id in self._coordinator_states
            return AcknowledgeResult.DUPLICATE if known else AcknowledgeResult.UNKNOWN
        self._missing_coordinators.remove(operator_id)
        if state is not None:
            self._coordinator_states[operator_id] = state
        return AcknowledgeResult.SUCCESS

    def acknowledge_master(self, identifier: str, state: MasterState | None) -> AcknowledgeResult:
        """Take the acknowledgement of a master hook; `None` says that it has no state."""
        if self.is_disposed:
            return AcknowledgeResult.DISCARDED
        if identifier not in self._missing_masters:
            known = identifier in self._master_states
            return AcknowledgeResult.DUPLICATE if known else AcknowledgeResult.UNKNOWN
        self._missing_masters.remove(identifier)
        if state is not None:
            self._master_states[identifier] = state
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

    def abort(self, reason: CheckpointFailureReason) -> tuple[FileHandle, ...]:
        """Give it up; returns the files that came in, which have no owner any more.

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
        return tuple(self._files())

    def statistics(self) -> PendingStatistics:
        """How far it is."""
        metrics = {subtask: part.metrics for subtask, part in self._acknowledged.items()}
        missing = tuple(sorted(self._missing, key=lambda s: (s.vertex, s.index)))
        return PendingStatistics(
            self.checkpoint_id,
            self.state,
            acknowledged=len(self._acknowledged),
            missing=missing,
            written_bytes=sum(m.written_bytes for m in metrics.values()),
            in_flight_bytes=sum(m.in_flight_bytes for m in metrics.values()),
            metrics=metrics,
            missing_coordinators=tuple(sorted(self._missing_coordinators)),
            missing_masters=tuple(sorted(self._missing_masters)),
        )

    def missing_names(self) -> tuple[str, ...]:
        """Who is missing, for people."""
        return (
            *map(str, sorted(self._missing)),
            *(f"the coordinator of {operator}" for operator in sorted(self._missing_coordinators)),
            *(f"the master hook {hook}" for hook in sorted(self._missing_masters)),
        )

    def _files(self) -> Iterator[FileHandle]:
        for part in self._acknowledged.values():
            if part.snapshot is not None:
                yield from part.snapshot.files()
        for state in self._coordinator_states.values():
            if isinstance(state, FileHandle):
                yield state

    def _check_complete(self) -> None:
        if not self.is_fully_acknowledged or self.is_disposed:
            missing = ", ".join(self.missing_names()) or "nobody"
            msg = f"checkpoint {self.checkpoint_id} is {self.state.value} and waits for {missing}"
            raise RuntimeError(msg)

    def _cancel_timeout(self) -> None:
        if self._canceller is not None:
            self._canceller.cancel()
            self._canceller = None
