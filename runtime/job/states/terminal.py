"""`Terminal`: the base of the three last states of a job."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.states.base import State


class Terminal(State):
    """The end of a job: tells the gateway once.

    Args:
        cause: Explains the end to people; the root cause of a failure.
    """

    def __init__(self, job: JobContext, cause: str = "") -> None:
        super().__init__(job)
        self._cause = cause

    def enter(self) -> None:
        """Answer what waits for the end, then tell the gateway."""
        self.job.reached_end()
        self.job.gateway.job_ended(self.name, self._cause)
