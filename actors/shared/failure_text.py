"""A failure as its user reads it: the cause first, then the traceback, both of limited length."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from penstock.runtime.error_text import shortened
from penstock.runtime.job.failover import FailureCause, FailureRecord

#: Of failures that followed from another one.
_LONGEST_SECONDARY: Final = 500


def failure_text(cause: FailureCause) -> str:
    """Return operator, subtask, the user's line and the error; below them the user's traceback.

    Example:
        >>> from penstock.runtime.snapshot.ids import SubtaskId
        >>> print(failure_text(FailureCause("its process died", SubtaskId("count", 0), "")))
        count[0]: its process died
    """
    return f"{headline(cause)}\n{cause.traceback}".rstrip()


def headline(cause: FailureCause) -> str:
    """The failure without its traceback; names the subtask once."""
    return cause.message if cause.message.startswith("operator '") else str(cause)


def bounded(record: FailureRecord) -> FailureRecord:
    """The record with texts of at most a few thousand characters, and no tracebacks of later failures."""
    secondary = (
        replace(cause, message=shortened(cause.message, _LONGEST_SECONDARY), traceback="")
        for cause in record.secondary
    )
    return replace(record, secondary=tuple(secondary))
