"""Which job a user means."""

from __future__ import annotations

import pytest

from penstock.actors.client.jobs import KnownJob, choose
from penstock.actors.shared.job_report import JobReport
from penstock.runtime import JobStatus
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.job_handle import JobStatistics


def known(
    job_id: str, name: str, status: JobStatus = JobStatus.FINISHED, has_master: bool = False
) -> KnownJob:
    return KnownJob(JobReport(job_id, name, status, 0.0, 1.0, JobStatistics(status)), has_master)


WORDS_1 = known("words-1a", "words")
WORDS_2 = known("words-2b", "words")
RUNNING = known("words-3c", "words", JobStatus.RUNNING, has_master=True)
OTHER = known("wordsmith-9", "wordsmith")


@pytest.mark.parametrize(
    ("text", "among", "chosen"),
    [
        ("words-2b", [WORDS_1, WORDS_2], WORDS_2),
        ("words-2", [WORDS_1, WORDS_2], WORDS_2),
        ("wordsmith", [WORDS_1, WORDS_2, OTHER], OTHER),
        ("words", [WORDS_1, OTHER], WORDS_1),
        ("words", [WORDS_1, WORDS_2, RUNNING], RUNNING),
    ],
)
def test_an_id_its_beginning_or_a_name_means_one_job(
    text: str, among: list[KnownJob], chosen: KnownJob
) -> None:
    assert choose(text, among) is chosen


def test_several_jobs_are_listed_to_choose_from() -> None:
    with pytest.raises(ConfigurationError) as caught:
        choose("words", [WORDS_1, WORDS_2, OTHER])
    assert "words-1a (finished), words-2b (finished)" in str(caught.value)
    assert "wordsmith" not in str(caught.value)


def test_several_that_run_are_not_guessed_among() -> None:
    with pytest.raises(ConfigurationError, match="2 jobs"):
        choose("words", [RUNNING, known("words-4", "words", JobStatus.RUNNING, has_master=True), WORDS_1])


@pytest.mark.parametrize("text", ["nothing", "ords-1a", ""])
def test_an_unknown_job_is_answered_with_those_that_are_known(text: str) -> None:
    with pytest.raises(
        ConfigurationError,
        match=f"knows no job '{text}'.*; known jobs: words-1a, wordsmith-9",
    ):
        choose(text, [WORDS_1, OTHER])


def test_a_job_whose_master_was_killed_for_good_is_lost() -> None:
    assert known("j", "j", JobStatus.RUNNING, has_master=False).state == "lost"
    assert known("j", "j", JobStatus.RUNNING, has_master=True).state == "running"
    assert known("j", "j", JobStatus.FAILED, has_master=False).state == "failed"
