"""The user ended the job."""

from __future__ import annotations

from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.terminal import Terminal


class Cancelled(Terminal):
    """The user ended the job."""

    name = JobState.CANCELLED
