"""Aborts of checkpoints, and the decision whether they fail the job.

`CheckpointAborts`: a checkpoint fails as a whole. Its files are deleted, all participants are notified, its
request is answered, and the failure is counted. A start that is in progress ends with its checkpoint, so a
hook that never answers costs one checkpoint.

`CheckpointFailureManager` (Flink's class) counts failures *in a row*, each checkpoint once. Only failures
that concern the health of the job count: the checkpoint expired, a subtask could not take it, or it could not
be written. Aborts because of a restart or a newer completed checkpoint do not count. Flink 1.11 counts the
first two reasons only. Its later versions count all, and so does this class by default. A savepoint counts
only if a subtask could not take it, because then a restart may help.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles, oldest_base
from penstock.runtime.checkpoint.coordinator.history import CheckpointHistory
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint, PendingState
from penstock.runtime.checkpoint.coordinator.plan import (
    TAKEN_OVER,
    CheckpointPlanner,
    CoordinatorGateway,
    ServedAttempt,
)
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointFailed,
    CheckpointRequest,
    CheckpointRequests,
)
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.config.job_config import Semantics
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.time.durations import as_seconds

#: Reasons that Flink 1.11 counts.
COUNTED_IN_FLINK_1_11: Final = frozenset({Reason.CHECKPOINT_DECLINED, Reason.CHECKPOINT_EXPIRED})

#: Reasons that a job counts.
COUNTED_REASONS: Final = COUNTED_IN_FLINK_1_11 | {
    Reason.TASK_CHECKPOINT_FAILURE,
    Reason.TRIGGER_CHECKPOINT_FAILURE,
    Reason.FINALIZE_CHECKPOINT_FAILURE,
}

#: Reasons that count for savepoints too, because a subtask has failed.
COUNTED_FOR_SAVEPOINTS: Final = frozenset({Reason.CHECKPOINT_DECLINED, Reason.TASK_CHECKPOINT_FAILURE})

#: Reasons that fail a request before any subtask was notified of the checkpoint.
BEFORE_THE_TASKS: Final = frozenset(
    {
        Reason.PERIODIC_SCHEDULER_SHUTDOWN,
        Reason.TOO_MANY_CONCURRENT_CHECKPOINTS,
        Reason.TOO_MANY_CHECKPOINT_REQUESTS,
        Reason.MINIMUM_TIME_BETWEEN_CHECKPOINTS,
        Reason.NOT_ALL_REQUIRED_TASKS_RUNNING,
        Reason.EXCEPTION,
    }
)

#: Number of failed checkpoints whose ids are kept, so that none counts twice.
REMEMBERED_FAILURES: Final = 100


class CheckpointFailureManager:
    """Counts failures and decides when the job must fail; `None` tolerates any number in a row.

    Example:
        >>> manager = CheckpointFailureManager(1)
        >>> manager.failed(Reason.CHECKPOINT_EXPIRED, 1), manager.failed(Reason.CHECKPOINT_EXPIRED, 2)
        (False, True)
    """

    def __init__(
        self, tolerable_failures: int | None, counted_reasons: frozenset[Reason] = COUNTED_REASONS
    ) -> None:
        self._tolerable = tolerable_failures
        self._counted_reasons = counted_reasons
        self._counted_ids: deque[int] = deque(maxlen=REMEMBERED_FAILURES)
        self.in_a_row = 0
        self._completed_id = -1

    def failed(self, reason: Reason, checkpoint_id: int, *, is_savepoint: bool = False) -> bool:
        """Count a failure (id -1 without an id); return whether the job must fail, which resets the count."""
        if not self._counts(reason, checkpoint_id, is_savepoint=is_savepoint):
            return False
        if checkpoint_id >= 0:
            self._counted_ids.append(checkpoint_id)
        self.in_a_row += 1
        if self._tolerable is None or self.in_a_row <= self._tolerable:
            return False
        self._clear()
        return True

    def sync_savepoint_failed(self, reason: Reason | None) -> bool:
        """Whether the failure of a synchronous savepoint fails the job, as subtasks may wait for it."""
        return reason not in BEFORE_THE_TASKS

    def succeeded(self, checkpoint_id: int = -1) -> None:
        """Reset the count; failures of checkpoints older than this (-1 for unknown) no longer count."""
        self._completed_id = max(self._completed_id, checkpoint_id)
        self._clear()

    def _counts(self, reason: Reason, checkpoint_id: int, *, is_savepoint: bool) -> bool:
        if reason not in self._counted_reasons or (is_savepoint and reason not in COUNTED_FOR_SAVEPOINTS):
            return False
        is_late = 0 <= checkpoint_id < self._completed_id
        return not is_late and checkpoint_id not in self._counted_ids

    def _clear(self) -> None:
        self.in_a_row = 0
        self._counted_ids.clear()


#: Maximum number of missing parts that the failure of an expired checkpoint names.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class CoordinatorParts:
    """The collaborators that starts, completions and aborts of a job's checkpoints share.

    Attributes:
        pending: The running checkpoints by id.
        fail_job: Called with the cause after too many failures.
    """

    config: Checkpointing
    pending: dict[int, PendingCheckpoint]
    served: ServedAttempt
    requests: CheckpointRequests
    planner: CheckpointPlanner
    gateway: CoordinatorGateway
    files: CheckpointFiles
    history: CheckpointHistory
    failures: CheckpointFailureManager
    coordinators: OperatorCoordinators
    clock: Clock
    semantics: Semantics
    fail_job: Callable[[str], object]


@dataclass(frozen=True, slots=True)
class AbortCallbacks:
    """Effects of an abort on the other parts of the coordinator, and on the job.

    Attributes:
        withdraw: Removes a checkpoint that waits to be finalized.
        stop_start: Stops the start of a request's checkpoint; returns false if it is not being started.
        start_ended: Called after `stop_start`; lets the next request start.
        fenced: Called when another attempt owns the log.
    """

    withdraw: Callable[[int], None]
    stop_start: Callable[[CheckpointRequest], bool]
    start_ended: Callable[[CheckpointRequest], None]
    fenced: Callable[[], None]


class CheckpointAborts:
    """Aborts running checkpoints and removes them from `pending`; see the module's docstring."""

    def __init__(self, parts: CoordinatorParts, callbacks: AbortCallbacks) -> None:
        self._parts = parts
        self._callbacks = callbacks

    def abort(self, pending: PendingCheckpoint, reason: Reason, detail: str) -> None:
        """Abort a checkpoint, unless it has ended or its record is being written."""
        checkpoint_id = pending.checkpoint_id
        if pending.state is not PendingState.COLLECTING or checkpoint_id not in self._parts.pending:
            return
        self._callbacks.withdraw(checkpoint_id)
        self._parts.files.discard_aborted(checkpoint_id, pending.abort(reason), pending.location)
        self.aborted(pending, reason, detail)

    def aborted(
        self, pending: PendingCheckpoint, reason: Reason, detail: str, *, fails_job: bool = False
    ) -> None:
        """Handle an aborted checkpoint, whose files the caller has discarded or keeps."""
        checkpoint_id, request = pending.checkpoint_id, pending.request
        del self._parts.pending[checkpoint_id]
        duration = self._parts.clock.monotonic() - pending.started_at
        self._parts.history.failed(checkpoint_id, reason, detail, duration)
        self._parts.files.release(oldest_base(self._parts.pending.values()))
        was_starting = self._parts.semantics.abort_ends_start and self._callbacks.stop_start(request)
        if self._parts.served.number is not None:
            self.notify(pending)
            self._parts.coordinators.notify_checkpoint_aborted(checkpoint_id)
        self._parts.requests.answer(request, CheckpointFailed(reason, detail, checkpoint_id))
        fails_job = self._must_fail_job(pending, reason) or fails_job
        if fails_job and self._parts.served.number is not None:
            self._parts.fail_job(f"checkpoint {checkpoint_id} failed ({reason.value}): {detail}")
        self._parts.requests.poll()
        if was_starting:
            self._callbacks.start_ended(request)

    def expire(self, pending: PendingCheckpoint) -> None:
        missing = (*pending.missing_names(), *self._parts.coordinators.missing_events(pending.checkpoint_id))
        more = f" and {len(missing) - _NAMED} more" if len(missing) > _NAMED else ""
        awaited = ", ".join(missing[:_NAMED]) + more or "its turn to be written"
        detail = f"not complete after {as_seconds(self._parts.config.timeout):g} s; it waited for {awaited}"
        self.abort(pending, Reason.CHECKPOINT_EXPIRED, detail)

    def subsume_older_than(self, checkpoint_id: int) -> None:
        for pending in tuple(self._parts.pending.values()):
            if pending.checkpoint_id < checkpoint_id and pending.can_be_subsumed:
                self.abort(pending, Reason.CHECKPOINT_SUBSUMED, f"checkpoint {checkpoint_id} completed first")

    def notify(self, pending: PendingCheckpoint) -> None:
        for attempt, subtasks in self._parts.planner.by_attempt(pending.plan.commit):
            self._parts.gateway.notify_checkpoint_aborted(attempt, subtasks, pending.checkpoint_id)

    def given_up(self, request: CheckpointRequest, answer: CheckpointFailed) -> None:
        """Handle a request whose checkpoint was aborted and is not tried again.

        The subtasks of a synchronous savepoint may have ended their data, so the attempt fails. A JobMaster
        that was replaced decides nothing.
        """
        is_fatal = request.kind is SnapshotKind.SYNC_SAVEPOINT and answer is not TAKEN_OVER
        if is_fatal and self._parts.served.number is not None:
            why = f"{answer.reason.value}: {answer.detail}" if answer.detail else answer.reason.value
            self._parts.fail_job(f"checkpoint {request.tried} was aborted, and not tried again ({why})")

    def fenced(self) -> None:
        """Forget all running checkpoints, because another attempt owns the log.

        No file is deleted, and no subtask is notified.
        """
        failed = TAKEN_OVER
        self._parts.served.number = None
        self._parts.requests.stop_periodic()
        self._parts.requests.abort_waiting(failed.reason, failed.detail)
        running = tuple(self._parts.pending.values())
        for pending in running:
            self._callbacks.withdraw(pending.checkpoint_id)
            pending.abort(failed.reason)
        self._parts.pending.clear()
        for pending in running:
            self._parts.requests.answer(pending.request, replace(failed, checkpoint_id=pending.checkpoint_id))
        self._callbacks.fenced()

    def _must_fail_job(self, pending: PendingCheckpoint, reason: Reason) -> bool:
        kind, request = pending.kind, pending.request
        must_fail = self._parts.failures.failed(reason, pending.checkpoint_id, is_savepoint=kind.is_savepoint)
        if kind is SnapshotKind.SYNC_SAVEPOINT and not self._parts.requests.will_retry(request):
            was_told = request.tried is not None or self._parts.failures.sync_savepoint_failed(reason)
            must_fail = was_told or must_fail
        return must_fail
