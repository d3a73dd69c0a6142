"""From the first state of a scheduler to subtasks that begin to run.

`Deploying`: writes an attempt into the decision log, then deploys its subtasks.

The record comes first: it fences older attempts. While it is being written, the outcome is unknown, so a
cancellation waits for it. A JobMaster that was restarted several times in a row waits before it deploys, as
after any other failure.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.runtime.config.restart import GiveUp
from penstock.runtime.error_text import cause_text, error_text
from penstock.runtime.errors import CorruptSnapshotError, JobIdTakenError, PenstockError, RestoreError
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_ledger import AttemptStart, EndedBefore, LostToOther
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import AttemptStop, State
from penstock.runtime.job.states.ending import Cancelling, Failed, Failing, Suspended, enter_earlier_end
from penstock.runtime.job.states.running import Running
from penstock.runtime.ports import Cancellable
from penstock.runtime.snapshot.ids import SubtaskId


class Initialising(State):
    """Waits until every subtask runs; a quick one may have finished by then."""

    name = JobState.INITIALISING

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._reported: list[SubtaskId] = []

    def enter(self) -> None:
        self.job.gateway.start(self.job.attempt)
        self.job.were_started(self.job.graph.subtasks)

    def started(self) -> bool:
        self.job.enter(Running(self.job, self._reported))
        return True

    def cancel(self) -> bool:
        self.job.enter(Cancelling(self.job), "cancelled")
        return True

    def failed(self, cause: FailureCause) -> bool:
        self.job.enter(Failing(self.job, cause), str(cause))
        return True

    def end_of_data(self, subtask: SubtaskId) -> bool:
        self._reported.append(subtask)
        return True

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        self.job.subtask_finished(subtask)
        return True


class Deploying(State):
    """Begins an attempt and deploys it."""

    name = JobState.DEPLOYING

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._begun = False
        self._deploying = False
        self._cancelled = False
        self._timer: Cancellable | None = None

    def enter(self) -> None:
        job = self.job
        now, restarts, parallelism = job.clock.now(), job.restart.memory(), job.new_parallelism
        job.runner.run(
            lambda: job.ledger.begin_attempt(now, restarts, parallelism),
            self._on_begun,
            self._on_error,
        )

    def leave(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def cancel(self) -> bool:
        self._cancelled = True
        if self._begun:
            self.job.enter(
                Cancelling(self.job, AttemptStop(self.job, is_deployed=self._deploying)), "cancelled"
            )
        return True

    def deployed(self) -> bool:
        if not self._deploying:
            return False
        self.job.enter(Suspended(self.job) if self.job.stopped_with is not None else Initialising(self.job))
        return True

    def failed(self, cause: FailureCause) -> bool:
        if not self._deploying:
            return False
        self.job.enter(Failing(self.job, cause), str(cause))
        return True

    def _on_begun(self, outcome: AttemptStart | EndedBefore | LostToOther) -> None:
        job = self.job
        self._begun = True
        match outcome:
            case LostToOther():
                job.fence()
            case EndedBefore():
                enter_earlier_end(job, outcome)
            case AttemptStart():
                decision = job.begin_attempt(outcome)
                if self._cancelled:
                    job.enter(Cancelling(job, AttemptStop(job, is_deployed=False)), "cancelled")
                elif isinstance(decision, GiveUp):
                    text = f"attempt {outcome.attempt} is one too many: {decision.reason}"
                    job.enter(Failing(job, FailureCause(text, recoverable=False), is_deployed=False), text)
                elif decision.delay > 0:
                    self._timer = job.timers.call_later(decision.delay, lambda: self._deploy(outcome))
                else:
                    self._deploy(outcome)

    def _deploy(self, start: AttemptStart) -> None:
        self._deploying = True
        job = self.job
        self._timer = job.timers.call_later(job.deployment_timeout, self._not_restored)
        try:
            job.restore_operators(start.restore, lambda cause: self._restored(start, cause))
        except BaseException as error:  # a coordinator may raise anything
            may_heal = not isinstance(error, PenstockError)
            self._restored(start, FailureCause(cause_text(error), recoverable=may_heal))

    def _restored(self, start: AttemptStart, cause: FailureCause | None) -> None:
        job = self.job
        if job.state is not self or job.is_fenced:
            return
        self.leave()
        if cause is not None:
            text = f"what runs in the JobMaster could not be restored: {cause.message}"
            self.failed(replace(cause, message=text))
            return
        job.start_operators()
        if job.state is self:  # no coordinator has failed at its start
            job.gateway.deploy(start.attempt, start.restore)

    def _not_restored(self) -> None:
        job = self.job
        busy = () if job.operators is None else job.operators.busy_hooks
        text = (
            f"master hooks did not come back within {job.deployment_timeout:g} s (deployment_timeout), so "
            f"they are not restored: {', '.join(map(repr, busy))}"
        )
        self.failed(FailureCause(text))

    def _on_error(self, error: BaseException) -> None:
        job = self.job
        if self._cancelled:
            job.enter(Cancelling(job, AttemptStop(job, is_deployed=False)), "cancelled")
            return
        text = f"the attempt could not begin: {error_text(error)}"
        if isinstance(error, JobIdTakenError):
            # The log and the files are another job's: this one ends without a record there.
            job.enter(Failed(job, text), text)
            job.is_fenced = True
            return
        cause = FailureCause(text, recoverable=not isinstance(error, CorruptSnapshotError | RestoreError))
        job.enter(Failing(job, cause, is_deployed=False), text)


class Created(State):
    """Waits for `start`."""

    name = JobState.CREATED

    def start(self) -> bool:
        self.job.enter(Deploying(self.job))
        return True

    def cancel(self) -> bool:
        self.job.enter(
            Cancelling(self.job, AttemptStop(self.job, is_deployed=False)), "cancelled before it started"
        )
        return True
