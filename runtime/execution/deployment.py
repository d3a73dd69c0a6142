"""`Deployer` and `Deployment`: deploy the subtasks of one attempt, step by step.

First, subtasks of older attempts are stopped. Then every role gets a process. Then the attempt's task
descriptors are created, which reads the storage, and sent to the processes. Every step has a deadline, and a
process may die during any call. The outcome is reported once, unless the deployment was cancelled.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.failure_causes import cause_of, for_first_attempt
from penstock.runtime.execution.fleet import Fleet, Member
from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    Died,
    Processes,
    Raised,
    Replies,
    SubtaskFailed,
)
from penstock.runtime.graph.execution_graph import CurrentGraph, ExecutionGraph
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.ports import AsyncRunner, Cancellable, TimerService
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.task.descriptor import TaskDescriptor
from penstock.runtime.time.durations import as_seconds

#: Makes the task descriptors of an attempt. Takes the attempt, the graph, the checkpoint to restore, the
#: subtasks, and whether this JobMaster has described no attempt before. Blocks.
DescribeTasks: TypeAlias = Callable[
    [int, ExecutionGraph, CompletedCheckpoint | None, Collection[SubtaskId], bool], Sequence[TaskDescriptor]
]
#: Called with the outcome of a deployment: `None`, or the cause of its failure.
OnDeployed: TypeAlias = Callable[[FailureCause | None], None]


@dataclass(slots=True, eq=False)
class Deployer:
    """The collaborators of all deployments of a job; also stops subtasks.

    Attributes:
        has_described: Whether the tasks of an attempt have been described. The first description of a job
            without a snapshot also checks the destinations of its sinks.
    """

    graph: CurrentGraph
    config: JobConfig
    fleet: Fleet
    processes: Processes
    timers: TimerService
    runner: AsyncRunner
    describe: DescribeTasks
    has_described: bool = False

    def stop(self, attempt: int, subtasks: Collection[SubtaskId], then: Callable[[], None]) -> Cancellable:
        """Stop subtasks of this attempt and older ones; end the process of a subtask that does not stop."""
        members = [member for subtask, member in self.fleet.members.items() if subtask in subtasks]

        def answered(answers: Mapping[Member, CallFailure | None]) -> None:
            for member in members:
                self._stopped(member, answers[member] if member in answers else Away(), member in answers)
            then()

        timeout = as_seconds(self.config.advanced.cancellation_timeout)
        gathering: Replies[Member, None] = Replies(members, self.timers, timeout, answered)
        for member in members:
            self.processes.stop(member.process, member.role.at(attempt), gathering.reply(member))
        return gathering

    def _stopped(self, member: Member, answer: CallFailure | None, has_answered: bool) -> None:
        if answer is None:
            return
        why = ""
        if not has_answered:
            why = f"{member.role.subtask} does not stop; it may be stuck in a user's function"
        elif not isinstance(answer, Died):  # the subtask of a dead process has stopped, too
            said = answer.cause.message if isinstance(answer, Raised) else "its process could not be reached"
            why = f"{member.role.subtask} can't be stopped: {said}"
        self.fleet.lose_member(member, why)


class Deployment:
    """A deployment in progress; calls `then` once, unless cancelled."""

    def __init__(
        self,
        deployer: Deployer,
        attempt: int,
        subtasks: Collection[SubtaskId],
        restore: CompletedCheckpoint | None,
        then: OnDeployed,
    ) -> None:
        self._deployer = deployer
        self._attempt = attempt
        self._subtasks = subtasks
        self._restore = restore
        self._then = then
        self._is_over = False
        self._deadline: Cancellable | None = None
        # A process that was taken over may run an older attempt, which must end before this one opens.
        self._step: Cancellable = deployer.stop(attempt - 1, subtasks, self._ensure)

    def cancel(self) -> None:
        """Cancel the deployment, without reporting an outcome or making further calls."""
        self._is_over = True
        self._step.cancel()
        if self._deadline is not None:
            self._deadline.cancel()

    def _ensure(self) -> None:
        self._step = self._deployer.fleet.ensure(self._subtasks, self._ensured)

    def _ensured(self, problem: str | None) -> None:
        if problem is not None:
            self._end(FailureCause(problem))
            return
        deployer = self._deployer
        self._begin_deadline()
        self._step = deployer.runner.run(
            partial(
                deployer.describe,
                self._attempt,
                deployer.graph.execution,
                self._restore,
                self._subtasks,
                not deployer.has_described,
            ),
            self._hand_out,
            lambda error: self._end(for_first_attempt(self._attempt, cause_of(error), error)),
        )

    def _begin_deadline(self) -> None:
        timeout = as_seconds(self._deployer.config.deployment_timeout)
        self._deadline = self._deployer.timers.call_later(timeout, self._is_late)

    def _is_late(self) -> None:
        timeout = as_seconds(self._deployer.config.deployment_timeout)
        text = (
            f"the subtasks were not ready within {timeout:g} s: listing splits, reading state or opening an "
            "operator takes longer than deployment_timeout"
        )
        self._end(FailureCause(text))

    def _hand_out(self, descriptors: Sequence[TaskDescriptor]) -> None:
        if self._is_over:
            return
        if self._deadline is not None:
            self._deadline.cancel()
        self._begin_deadline()
        deployer = self._deployer
        deployer.has_described = True
        members = {d.id: deployer.fleet.members.get(d.id) for d in descriptors}
        lost = next((id for id, member in members.items() if member is None), None)
        if lost is not None:
            self._end(FailureCause("its process died while it was deployed", lost, kind=FailureKind.PROCESS))
            return
        # The deadline above expires before this timeout, so its clearer text is reported.
        timeout = 2 * as_seconds(deployer.config.deployment_timeout)
        gathering: Replies[SubtaskId, SubtaskFailed | None] = Replies(
            list(members), deployer.timers, timeout, self._answered
        )
        self._step = gathering
        for descriptor in descriptors:
            member = members[descriptor.id]
            if member is not None:
                role = member.role.at(self._attempt)
                deployer.processes.deploy(member.process, role, descriptor, gathering.reply(descriptor.id))

    def _answered(self, answers: Mapping[SubtaskId, SubtaskFailed | CallFailure | None]) -> None:
        # Handle all answers before choosing a cause: `_failure` also removes dead processes from the fleet.
        causes = [self._failure(subtask, answer) for subtask, answer in answers.items()]
        self._end(next((cause for cause in causes if cause is not None), None))

    def _failure(self, subtask: SubtaskId, answer: SubtaskFailed | CallFailure | None) -> FailureCause | None:
        match answer:
            case None:
                return None
            case SubtaskFailed():
                return for_first_attempt(self._attempt, answer.cause(subtask), answer.location)
            case Raised(cause):
                return FailureCause(f"it could not be deployed: {cause.message}", subtask)
            case Died():
                self._deployer.fleet.lose(subtask)
                return FailureCause(
                    "its process died while it was deployed", subtask, kind=FailureKind.PROCESS
                )
            case Away():
                self._deployer.fleet.lose(subtask)
                text = "its process could not be reached while it was deployed"
                return FailureCause(text, subtask, kind=FailureKind.PROCESS)

    def _end(self, cause: FailureCause | None) -> None:
        if not self._is_over:
            self.cancel()
            self._then(cause)
