"""`State`: the base of all states of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.ids import SubtaskId

if TYPE_CHECKING:
    from penstock.runtime.checkpoint.coordinator.requests import OnAnswer
    from penstock.runtime.job.context import JobContext
    from penstock.runtime.job.requests import RescaleRequest, StopRequest


class State:
    """One state of a job; reacts to events by changing the job, or by entering another state.

    Each event returns whether the state has used it. An unused one is counted: messages cross each other on
    the way. The scheduler has checked that events are of the current attempt.
    """

    name: ClassVar[JobState]

    def __init__(self, job: JobContext) -> None:
        self.job = job

    def enter(self) -> None:
        """The job has entered this state."""

    def leave(self) -> None:
        """The job is about to enter another state: cancel timers."""

    def start(self) -> bool:
        """Start the job."""
        return False

    def cancel(self) -> bool:
        """Cancel the job."""
        return False

    def stop(self, request: StopRequest, on_answer: OnAnswer) -> bool:
        """Stop the job with a savepoint; `on_answer` is called only if this returns `True`."""
        return False

    def rescale(self, request: RescaleRequest) -> bool:
        """Change the parallelism of the job; the request is answered only if this returns `True`."""
        return False

    def deployed(self) -> bool:
        """Every subtask is deployed."""
        return False

    def started(self) -> bool:
        """Every subtask runs."""
        return False

    def all_stopped(self) -> bool:
        """No subtask of the attempt runs any more."""
        return False

    def region_stopped(self) -> bool:
        """No subtask of the region that restarts runs any more."""
        return False

    def failed(self, cause: FailureCause) -> bool:
        """A subtask, the deployment, or too many checkpoints have failed."""
        return False

    def end_of_data(self, subtask: SubtaskId) -> bool:
        """A subtask has processed the end of all its inputs."""
        return False

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        """A subtask has finished."""
        return False
