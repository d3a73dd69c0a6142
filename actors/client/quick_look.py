"""Runs the job of a quick look, and brings its rows back."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from penstock.actors.client.collect import RayCollector
from penstock.actors.client.deadlines import end_deadline
from penstock.runtime.config.checks import Duration
from penstock.runtime.errors import JobCancelledError, JobFailedError, JobTimeoutError
from penstock.runtime.graph.job_handle import JobHandle
from penstock.runtime.io.connectors.preview_sink import PreviewSink
from penstock.runtime.operators.protocols import Sink

#: Seconds between two looks at the rows that have come.
_POLL: Final = 0.1
#: Seconds for a job that is cancelled to end.
_LAST: Final = 30.0


def bring_rows(
    submit: Callable[[Sink[Any]], JobHandle], limit: int | None, timeout: Duration | None
) -> list[Any]:
    """Run a job until its end, or until so many rows are there; it has ended afterwards in any case.

    Raises:
        JobFailedError: The job failed.
        JobCancelledError: Somebody else cancelled it.
        JobTimeoutError: The time was over first.
    """
    if limit == 0:
        return []
    with RayCollector() as collector:
        job = submit(PreviewSink(collector, limit))
        deadline = end_deadline(job.job_id, timeout)
        try:
            while True:
                with suppress(JobTimeoutError):
                    job.wait(deadline.left(at_most=_POLL))
                    return collector.rows()[:limit]
                rows = collector.rows() if limit is not None else []
                if limit is not None and len(rows) >= limit:
                    return rows[:limit]
                if deadline.has_passed:
                    late = f"job {job.job_id} has not brought enough rows, and is cancelled"
                    raise deadline.error(late)
        finally:
            if not job.status().is_terminal:
                job.cancel()
                with suppress(JobCancelledError, JobFailedError, JobTimeoutError):
                    job.wait(_LAST)
