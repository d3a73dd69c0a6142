"""The subtasks are placed and restore their state."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.cancelling import Cancelling
from penstock.runtime.job.states.failing import Failing
from penstock.runtime.job.states.running import Running
from penstock.runtime.snapshot.subtask_id import SubtaskId


class Initialising(State):
    """Waits until every subtask runs; a quick one may even have finished by then.

    Args:
        job: The job.
    """

    name = JobState.INITIALISING

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._reported: list[SubtaskId] = []

    def enter(self) -> None:
        """Let them restore and begin."""
        self.job.gateway.start(self.job.attempt)
        self.job.were_started([subtask.id for subtask in self.job.graph.subtasks])

    def started(self) -> bool:
        """All of them run."""
        self.job.enter(Running(self.job, self._reported))
        return True

    def cancel(self) -> bool:
        """Stop them."""
        self.job.enter(Cancelling(self.job), "cancelled")
        return True

    def failed(self, cause: FailureCause) -> bool:
        """One of them could not restore, or failed soon after."""
        self.job.enter(Failing(self.job, cause), str(cause))
        return True

    def end_of_data(self, subtask: SubtaskId) -> bool:
        """Remembered until everything runs."""
        self._reported.append(subtask)
        return True

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        """Remembered: it runs no more."""
        self.job.subtask_finished(subtask)
        return True
