"""`JobExecution` carries out the scheduler's decisions in processes: deploy, run, control, stop.

The class chooses the calls and interprets the answers; the port `Processes` makes the calls. The JobMaster on
Ray and the simulation run this class, each with processes of its own.

Each running subtask has one open `run` call. When its process dies the call fails, and the scheduler gets a
failure. The scheduler gets each notification once, and never during a call that it makes.

`ControlLanes` sends control messages to a subtask in order. A process may start calls in any order, so a
message is sent only after the previous one was answered. Triggers and the events of operator coordinators
share a lane: an event that overtook an earlier trigger would be in two snapshots. Notifications of
checkpoints need no order, so they use no lane.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeAlias

from penstock.runtime.errors import DeploymentError
from penstock.runtime.execution.deadlines import RetryDeadline
from penstock.runtime.execution.deployment import Deployer, Deployment
from penstock.runtime.execution.failure_causes import cause_of_end
from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    Died,
    Peer,
    Processes,
    Raised,
    SubtaskFinished,
    SubtaskOutcome,
)
from penstock.runtime.graph.execution_graph import CurrentGraph
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.job.job_state import JobState
from penstock.runtime.operators.coordinators import EventAnswer
from penstock.runtime.ports import Clock, TimerService
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import (
    EventForOperator,
    NotifyAborted,
    NotifyComplete,
    SubtaskControl,
    TriggerCheckpoint,
)

#: Receives whether a message arrived.
OnAnswer: TypeAlias = Callable[[bool], None]
#: Sends one message of an attempt; the callback runs later, never before this call returns.
SendControl: TypeAlias = Callable[[int, SubtaskId, SubtaskControl, OnAnswer], None]


class ControlLanes:
    def __init__(self, send: SendControl) -> None:
        self._send = send
        self._waiting: dict[SubtaskId, deque[tuple[int, SubtaskControl, OnAnswer | None]]] = {}
        self._numbers: dict[SubtaskId, int] = {}

    def next_number(self, subtask: SubtaskId) -> int:
        self._numbers[subtask] = self._numbers.get(subtask, 0) + 1
        return self._numbers[subtask]

    def put(
        self,
        attempt: int,
        subtask: SubtaskId,
        message: SubtaskControl,
        on_answer: OnAnswer | None = None,
    ) -> None:
        """Send a message when all earlier ones are answered; `on_answer` receives true if it arrived."""
        lane = self._waiting.setdefault(subtask, deque())
        lane.append((attempt, message, on_answer))
        if len(lane) == 1:
            self._send_first(subtask)

    def _send_first(self, subtask: SubtaskId) -> None:
        lane = self._waiting[subtask]
        attempt, message, on_answer = lane[0]

        def answered(arrived: bool) -> None:
            lane.popleft()
            if lane:
                self._send_first(subtask)
            if on_answer is not None:
                on_answer(arrived)

        self._send(attempt, subtask, message, answered)


class Listener(Protocol):
    """The job's scheduler, which receives the outcomes of calls."""

    def on_deployed(self, attempt: int) -> None: ...

    def on_deployment_failed(self, attempt: int, cause: FailureCause) -> None: ...

    def on_started(self, attempt: int) -> None:
        """Called when the `run` calls of the subtasks have been made."""
        ...

    def on_subtask_finished(self, attempt: int, subtask: SubtaskId) -> None: ...

    def on_subtask_failed(self, attempt: int, subtask: SubtaskId, cause: FailureCause) -> None: ...


@dataclass(slots=True, eq=False)
class OpenRun:
    """An open `run` call; callbacks in `afterwards` run when it has been answered."""

    member: Member
    has_ended: bool = False
    afterwards: list[Callable[[], None]] = field(default_factory=list)


