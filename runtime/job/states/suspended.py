"""`Suspended`: the last attempt of a job that was stopped with a savepoint and failed before its end."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.finished import Finished


class Suspended(State):
    """Ends an attempt that has begun from the savepoint that the job was stopped with.

    All operators are open with the state of the savepoint, so the sinks have committed what it covers.
    """

    name = JobState.STOPPING

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._recording = False

    def enter(self) -> None:
        """Stop the subtasks, which have read nothing."""
        self.job.end_checkpoints("the job was stopped with a savepoint", for_good=True)
        self.job.gateway.stop_all(self.job.attempt)

    def all_stopped(self) -> bool:
        """Record the end."""
        if self._recording:
            return False
        self._recording = True
        job = self.job
        job.when_log_is_known(
            lambda: job.record_end(JobState.FINISHED, "", lambda note: job.enter(Finished(job, note), note))
        )
        return True

    def failed(self, cause: FailureCause) -> bool:
        """Ignore a failure while the subtasks stop."""
        return True
