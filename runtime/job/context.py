"""The shared part of a job's states (`JobContext`), and the port to its subtasks (`ExecutionGateway`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from penstock.runtime.checkpoint.coordinator.coordinator import CheckpointCoordinator
from penstock.runtime.checkpoint.coordinator.parts import CoordinatorGateway
from penstock.runtime.checkpoint.coordinator.plan import CheckpointPlanner
from penstock.runtime.config.restart import RestartAfter, RestartDecision, RestartStrategy
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph
from penstock.runtime.job.end_of_job import EndOfJob
from penstock.runtime.job.failover import FailureCause, FailureHistory, Region
from penstock.runtime.job.job_ledger import AttemptStart, EndedBefore, JobLedger
from penstock.runtime.job.job_state import JobState, RescaleHistory, Transition
from penstock.runtime.operators.coordinators import EventAnswer
from penstock.runtime.ports import AsyncRunner, Clock, TimerService
from penstock.runtime.restore import state_changes, unknown_operators
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId

if TYPE_CHECKING:
    from penstock.runtime.job.end_of_job import UncoveredOutput
    from penstock.runtime.job.job_operators import JobOperators
    from penstock.runtime.job.states.base import State


#: Maximum number of changes of a job's state that are remembered.
_MOST_TRANSITIONS: Final = 200


class ExecutionGateway(CoordinatorGateway, Protocol):
    """The outgoing calls of the scheduler. No call blocks, or calls the scheduler back before it returns."""

    def deploy(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        """Place these subtasks and give them their state; other subtasks continue in their attempts.

        Answered by `on_deployed` or `on_deployment_failed`.
        """
        ...

    def start(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """Let these subtasks begin; answered by `on_started(attempt)` when all `run` calls have been made."""
        ...

    def stop(self, attempt: int, subtasks: Collection[SubtaskId], stopped: Callable[[], None]) -> None:
        """Stop these subtasks, by force if need be, including one that is being deployed.

        Always calls `stopped` once, after this call has returned, when none of them is running.
        """
        ...

    def send_operator_event(
        self, attempt: int, subtask: SubtaskId, operator_id: str, event: Any, answer: EventAnswer
    ) -> None:
        """Send a coordinator's event to a subtask; `answer` receives whether the event arrived.

        Events and triggers of one subtask arrive at most once each, in the order of the calls.
        """
        ...

    def job_ended(self, state: JobState, cause: str) -> None:
        """Report the job's final end; called once.

        `cause` is the root cause of a failure. Otherwise it is a note about the end, or empty.
        """
        ...

    def fenced(self) -> None:
        """Leave without changing anything: another JobMaster owns the job. Called once, as the last call."""
        ...


@dataclass(kw_only=True, eq=False, repr=False)
class JobContext:
    """A job and its current state, shared by the scheduler, the states and the other parts of the job.

    Attributes:
        deployment_timeout: Seconds that an attempt waits for the restore of master hooks.
        running: Factory of the running state; takes the subtasks that have reported the end of their data.
        operators: The parts of operators in the JobMaster; set by the scheduler before any event.
        uncovered: Uncommitted output of the sinks; set by the scheduler before any event.
        attempt: The current or last attempt; 0 before the first.
        restarts: Restarts during the job's life, from the log; rescales don't count.
        new_parallelism: Replaces `graph.parallelism` in the next attempt; `None` for no change.
        restored_id: The checkpoint that the attempt began from; `None` for a fresh start.
        warning: A warning for the user about that checkpoint, or about the end of the job.
        stopped_with: The complete savepoint that the job was stopped with.
        ended: The end that this JobMaster found in the log; `None` for a job that had not ended.
        is_fenced: Whether another JobMaster owns the job, so that this one no longer changes anything.
    """

    graph: CurrentGraph
    gateway: ExecutionGateway
    ledger: JobLedger
    planner: CheckpointPlanner
    regions_of: Callable[[ExecutionGraph], Mapping[SubtaskId, Region]]
    restart: RestartStrategy
    clock: Clock
    timers: TimerService
    runner: AsyncRunner
    user_runner: AsyncRunner
    deployment_timeout: float
    created: InitVar[Callable[[JobContext], State]]
    beginning: Callable[[JobContext], State]
    running: Callable[[JobContext, Iterable[SubtaskId]], State]
    operators: JobOperators = field(init=False)
    uncovered: UncoveredOutput = field(init=False)
    coordinator: CheckpointCoordinator | None = None
    attempt: int = 0
    restarts: int = 0
    new_parallelism: Mapping[str, int] | None = None
    restored_id: int | None = None
    warning: str | None = None
    stopped_with: CompletedCheckpoint | None = None
    ended: EndedBefore | None = None
    is_fenced: bool = False

    def __post_init__(self, created: Callable[[JobContext], State]) -> None:
        self.failures = FailureHistory()
        self.transitions: deque[Transition] = deque(maxlen=_MOST_TRANSITIONS)
        self.rescales = RescaleHistory()
        self.state = created(self)
        self._end = EndOfJob(self)
        self._before_end: dict[object, Callable[[], None]] = {}

    def enter(self, state: State, cause: str = "") -> None:
        if self.is_fenced:
            return
        if state.name is not self.state.name:  # users see states with the same name as one state
            self.transitions.append(Transition(self.state.name, state.name, self.clock.now(), cause))
        self.state.leave()
        self.state = state
        state.enter()

    def deploy_again(self) -> None:
        self.enter(self.beginning(self))

    def begin_attempt(self, start: AttemptStart) -> RestartDecision:
        """Begin an attempt whose record is in the log; return when to deploy it, or that the job gives up."""
        is_rescale, self.new_parallelism = self.new_parallelism is not None, None
        self.graph.rescale(start.parallelism)
        self._begin(start, is_rescale=is_rescale)
        self.stopped_with = start.restore if start.was_stopped else None
        if self.coordinator is None:
            self.planner.begin_attempt(start.attempt)
        else:
            self.coordinator.begin_attempt(
                start.attempt, start.store, start.highest_id, start.orphans, start.restore, start.assigned_id
            )
        if start.restore is not None:
            self.planner.restored(start.restore.operators)
        if start.taken_over is not None:
            return self.restart.recovered(start.taken_over, self.ledger.age())
        return RestartAfter(0.0)

    def begin_attempt_of(self, region: Region, start: AttemptStart) -> FailureCause | None:
        """Begin an attempt of one region, whose record is in the log; return the cause if the restore fails.

        Other regions keep their attempts. They are notified again that the region's checkpoint is complete:
        its record may have been found in the log only now.
        """
        others = [subtask for subtask in self.graph.subtasks if subtask not in region]
        self.planner.begin_region(start.attempt, region)
        self._begin(start)
        if self.coordinator is not None:
            self.coordinator.begin_region(start.attempt, start.store, start.highest_id)
        failure = self.operators.come_back(sorted(region), start.restore)
        if failure is not None or start.restore is None:
            return failure
        self.planner.restored(start.restore.operators, region)
        for attempt, subtasks in self.planner.by_attempt(others):
            self.gateway.notify_checkpoint_complete(attempt, subtasks, start.restore.checkpoint_id)
        return None

    @property
    def newest_id(self) -> int | None:
        """Return the id of the newest completed checkpoint that this JobMaster knows; `None` for none."""
        newest = None if self.coordinator is None else self.coordinator.latest_completed
        return None if newest is None else newest.checkpoint_id

    def region_to_restart(self, cause: FailureCause) -> Region | None:
        """Return the region that a failure restarts; `None` for the whole job, or when no restart helps."""
        if cause.subtask is None or not cause.recoverable:
            return None
        region = self.regions_of(self.graph.execution).get(cause.subtask)
        return None if region is None or len(region) == len(self.graph.subtasks) else region

    def leave_out(self, region: Region, detail: str) -> None:
        """Take no checkpoint until this region, which has failed, runs again."""
        self.planner.leave_out(region)
        if self.coordinator is not None:
            self.coordinator.abort_all(CheckpointFailureReason.JOB_FAILOVER_REGION, detail)
        # Sorted: the order of a set differs between processes, and splits are given back in this order.
        self.operators.failed(sorted(region), detail)

    def _begin(self, start: AttemptStart, *, is_rescale: bool = False) -> None:
        self.attempt = start.attempt
        self.restarts = start.restarts
        self.restored_id = None if start.restore is None else start.restore.checkpoint_id
        changed = None if start.restore is None else state_changes(self.graph.execution, start.restore)
        warnings = (start.warning or self._left_out(start.restore), changed)
        self.warning = "; ".join(filter(None, warnings)) or None
        if not is_rescale:
            self.restart.attempt_begun(self.ledger.age())

    def _left_out(self, restore: CompletedCheckpoint | None) -> str | None:
        """Warn of state without an operator; the deployment refuses it unless the user allowed it."""
        unknown = () if restore is None else unknown_operators(self.graph.execution, restore)
        if not unknown:
            return None
        return f"state of {', '.join(map(repr, unknown))} is left out: the job has no such operators"

    def may_start_older(self, cause: FailureCause) -> bool:
        """Whether the next attempt may start from an older checkpoint because the restored one is damaged."""
        if not cause.is_damage or self.restored_id is None:
            return False
        return self.ledger.give_up_damaged(self.restored_id, str(cause))

    def subtask_finished(self, subtask: SubtaskId) -> None:
        if self.coordinator is None:
            self.planner.finished(subtask)
        else:
            self.coordinator.subtask_finished(subtask)

    def end_checkpoints(self, detail: str, *, for_good: bool = False) -> None:
        """Abort the attempt's checkpoints, except one whose record is being written.

        Args:
            for_good: Whether the job ends, so no attempt follows; `detail` then also answers later requests.
        """
        self.operators.attempt_ended()
        if self.coordinator is not None:
            reasons = CheckpointFailureReason
            reason = reasons.CHECKPOINT_COORDINATOR_SHUTDOWN if for_good else reasons.JOB_FAILURE
            self.coordinator.end_attempt(reason, detail)

    def when_log_is_known(self, callback: Callable[[], None]) -> None:
        """Call `callback` as soon as no record of a checkpoint is being written."""
        if self.coordinator is None:
            callback()
        else:
            self.coordinator.when_idle(callback)

    def record_end(
        self,
        state: JobState,
        cause: str,
        then: Callable[[str], None],
        ended_before: Callable[[EndedBefore], None] | None = None,
        failure: FailureCause | None = None,
    ) -> None:
        """Write the job's end into the log, then call `then` with a note, which is empty after success.

        If the log already has an end, `ended_before` is called instead; without it, this JobMaster is fenced.
        """
        if not self.is_fenced:
            self._end.record(state, cause, then, ended_before or (lambda _: self.fence()), failure)

    def before_end(self, owner: object, call: Callable[[], None]) -> None:
        """Register a call for the end of the job; it runs before any other part learns of the end."""
        self._before_end[owner] = call

    def forget_before_end(self, owner: object) -> None:
        self._before_end.pop(owner, None)

    def reached_end(self) -> None:
        calls, self._before_end = self._before_end, {}
        for call in calls.values():
            call()

    def fence(self) -> None:
        """Stop all changes because another JobMaster owns the job; notify the gateway once."""
        if self.is_fenced:
            return
        self.is_fenced = True
        self.state.leave()
        self.gateway.fenced()
