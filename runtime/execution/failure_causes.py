"""Failures as values: the scheduler's view of an error or of the end of a call.

A cause also says whether a restart may help.

The JobMaster keeps one `run` call open on every subtask. The call ends when the attempt ends. If the process
dies, the call fails within milliseconds, so no heartbeat is needed to detect a death. `Heartbeats` detects a
living process that is silent, and kills it if it hangs.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.runtime.error_text import cause_text, error_text, message_of, traceback_text
from penstock.runtime.errors import (
    BadInputError,
    ConfigurationError,
    ConnectorError,
    CorruptSnapshotError,
    OperatorError,
    OperatorInterrupt,
    OperatorLocation,
    PenstockError,
    RestoreError,
    SuppressRestartsError,
)
from penstock.runtime.execution.processes import (
    Away,
    CallFailure,
    Died,
    Place,
    Raised,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskOutcome,
    SubtaskStopped,
)
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.operators.user_code.failure import failure_details
from penstock.runtime.snapshot.ids import SubtaskId


def for_first_attempt(attempt: int, cause: FailureCause, culprit: object) -> FailureCause:
    """Make the cause unrecoverable if an operator fails during the first deployment: no restart helps."""
    if attempt == 1 and isinstance(culprit, OperatorError | OperatorLocation):
        return replace(cause, recoverable=False)
    return cause


def cause_of(error: BaseException) -> FailureCause:
    """The cause of an error that no subtask has reported; damaged or mismatched state is unrecoverable.

    An error that names an operator keeps the user's traceback, without Penstock's frames. Its `__cause__`
    decides whether a restart may help. A snapshot or a setting that does not fit is no bug, and has no
    traceback.
    """
    if isinstance(error, OperatorInterrupt):
        error = error.error
    if isinstance(error, OperatorError):
        recoverable = not isinstance(error.__cause__, SuppressRestartsError | RestoreError)
        return FailureCause.of_operator(error, failure_details(error), recoverable=recoverable)
    recoverable = not isinstance(error, CorruptSnapshotError | RestoreError)
    is_damage = isinstance(error, CorruptSnapshotError)
    kind = FailureKind.STATE if is_damage else FailureKind.OTHER
    traceback = "" if isinstance(error, RestoreError | ConfigurationError) else traceback_text(error)
    return FailureCause(cause_text(error), None, traceback, recoverable, is_damage, kind)


def describe_failure(error: BaseException) -> SubtaskFailed:
    """A failure as plain data, because the exception itself may not be picklable."""
    if isinstance(error, OperatorInterrupt):
        error = error.error
    if isinstance(error, OperatorError):
        recoverable = not isinstance(error.__cause__, SuppressRestartsError | RestoreError)
        return SubtaskFailed(
            message_of(error),
            failure_details(error),
            error.location,
            recoverable,
            # Penstock raised it: the line would be that of a library, and an outage is not the user's bug.
            raised_at=None if isinstance(error.__cause__, ConnectorError) else error.raised_at,
            is_bad_input=isinstance(error.__cause__, BadInputError),
        )
    is_damage = isinstance(error, CorruptSnapshotError)
    return SubtaskFailed(
        cause_text(error), traceback_text(error), recoverable=not is_damage, is_damage=is_damage
    )


def as_failure(error: BaseException) -> Exception:
    """The error as an `Exception`: a `KeyboardInterrupt` or `SystemExit` would end the event loop."""
    if isinstance(error, OperatorInterrupt):
        return error.error
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    failure = PenstockError(
        f"{error_text(error)}, which does not end the job; raise another exception instead"
    )
    failure.__cause__ = error
    return failure


def cause_of_end(
    subtask: SubtaskId, place: Place, outcome: SubtaskOutcome | CallFailure, *, was_stopped: bool
) -> FailureCause | None:
    """The cause of the end of a `run` call; `None` if the attempt has not failed."""
    where = f"pid {place.pid} on node {place.node_id[:8]}"
    match outcome:
        case Died(detail):
            return FailureCause(f"its process died ({where}): {detail}", subtask, kind=FailureKind.PROCESS)
        case Away():
            text = f"its process can't be reached any more ({where})"
            return FailureCause(text, subtask, kind=FailureKind.PROCESS)
        case Raised(cause):
            return cause
        case SubtaskFailed():
            return outcome.cause(subtask)
        case SubtaskStopped() if not was_stopped:
            text = "it was stopped although the job is running: another attempt has taken over its process"
            return FailureCause(text, subtask)
        case SubtaskStopped() | SubtaskFinished():
            return None
