"""`State`: what every state of a job has in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from penstock.runtime.job.failure import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.subtask_id import SubtaskId

if TYPE_CHECKING:
    from penstock.runtime.checkpoint.coordinator.requests import OnAnswer
    from penstock.runtime.job.context import JobContext
    from penstock.runtime.job.rescale_request import RescaleRequest
    from penstock.runtime.job.stop_request import StopRequest


class State:
    """One state of a job; reacts to events by changing the job or by letting it enter another state.

    An event that a state does not know is ignored (`False`) and counted: messages cross each other on the
    way. Events have been checked to belong to the current attempt before they come here.

    Args:
        job: The job whose state it is.
    """

    name: ClassVar[JobState]

    def __init__(self, job: JobContext) -> None:
        self.job = job

    def enter(self) -> None:
        """The job has just come into this state."""

    def leave(self) -> None:
        """The job is about to go into another state: call timers off."""

    def start(self) -> bool:
        """The job is to run."""
        return False

    def cancel(self) -> bool:
        """The job is to end."""
        return False

    def stop(self, request: StopRequest, on_answer: OnAnswer) -> bool:
        """The job is to be stopped with a savepoint; `on_answer` is told only if this gives `True`."""
        return False

    def rescale(self, request: RescaleRequest) -> bool:
        """The job is to have another parallelism; the request is answered only if this gives `True`."""
        return False

    def deployed(self) -> bool:
        """Every subtask is placed."""
        return False

    def started(self) -> bool:
        """Every subtask runs."""
        return False

    def all_stopped(self) -> bool:
        """No subtask of the attempt is left."""
        return False

    def region_stopped(self) -> bool:
        """No subtask of the region that is restarted is left."""
        return False

    def failed(self, cause: FailureCause) -> bool:
        """Something has failed: a subtask, the deployment, too many checkpoints."""
        return False

    def end_of_data(self, subtask: SubtaskId) -> bool:
        """A subtask has processed the end of all its inputs."""
        return False

    def subtask_finished(self, subtask: SubtaskId) -> bool:
        """A subtask has left."""
        return False
