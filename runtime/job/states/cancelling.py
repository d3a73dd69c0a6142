"""`Cancelling`: the user cancels the job."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.cancelled import Cancelled
from penstock.runtime.job.states.ended import enter_earlier_end


class Cancelling(State):
    """Stops the subtasks and records the end.

    Args:
        stopped: No subtask runs any more.
        stopping: The subtasks were told to stop before.
    """

    name = JobState.CANCELLING

    def __init__(self, job: JobContext, *, stopped: bool = False, stopping: bool = False) -> None:
        super().__init__(job)
        self._stopped = stopped
        self._stopping = stopping
        self._log_known = False
        self._recording = False

    def enter(self) -> None:
        """Stop all subtasks."""
        job = self.job
        job.end_checkpoints("the job is cancelled", for_good=True)
        if not self._stopped and not self._stopping:
            job.gateway.stop_all(job.attempt)
        job.when_log_is_known(self._on_log_known)

    def cancel(self) -> bool:
        """Do nothing: it is being cancelled."""
        return True

    def failed(self, cause: FailureCause) -> bool:
        """Ignore a failure while the subtasks stop."""
        return True

    def all_stopped(self) -> bool:
        """Record the end."""
        self._stopped = True
        self._record()
        return True

    def _on_log_known(self) -> None:
        self._log_known = True
        self._record()

    def _record(self) -> None:
        job = self.job
        if job.state is not self or self._recording or not (self._stopped and self._log_known):
            return
        self._recording = True
        job.record_end(
            JobState.CANCELLED,
            "cancelled",
            lambda note: job.enter(Cancelled(job, note), note),
            lambda found: enter_earlier_end(job, found),
        )
