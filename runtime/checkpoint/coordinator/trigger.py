"""The five steps in which a request becomes a checkpoint that runs (Flink's `startTriggeringCheckpoint`).

1. The id is fixed and the place is prepared, in the background if that may block.
2. The pending checkpoint is created, with its timeout.
3. Operator coordinators give their snapshots; the valve of each is shut behind it.
4. Master hooks do their part.
5. The sources are told, and the valves are opened again.

Steps 3 and 4 end when the last answer has come. In between anything may happen: the timeout, the end of the
attempt, a stop of the periodic timer. Whatever gives the checkpoint up ends its start as well (`stop`), so a
coordinator or hook that never answers costs one checkpoint and no more; an answer that comes later is
ignored. A start that fails gives the checkpoint up before any subtask has heard of it.

Coordinators come before hooks (Flink since 1.11.2): a hook may make an externally induced source begin the
checkpoint by itself, and a coordinator's snapshot must not be younger than any source's barrier.

What it must never do: start two checkpoints at a time, leave a valve shut after a start that is over, or
leave a request without its answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from penstock.runtime.checkpoint.coordinator.pending import PendingCheckpoints
from penstock.runtime.checkpoint.coordinator.plan import NotAllRunning
from penstock.runtime.checkpoint.coordinator.request_decider import CheckpointRequest
from penstock.runtime.checkpoint.coordinator.started_checkpoint import StartedCheckpoint
from penstock.runtime.checkpoint.hooks.master_hooks import MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.ports import AsyncRunner
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason
from penstock.runtime.snapshot.handles import MasterState, StateHandle

#: Prepares the place of a checkpoint: its request and its id. Blocks, and raises when there is no place.
InitialiseLocation = Callable[[CheckpointRequest, int], None]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request can't be served.

    Attributes:
        reason: Why.
        detail: More about it, for people.
    """

    reason: Reason
    detail: str = ""


@dataclass(frozen=True, slots=True)
class TriggerEnds:
    """Who is told of a start.

    Attributes:
        check: Why this request can't be served now, if so; asked before the start and again in its midst.
        refuse: A request becomes no checkpoint: reason, detail.
        over: The start is over, however it went.
    """

    check: Callable[[CheckpointRequest], Refusal | None]
    refuse: Callable[[CheckpointRequest, Reason, str], None]
    over: Callable[[], None]


@dataclass(slots=True, eq=False)
class _Start:
    """One request on its way."""

    request: CheckpointRequest
    checkpoint: StartedCheckpoint | None = None


