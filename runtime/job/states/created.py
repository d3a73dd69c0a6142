"""`Created`: the first state of a scheduler."""

from __future__ import annotations

from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.cancelling import Cancelling
from penstock.runtime.job.states.deploying import Deploying


class Created(State):
    """Waits for `start`."""

    name = JobState.CREATED

    def start(self) -> bool:
        """Begin the first attempt of this scheduler."""
        self.job.enter(Deploying(self.job))
        return True

    def cancel(self) -> bool:
        """End without ever having run."""
        self.job.enter(Cancelling(self.job, stopped=True), "cancelled before it started")
        return True
