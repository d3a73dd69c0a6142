"""`CheckpointStarts`: the start of a checkpoint, from its request to the trigger of the sources.

One checkpoint starts at a time, in five steps:

1. Its id is fixed and its location in the job's storage is prepared, in the background and within the timeout
   of a checkpoint. If that fails, the request is refused, and counted as a failure unless it is for a
   savepoint. While the storage hangs, later requests are refused without being counted.
2. A `PendingCheckpoint` with a timeout is created.
3. Operator coordinators take their snapshots (`MasterSnapshots`), and their valves close.
4. Master hooks are triggered.
5. The sources are triggered, and the valves open.

A start ends early with the attempt, or when its checkpoint is aborted: the valves open, and later answers are
ignored. Coordinators come before hooks (Flink since 1.11.2). A hook may make an externally induced source
begin the checkpoint, and a coordinator must take its snapshot before any source sends its barrier.

What it must never do: leave a valve closed after a start, or report the end of a start twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from penstock.runtime.checkpoint.coordinator.location import PastAttemptError, WriteProbe
from penstock.runtime.checkpoint.coordinator.parts import TAKEN_OVER, CoordinatorParts
from penstock.runtime.checkpoint.coordinator.pending_checkpoint import PendingCheckpoint
from penstock.runtime.checkpoint.coordinator.plan import (
    CheckpointPlan,
)
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointFailed,
    CheckpointRequest,
)
from penstock.runtime.checkpoint.master_hooks import MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.error_text import error_text
from penstock.runtime.errors import StorageError
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import MasterState, StateHandle
from penstock.runtime.snapshot.ids import SubtaskId


@dataclass(frozen=True, slots=True, eq=False)
class _Round:
    pending: PendingCheckpoint
    on_taken: Callable[[], None]
    on_failed: Callable[[str], None]


class MasterSnapshots:
    def __init__(self, coordinators: OperatorCoordinators, hooks: MasterHooks) -> None:
        self._coordinators = coordinators
        self._hooks = hooks
        self._round: _Round | None = None

    def take(
        self, pending: PendingCheckpoint, on_taken: Callable[[], None], on_failed: Callable[[str], None]
    ) -> None:
        """Request all snapshots; each answer is recorded in `pending`.

        `on_taken` must call `barriers_injected`; `on_failed` gets a description of the failure and must call
        `stop`.
        """
        current = self._round = _Round(pending, on_taken, on_failed)
        if not self._coordinators.operator_ids:
            self._ask_hooks(current)
        for operator_id in self._coordinators.operator_ids:
            if current is self._round:
                self._ask_coordinator(current, operator_id)

    def barriers_injected(self, checkpoint_id: int) -> None:
        self._round = None
        self._coordinators.after_barrier_injection(checkpoint_id)

    def stop(self) -> bool:
        """Open the valves and ignore later answers; return false if no snapshots are being taken."""
        if self._round is None:
            return False
        self._round = None
        self._coordinators.abort_current_triggering()
        return True

    def _ask_coordinator(self, current: _Round, operator_id: str) -> None:
        pending = current.pending

        def answered(state: StateHandle | None) -> None:
            if self._goes_on(current):
                pending.acknowledge_coordinator(operator_id, state)
                if not pending.missing_coordinators:
                    self._ask_hooks(current)

        def failed(error: BaseException) -> None:
            self._failed(current, f"the coordinator of operator {operator_id!r}", error)

        self._coordinators.checkpoint(operator_id, pending.checkpoint_id, answered, failed)

    def _ask_hooks(self, current: _Round) -> None:
        if not self._hooks.identifiers:
            current.on_taken()
        for identifier in self._hooks.identifiers:
            if current is self._round:
                self._ask_hook(current, identifier)

    def _ask_hook(self, current: _Round, identifier: str) -> None:
        pending = current.pending

        def answered(state: MasterState | None) -> None:
            if self._goes_on(current):
                pending.acknowledge_master(identifier, state)
                if not pending.missing_masters:
                    current.on_taken()

        def failed(error: BaseException) -> None:
            self._failed(current, f"the master hook {identifier!r}", error)

        self._hooks.trigger(identifier, pending.checkpoint_id, pending.triggered_at, answered, failed)

    def _goes_on(self, current: _Round) -> bool:
        """Return whether an answer still counts; fail the round if its checkpoint was aborted."""
        if current is not self._round:
            return False
        if current.pending.is_disposed:
            current.on_failed("the checkpoint was aborted meanwhile")
            return False
        return True

    def _failed(self, current: _Round, who: str, error: BaseException) -> None:
        if current is self._round:
            current.on_failed(f"{who} failed: {error_text(error)}")


def restore_masters(
    hooks: MasterHooks,
    coordinators: OperatorCoordinators,
    checkpoint: CompletedCheckpoint | None,
    *,
    allow_non_restored: bool = False,
) -> None:
    """Restore operator coordinators and master hooks from a checkpoint, or reset them without one.

    A reset coordinator has no effect before it is started, but a hook may change another system. So no hook
    is called when a state does not fit.

    Raises:
        UnmatchedMasterStateError: A state belongs to a hook that the job does not have.
        UnmatchedCoordinatorStateError: A state belongs to a coordinator that the job does not have.
    """
    if checkpoint is None:
        hooks.reset()
        coordinators.reset_to_checkpoint(None)
        return
    checkpoint_id = checkpoint.checkpoint_id
    coordinators.reset_to_checkpoint(
        checkpoint_id, checkpoint.operators, allow_non_restored=allow_non_restored
    )
    hooks.restore(checkpoint_id, checkpoint.master_states, allow_non_restored=allow_non_restored)


#: Prepares the location of a checkpoint. Takes the proposed id and the attempt, and returns the assigned id.
#: Blocks, and raises if the location can't be written.
InitializeLocation: TypeAlias = Callable[[int, int], int]


@dataclass(frozen=True, slots=True)
class StartCallbacks:
    """The checkpoint coordinator's part in a start.

    Attributes:
        collect: Called with a new pending checkpoint, before its masters are triggered.
        triggered: Called after the sources were triggered; the checkpoint may even be fully acknowledged.
        abort: Called after a failed start, before any subtask was notified of the checkpoint.
    """

    collect: Callable[[PendingCheckpoint], None]
    triggered: Callable[[PendingCheckpoint], None]
    abort: Callable[[PendingCheckpoint, Reason, str], None]
    taken_over: Callable[[], None]


class CheckpointStarts:
    """Starts checkpoints, one at a time; see the module's docstring."""

    def __init__(
        self,
        parts: CoordinatorParts,
        hooks: MasterHooks,
        place: WriteProbe,
        initialize_location: InitializeLocation | None,
        callbacks: StartCallbacks,
    ) -> None:
        self._parts = parts
        self._hooks = hooks
        self._place = place
        self._initialize_location = initialize_location
        self._callbacks = callbacks
        self._masters = MasterSnapshots(parts.coordinators, hooks)

    def start(self, request: CheckpointRequest) -> None:
        """Step 1: fix the id and prepare the location, in the background because that may block."""
        initialize = self._initialize_location
        checkpoint_id, attempt = self._parts.served.next_id, self._parts.served.number
        plan = self._plan(request)
        if plan is None:
            return
        if initialize is None or attempt is None:
            self._create(request, plan)
            return
        if self._place.is_awaited:  # the probe of a refused request still runs
            self._place.when_over(partial(self._start_if_wanted, request))
            return
        if self._place.hangs:
            # The first timeout was counted. A storage that hangs once must not fail the job.
            hangs = f"{self._parts.files.url} has not answered the previous write check yet"
            self._parts.requests.refuse(request, self.without_place(request.kind, hangs))
            self.ended(request)
            return

        def prepare_place() -> int:
            return initialize(checkpoint_id, attempt)

        self._place.begin(
            prepare_place,
            self._parts.files.url,
            lambda assigned_id: self._initialized(request, attempt, assigned_id),
            lambda error: self._not_initialized(request, attempt, error),
        )

    def _start_if_wanted(self, request: CheckpointRequest) -> None:
        if request is self._parts.requests.starting:
            self.start(request)

    def _plan(self, request: CheckpointRequest) -> CheckpointPlan | None:
        """Return the plan of a checkpoint; `None` if the request was refused."""
        if self._parts.served.number is None:
            refusal = self._parts.served.refusal
        elif request.periodic and not self._parts.requests.is_periodic:
            refusal = CheckpointFailed(Reason.PERIODIC_SCHEDULER_SHUTDOWN)
        else:
            plan = self._parts.planner.plan(is_last=request.urgent)
            if isinstance(plan, CheckpointPlan):
                return plan
            refusal = CheckpointFailed(Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, str(plan))
        self._parts.requests.refuse(request, refusal)
        self.ended(request)
        return None

    def _initialized(self, request: CheckpointRequest, attempt: int, assigned_id: int) -> None:
        plan = self._plan_after_place(request, attempt)
        if plan is not None:
            self._parts.served.next_id = assigned_id
            self._create(request, plan)

    def _not_initialized(self, request: CheckpointRequest, attempt: int, error: BaseException) -> None:
        """Refuse the request because its location can't be written; the next request gets the id."""
        if self._plan_after_place(request, attempt) is None:
            return
        if isinstance(error, PastAttemptError):
            # The newer attempt is another JobMaster's: this one begins no attempt while all its subtasks run.
            self._parts.requests.refuse(request, TAKEN_OVER)
            self._callbacks.taken_over()
            self.ended(request)
            return
        reason = Reason.TRIGGER_CHECKPOINT_FAILURE
        must_fail = self._parts.failures.failed(reason, -1, is_savepoint=request.kind.is_savepoint)
        is_known = isinstance(error, StorageError | TimeoutError)
        cause = str(error) if is_known else f"{self._parts.files.url}: {error_text(error)}"
        refusal = self.without_place(request.kind, cause)
        self._parts.requests.refuse(request, refusal)
        if must_fail:
            failed = f"checkpoint {self._parts.served.next_id} failed ({reason.value})"
            self._parts.fail_job(f"{failed}: {refusal.detail}")
        self.ended(request)

    def _plan_after_place(self, request: CheckpointRequest, attempt: int) -> CheckpointPlan | None:
        """Return the plan once the location is prepared; `None` if the start has ended, or begins again."""
        if request is not self._parts.requests.starting:
            return None
        if self._parts.served.number is not None and self._parts.served.number != attempt:
            self.start(request)  # a region has restarted meanwhile, so the location differs
            return None
        return self._plan(request)

    def without_place(self, kind: SnapshotKind, cause: str) -> CheckpointFailed:
        """Return the refusal of a request without a location, and add it to the history."""
        reason, detail = Reason.TRIGGER_CHECKPOINT_FAILURE, f"its location can't be written: {cause}"
        if self._parts.served.number is not None:
            next_id, now = self._parts.served.next_id, self._parts.clock.now()
            self._parts.history.refused(next_id, self._parts.served.number, kind, now, reason, detail)
        return CheckpointFailed(reason, detail)

    def _create(self, request: CheckpointRequest, plan: CheckpointPlan) -> None:
        """Steps 2 to 4: make the pending checkpoint, and request the masters' snapshots."""
        assert self._parts.served.number is not None, "a request is planned only while the job runs"
        checkpoint_id = self._parts.served.next_id
        self._parts.served.next_id += 1
        pending = PendingCheckpoint(
            self._barrier(request, checkpoint_id, self._parts.served.number),
            plan,
            request,
            attempt=self._parts.served.number,
            started_at=self._parts.clock.monotonic(),
            coordinators=self._parts.coordinators.operator_ids,
            masters=self._hooks.identifiers,
        )
        self._callbacks.collect(pending)
        self._masters.take(pending, partial(self._trigger_sources, pending), partial(self._give_up, pending))

    def _barrier(self, request: CheckpointRequest, checkpoint_id: int, attempt: int) -> CheckpointBarrier:
        aligned = CheckpointOptions(request.kind)
        options = aligned if request.aligned else self._parts.config.options(request.kind)
        location = self._parts.files.location(request.target, checkpoint_id, attempt)
        options = replace(options, drain=request.drain, location=location)
        base_id = -1 if request.full else self._parts.files.base_id
        return CheckpointBarrier(checkpoint_id, self._parts.clock.now(), options, base_id)

    def _trigger_sources(self, pending: PendingCheckpoint) -> None:
        """Step 5: trigger the sources, and open the valves of the operator coordinators."""
        self.trigger(pending.trigger(), pending.barrier)
        self._masters.barriers_injected(pending.checkpoint_id)
        # An externally induced source may have acknowledged the checkpoint already.
        self._callbacks.triggered(pending)
        self.ended(pending.request)

    def trigger(self, to: Iterable[SubtaskId], barrier: CheckpointBarrier) -> None:
        for attempt, subtasks in self._parts.planner.by_attempt(to):
            self._parts.gateway.trigger_checkpoint(attempt, subtasks, barrier)

    def _give_up(self, pending: PendingCheckpoint, detail: str) -> None:
        self._masters.stop()
        self._callbacks.abort(pending, Reason.TRIGGER_CHECKPOINT_FAILURE, detail)
        self.ended(pending.request)

    def end(self, reason: Reason, detail: str) -> None:
        """End a start that waits for its location or for its masters' snapshots."""
        request = self._parts.requests.starting
        if request is None:
            return
        if not self._masters.stop():
            self._parts.requests.refuse(request, CheckpointFailed(reason, detail))
        self.ended(request)

    def stop_masters_of(self, request: CheckpointRequest) -> bool:
        """Stop the start of an aborted checkpoint; if the result is true, the caller must call `ended`."""
        if request is not self._parts.requests.starting:
            return False
        self._masters.stop()
        return True

    def ended(self, request: CheckpointRequest) -> None:
        """Serve the next request after a start has ended; a second call does nothing."""
        if request is self._parts.requests.starting:
            self._parts.requests.start_ended()
