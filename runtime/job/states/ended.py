"""The terminal state that a log's last record names."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.cancelled import Cancelled
from penstock.runtime.job.states.failed import Failed
from penstock.runtime.job.states.finished import Finished
from penstock.runtime.job.states.terminal import Terminal


def terminal_state(job: JobContext, state: JobState, cause: str) -> Terminal:
    """The terminal state called `state`.

    Raises:
        KeyError: `state` is not terminal.
    """
    kinds: dict[JobState, type[Terminal]] = {kind.name: kind for kind in (Finished, Failed, Cancelled)}
    return kinds[state](job, cause)
