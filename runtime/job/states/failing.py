"""`Failing`: an attempt has failed; its subtasks are stopped, then the restart strategy decides.

The decision waits until no subtask of the attempt runs any more. It also waits for a checkpoint record that
is being written: the job may restart from that checkpoint.
"""

from __future__ import annotations

from penstock.runtime.config.restart import GiveUp, RestartAfter, RestartDecision
from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.cancelling import Cancelling
from penstock.runtime.job.states.ended import enter_earlier_end
from penstock.runtime.job.states.failed import Failed
from penstock.runtime.job.states.restarting import Restarting


class Failing(State):
    """Stops the attempt and decides.

    Args:
        cause: The root cause.
        stopped: No subtask was deployed, so none needs to be stopped.
        decided: What the restart strategy has said already; then the failure is remembered, too.
    """

    name = JobState.FAILING

    def __init__(
        self,
        job: JobContext,
        cause: FailureCause,
        *,
        stopped: bool = False,
        decided: RestartDecision | None = None,
    ) -> None:
        super().__init__(job)
        self._cause = cause
        self._stopped = stopped
        self._decision = decided
        self._log_known = False
        self._decided = False

    def enter(self) -> None:
        """Remember the cause and stop all subtasks."""
        job = self.job
        if self._decision is None:
            job.failures.attempt_failed(job.attempt, job.clock.now(), self._cause)
        job.end_checkpoints(str(self._cause))
        if not self._stopped:
            job.gateway.stop_all(job.attempt)
        job.when_log_is_known(self._on_log_known)

    def failed(self, cause: FailureCause) -> bool:
        """Remember a failure that followed from the first one."""
        self.job.failures.also_failed(cause)
        return True

    def all_stopped(self) -> bool:
        """Decide, as soon as no record is being written."""
        self._stopped = True
        self._decide()
        return True

    def cancel(self) -> bool:
        """Cancel the job instead of restarting it, unless its failure is being recorded."""
        if self._decided:
            return False
        self.job.enter(Cancelling(self.job, stopped=self._stopped, stopping=True), "cancelled")
        return True

    def _on_log_known(self) -> None:
        self._log_known = True
        self._decide()

    def _decide(self) -> None:
        job = self.job
        if job.state is not self or self._decided or not (self._stopped and self._log_known):
            return
        decision: RestartDecision = self._decision or GiveUp("it would fail again")
        if self._decision is None and (self._cause.recoverable or job.may_start_older(self._cause)):
            decision = job.restart.failed(job.ledger.age())
        match decision:
            case RestartAfter(delay):
                job.enter(Restarting(job, delay), f"again in {delay:g} s")
            case GiveUp(reason):
                self._decided = True
                cause = str(self._cause)
                job.record_end(
                    JobState.FAILED,
                    cause,
                    lambda note: job.enter(Failed(job, cause), f"{reason}{note}"),
                    lambda found: enter_earlier_end(job, found),
                    self._cause,
                )
