"""The job that an id, a prefix or a name selects."""

from __future__ import annotations

import pytest

from penstock import JobStatus
from penstock.actors.client import jobs
from penstock.actors.client.executor import make_job_id
from penstock.actors.client.jobs import KnownJob, choose, short_ids
from penstock.actors.shared.job_report import JobReport
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.graph.executor import JobStatistics


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


def test_the_digits_of_an_id_name_a_job_as_a_hash_does_in_git() -> None:
    job = known("words-9f04ab12cd34ef56", "words")
    like_it = known("words-9f04ab12ce00ff11", "words")
    assert choose("9f04", [job, OTHER]) is job
    assert choose("9f04ab12cd", [job, like_it]) is job
    with pytest.raises(ConfigurationError, match=r"any of 2 jobs: words-9f04ab12cd .*, words-9f04ab12ce "):
        choose("9f04", [job, like_it])
    with pytest.raises(ConfigurationError, match="knows no job '9f0'"):
        choose("9f0", [job])


def test_short_ids_are_accepted_for_the_jobs_that_they_stand_for() -> None:
    jobs = [known(make_job_id("words"), f"words {number}") for number in range(50)]
    short = short_ids(job.report.job_id for job in jobs)
    assert [choose(short[job.report.job_id], jobs) for job in jobs] == jobs
    assert max(map(len, short.values())) < len("words-") + 16


def test_an_id_has_128_random_bits() -> None:
    ids = {make_job_id("words") for _ in range(1000)}
    assert len(ids) == 1000
    assert {len(job_id) for job_id in ids} == {len("words-") + 128 // 4}


@pytest.mark.parametrize("is_led", [True, False])
def test_a_job_that_is_asked_for_by_its_id_runs_only_with_a_master(
    is_led: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = known("words-9", "words", JobStatus.RUNNING).report
    monkeypatch.setattr(jobs.ray, "is_initialized", lambda: True)
    monkeypatch.setattr(jobs, "load_from_cluster", lambda job_id: report)
    monkeypatch.setattr(jobs, "has_master", lambda job_id: is_led)
    found = jobs._by_id("words-9", None)
    assert found is not None
    assert (found.is_running, found.is_lost) == (is_led, not is_led)
