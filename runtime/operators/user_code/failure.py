"""Turns any error of an operator into an `OperatorError` that a user can act on.

The message names the code that ran, its error, the user's line, and the record. The user's line is the
innermost frame of the traceback outside Penstock, installed packages and Python's own library.
`json.loads` may raise deep inside `json`, but the user's line is its caller.

`RecordCursor` finds the current record of a loop over a batch, without any work per record. A fast operator
is one list comprehension; when the user's function fails in it, the message must still show the record. A
list's iterator knows the number of remaining records, so the cursor keeps only the list and that iterator.

`close_all` closes several resources without losing an error. A failure to close is often the consequence of
an earlier failure. So the first failure is raised with the others as notes (`BaseException.add_note`).
`failure_details` returns these notes together with the user's traceback.
"""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from types import FrameType, TracebackType
from typing import Any, Final

from penstock.runtime.error_text import cause_text, error_text, fit_text, traceback_text
from penstock.runtime.errors import (
    OperatorError,
    OperatorInterrupt,
    OperatorLocation,
    PenstockError,
    UserLocation,
)
from penstock.runtime.user_location import file_of


@dataclass(frozen=True, slots=True)
class CurrentRecord:
    value: Any


class RecordCursor:
    """Iterates over a batch's rows, and finds the current record when a function fails.

    Example:
        >>> cursor = RecordCursor()
        >>> try:
        ...     [1 // row for row in cursor.over([1, 0, 2])]
        ... except ZeroDivisionError:
        ...     cursor.current
        CurrentRecord(value=0)
    """

    __slots__ = ("_iterator", "_rows")

    def __init__(self) -> None:
        self._rows: Sequence[Any] = ()
        self._iterator: Iterator[Any] = iter(())

    def over(self, rows: Sequence[Any]) -> Iterator[Any]:
        if not isinstance(rows, list | tuple):
            rows = list(rows)
        self._rows = rows
        self._iterator = iterator = iter(rows)
        return iterator

    def done(self) -> None:
        self._rows = ()
        self._iterator = iter(())

    @property
    def index(self) -> int:
        """Position of the record that was returned last; -1 outside a loop."""
        return len(self._rows) - length_hint(self._iterator) - 1

    @property
    def current(self) -> CurrentRecord | None:
        """The record that was returned last; `None` outside a loop."""
        index = self.index
        return None if index < 0 else CurrentRecord(self._rows[index])


#: Maximum length of a record in a message, in characters.
RECORD_LIMIT: Final = 200

_LIBRARY: Final = traceback.__file__.replace("\\", "/").rpartition("/")[0] + "/"

_REPR: Final = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = RECORD_LIMIT

_REPR.maxdict = _REPR.maxlist = _REPR.maxtuple = _REPR.maxset = _REPR.maxfrozenset = 20

#: Errors that already name their operator, so they are not wrapped again.
OPERATOR_ERRORS: Final = (OperatorError, OperatorInterrupt)


def operator_error(
    location: OperatorLocation, doing: str, error: BaseException, record: CurrentRecord | None = None
) -> OperatorError:
    """The error that the job reports for `error`; an error that names its operator is returned unchanged."""
    if isinstance(error, OperatorInterrupt):
        return error.error
    if isinstance(error, OperatorError):
        return error
    what = f"{doing} failed: {_describe(error)}"
    line = failing_line(error.__traceback__)
    if line is not None:
        what += f", at {line}"
    if record is not None:
        what += f", on record {short_repr(record.value)}"
    return OperatorError(location, what, _traceback_text(error), line)


def error_at(
    location: OperatorLocation, doing: str, error: BaseException, record: CurrentRecord | None = None
) -> OperatorError | OperatorInterrupt:
    """The error that an operator raises for `error`: `operator_error`, or an `OperatorInterrupt` for Ctrl-C.

    The interrupt ends a program that runs operators in its main thread, such as a test with the harness.
    """
    failure = operator_error(location, doing, error, record)
    return OperatorInterrupt(failure) if isinstance(error, KeyboardInterrupt) else failure


