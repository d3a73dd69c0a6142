"""Aborts of checkpoints.

A checkpoint fails as a whole: its files are deleted, and its subtasks and operator coordinators are notified.
Its request is answered, unless it is retried, and the failure is counted. An abort also stops a start in
progress, so a hook that never answers blocks only that checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from penstock.runtime.checkpoint.coordinator.files import oldest_base
from penstock.runtime.checkpoint.coordinator.parts import TAKEN_OVER, CoordinatorParts
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint, PendingState
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointFailed,
    CheckpointRequest,
)
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.time.durations import as_seconds

#: Maximum number of missing parts that the failure of an expired checkpoint names.
_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class AbortCallbacks:
    """Effects of an abort on the other parts of the coordinator, and on the job.

    Attributes:
        withdraw: Removes a checkpoint that waits to be finalized.
        stop_start: Stops the start of a request's checkpoint; returns false if it is not being started.
        start_ended: Called last, if `stop_start` returned true; lets the next request start.
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
        """Handle a request whose checkpoint was aborted and is not retried.

        The subtasks of a synchronous savepoint may have sent the end of data, so the attempt fails. A
        JobMaster that was replaced does not fail the attempt.
        """
        is_fatal = request.kind is SnapshotKind.SYNC_SAVEPOINT and answer is not TAKEN_OVER
        if is_fatal and self._parts.served.number is not None:
            why = f"{answer.reason.value}: {answer.detail}" if answer.detail else answer.reason.value
            self._parts.fail_job(f"checkpoint {request.tried} was aborted and was not retried ({why})")

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
