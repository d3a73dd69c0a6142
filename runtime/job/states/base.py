"""`State`: the base of all states of a job.

`AttemptStop`: stops an attempt, or one region of it. It waits until the subtasks have stopped. It also waits
for the outcome of a checkpoint whose record is being written: the job may restart from it, or end with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from penstock.runtime.job.failover import FailureCause
from penstock.runtime.job.job_state import JobState
from penstock.runtime.snapshot.ids import SubtaskId

if TYPE_CHECKING:
    from penstock.runtime.checkpoint.coordinator.requests import OnAnswer
    from penstock.runtime.job.context import JobContext
    from penstock.runtime.job.failover import Region
    from penstock.runtime.job.job_state import RescaleRequest, StopRequest


class State:
    """A state of a job; reacts to events by changing the job or by entering another state.

    By default a state ignores an event, because a message may arrive after the job has left the state that
    the message was meant for. The scheduler has checked that the event belongs to the current attempt.
    """

    name: ClassVar[JobState]

    def __init__(self, job: JobContext) -> None:
        self.job = job

    def enter(self) -> None: ...

    def leave(self) -> None:
        """Cancel timers: the job is about to enter another state."""

    def start(self) -> None: ...

    def cancel(self) -> None: ...

    def stop(self, request: StopRequest, on_answer: OnAnswer) -> bool:
        """Stop the job with a savepoint; `on_answer` is called only if this returns `True`."""
        return False

    def rescale(self, request: RescaleRequest) -> bool:
        """Change the parallelism of the job; the request is answered only if this returns `True`."""
        return False

    def deployed(self) -> None:
        """Called when all subtasks of the attempt are deployed."""

    def started(self) -> None:
        """Called when all subtasks of the attempt have been started."""

    def failed(self, cause: FailureCause) -> None:
        """Called when a subtask, the deployment, a coordinator, a hook or checkpoints have failed."""

    def end_of_data(self, subtask: SubtaskId) -> None:
        """Called when a subtask has processed the end of all its inputs."""

    def subtask_finished(self, subtask: SubtaskId) -> None: ...


class AttemptStop:
    """Stops the subtasks of an attempt and waits for the record that is being written.

    The next state may take over a stop that has begun.

    Args:
        region: The subtasks to stop; `None` for all.
        is_deployed: Whether there are subtasks to stop.

    Attributes:
        has_begun: Whether the stop has begun.
        is_over: Whether no subtask runs and no record is being written.
    """

    def __init__(self, job: JobContext, region: Region | None = None, *, is_deployed: bool = True) -> None:
        self._job = job
        self._region = region
        self._runs = is_deployed
        self._log_is_known = False
        self._state: State | None = None
        self._then: Callable[[], None] | None = None
        self.has_begun = self.is_over = False

    def begin(self, then: Callable[[], None]) -> None:
        """Begin the stop, unless it has begun.

        Args:
            then: Called once after the stop, if the job is still in its current state; replaces an earlier
                callback.
        """
        job, self._state, self._then = self._job, self._job.state, then
        if self.has_begun:
            return
        self.has_begun = True
        if self._runs:
            subtasks = job.graph.subtasks if self._region is None else self._region
            job.gateway.stop(job.attempt, subtasks, self._on_stopped)
        job.when_log_is_known(self._on_log_known)

    def _on_stopped(self) -> None:
        self._runs = False
        self._end_if_done()

    def _on_log_known(self) -> None:
        self._log_is_known = True
        self._end_if_done()

    def _end_if_done(self) -> None:
        if self._runs or not self._log_is_known or self.is_over:
            return
        self.is_over = True
        if self._then is not None and self._job.state is self._state and not self._job.is_fenced:
            self._then()
