"""The card of a job in a notebook: its content, and its updates while the job runs."""

from __future__ import annotations

import re
from dataclasses import replace

from penstock import DeploymentError, JobStatus
from penstock.actors.client.progress import LiveCard, card
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.graph.executor import JobStatistics
from penstock.runtime.job.failover import FailureCause, FailureRecord
from penstock.runtime.snapshot.ids import SubtaskId

HOSTILE = "<img src=x onerror=alert(1)>"
RUNNING = JobReport(
    "words-1f2e", "words", JobStatus.RUNNING, 0.0, 5.0, JobStatistics(JobStatus.RUNNING, attempt=1)
)


def ended(report: JobReport) -> JobReport:
    return replace(report, status=JobStatus.FINISHED)


def test_a_card_says_what_the_live_line_says_and_links_to_the_page() -> None:
    shown = card(RUNNING, "words: running | in 5 (1/s)", "http://127.0.0.1:8275/#/jobs/words-1f2e")
    assert "running | in 5 (1/s)" in shown
    assert 'href="http://127.0.0.1:8275/#/jobs/words-1f2e"' in shown
    assert "href" not in card(RUNNING, "words: running")


def test_what_users_wrote_is_escaped() -> None:
    failure = FailureRecord(1, 2.0, FailureCause(HOSTILE))
    report = replace(RUNNING, name=HOSTILE, failure=failure)
    assert "<img" not in card(report, f"{HOSTILE}: failed")
    assert not re.search("<script|onload=", card(report, f"{HOSTILE}: failed"))


def test_a_card_has_the_whole_message_of_a_failure() -> None:
    failure = FailureRecord(1, 2.0, FailureCause("its process died:\nOut of memory", SubtaskId("parse", 0)))
    assert "parse[0]: its process died:<br>Out of memory" in card(replace(RUNNING, failure=failure), "line")


def test_a_card_is_drawn_until_the_job_has_ended() -> None:
    reports = [RUNNING, RUNNING, ended(RUNNING)]
    drawn: list[str] = []
    live = LiveCard(lambda: reports.pop(0), lambda page, line: drawn.append(line), lambda: None)
    live.draw()
    live.follow().join(60)
    assert reports == []
    assert len(drawn) == 3
    assert "finished" in drawn[-1]


def test_a_card_stays_as_it_is_when_the_cluster_has_gone() -> None:
    def gone() -> JobReport:
        raise DeploymentError("no cluster")

    drawn: list[str] = []
    thread = LiveCard(gone, lambda page, line: drawn.append(line), lambda: None).follow()
    thread.join(60)
    assert not thread.is_alive()
    assert drawn == []
