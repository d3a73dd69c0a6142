"""What a checkpoint's refusal or end means to whoever asked, to the subtasks and to the job.

A complete checkpoint is told to the subtasks first, so that they commit, then to whoever asked for it. A
failed one is told likewise, and may be one too many for the job. When another attempt owns the log, nothing
is told to anybody but that.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.checkpoint.coordinator.failure_manager import CheckpointFailureManager
from penstock.runtime.checkpoint.coordinator.gateway import CoordinatorGateway
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner, NotAllRunning, SubtaskStatus
from penstock.runtime.checkpoint.coordinator.request_decider import CheckpointRequest
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointCompleted,
    CheckpointFailed,
    CheckpointRequests,
)
from penstock.runtime.checkpoint.coordinator.started_checkpoint import StartedCheckpoint
from penstock.runtime.checkpoint.coordinator.trigger import Refusal
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.subtask_id import SubtaskId


class CheckpointOutcomes:
    """Tells everybody; see the module's text.

    Args:
        planner: Who takes part.
        gateway: Subtasks and job.
        coordinators: Operator coordinators.
        requests: Who asked.
        failures: When failed checkpoints fail the job.
        drop_all: Forgets all that runs and deletes nothing; gives what was dropped.

    Attributes:
        attempt: The current attempt; `None` when the job does not run.
        ended: What requests are refused with while it does not run.
    """

    def __init__(
        self,
        planner: CheckpointPlanner,
        gateway: CoordinatorGateway,
        coordinators: OperatorCoordinators,
        requests: CheckpointRequests,
        failures: CheckpointFailureManager,
        drop_all: Callable[[Reason], tuple[StartedCheckpoint, ...]],
    ) -> None:
        self._planner = planner
        self._gateway = gateway
        self._coordinators = coordinators
        self._requests = requests
        self._failures = failures
        self._drop_all = drop_all
        self.attempt: int | None = None
        self.ended = Refusal(Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, "the job does not run")

    def refusal(self, request: CheckpointRequest) -> Refusal | None:
        """Why a checkpoint can't be started now; `None` when it can."""
        if self.attempt is None:
            return self.ended
        if request.periodic and not self._requests.is_periodic:
            return Refusal(Reason.PERIODIC_SCHEDULER_SHUTDOWN)
        waiting = self._planner.plan(is_last=request.urgent)
        if isinstance(waiting, NotAllRunning):
            return Refusal(Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, str(waiting))
        return None

    def completed(self, started: StartedCheckpoint, checkpoint: CompletedCheckpoint) -> None:
        """Its record is written."""
        self._requests.completed()
        if self.attempt == checkpoint.attempt:
            self._gateway.notify_checkpoint_complete(self._unfinished(started), started.id)
            self._coordinators.notify_checkpoint_complete(started.id)
        self._requests.answer(started.request, CheckpointCompleted(checkpoint))
        self._requests.poll()

    def failed(self, started: StartedCheckpoint, reason: Reason, detail: str) -> None:
        """It was given up."""
        if self.attempt is not None:
            self.tell_aborted(started)
            self._coordinators.notify_checkpoint_aborted(started.id)
        self._requests.answer(started.request, CheckpointFailed(reason, detail, started.id))
        kind, will_retry = started.request.kind, self._requests.will_retry(started.request)
        must_fail = self._failures.failed(reason, started.id, is_savepoint=kind.is_savepoint)
        if kind is SnapshotKind.SYNC_SAVEPOINT and not will_retry:
            must_fail = self._failures.sync_savepoint_failed(reason) or must_fail
        if must_fail and self.attempt is not None:
            self._gateway.fail_job(f"checkpoint {started.id} failed ({reason.value}): {detail}")
        self._requests.poll()

    def fenced(self) -> None:
        """Another attempt owns the log."""
        reason, detail = Reason.CHECKPOINT_COORDINATOR_SHUTDOWN, "another attempt has taken the job over"
        self.attempt = None
        self._requests.stop_periodic()
        self._requests.abort_waiting(reason, detail)
        for started in self._drop_all(reason):
            self._requests.answer(started.request, CheckpointFailed(reason, detail, started.id))
        self._gateway.fenced()

    def tell_aborted(self, started: StartedCheckpoint) -> None:
        """Tell the subtasks that took part and have not left that a checkpoint was given up."""
        self._gateway.notify_checkpoint_aborted(self._unfinished(started), started.id)

    def _unfinished(self, started: StartedCheckpoint) -> tuple[SubtaskId, ...]:
        status = self._planner.status
        return tuple(s for s in started.plan.commit if status[s] is not SubtaskStatus.FINISHED)
