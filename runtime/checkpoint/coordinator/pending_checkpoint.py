"""A checkpoint that has started and is not yet complete (Flink's `PendingCheckpoint`).

It collects one acknowledgement from each running subtask, operator coordinator and master hook. It is
*collecting* until all have arrived and the previous record is written. Then it is *finalizing* while its own
record is written, then *completed*. The coordinator can abort it while it is collecting. While it is
finalizing, only the writer of the record can fail it. An abort returns all files that the acknowledgements
name. Some of these files may belong to earlier checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import attrgetter
from typing import Final

from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlan
from penstock.runtime.checkpoint.coordinator.requests import CheckpointRequest
from penstock.runtime.ports import Cancellable
from penstock.runtime.record.elements import CheckpointBarrier, SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason, CheckpointMetrics
from penstock.runtime.snapshot.handles import FileHandle, MasterState, StateHandle, SubtaskSnapshot
from penstock.runtime.snapshot.ids import SubtaskId

#: Sort key of subtasks; several times as fast as comparing them.
_VERTEX_AND_INDEX: Final = attrgetter("vertex", "index")


class MessageOutcome(Enum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    UNKNOWN_SENDER = "unknown_sender"
    ENDED_CHECKPOINT = "ended_checkpoint"
    UNKNOWN_CHECKPOINT = "unknown_checkpoint"
    STALE_ATTEMPT = "stale_attempt"

    @property
    def is_known(self) -> bool:
        """Whether the message is for a running or ended checkpoint of this attempt."""
        return self not in (MessageOutcome.UNKNOWN_CHECKPOINT, MessageOutcome.STALE_ATTEMPT)


class PendingState(Enum):
    COLLECTING = "collecting"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    ABORTED = "aborted"


@dataclass(frozen=True, slots=True)
class PendingStatistics:
    """The progress of a pending checkpoint, over the subtasks that have acknowledged."""

    acknowledged: int
    written_bytes: int
    in_flight_bytes: int
    metrics: Mapping[SubtaskId, CheckpointMetrics]


@dataclass(frozen=True, slots=True)
class AwaitedAcknowledgements:
    """Subtasks whose acknowledgement is missing `seconds` after the start of a checkpoint."""

    checkpoint_id: int
    seconds: float
    subtasks: frozenset[SubtaskId]


class PendingCheckpoint:
    """Collects the acknowledgements of one checkpoint; `started_at` is in monotonic seconds."""

    def __init__(
        self,
        barrier: CheckpointBarrier,
        plan: CheckpointPlan,
        request: CheckpointRequest,
        *,
        attempt: int,
        started_at: float,
        coordinators: Iterable[str] = (),
        masters: Iterable[str] = (),
    ) -> None:
        self.barrier = barrier
        self.plan = plan
        self.request = request
        self.attempt = attempt
        self.started_at = started_at
        self.failure: CheckpointFailureReason | None = None
        self.state = PendingState.COLLECTING
        self._missing = set(plan.acknowledge)
        self._snapshots: dict[SubtaskId, SubtaskSnapshot | None] = {}
        self._metrics: dict[SubtaskId, CheckpointMetrics] = {}
        self._missing_coordinators = set(coordinators)
        self._coordinator_states: dict[str, StateHandle] = {}
        self._missing_masters = set(masters)
        self._master_states: dict[str, MasterState] = {}
        self._timeout: Cancellable | None = None
        self._is_triggered = False
        self._ended_before_trigger: list[SubtaskId] = []

    # -- identity ----------------------------------------------------------------------------------------

    @property
    def checkpoint_id(self) -> int:
        return self.barrier.checkpoint_id

    @property
    def kind(self) -> SnapshotKind:
        return self.barrier.options.kind

    @property
    def triggered_at(self) -> float:
        """Time of the trigger, in wall-clock seconds."""
        return self.barrier.timestamp

    @property
    def base_id(self) -> int:
        """Id of the completed checkpoint whose files this one may use; -1 for none."""
        return self.barrier.confirmed_id

    @property
    def drained(self) -> bool:
        return self.barrier.options.drain

    @property
    def location(self) -> str | None:
        return self.barrier.options.location

    @property
    def can_be_subsumed(self) -> bool:
        return not self.kind.is_savepoint and not self.request.forced

    # -- triggers ----------------------------------------------------------------------------------------

    def trigger(self) -> tuple[SubtaskId, ...]:
        """Return the subtasks to trigger; called after all coordinators and master hooks have answered."""
        self._is_triggered = True
        return (*self.plan.trigger, *self._ended_before_trigger)

    def data_ended(self, subtask: SubtaskId) -> bool:
        """Note the end of a subtask's data; return whether to trigger the subtask now.

        Before `trigger` is called, the subtask is only noted, and `trigger` returns it.
        """
        if not self.waits_for(subtask) or subtask in self.plan.trigger:
            return False
        if not self._is_triggered:
            self._ended_before_trigger.append(subtask)
        return self._is_triggered

    # -- acknowledgements --------------------------------------------------------------------------------

    def acknowledge(
        self,
        subtask: SubtaskId,
        snapshot: SubtaskSnapshot | None = None,
        metrics: CheckpointMetrics | None = None,
    ) -> MessageOutcome:
        if self.is_disposed:
            return MessageOutcome.ENDED_CHECKPOINT
        if subtask in self._snapshots:
            return MessageOutcome.DUPLICATE
        if subtask not in self._missing:
            return MessageOutcome.UNKNOWN_SENDER
        self._missing.remove(subtask)
        self._snapshots[subtask] = snapshot
        self._metrics[subtask] = metrics or CheckpointMetrics()
        return MessageOutcome.ACCEPTED

    def acknowledge_coordinator(self, operator_id: str, state: StateHandle | None) -> MessageOutcome:
        """Take the acknowledgement of an operator's coordinator, which may have no state.

        As in Flink, a repeated acknowledgement counts as unknown if the first one had no state.
        """
        if self.is_disposed:
            return MessageOutcome.ENDED_CHECKPOINT
        if operator_id not in self._missing_coordinators:
            known = operator_id in self._coordinator_states
            return MessageOutcome.DUPLICATE if known else MessageOutcome.UNKNOWN_SENDER
        self._missing_coordinators.remove(operator_id)
        if state is not None:
            self._coordinator_states[operator_id] = state
        return MessageOutcome.ACCEPTED

    def acknowledge_master(self, identifier: str, state: MasterState | None) -> MessageOutcome:
        """Take the acknowledgement of a master hook, which may have no state."""
        if self.is_disposed:
            return MessageOutcome.ENDED_CHECKPOINT
        if identifier not in self._missing_masters:
            known = identifier in self._master_states
            return MessageOutcome.DUPLICATE if known else MessageOutcome.UNKNOWN_SENDER
        self._missing_masters.remove(identifier)
        if state is not None:
            self._master_states[identifier] = state
        return MessageOutcome.ACCEPTED

    def waits_for(self, subtask: SubtaskId) -> bool:
        """Whether the acknowledgement of this subtask is missing."""
        return subtask in self._missing

    @property
    def missing(self) -> frozenset[SubtaskId]:
        return frozenset(self._missing)

    @property
    def missing_coordinators(self) -> frozenset[str]:
        return frozenset(self._missing_coordinators)

    @property
    def missing_masters(self) -> frozenset[str]:
        return frozenset(self._missing_masters)

    @property
    def is_fully_acknowledged(self) -> bool:
        return not (self._missing or self._missing_coordinators or self._missing_masters)

    @property
    def is_a_step_further(self) -> bool:
        """Whether to report progress now. A checkpoint reports about 20 times: each report costs time."""
        total = len(self._snapshots) + len(self._missing)
        return not self._missing or len(self._snapshots) % max(1, total // 20) == 0

    # -- contents ----------------------------------------------------------------------------------------

    @property
    def snapshots(self) -> Mapping[SubtaskId, SubtaskSnapshot | None]:
        """State of the subtasks that have acknowledged; `None` for a subtask without state."""
        return self._snapshots

    @property
    def metrics(self) -> Mapping[SubtaskId, CheckpointMetrics]:
        return self._metrics

    @property
    def coordinator_states(self) -> Mapping[str, StateHandle]:
        return self._coordinator_states

    @property
    def master_states(self) -> tuple[MasterState, ...]:
        return tuple(self._master_states.values())

    def missing_names(self) -> tuple[str, ...]:
        """Descriptions of missing acknowledgements: first coordinators and hooks, for which the rest wait."""
        return (
            *(f"the coordinator of {operator}" for operator in sorted(self._missing_coordinators)),
            *(f"the master hook {hook}" for hook in sorted(self._missing_masters)),
            *map(str, sorted(self._missing, key=_VERTEX_AND_INDEX)),
        )

    def statistics(self) -> PendingStatistics:
        return PendingStatistics(
            len(self._snapshots),
            sum(m.written_bytes for m in self._metrics.values()),
            sum(m.in_flight_bytes for m in self._metrics.values()),
            dict(self._metrics),
        )

    # -- ends --------------------------------------------------------------------------------------------

    @property
    def is_disposed(self) -> bool:
        return self.state in (PendingState.COMPLETED, PendingState.ABORTED)

    def set_timeout(self, timeout: Cancellable) -> bool:
        """Set the timeout's timer; return false if the checkpoint has ended."""
        if self.is_disposed:
            return False
        self._timeout = timeout
        return True

    def begin_finalizing(self, coordinators: Mapping[str, StateHandle] | None = None) -> None:
        """Stop the timeout, because all have acknowledged and the record is being written.

        `coordinators` replaces states of coordinators that recorded events after their acknowledgement.
        """
        self._check_complete()
        self._coordinator_states.update(coordinators or {})
        self.state = PendingState.FINALIZING
        self._cancel_timeout()

    def complete(self) -> None:
        """Note that the record has been written."""
        self._check_complete()
        self.state = PendingState.COMPLETED
        self._cancel_timeout()

    def abort(self, reason: CheckpointFailureReason) -> tuple[FileHandle, ...]:
        """Abort; return all files that the acknowledgements name, including files of earlier checkpoints.

        Raises:
            RuntimeError: The checkpoint has ended, or can't be subsumed. In the second case it is aborted
                nevertheless.
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

    def _files(self) -> Iterator[FileHandle]:
        for snapshot in self._snapshots.values():
            if snapshot is not None:
                yield from snapshot.files()
        for state in self._coordinator_states.values():
            if isinstance(state, FileHandle):
                yield state

    def _check_complete(self) -> None:
        if not self.is_fully_acknowledged or self.is_disposed:
            missing = ", ".join(self.missing_names()) or "nothing"
            msg = f"checkpoint {self.checkpoint_id} is {self.state.value} and waits for {missing}"
            raise RuntimeError(msg)

    def _cancel_timeout(self) -> None:
        if self._timeout is not None:
            self._timeout.cancel()
            self._timeout = None
