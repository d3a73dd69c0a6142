"""The live line of a job."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from penstock import JobStatus
from penstock.actors.client.progress import (
    PLAIN_INTERVAL,
    FailureNotices,
    PlainDisplay,
    Progress,
    ProgressText,
    TerminalDisplay,
    find_display,
)
from penstock.actors.shared.job_report import NO_CHECKPOINTS, JobReport
from penstock.runtime.errors import UserLocation
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.graph.graph_info import GraphInfo, OperatorInfo, VertexInfo
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.operators.metrics import OperatorStatistics
from penstock.runtime.snapshot.checkpoint_record import CoordinatorStatistics
from penstock.runtime.snapshot.ids import SubtaskId


def report(
    read: int = 0,
    written: int = 0,
    *,
    status: JobStatus = JobStatus.RUNNING,
    attempt: int = 1,
    checkpoint: int | None = None,
    duration: float = 10.0,
    storage: str | None = "/checkpoints",
) -> JobReport:
    operators = {
        "in": OperatorStatistics(0, read),
        "count": OperatorStatistics(77, 77),
        "out": OperatorStatistics(written),
    }
    statistics = JobStatistics(status, attempt, attempt - 1, 0, 0, checkpoint, operators)
    return JobReport(
        "words-1",
        "words",
        status,
        1_000.0,
        duration,
        statistics,
        storage=storage,
        graph=GraphInfo(
            "words",
            (
                VertexInfo("in", 1, 128, (OperatorInfo("in", "source", "in", 1, is_source=True),)),
                VertexInfo("count", 1, 128, (OperatorInfo("count", "reduce", "count", 1),)),
                VertexInfo("out", 1, 128, (OperatorInfo("out", "sink", "out", 1, is_sink=True),)),
            ),
        ),
        checkpoints=CoordinatorStatistics(latest_completed_id=checkpoint or -1, latest_completed_at=1_007.0),
    )


def test_the_line_shows_what_sources_read_and_sinks_took() -> None:
    line = ProgressText().line(report(12_345, 678, checkpoint=4), 0.0)
    assert line == (
        "words: running | in 12,345 (-/s) | out 678 (-/s) | checkpoint 4 (3 s ago) | restarts 0 | 10 s"
    )


def failed(*messages: str, status: JobStatus = JobStatus.RUNNING) -> JobReport:
    failures = [
        FailureRecord(number, 1_000.0 + number, FailureCause(message, SubtaskId("parse", 1)))
        for number, message in enumerate(messages, 1)
    ]
    return replace(report(status=status), failures=tuple(failures))


def test_a_waiting_call_tells_each_cause_of_a_restart_once_and_then_counts_it() -> None:
    told: list[str] = []
    notices = FailureNotices(told.append)
    notices.update(failed("operator 'parse' failed: no number\n  more lines"))
    notices.update(failed("operator 'parse' failed: no number\n  more lines"))
    assert told == ["job words-1 restarts: operator 'parse' failed: no number\n  more lines"]
    notices.update(failed(*["operator 'parse' failed: no number\n  more lines"] * 5, "the node died"))
    assert told[1:] == [
        "job words-1 has restarted 2 times for the same reason: operator 'parse' failed: no number",
        "job words-1 has restarted 4 times for the same reason: operator 'parse' failed: no number",
        "job words-1 restarts: parse[1]: the node died",
    ]


def test_failures_at_one_line_of_the_program_are_one_cause_whatever_the_record() -> None:
    told: list[str] = []
    line = UserLocation("job.py", 7, "parse")
    causes = [FailureCause(f"failed on record {n}", operator="parse", raised_at=line) for n in range(2)]
    failures = tuple(FailureRecord(n, 1_000.0, cause) for n, cause in enumerate(causes))
    FailureNotices(told.append).update(replace(report(), failures=failures))
    assert told == [
        "job words-1 restarts: failed on record 0",
        "job words-1 has restarted 2 times for the same reason: failed on record 1",
    ]


def test_the_failure_that_ends_a_job_is_left_to_the_error() -> None:
    told: list[str] = []
    FailureNotices(told.append).update(failed("no number", status=JobStatus.FAILED))
    assert told == []
    FailureNotices(told.append).update(failed("x" * 5_000))
    assert len(told[0]) < 2_300


def test_a_waiting_call_tells_each_warning_once_also_of_a_job_that_has_ended() -> None:
    told: list[str] = []
    notices = FailureNotices(told.append)
    for status in (JobStatus.RUNNING, JobStatus.FINISHED):
        notices.update(replace(report(status=status), warnings=(NO_CHECKPOINTS, "operator 'in': 1970")))
    assert told == ["job words-1: operator 'in': 1970"]


def test_rates_are_those_of_the_last_seconds() -> None:
    text = ProgressText()
    for second in range(20):
        text.line(report(100 * second, 10 * second), float(second))
    line = text.line(report(100 * 19 + 5_000, 190), 20.0)
    # Five seconds earlier the counts were 1,500 and 150; since then 5,400 were read and 40 written.
    assert "in 6,900 (1,080/s)" in line
    assert "out 190 (8/s)" in line


def test_a_rate_restarts_with_an_attempt() -> None:
    text = ProgressText()
    text.line(report(1_000), 0.0)
    text.line(report(2_000), 1.0)
    restarted = text.line(report(10, attempt=2, status=JobStatus.RESTARTING), 2.0)
    assert "words: restarting | in 10 (-/s)" in restarted
    assert "restarts 1" in restarted
    assert "in 30 (20/s)" in text.line(report(30, attempt=2), 3.0)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (report(), "no checkpoint yet"),
        (report(storage=None), "no checkpoints"),
        (report(checkpoint=3, duration=7.0 + 125), "checkpoint 3 (2 min 05 s ago)"),
        (report(checkpoint=3, status=JobStatus.FINISHED), "| checkpoint 3 |"),
        (report(duration=3 * 3600 + 240), "3 h 04 min"),
    ],
)
def test_the_line_shows_checkpoints_and_times(given: JobReport, expected: str) -> None:
    assert expected in ProgressText().line(given, 0.0)


def test_plain_lines_come_every_two_seconds() -> None:
    now = 0.0
    lines: list[str] = []
    display = PlainDisplay(lines.append, lambda: now)
    for tick in range(100):
        now = tick * 0.1
        display.show(f"{tick}", JobStatus.RUNNING)
    assert len(lines) == 100 * 0.1 / PLAIN_INTERVAL
    assert lines[:2] == ["0", "20"]


def test_a_change_of_the_state_is_printed_at_once() -> None:
    lines: list[str] = []
    display = PlainDisplay(lines.append, lambda: 0.0)
    for status in (JobStatus.DEPLOYING, JobStatus.RUNNING, JobStatus.RUNNING, JobStatus.FINISHED):
        display.show(status.value, status)
    assert lines == ["deploying", "running", "finished"]


def test_without_a_terminal_plain_lines_go_to_stderr(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Progress(find_display()) as progress:
        progress.update(report(5))
        print("the program's own")
    captured = capsys.readouterr()
    assert captured.out == "the program's own\n"
    assert captured.err.startswith("words: running | in 5 ")


def test_a_terminal_redraws_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    display = TerminalDisplay(Console(file=screen, force_terminal=True, width=120))
    for read in (1, 2, 3):
        display.show(ProgressText().line(report(read), 0.0), JobStatus.RUNNING)
    display.close()
    assert "in 3 " in screen.getvalue().rpartition("\x1b[2K")[2], "the last line stays"
    assert screen.getvalue().count("\x1b[2K") >= 2, "earlier lines are wiped"
    assert screen.getvalue().count("\n") == 1


def test_a_narrow_terminal_breaks_the_line_and_cuts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    display = TerminalDisplay(Console(file=screen, force_terminal=True, width=30, color_system=None))
    line = ProgressText().line(report(1), 0.0)
    display.show(line, JobStatus.RUNNING)
    display.close()
    shown = screen.getvalue().rpartition("\x1b[2K")[2].replace("\x1b[?25h", "")
    assert " ".join(shown.split()) == line


def test_a_program_that_prints_into_a_pipe_keeps_its_own_output(monkeypatch: pytest.MonkeyPatch) -> None:
    piped = io.StringIO()
    monkeypatch.setattr(sys, "stdout", piped)
    display = TerminalDisplay(Console(file=io.StringIO(), force_terminal=True))
    print("mine")
    display.show("line", JobStatus.RUNNING)
    display.close()
    assert piped.getvalue() == "mine\n"


def test_prints_on_a_terminal_stand_above_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdout", screen)
    display = TerminalDisplay(Console(file=screen, force_terminal=True, width=80))
    display.show("the line", JobStatus.RUNNING)
    print("mine")
    display.close()
    assert screen.getvalue().index("mine") < screen.getvalue().rindex("the line")
    assert sys.stdout is screen, "given back"


def test_a_report_read_from_json_gives_a_line_too() -> None:
    ended = JobReport.from_dict(report(9, 8, status=JobStatus.FAILED).to_dict())
    assert ProgressText().line(replace(ended), 0.0).startswith("words: failed | in 9 ")
