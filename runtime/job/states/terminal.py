"""What the three ends have in common: the world is told, once, and nothing follows."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.states.base import State


class Terminal(State):
    """The end of a job.

    Args:
        job: The job.
        cause: Why, for people; the root cause of a failure.
    """

    def __init__(self, job: JobContext, cause: str = "") -> None:
        super().__init__(job)
        self._cause = cause

    def enter(self) -> None:
        """Tell the world."""
        self.job.gateway.job_ended(self.name, self._cause)
