from __future__ import annotations

from penstock.actors.shared.job_report import bounded, failure_text
from penstock.runtime.error_text import shortened
from penstock.runtime.errors import CorruptSnapshotError, OperatorError, OperatorLocation, StorageError
from penstock.runtime.execution.failure_causes import cause_of, describe_failure
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.snapshot.ids import SubtaskId

WHERE = "operator 'parse' (subtask 1 of 2), defined at job.py:12 in main"


def test_a_failure_begins_with_operator_subtask_and_line() -> None:
    cause = FailureCause(f"{WHERE}: ValueError: x", SubtaskId("parse", 0), "Traceback ...\nValueError: x\n")
    assert failure_text(cause) == f"{WHERE}: ValueError: x\nTraceback ...\nValueError: x"


def test_a_failure_that_names_no_operator_begins_with_its_subtask() -> None:
    assert (
        failure_text(FailureCause("its process died", SubtaskId("parse", 1))) == "parse[1]: its process died"
    )


def test_an_endless_traceback_keeps_its_beginning_and_its_end() -> None:
    trace = "Traceback\n" + "  File x\n" * 10_000 + "ValueError: the end"
    text = failure_text(bounded(FailureRecord(1, 0.0, FailureCause("message", None, trace))).root)
    assert len(text) < 8_000
    assert text.startswith("message\nTraceback")
    assert text.endswith("ValueError: the end")


def test_an_endless_message_is_shortened_too() -> None:
    record = bounded(FailureRecord(1, 0.0, FailureCause("x" * 1_000_000)))
    assert len(failure_text(record.root)) < 5_000


def test_failures_that_followed_keep_their_messages() -> None:
    followed = FailureCause("y" * 10_000, SubtaskId("parse", 1), "Traceback ...")
    [kept] = bounded(FailureRecord(1, 0.0, FailureCause("x"), (followed,))).secondary
    assert (kept.subtask, kept.traceback) == (SubtaskId("parse", 1), "")
    assert len(kept.message) < 600


def test_a_record_that_is_short_is_left_alone() -> None:
    record = FailureRecord(1, 0.0, FailureCause("x", None, "Traceback"), (FailureCause("y"),))
    assert bounded(record) == record


def test_a_short_text_is_left_alone() -> None:
    assert shortened("x" * 100, 100) == "x" * 100


def test_an_error_while_closing_is_part_of_the_failure() -> None:
    error = OperatorError(OperatorLocation("parse", 1, 2), "ValueError: x", "Traceback ...\nValueError: x\n")
    error.add_note("Also while closing: the file can't be closed")

    reported = describe_failure(error).cause(SubtaskId("parse", 1))

    for cause in (reported, cause_of(error)):
        assert failure_text(cause).endswith("ValueError: x\nAlso while closing: the file can't be closed")


def test_damage_that_the_job_master_finds_is_known_as_damage() -> None:
    found = cause_of(CorruptSnapshotError("s3://bucket/job/shared/1-6-sum-0-0 is damaged"))
    assert (found.is_damage, found.recoverable) == (True, False)
    assert not cause_of(StorageError("no answer")).is_damage