class JobExecution:
    """The `ExecutionGateway` of a job; see the module's docstring.

    Args:
        on_end: Called when the job has ended, with its state and the cause of a failure.
        on_fenced: Called when another JobMaster has taken the job over.

    Attributes:
        listener: The scheduler; must be set before the first call.
    """

    listener: Listener

    def __init__(
        self,
        graph: CurrentGraph,
        fleet: Fleet,
        deployer: Deployer,
        processes: Processes,
        clock: Clock,
        timers: TimerService,
        on_end: Callable[[JobState, str], None],
        on_fenced: Callable[[], None],
    ) -> None:
        self._graph = graph
        self._fleet = fleet
        self._deployer = deployer
        self._processes = processes
        self._clock = clock
        self._timers = timers
        self.job_ended = on_end
        self.fenced = on_fenced
        #: By subtask: the attempt of its last deployment, and the newest attempt that was stopped.
        self._attempts: dict[SubtaskId, int] = {}
        self._stopped_through: dict[SubtaskId, int] = {}
        self._deployment: Deployment | None = None
        self._runs: dict[SubtaskId, OpenRun] = {}
        self._lanes = ControlLanes(self._send_control)

    # -- deploying, starting, stopping ----------------------------------------------------------------------

    def deploy(
        self, attempt: int, subtasks: Collection[SubtaskId], restore: CompletedCheckpoint | None
    ) -> None:
        self._attempts.update(dict.fromkeys(subtasks, attempt))
        for subtask in subtasks:
            self._runs.pop(subtask, None)

        def deployed(cause: FailureCause | None) -> None:
            if cause is None:
                self.listener.on_deployed(attempt)
            else:
                self.listener.on_deployment_failed(attempt, cause)

        self._deployment = Deployment(self._deployer, attempt, subtasks, restore, deployed)

    def start(self, attempt: int, subtasks: Collection[SubtaskId]) -> None:
        """Start these subtasks; the scheduler is notified when the `run` calls were made."""
        # The order of the graph, because the order of a set differs between processes.
        started = {s: self._fleet.members.get(s) for s in self._graph.subtasks if s in subtasks}
        self._runs.update({s: OpenRun(member) for s, member in started.items() if member is not None})
        for subtask, member in started.items():
            if member is None:
                cause = FailureCause(
                    "its process died before it was started", subtask, kind=FailureKind.PROCESS
                )
                self._later(partial(self.listener.on_subtask_failed, attempt, subtask, cause))
            else:
                self._run(attempt, subtask, self._runs[subtask])
        self._later(lambda: self.listener.on_started(attempt))

    def stop(self, attempt: int, subtasks: Collection[SubtaskId], stopped: Callable[[], None]) -> None:
        """Cancel a deployment in progress, and stop these subtasks; then call `stopped`."""
        self.call_off()
        self._stopped_through.update(dict.fromkeys(subtasks, attempt))
        self._deployer.stop(attempt, subtasks, stopped)

    def call_off(self) -> None:
        """Cancel a deployment in progress."""
        if self._deployment is not None:
            self._deployment.cancel()

    # -- messages -------------------------------------------------------------------------------------------

    def trigger_checkpoint(
        self, attempt: int, subtasks: Sequence[SubtaskId], barrier: CheckpointBarrier
    ) -> None:
        for subtask in subtasks:
            self._lanes.put(attempt, subtask, TriggerCheckpoint(barrier))

    def send_operator_event(
        self, attempt: int, subtask: SubtaskId, operator_id: str, event: Any, answer: EventAnswer
    ) -> None:
        def answered(arrived: bool) -> None:
            if arrived:
                answer.sent()
            else:
                answer.failed(DeploymentError(f"{subtask} no longer runs in attempt {attempt}"))

        message = EventForOperator(operator_id, self._lanes.next_number(subtask), event)
        self._lanes.put(attempt, subtask, message, answered)

    def notify_checkpoint_complete(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        for subtask in subtasks:
            self._send_control(attempt, subtask, NotifyComplete(checkpoint_id), _ignore)

    def notify_checkpoint_aborted(
        self, attempt: int, subtasks: Sequence[SubtaskId], checkpoint_id: int
    ) -> None:
        for subtask in subtasks:
            self._send_control(attempt, subtask, NotifyAborted(checkpoint_id), _ignore)

    # -- implementation -------------------------------------------------------------------------------------

    def _later(self, callback: Callable[[], None]) -> None:
        self._timers.call_later(0.0, callback)

    def _run(self, attempt: int, subtask: SubtaskId, run: OpenRun) -> None:
        outputs = self._graph.subtask(subtask).outputs
        receivers = dict.fromkeys(channel.receiver for output in outputs for channel in output.channels)
        peers = {
            receiver: Peer(known.member.process, known.member.role.at(attempt))
            for receiver in receivers
            if (known := self._runs.get(receiver)) is not None
        }

        def ended(outcome: SubtaskOutcome | CallFailure) -> None:
            self._run_has_ended(attempt, subtask, run, outcome)

        member = run.member
        self._processes.run(member.process, member.role.at(attempt), peers, ended)

    def _run_has_ended(
        self, attempt: int, subtask: SubtaskId, run: OpenRun, outcome: SubtaskOutcome | CallFailure
    ) -> None:
        run.has_ended = True
        if isinstance(outcome, Died | Away):
            self._fleet.lose_member(run.member)
        was_stopped = attempt <= self._stopped_through.get(subtask, 0)
        cause = cause_of_end(subtask, run.member.place, outcome, was_stopped=was_stopped)
        if cause is not None:
            self.listener.on_subtask_failed(attempt, subtask, cause)
        elif isinstance(outcome, SubtaskFinished):
            self.listener.on_subtask_finished(attempt, subtask)
        afterwards, run.afterwards = run.afterwards, []
        for callback in afterwards:
            callback()

    def _send_control(
        self, attempt: int, subtask: SubtaskId, message: SubtaskControl, on_answer: OnAnswer
    ) -> None:
        """Send a message to a running subtask; retry while its process can't be reached."""
        absence, run = RetryDeadline(), self._runs.get(subtask)

        def send() -> None:
            if run is None or attempt != self._attempts.get(subtask) or self._runs.get(subtask) is not run:
                self._later(lambda: on_answer(False))
                return
            asked_at = self._clock.monotonic()

            def answered(answer: bool | CallFailure) -> None:
                if isinstance(answer, Away):
                    pause = absence.failed(asked_at, self._clock.monotonic())
                    self._timers.call_later(pause or 0.0, send)
                    return
                if isinstance(answer, Raised):
                    self.listener.on_subtask_failed(attempt, subtask, answer.cause)
                if answer is True or run.has_ended:
                    on_answer(answer is True)
                else:
                    # The open `run` call ends, too, and its cause must reach the scheduler first.
                    run.afterwards.append(lambda: on_answer(False))

            self._processes.control(run.member.process, run.member.role.at(attempt), message, answered)

        send()


def _ignore(arrived: bool) -> None:
    """Ignore whether a notification arrived: the next notification makes up for a lost one."""
