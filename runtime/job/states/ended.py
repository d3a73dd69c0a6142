"""The end that a job had before this JobMaster came, as its log has it."""

from __future__ import annotations

from penstock.runtime.job.context import JobContext
from penstock.runtime.job.job_ledger import EndedBefore
from penstock.runtime.job.job_state import JobState
from penstock.runtime.job.states.cancelled import Cancelled
from penstock.runtime.job.states.failed import Failed
from penstock.runtime.job.states.finished import Finished
from penstock.runtime.job.states.terminal import Terminal


def enter_earlier_end(job: JobContext, found: EndedBefore) -> None:
    """Enter the state that the log names; the job's statistics then say of its end what the log says."""
    job.ended, job.attempt, job.restarts = found, found.attempt, found.restarts
    kinds: dict[JobState, type[Terminal]] = {kind.name: kind for kind in (Finished, Failed, Cancelled)}
    job.enter(kinds[found.state](job, found.cause), "it had ended before")
