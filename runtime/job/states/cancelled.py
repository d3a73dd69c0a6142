"""`Cancelled`: the last state of a job that its user has cancelled."""

from __future__ import annotations

from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.terminal import Terminal


class Cancelled(Terminal):
    """The user has cancelled the job."""

    name = JobState.CANCELLED
