"""`Finished`: the last state of a job that has done everything."""

from __future__ import annotations

from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.terminal import Terminal


class Finished(Terminal):
    """Every subtask has finished and every sink has committed."""

    name = JobState.FINISHED
