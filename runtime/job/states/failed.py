"""The job failed and may not restart."""

from __future__ import annotations

from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.terminal import Terminal


class Failed(Terminal):
    """The job failed and may not restart."""

    name = JobState.FAILED
