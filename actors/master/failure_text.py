"""A failure as its user reads it: the cause first, then the traceback, neither of them endless."""

from __future__ import annotations

from typing import Final

from penstock.runtime.job.failure import FailureCause

_LONGEST_MESSAGE: Final = 4_000
_LONGEST_TRACEBACK: Final = 6_000


def failure_text(cause: FailureCause) -> str:
    """Operator, subtask, the user's line and what was raised; below it the user's traceback.

    Example:
        >>> from penstock.runtime.snapshot.subtask_id import SubtaskId
        >>> print(failure_text(FailureCause("its process died", SubtaskId("count", 0), "")))
        count[0]: its process died
    """
    # A message that names its operator says the subtask too.
    message = cause.message if cause.message.startswith("operator '") else str(cause)
    text = cut(message, _LONGEST_MESSAGE)
    return f"{text}\n{cut(cause.traceback, _LONGEST_TRACEBACK)}".rstrip()


def cut(text: str, most: int) -> str:
    """A text that is not longer than about `most` characters, without its middle if it was.

    A traceback says at its beginning where it came from and at its end what happened.

    Example:
        >>> print(cut("abcdefghij", 8))
        ab
        ... (2 characters left out) ...
        efghij
    """
    if len(text) <= most:
        return text
    head = most // 4
    tail = most - head
    return f"{text[:head]}\n... ({len(text) - most} characters left out) ...\n{text[-tail:]}"
