"""The result of a job as text, and as HTML in a notebook."""

from __future__ import annotations

from penstock import JobResult, JobStatus
from penstock.runtime.graph.executor import JobStatistics

STATISTICS = JobStatistics(JobStatus.FINISHED, 3, 2, completed_checkpoints=5)


def result(failure: str | None = None, snapshot: str | None = None, name: str = "words") -> JobResult:
    return JobResult("words-1", name, JobStatus.FINISHED, 3_725.04, STATISTICS, 1_234, 40, failure, snapshot)


def test_the_text_has_what_the_job_did_in_a_line() -> None:
    assert str(result()) == (
        "words finished in 3,725.0 s: 1,234 records in, 40 records out, 5 checkpoints, 2 restarts"
    )


def test_one_of_something_is_in_the_singular() -> None:
    one = JobStatistics(JobStatus.FINISHED, 1, 1, completed_checkpoints=1)
    assert str(JobResult("words-1", "words", JobStatus.FINISHED, 1.0, one, 1, 1)) == (
        "words finished in 1.0 s: 1 record in, 1 record out, 1 checkpoint, 1 restart"
    )


def test_the_text_has_the_last_failure_and_the_command_that_continues() -> None:
    _, failure, command = str(result("operator 'out' broke", "/saved files/savepoint-1")).splitlines()
    assert failure == "last failure: operator 'out' broke"
    assert command == "to continue: penstock restore '/saved files/savepoint-1' python PROGRAM"


def test_no_text_of_users_reaches_a_terminal_or_a_page_as_a_command() -> None:
    strange = result("<script>\x1b[2J", "/<b>", "<i>words\x1b[2J")
    assert "\x1b" not in str(strange)
    page = strange._repr_html_()
    assert "\x1b" not in page
    for text in ("&lt;script&gt;", "&lt;i&gt;words", "/&lt;b&gt;"):
        assert text in page
    assert not any(tag in page for tag in ("<script", "<i>"))


def test_a_notebook_shows_the_same() -> None:
    page = result("broke", "s3://bucket/words-1")._repr_html_()
    for text in (
        "<b>words</b> <code>words-1</code>",
        "finished in 3,725.0 s: 1,234 records in, 40 records out, 5 checkpoints, 2 restarts",
        "last failure: <code>broke</code>",
        "to continue: <code>penstock restore s3://bucket/words-1 python PROGRAM</code>",
    ):
        assert text in page
