"""The end of a call and its failure: its kind, its operator and the user's lines."""

from __future__ import annotations

import pytest

from penstock.runtime.errors import (
    ConfigurationError,
    ConnectorError,
    CorruptSnapshotError,
    OperatorError,
    OperatorLocation,
    RestoreError,
    SuppressRestartsError,
    UserLocation,
)
from penstock.runtime.execution.failure_causes import cause_of, cause_of_end, describe_failure
from penstock.runtime.execution.processes import Away, CallFailure, Died, Place, SubtaskOutcome
from penstock.runtime.job.failover import FailureCause, FailureKind
from penstock.runtime.operators.user_code.failure import operator_error
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.plain_values import from_plain, to_plain

COUNT = SubtaskId("count", 0)
BUILT = UserLocation("job.py", 12, "main program")


def broken() -> None:
    raise ValueError("not a number")


def operator_failure() -> OperatorError:
    try:
        broken()
    except ValueError as error:
        return operator_error(OperatorLocation("parse", 0, 1, BUILT), "map function broken", error)
    raise AssertionError


@pytest.mark.parametrize(
    ("outcome", "kind"),
    [
        (Died("killed"), FailureKind.PROCESS),
        (Away(), FailureKind.PROCESS),
        (describe_failure(CorruptSnapshotError("damaged")), FailureKind.STATE),
        (describe_failure(RuntimeError("odd")), FailureKind.OTHER),
        (describe_failure(operator_failure()), FailureKind.OPERATOR),
    ],
)
def test_a_failure_has_a_kind(outcome: SubtaskOutcome | CallFailure, kind: FailureKind) -> None:
    cause = cause_of_end(COUNT, Place(7, "node"), outcome, was_stopped=False)
    assert cause is not None
    assert cause.kind is kind


@pytest.mark.parametrize(("kind", "recoverable"), [(ConnectorError, True), (SuppressRestartsError, False)])
def test_an_operator_in_the_job_master_may_suppress_restarts_as_in_a_subtask(
    kind: type[Exception], recoverable: bool
) -> None:
    error = OperatorError(OperatorLocation("out"), "refused")
    error.__cause__ = kind("refused")
    assert cause_of(error).recoverable is recoverable
    assert describe_failure(error).recoverable is recoverable


@pytest.mark.parametrize(
    ("kind", "has_traceback"),
    [(ValueError, True), (CorruptSnapshotError, True), (RestoreError, False), (ConfigurationError, False)],
)
def test_what_does_not_fit_has_no_traceback(kind: type[Exception], has_traceback: bool) -> None:
    assert (cause_of(kind("refused")).traceback != "") is has_traceback


def lines_of(cause: FailureCause) -> tuple[object, ...]:
    raised = cause.raised_at
    assert raised is not None
    return cause.kind, cause.operator, cause.defined_at, raised.file.rpartition("/")[2], raised.function


def test_the_failure_of_an_operator_has_the_line_that_built_it_and_the_one_that_raised() -> None:
    expected = FailureKind.OPERATOR, "parse", BUILT, "test_run_end.py", "broken"
    reported = cause_of_end(COUNT, Place(7, "node"), describe_failure(operator_failure()), was_stopped=False)
    assert reported is not None
    assert lines_of(reported) == expected
    assert lines_of(cause_of(operator_failure())) == expected
    assert from_plain(FailureCause, to_plain(reported)) == reported


def test_an_outage_that_a_connector_reports_has_no_line_of_the_user() -> None:
    """So it never counts as a bug at one line (`FailureHistory.known`)."""
    error = operator_failure()
    assert describe_failure(error).raised_at is not None
    error.__cause__ = ConnectorError("the broker does not answer")
    assert describe_failure(error).raised_at is None
