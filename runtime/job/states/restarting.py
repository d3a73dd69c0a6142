"""`Restarting`: a failed job waits before its next attempt."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.base import State
from penstock.runtime.job.states.cancelling import Cancelling
from penstock.runtime.ports import Cancellable


class Restarting(State):
    """Waits for the delay that the restart strategy asked for.

    Args:
        delay: Seconds.
    """

    name = JobState.RESTARTING

    def __init__(self, job: JobContext, delay: float) -> None:
        super().__init__(job)
        self._delay = delay
        self._timer: Cancellable | None = None

    def enter(self) -> None:
        """Wait."""
        self._timer = self.job.timers.call_later(self._delay, self._again)

    def leave(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def cancel(self) -> bool:
        """End the job: no attempt follows, and no subtask runs."""
        self.job.enter(Cancelling(self.job, stopped=True), "cancelled")
        return True

    def _again(self) -> None:
        self.job.deploy_again()