def short_repr(value: Any) -> str:
    """A value for a message, in at most 200 characters.

    Example:
        >>> len(short_repr("x" * 1_000_000))
        200
        >>> short_repr({"id": 1})
        "{'id': 1}"
    """
    try:
        text = _REPR.repr(value)
    except BaseException as error:
        # Only the text is lost: the failure itself is being reported.
        text = f"<{type(value).__name__} whose repr raised {type(error).__name__}>"
    if len(text) > RECORD_LIMIT:
        text = text[: RECORD_LIMIT - 3] + "..."
    fit = fit_text(text, 4 * RECORD_LIMIT)
    return fit if len(fit) <= RECORD_LIMIT else fit[: RECORD_LIMIT - 3] + "..."


def no_dict(wanted: str, record: Any, advice: str) -> str:
    """Error text for a record that can't become a row of columns."""
    what = f"{short_repr(record)} of type {type(record).__name__}"
    return f"{wanted} needs Arrow batches or rows that are dicts, but got {what}; {advice}"


def failing_line(trace: TracebackType | None) -> UserLocation | None:
    """The user's line of a traceback; `None` if it has only frames of Penstock."""
    found: UserLocation | None = None
    for frame, line in traceback.walk_tb(trace):
        module = str(frame.f_globals.get("__name__", ""))
        if module == "penstock" or module.startswith("penstock."):
            continue
        if found is not None and _is_library(frame):
            continue
        found = UserLocation(file_of(frame.f_code, frame.f_globals), line, frame.f_code.co_name)
    return found


def running_line(frame: FrameType | None) -> UserLocation | None:
    """The user's line that a thread executes, given its innermost frame; `None` if it runs no user code."""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module != "penstock" and not module.startswith("penstock.") and not _is_library(frame):
            return UserLocation(file_of(frame.f_code, frame.f_globals), frame.f_lineno, frame.f_code.co_name)
        frame = frame.f_back
    return None


def _describe(error: BaseException) -> str:
    if isinstance(error, SystemExit):
        what = f"it called sys.exit({short_repr(error.code)})"
        return f"{what}, which does not end the job; raise an exception instead"
    if isinstance(error, KeyboardInterrupt | GeneratorExit):
        return f"{error_text(error)}, which does not end the job; raise another exception instead"
    return cause_text(error)


def _is_library(frame: FrameType) -> bool:
    """Return whether code belongs to an installed package, or to Python's own library."""
    paths = (frame.f_code.co_filename, str(frame.f_globals.get("__file__", "")))
    return any(
        path.startswith((_LIBRARY, "<frozen")) or "/site-packages/" in path
        for path in (path.replace("\\", "/") for path in paths)
    )


def _traceback_text(error: BaseException) -> str:
    """The traceback from the user's first frame on; empty for a check of Penstock, whose message says all."""
    trace = error.__traceback__
    while trace is not None and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("penstock."):
        trace = trace.tb_next
    if trace is None and isinstance(error, PenstockError) and error.__cause__ is None:
        return ""
    return traceback_text(error, trace)


def close_all(*closers: Callable[[], None]) -> None:
    """Call all closers in order, even if some of them raise.

    Raises:
        BaseException: The first failure, or an `OperatorInterrupt` if there is one, with the others as notes.

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
    """Close a resource after a possible failure; return an error of `close` instead of raising it.

    An earlier failure is returned, with the error of `close` as a note. An `OperatorInterrupt` is returned
    instead of any other failure.
    """
    try:
        close()
    except BaseException as error:  # a SystemExit would end the task's thread silently
        if isinstance(error, OperatorInterrupt) and failure is not None:
            failure, error = error, failure  # Ctrl-C must end a program
        if failure is None:
            return error
        failure.add_note(f"Also while closing: {cause_text(error)}")
    return failure


def failure_details(error: OperatorError) -> str:
    """The user's traceback, and the errors that closing raised.

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
