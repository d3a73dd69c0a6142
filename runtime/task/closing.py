"""Closes several resources, so that all of them are closed and no failure is lost.

A failure to close is often a consequence of an earlier one. The first one is raised; the others are notes of
it (`BaseException.add_note`), which `failure_details` gives together with the user's traceback.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.runtime.error_text import cause_text
from penstock.runtime.errors import OperatorError


def close_all(*closers: Callable[[], None]) -> None:
    """Call all closers in this order, even if some of them raise.

    Raises:
        BaseException: The first failure, with the others as notes.

    Example:
        >>> close_all(lambda: print("one"), lambda: print("two"))
        one
        two
    """
    failure: BaseException | None = None
    for close in closers:
        failure = close_after(failure, close)
    if failure is not None:
        raise failure


def close_after(failure: BaseException | None, close: Callable[[], None]) -> BaseException | None:
    """Close a resource after a possible failure; an error of `close` is returned, not raised.

    Returns:
        The failure to raise or report: the earlier one with a note of the error of `close`, else that error.
    """
    try:
        close()
    except BaseException as error:  # a SystemExit would end the task's thread silently
        if failure is None:
            return error
        failure.add_note(f"Also while closing: {cause_text(error)}")
    return failure


def failure_details(error: OperatorError) -> str:
    """The user's traceback, and the further errors of closing.

    Example:
        >>> from penstock.runtime.errors import OperatorLocation
        >>> error = OperatorError(OperatorLocation("parse", 0, 1), "map failed", "Traceback ...")
        >>> close_after(error, lambda: [].pop()) is error
        True
        >>> print(failure_details(error))
        Traceback ...
        Also while closing: IndexError: pop from empty list
    """
    notes = getattr(error, "__notes__", ())
    return "\n".join([error.cause_text.rstrip("\n"), *notes]) if notes else error.cause_text
