"""Runs the job of a quick look, and brings its rows back."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.actors.client.collect import RayCollector
from penstock.actors.client.deadlines import end_deadline
from penstock.actors.client.interrupts import InterruptsHeld, interrupts_delivered, name_job
from penstock.actors.client.job_handle import RayJobHandle
from penstock.runtime.config.checks import Duration
from penstock.runtime.errors import JobCancelledError, JobFailedError
from penstock.runtime.io.connectors.preview_sink import PreviewSink, newest_rows
from penstock.runtime.operators.protocols import Sink

logger = logging.getLogger(__name__)

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
    with InterruptsHeld():
        with interrupts_delivered():
            collector = RayCollector()
        with collector:
            job = submit(PreviewSink(collector, limit))
            try:
                with interrupts_delivered():
                    return _rows(job, collector, limit, timeout)
            except BaseException as stop:
                _end(job, stop)
                raise


def _rows(
    job: RayJobHandle, collector: RayCollector, limit: int | None, timeout: Duration | None
) -> list[Any]:
    deadline = end_deadline(job.job_id, timeout)
    while not job.ends_within(deadline.left(at_most=_POLL) or 0.0):
        rows = [] if limit is None else newest_rows(collector.rows())
        if limit is not None and len(rows) >= limit:
            _end(job)
            return rows[:limit]
        if deadline.has_passed:
            late = f"the quick look has not brought all of its rows (job {job.job_id})"
            raise deadline.error(late, "it was cancelled. Give it more time, or take fewer rows")
    job.wait()
    return newest_rows(collector.rows())[:limit]


def _end(job: RayJobHandle, stop: BaseException | None = None) -> None:
    """Cancel the job, if it runs, and wait for its end.

    Args:
        stop: Why it is cancelled. It names the job if that does not end.
    """
    try:
        with interrupts_delivered():
            if not job.status().is_terminal:
                job.cancel()
            with suppress(JobCancelledError, JobFailedError):  # the caller knows already
                job.wait(_LAST)
    except Exception as error:
        if stop is not None:
            name_job(stop, job.job_id, f"may still run ({error})")
        else:
            logger.warning("job %s was cancelled, and may still run: %s", job.job_id, error)
    except BaseException as again:
        name_job(again, job.job_id, "may still run")
        raise