class CheckpointTrigger:
    """Starts checkpoints, one at a time; see the module's text.

    Args:
        pending: The checkpoints that run.
        hooks: Master hooks.
        coordinators: Operator coordinators.
        runner: Runs what blocks.
        ends: Who is told.
        initialise: Prepares the place of a checkpoint; without it there is nothing to prepare.
    """

    def __init__(
        self,
        pending: PendingCheckpoints,
        hooks: MasterHooks,
        coordinators: OperatorCoordinators,
        runner: AsyncRunner,
        ends: TriggerEnds,
        initialise: InitialiseLocation | None = None,
    ) -> None:
        self._pending = pending
        self._hooks = hooks
        self._coordinators = coordinators
        self._runner = runner
        self._ends = ends
        self._initialise = initialise
        self._current: _Start | None = None

    def begin(self, request: CheckpointRequest) -> None:
        """Start the checkpoint of a request."""
        start = self._current = _Start(request)
        if self._is_refused(start):
            return
        initialise, checkpoint_id = self._initialise, self._pending.next_id
        if initialise is None:
            self._create(start)
            return
        self._runner.run(
            lambda: initialise(request, checkpoint_id),
            lambda _: self._create(start),
            lambda error: self._not_initialised(start, error),
        )

    def forget(self) -> None:
        """A new attempt begins: what was being started is not any more."""
        start = self._current
        if start is None:
            return
        if start.checkpoint is None:
            self._ends.refuse(start.request, Reason.JOB_FAILURE, "the job restarted meanwhile")
        self._over(start)

    def stop(self, checkpoint: StartedCheckpoint) -> bool:
        """A checkpoint was given up: if it is being started that is over, and events go on.

        Returns:
            Whether it was; then the caller reports the end of the start.
        """
        if self._current is None or self._current.checkpoint is not checkpoint:
            return False
        self._current = None
        self._coordinators.abort_current_triggering()
        return True

    def _is_refused(self, start: _Start) -> bool:
        refusal = self._ends.check(start.request)
        if refusal is None:
            return False
        self._ends.refuse(start.request, refusal.reason, refusal.detail)
        self._over(start)
        return True

    def _not_initialised(self, start: _Start, error: BaseException) -> None:
        if start is self._current:
            detail = f"its place could not be prepared: {type(error).__name__}: {error}"
            self._ends.refuse(start.request, Reason.TRIGGER_CHECKPOINT_FAILURE, detail)
            self._over(start)

    def _create(self, start: _Start) -> None:
        if start is not self._current or self._is_refused(start):
            return
        created = self._pending.start(start.request, self._coordinators.operator_ids, self._hooks.identifiers)
        if isinstance(created, NotAllRunning):
            self._ends.refuse(start.request, Reason.NOT_ALL_REQUIRED_TASKS_RUNNING, str(created))
            self._over(start)
            return
        start.checkpoint = created
        self._ask_coordinators(start, created)

    def _ask_coordinators(self, start: _Start, checkpoint: StartedCheckpoint) -> None:
        if not self._coordinators.operator_ids:
            self._ask_hooks(start, checkpoint)
            return

        def ask(operator_id: str) -> None:
            def answered(state: StateHandle | None) -> None:
                if self._goes_on(start, checkpoint):
                    checkpoint.pending.acknowledge_coordinator(operator_id, state)
                    if not checkpoint.pending.missing_coordinators:
                        self._ask_hooks(start, checkpoint)

            def failed(error: BaseException) -> None:
                self._failed(start, checkpoint, f"the coordinator of operator {operator_id!r}", error)

            self._coordinators.checkpoint(operator_id, checkpoint.id, answered, failed)

        for operator_id in self._coordinators.operator_ids:
            if start is self._current:
                ask(operator_id)

    def _ask_hooks(self, start: _Start, checkpoint: StartedCheckpoint) -> None:
        if not self._hooks.identifiers:
            self._trigger_sources(start, checkpoint)
            return

        def ask(identifier: str) -> None:
            def answered(state: MasterState | None) -> None:
                if self._goes_on(start, checkpoint):
                    checkpoint.pending.acknowledge_master(identifier, state)
                    if not checkpoint.pending.missing_masters:
                        self._trigger_sources(start, checkpoint)

            def failed(error: BaseException) -> None:
                self._failed(start, checkpoint, f"the master hook {identifier!r}", error)

            timestamp = checkpoint.pending.triggered_at
            self._hooks.trigger(identifier, checkpoint.id, timestamp, answered, failed)

        for identifier in self._hooks.identifiers:
            if start is self._current:
                ask(identifier)

    def _trigger_sources(self, start: _Start, checkpoint: StartedCheckpoint) -> None:
        self._pending.trigger_sources(checkpoint)
        self._coordinators.after_barrier_injection(checkpoint.id)
        # An externally induced source may have been faster than this.
        self._pending.finalise_if_complete(checkpoint)
        self._over(start)

    def _goes_on(self, start: _Start, checkpoint: StartedCheckpoint) -> bool:
        """Whether an answer still counts; ends a start that is open although its checkpoint was given up."""
        if start is not self._current:
            return False
        if checkpoint.pending.is_disposed:
            self._give_up(start, checkpoint, "it was given up meanwhile")
            return False
        return True

    def _failed(self, start: _Start, checkpoint: StartedCheckpoint, who: str, error: BaseException) -> None:
        if start is self._current:
            self._give_up(start, checkpoint, f"{who} failed: {type(error).__name__}: {error}")

    def _give_up(self, start: _Start, checkpoint: StartedCheckpoint, detail: str) -> None:
        self._coordinators.abort_current_triggering()
        self._pending.abort(checkpoint, Reason.TRIGGER_CHECKPOINT_FAILURE, detail)
        self._over(start)

    def _over(self, start: _Start) -> None:
        if start is self._current:
            self._current = None
            self._ends.over()
