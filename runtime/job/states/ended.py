"""The last states of a job: finished, cancelled, failed, and suspended after its savepoint."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_ledger import EndedBefore
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import AttemptStop, State


class Terminal(State):
    """The end of a job: tells the gateway once.

    Args:
        cause: Explains the end to people; the root cause of a failure.
    """

    def __init__(self, job: JobContext, cause: str = "") -> None:
        super().__init__(job)
        self._cause = cause

    def enter(self) -> None:
        self.job.reached_end()
        self.job.gateway.job_ended(self.name, self._cause)


class Cancelled(Terminal):
    """The user has cancelled the job."""

    name = JobState.CANCELLED


class Failed(Terminal):
    """The job has failed and may not restart."""

    name = JobState.FAILED


class Finished(Terminal):
    """Every subtask has finished and every sink has committed."""

    name = JobState.FINISHED


def enter_earlier_end(job: JobContext, found: EndedBefore) -> None:
    """Enter the state that the log names; the job's statistics then say of its end what the log says."""
    job.ended, job.attempt, job.restarts = found, found.attempt, found.restarts
    kinds: dict[JobState, type[Terminal]] = {kind.name: kind for kind in (Finished, Failed, Cancelled)}
    job.enter(kinds[found.state](job, found.cause), "it had ended before")


class Suspended(State):
    """Ends an attempt that has begun from the savepoint that the job was stopped with.

    All operators are open with the state of the savepoint, so the sinks have committed what it covers.
    """

    name = JobState.STOPPING

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._stop = AttemptStop(job)

    def enter(self) -> None:
        self.job.end_checkpoints("the job was stopped with a savepoint", for_good=True)
        self._stop.begin(self._record)

    def all_stopped(self) -> bool:
        return self._stop.subtasks_stopped()

    def failed(self, cause: FailureCause) -> bool:
        return True

    def _record(self) -> None:
        job = self.job
        job.record_end(JobState.FINISHED, "", lambda note: job.enter(Finished(job, note), note))
