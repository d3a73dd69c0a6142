"""Runs the job of a quick look, and brings its rows back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.actors.client.collect import RayCollector
from penstock.actors.client.deadlines import end_deadline
from penstock.actors.client.job_handle import RayJobHandle
from penstock.runtime.config.checks import Duration
from penstock.runtime.errors import JobCancelledError, JobFailedError, JobTimeoutError
from penstock.runtime.io.connectors.preview_sink import PreviewSink, newest_rows
from penstock.runtime.operators.protocols import Sink

#: Seconds between two looks at the rows that have come.
_POLL: Final = 0.1
#: Seconds for a job that is cancelled to end.
_LAST: Final = 30.0


def bring_rows(
    submit: Callable[[Sink[Any]], RayJobHandle], limit: int | None, timeout: Duration | None
) -> list[Any]:
    """Run a job until its end, or until so many rows are there.

    The job has ended afterwards in any case, also when the user interrupts the call.

    Raises:
        JobFailedError: The job failed.
        JobCancelledError: Somebody else cancelled it.
        JobTimeoutError: The time was over first.
    """
    if limit == 0:
        return []
    with RayCollector() as collector:
        job = submit(PreviewSink(collector, limit))
        try:
            deadline = end_deadline(job.job_id, timeout)
            while not job.ends_within(deadline.left(at_most=_POLL) or 0.0):
                rows = [] if limit is None else newest_rows(collector.rows())
                if limit is not None and len(rows) >= limit:
                    return rows[:limit]
                if deadline.has_passed:
                    late = f"the quick look has not brought all of its rows (job {job.job_id})"
                    raise deadline.error(late, "it was cancelled. Give it more time, or take fewer rows")
            job.wait()
            return newest_rows(collector.rows())[:limit]
        finally:
            _end(job)


def _end(job: RayJobHandle) -> None:
    if not job.status().is_terminal:
        job.cancel()
    with suppress(JobCancelledError, JobFailedError, JobTimeoutError):  # the caller knows already
        job.wait(_LAST)
