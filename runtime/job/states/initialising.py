"""`Initialising`: the subtasks are deployed and begin to run."""

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
    """Waits until every subtask runs; a quick one may have finished by then."""

    name = JobState.INITIALISING

    def __init__(self, job: JobContext) -> None:
        super().__init__(job)
        self._reported: list[SubtaskId] = []

    def enter(self) -> None:
        """Start the subtasks."""
        self.job.gateway.start(self.job.attempt)
        self.job.were_started([subtask.id for subtask in self.job.graph.subtasks])

    def started(self) -> bool:
        """Every subtask runs."""
        self.job.enter(Running(self.job, self._reported))
        return True

    def cancel(self) -> bool:
        """Stop the subtasks."""
        self.job.enter(Cancelling(self.job), "cancelled")
        return True

    def failed(self, cause: FailureCause) -> bool:
        """A subtask has failed."""
        self.job.enter(Failing(self.job, cause), str(cause))
        return True

    def end_of_data(self, subtask: SubtaskId) -> bool:
        """Remember the report until every subtask runs."""
        self._reported.append(subtask)
        return True

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        """Remember that the subtask has finished."""
        self.job.subtask_finished(subtask)
        return True
