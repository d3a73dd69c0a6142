"""What a checkpoint coordinator is made of, and who of these parts knows whom.

Requests are let through to the trigger, which starts a pending checkpoint. Messages complete it or give it
up, and either end goes to the outcomes, which tell everybody and let the next request through. So the parts
stand in a ring; two of them are given a function that looks the next one up when it is called.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.checkpoint.coordinator.checkpoint_history import CheckpointHistory
from penstock.runtime.checkpoint.coordinator.failure_manager import CheckpointFailureManager
from penstock.runtime.checkpoint.coordinator.files import CheckpointFiles
from penstock.runtime.checkpoint.coordinator.finalize import Fenced, Finalized
from penstock.runtime.checkpoint.coordinator.gateway import CoordinatorGateway
from penstock.runtime.checkpoint.coordinator.messages import CheckpointMessages
from penstock.runtime.checkpoint.coordinator.outcomes import CheckpointOutcomes
from penstock.runtime.checkpoint.coordinator.pending import PendingCheckpoints
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.checkpoint.coordinator.requests import CheckpointRequests
from penstock.runtime.checkpoint.coordinator.started_checkpoint import PendingEnds, StartedCheckpoint
from penstock.runtime.checkpoint.coordinator.trigger import CheckpointTrigger, InitialiseLocation, TriggerEnds
from penstock.runtime.checkpoint.hooks.master_hooks import MasterHooks
from penstock.runtime.checkpoint.operator_coordinators.operator_coordinators import OperatorCoordinators
from penstock.runtime.config.checkpointing import Checkpointing
from penstock.runtime.ports import AsyncRunner, Clock, TimerService
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason as Reason


class CoordinatorParts:
    """The parts of one coordinator, joined to each other.

    Args:
        config: How checkpoints are taken.
        planner: Who takes part.
        gateway: Subtasks and job.
        files: Deletes what nobody needs.
        write: Writes the record of a complete checkpoint; blocks.
        clock: Time.
        timers: For interval, pause and timeouts.
        runner: Runs what blocks.
        failures: When failed checkpoints fail the job; by default what `config` says.
        hooks: Master hooks; by default there are none.
        coordinators: Operator coordinators; by default there are none.
        initialise: Prepares the place of a checkpoint; blocks. Without it there is nothing to prepare.
        coalesce_periodic: No periodic request is made while one waits (Flink 1.11: they pile up).
        end_starts: A checkpoint that is given up ends its start (Flink 1.11: the next answer of a hook or a
            coordinator does, which may never come).
    """

    def __init__(
        self,
        config: Checkpointing,
        planner: CheckpointPlanner,
        gateway: CoordinatorGateway,
        files: CheckpointFiles,
        write: Callable[[CompletedCheckpoint], Finalized | Fenced],
        *,
        clock: Clock,
        timers: TimerService,
        runner: AsyncRunner,
        failures: CheckpointFailureManager | None = None,
        hooks: MasterHooks | None = None,
        coordinators: OperatorCoordinators | None = None,
        initialise: InitialiseLocation | None = None,
        coalesce_periodic: bool = True,
        end_starts: bool = True,
    ) -> None:
        self._end_starts = end_starts
        self.may_force = not config.unaligned
        self.keep_after = config.kept_after
        self.planner = planner
        self.files = files
        self.failures = failures or CheckpointFailureManager(config.tolerable_failures)
        self.history = CheckpointHistory()
        self.hooks = hooks or MasterHooks()
        self.coordinators = coordinators or OperatorCoordinators()
        self.requests = self._make_requests(config, clock, timers, coalesce_periodic)
        self.outcomes = self._make_outcomes(gateway)
        self.pending = self._make_pending(config, gateway, write, clock, timers, runner)
        self.trigger = self._make_trigger(runner, initialise)
        self.messages = CheckpointMessages(self.pending, self.history)

    def _make_requests(
        self, config: Checkpointing, clock: Clock, timers: TimerService, coalesce_periodic: bool
    ) -> CheckpointRequests:
        return CheckpointRequests(
            config,
            clock,
            timers,
            lambda request: self.trigger.begin(request),
            lambda: len(self.pending.running),
            coalesce_periodic=coalesce_periodic,
        )

    def _make_outcomes(self, gateway: CoordinatorGateway) -> CheckpointOutcomes:
        return CheckpointOutcomes(
            self.planner,
            gateway,
            self.coordinators,
            self.requests,
            self.failures,
            lambda reason: self.pending.drop_all(reason),
        )

    def _make_pending(
        self,
        config: Checkpointing,
        gateway: CoordinatorGateway,
        write: Callable[[CompletedCheckpoint], Finalized | Fenced],
        clock: Clock,
        timers: TimerService,
        runner: AsyncRunner,
    ) -> PendingCheckpoints:
        return PendingCheckpoints(
            self.planner,
            gateway,
            self.files,
            write,
            self.failures,
            self.history,
            config,
            clock=clock,
            timers=timers,
            runner=runner,
            ends=PendingEnds(self.outcomes.completed, self._failed, self.outcomes.fenced),
        )

    def _failed(self, started: StartedCheckpoint, reason: Reason, detail: str) -> None:
        """A checkpoint was given up, and its start, if that is not over; the next may begin behind that."""
        was_starting = self._end_starts and self.trigger.stop(started)
        self.outcomes.failed(started, reason, detail)
        if was_starting:
            self.requests.started()

    def _make_trigger(self, runner: AsyncRunner, initialise: InitialiseLocation | None) -> CheckpointTrigger:
        ends = TriggerEnds(self.outcomes.refusal, self.requests.refuse, self.requests.started)
        return CheckpointTrigger(self.pending, self.hooks, self.coordinators, runner, ends, initialise)
