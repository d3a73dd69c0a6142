"""Deadlines of calls to a job, and the errors for those that pass.

A call of a JobMaster can't be taken back. So each error says what goes on all the same, how to look at it,
and what asking again would do.
"""

from __future__ import annotations

import time

from penstock.runtime.config.checks import Duration, seconds
from penstock.runtime.errors import JobTimeoutError


class Deadline:
    """A moment some seconds from now, or never.

    Args:
        timeout: Seconds, or a `timedelta`; `None` for ever.
        late: What has not happened, for the error.
        advice: What goes on all the same and how to look at it, for the error.

    Raises:
        ConfigurationError: `timeout` is no duration.

    Example:
        >>> deadline = Deadline(0, "the kettle does not boil", "look at the hob")
        >>> deadline.has_passed, deadline.left(), Deadline(None, "", "").left()
        (True, 0.0, None)
        >>> raise deadline.error()
        Traceback (most recent call last):
        penstock.runtime.errors.JobTimeoutError: the kettle does not boil after 0 s; look at the hob
    """

    def __init__(self, timeout: Duration | None, late: str, advice: str) -> None:
        self._seconds = None if timeout is None else seconds("timeout", timeout)
        self._at = None if self._seconds is None else time.monotonic() + self._seconds
        self._late = late
        self._advice = advice

    @property
    def has_passed(self) -> bool:
        """Whether it is in the past."""
        return self._at is not None and time.monotonic() >= self._at

    def left(self, at_most: float | None = None) -> float | None:
        """Seconds until then, 0 when it has passed; `None` for ever.

        Args:
            at_most: Upper limit of the result; with it the result is never `None`.
        """
        left = None if self._at is None else max(0.0, self._at - time.monotonic())
        if at_most is None or left is None:
            return at_most if left is None else left
        return min(left, at_most)

    def error(self, late: str | None = None, advice: str | None = None) -> JobTimeoutError:
        """The error of a deadline that has passed.

        Args:
            late: What has not happened, where more is known than at first.
            advice: Likewise what goes on, and what to do.
        """
        what = f"{late or self._late} after {self._seconds or 0:g} s"
        return JobTimeoutError(f"{what}; {advice or self._advice}")


def answer_deadline(job_id: str, name: str, timeout: Duration | None) -> Deadline:
    """For a call that the JobMaster answers at once."""
    advice = (
        "it is stuck, waits for its storage, or its machine is overloaded: "
        f"`penstock logs {job_id} --operator job-master` shows what it does"
    )
    return Deadline(timeout, f"the JobMaster of job {job_id} has not answered `{name}`", advice)


def checkpoint_deadline(job_id: str, timeout: Duration | None) -> Deadline:
    """For a checkpoint by hand."""
    advice = (
        f"it goes on: `penstock checkpoints {job_id}` shows how far it is and how it ends. "
        "To ask again would take another one"
    )
    return Deadline(timeout, f"the checkpoint of job {job_id} is not complete", advice)


def savepoint_deadline(job_id: str, timeout: Duration | None) -> Deadline:
    """For a savepoint."""
    advice = (
        f"it goes on: `penstock checkpoints {job_id}` shows how far it is and how it ends. "
        "A complete one is answered when the checkpoint after it has ended, too. "
        "To ask again would take another one"
    )
    return Deadline(timeout, f"the savepoint of job {job_id} is not complete", advice)


def stop_deadline(job_id: str, timeout: Duration | None) -> Deadline:
    """For the end of a job that is stopped with a savepoint."""
    advice = (
        f"it goes on stopping: `penstock status {job_id}` shows where it is. "
        "To ask again waits for the same end, to cancel it gives the savepoint up"
    )
    return Deadline(timeout, f"job {job_id} has not stopped", advice)


def rescale_deadline(job_id: str, timeout: Duration | None) -> Deadline:
    """For a job that is to run at another parallelism."""
    advice = f"the change goes on: `penstock status {job_id}` shows where it is"
    return Deadline(timeout, f"job {job_id} does not run at the new parallelism", advice)


def end_deadline(job_id: str, timeout: Duration | None) -> Deadline:
    """For the end of a job."""
    return Deadline(timeout, f"job {job_id} has not ended", "it goes on")
