"""The states from a new scheduler to running subtasks.

In order: `Created`, `Beginning`, `Delaying` (in `ending`), `Restoring`, `Deploying`, `Initialising`. The
record of the attempt comes first: it fences older attempts. While the record is being written, its outcome is
unknown, so a cancellation waits for it. With exponential backoff, a JobMaster that was restarted several
times in a row waits before it deploys.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.runtime.config.restart import GiveUp
from penstock.runtime.error_text import cause_text, error_text
from penstock.runtime.errors import (
    CorruptSnapshotError,
    JobIdTakenError,
    PenstockError,
    RestoreError,
    UnusableSnapshotError,
)
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.job.job_ledger import AttemptStart, EndedBefore, LostToOther
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import AttemptStop, State
from penstock.runtime.job.states.ending import (
    ActiveAttempt,
    Cancelling,
    Delaying,
    Failed,
    Failing,
    Suspended,
    enter_earlier_end,
)
from penstock.runtime.job.states.running import Running
from penstock.runtime.snapshot.ids import SubtaskId


class Initialising(ActiveAttempt):
    """Waits until every subtask runs; a short-lived subtask may already have finished."""

    name = JobState.INITIALISING

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._reported: list[SubtaskId] = []

    def enter(self) -> None:
        subtasks = self.job.graph.subtasks
        self.job.gateway.start(self.job.attempt, subtasks)
        self.job.operators.started(subtasks)

    def started(self) -> None:
        self.job.enter(Running(self.job, self._reported))

    def end_of_data(self, subtask: SubtaskId) -> None:
        self._reported.append(subtask)

    def subtask_finished(self, subtask: SubtaskId) -> None:
        self.job.subtask_finished(subtask)


class Beginning(State):
    """Waits until the attempt is in the decision log, or the write has failed."""

    name = JobState.DEPLOYING

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._is_cancelled = False

    def enter(self) -> None:
        job = self.job
        now, restarts, parallelism = job.clock.now(), job.restart.memory(), job.new_parallelism
        job.runner.run(
            lambda: job.ledger.begin_attempt(now, restarts, parallelism),
            self._on_begun,
            self._on_error,
        )

    def cancel(self) -> None:
        self._is_cancelled = True

    def _on_begun(self, outcome: AttemptStart | EndedBefore | LostToOther) -> None:
        job = self.job
        match outcome:
            case LostToOther():
                job.fence()
            case EndedBefore():
                enter_earlier_end(job, outcome)
            case AttemptStart():
                decision = job.begin_attempt(outcome)
                if self._is_cancelled:
                    job.enter(Cancelling(job, AttemptStop(job, is_deployed=False)), "cancelled")
                elif isinstance(decision, GiveUp):
                    text = f"attempt {outcome.attempt} is one too many: {decision.reason}"
                    job.enter(Failing(job, FailureCause(text, recoverable=False), is_deployed=False), text)
                elif decision.delay > 0:
                    job.enter(Delaying(job, decision.delay, lambda: job.enter(Restoring(job, outcome))))
                else:
                    job.enter(Restoring(job, outcome))

    def _on_error(self, error: BaseException) -> None:
        job = self.job
        if self._is_cancelled:
            job.enter(Cancelling(job, AttemptStop(job, is_deployed=False)), "cancelled")
            return
        text = f"the attempt could not begin: {error_text(error)}"
        if isinstance(error, JobIdTakenError):
            # The log and the files belong to another job: this job ends without a record there.
            job.enter(Failed(job, text), text)
            job.is_fenced = True
            return
        cause = FailureCause(
            text,
            recoverable=not isinstance(error, CorruptSnapshotError | RestoreError),
            kind=FailureKind.SNAPSHOT if isinstance(error, UnusableSnapshotError) else FailureKind.OTHER,
        )
        job.enter(Failing(job, cause, is_deployed=False), text)


class Restoring(ActiveAttempt):
    """Waits until operator coordinators and master hooks are restored."""

    name = JobState.DEPLOYING

    def __init__(self, job: JobContext, start: AttemptStart) -> None:
        super().__init__(job)
        self._start = start
        self._timer = job.timers.call_later(job.deployment_timeout, self._not_restored)

    def enter(self) -> None:
        try:
            self.job.operators.restore(self._start.restore, self._restored)
        except BaseException as error:  # a coordinator may raise anything
            if self.job.state is not self:
                raise
            may_heal = not isinstance(error, PenstockError)
            self._restored(FailureCause(cause_text(error), recoverable=may_heal))

    def leave(self) -> None:
        self._timer.cancel()

    def _restored(self, cause: FailureCause | None) -> None:
        job = self.job
        if job.state is not self or job.is_fenced:
            return
        if cause is not None:
            text = f"hooks or coordinators could not be restored: {cause.message}"
            self.failed(replace(cause, message=text))
            return
        job.operators.start()
        if job.state is self:  # no coordinator has failed at its start
            job.enter(Deploying(job, self._start))

    def _not_restored(self) -> None:
        job = self.job
        text = (
            f"master hooks did not return within {job.deployment_timeout:g} s (deployment_timeout), so "
            f"they are not restored: {', '.join(map(repr, job.operators.busy_hooks))}"
        )
        self.failed(FailureCause(text))


class Deploying(ActiveAttempt):
    """Waits until every subtask is deployed."""

    name = JobState.DEPLOYING

    def __init__(self, job: JobContext, start: AttemptStart) -> None:
        super().__init__(job)
        self._start = start

    def enter(self) -> None:
        self.job.gateway.deploy(self._start.attempt, self.job.graph.subtasks, self._start.restore)

    def deployed(self) -> None:
        self.job.enter(Suspended(self.job) if self.job.stopped_with is not None else Initialising(self.job))


class Created(State):
    """Waits for `start`."""

    name = JobState.CREATED

    def start(self) -> None:
        self.job.deploy_again()

    def cancel(self) -> None:
        self.job.enter(
            Cancelling(self.job, AttemptStop(self.job, is_deployed=False)), "cancelled before it started"
        )
