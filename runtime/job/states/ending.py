"""The states in which an attempt or the job ends: it has failed, is cancelled, or has finished.

`Failing`: an attempt has failed. Its subtasks are stopped. Then the restart strategy decides about a
recoverable failure.

The decision waits until no subtask of the attempt runs any more. It also waits for a checkpoint record that
is being written: the job may restart from that checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.config.restart import GiveUp, RestartAfter, RestartDecision
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_ledger import EndedBefore
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import AttemptStop, State


class Terminal(State):
    """The end of a job: notifies the gateway once.

    Args:
        cause: Explanation of the end for users; the root cause of a failure.
    """

    def __init__(self, job: JobContext, cause: str = "") -> None:
        super().__init__(job)
        self._cause = cause

    def enter(self) -> None:
        self.job.reached_end()
        self.job.gateway.job_ended(self.name, self._cause)


class Cancelled(Terminal):
    name = JobState.CANCELLED


class Failed(Terminal):
    name = JobState.FAILED


class Finished(Terminal):
    """Every subtask has finished and every sink has committed."""

    name = JobState.FINISHED


def enter_earlier_end(job: JobContext, found: EndedBefore) -> None:
    """Enter the terminal state that the log holds; the job's statistics then show that end."""
    job.ended, job.attempt, job.restarts = found, found.attempt, found.restarts
    kinds: dict[JobState, type[Terminal]] = {kind.name: kind for kind in (Finished, Failed, Cancelled)}
    job.enter(kinds[found.state](job, found.cause), "it had ended before")


class Finishing(State):
    """Waits until the log has the end of the job; all subtasks have finished."""

    name = JobState.RUNNING
    #: The answer to requests for checkpoints.
    why = "every subtask has finished"

    def enter(self) -> None:
        self.job.end_checkpoints(self.why, for_good=True)
        self.job.when_log_is_known(self._record)

    def _record(self) -> None:
        job = self.job
        job.record_end(JobState.FINISHED, "", lambda note: job.enter(Finished(job, note), note))


class FinishingStop(Finishing):
    """Waits as `Finishing` does, after the job's last savepoint."""

    name = JobState.STOPPING
    why = "the job was stopped with a savepoint"


class Suspended(FinishingStop):
    """Ends an attempt that has begun from the savepoint that the job was stopped with.

    All operators are open with the state of the savepoint, so the sinks have committed its output.
    """

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._stop = AttemptStop(job)

    def enter(self) -> None:
        self.job.end_checkpoints(self.why, for_good=True)
        self._stop.begin(self._record)


class Cancelling(State):
    """Stops the subtasks and records the end.

    Args:
        stop: The attempt's stop, possibly begun; by default a stop of all subtasks.
    """

    name = JobState.CANCELLING

    def __init__(self, job: JobContext, stop: AttemptStop | None = None) -> None:
        super().__init__(job)
        self._stop = stop or AttemptStop(job)

    def enter(self) -> None:
        self.job.end_checkpoints("the job is cancelled", for_good=True)
        self._stop.begin(self._record)

    def _record(self) -> None:
        job = self.job
        job.record_end(
            JobState.CANCELLED,
            "cancelled",
            lambda note: job.enter(Cancelled(job, note), note),
            lambda found: enter_earlier_end(job, found),
        )


class Delaying(State):
    """Waits for a delay, in seconds, before a deployment; no subtask is deployed meanwhile."""

    name = JobState.DEPLOYING

    def __init__(self, job: JobContext, delay: float, then: Callable[[], None]) -> None:
        super().__init__(job)
        self._timer = job.timers.call_later(delay, then)

    def leave(self) -> None:
        self._timer.cancel()

    def cancel(self) -> None:
        self.job.enter(Cancelling(self.job, AttemptStop(self.job, is_deployed=False)), "cancelled")


class Restarting(Delaying):
    """Waits for the delay that the restart strategy has set."""

    name = JobState.RESTARTING


class Failing(State):
    """Stops the attempt; the restart strategy then decides about a recoverable failure.

    Args:
        is_deployed: Whether subtasks may have to be stopped.
        decided: Decision about the failure, if one was made before; the failure is then already recorded.
    """

    name = JobState.FAILING

    def __init__(
        self,
        job: JobContext,
        cause: FailureCause,
        *,
        is_deployed: bool = True,
        decided: RestartDecision | None = None,
    ) -> None:
        super().__init__(job)
        self._cause = cause
        self._decision = decided
        self._stop = AttemptStop(job, is_deployed=is_deployed)

    def enter(self) -> None:
        job = self.job
        if self._decision is None:
            job.failures.attempt_failed(job.attempt, job.clock.now(), self._cause)
        job.end_checkpoints(str(self._cause))
        self._stop.begin(self._decide)

    def failed(self, cause: FailureCause) -> None:
        self.job.failures.also_failed(cause)

    def cancel(self) -> None:
        if not self._stop.is_over:
            self.job.enter(Cancelling(self.job, self._stop), "cancelled")

    def _decide(self) -> None:
        job = self.job
        decision: RestartDecision = self._decision or GiveUp("it would fail again")
        if self._decision is None and (self._cause.recoverable or job.may_start_older(self._cause)):
            decision = job.restart.failed(job.ledger.age())
        match decision:
            case RestartAfter(delay):
                job.enter(
                    Restarting(job, delay, job.deploy_again), f"the job starts again in {round(delay, 1):g} s"
                )
            case GiveUp(reason):
                cause = str(self._cause)
                job.record_end(
                    JobState.FAILED,
                    cause,
                    lambda note: job.enter(Failed(job, cause), "; ".join(filter(None, (reason, note)))),
                    lambda found: enter_earlier_end(job, found),
                    self._cause,
                )


class ActiveAttempt(State):
    """Base of the states in which a failure or a cancellation stops the attempt."""

    def cancel(self) -> None:
        self.job.enter(Cancelling(self.job), "cancelled")

    def failed(self, cause: FailureCause) -> None:
        self.job.enter(Failing(self.job, cause), str(cause))
