"""`Failed`: the last state of a job that has failed for good."""

from __future__ import annotations

from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.terminal import Terminal


class Failed(Terminal):
    """The job has failed and may not restart."""

    name = JobState.FAILED
