"""The server's view of a job whose JobMaster answers, stops answering, and answers again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from serving.acting import acting_job

from penstock.actors.shared.job_report import JobReport
from penstock.actors.web import job_watcher
from penstock.actors.web.job_watcher import SILENT, JobWatcher
from penstock.runtime.errors import DeploymentError


class Clock:
    """Monotonic seconds that the test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(job_watcher.time, "monotonic", lambda: self.now)


class Questions:
    """Answers with a report, or fails."""

    def __init__(self, report: JobReport) -> None:
        self.report = report
        self.error: Exception | None = None

    async def __call__(self, call: Callable[..., Any], **how: Any) -> JobReport:
        if self.error is not None:
            raise self.error
        return self.report


def test_a_job_master_that_does_not_answer_is_silent_and_its_last_report_grows_old(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, job = Clock(monkeypatch), acting_job()
    questions, error = Questions(job.current), DeploymentError("no JobMaster answers")
    watcher = JobWatcher(job, questions)  # type: ignore[arg-type]

    async def scenario() -> None:
        await watcher._ask()
        assert (watcher.report, watcher.error, watcher.version) == (job.current, None, 1)
        assert (watcher.age, watcher.is_answering) == (0.0, True)

        questions.error = error
        clock.now += 1.0
        await watcher._ask()
        clock.now += SILENT
        assert (watcher.report, watcher.error, watcher.version) == (job.current, error, 1)
        assert (watcher.age, watcher.is_answering) == (1.0 + SILENT, False)
        assert watcher.status()["age"] == 1.0 + SILENT

        questions.error = None
        await watcher._ask()
        assert (watcher.error, watcher.version) == (None, 2)
        assert (watcher.age, watcher.is_answering) == (0.0, True)

    asyncio.run(scenario())


def test_who_wants_a_report_of_a_job_that_was_never_reached_is_told_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = acting_job()
    questions = Questions(job.current)
    questions.error = DeploymentError("no JobMaster answers")
    watcher = JobWatcher(job, questions)  # type: ignore[arg-type]

    async def scenario() -> None:
        with pytest.raises(DeploymentError, match="no JobMaster answers"):
            await watcher.fresh()
        await watcher.end()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_page_waits_for_the_next_report_while_every_poll_fails() -> None:
    job = acting_job()
    questions = Questions(job.current)
    questions.error = DeploymentError("no JobMaster answers")
    watcher = JobWatcher(job, questions)  # type: ignore[arg-type]

    async def scenario() -> None:
        with pytest.raises(DeploymentError):
            await watcher.fresh()
        page = asyncio.ensure_future(watcher.wait_for_change(watcher.version, 60.0))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not page.done()

        questions.error = None
        assert await watcher.fresh() is job.current
        assert await page
        await watcher.end()

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_the_figures_of_each_vertex_are_kept_with_the_samples_of_the_job() -> None:
    job = acting_job()
    watcher = JobWatcher(job, Questions(job.current))  # type: ignore[arg-type]

    async def scenario() -> None:
        await watcher.fresh()
        await watcher.end()

    asyncio.run(asyncio.wait_for(scenario(), 20))
    ((kept,), (of_job,)) = watcher.vertex_samples.all(), watcher.samples.all()
    for vertex in job.current.vertices:
        sample = kept.of(vertex.id)
        assert sample is not None
        assert (sample.at, sample.records_in, sample.busy) == (of_job.at, vertex.records_in, vertex.busy)
        assert (sample.lag is None) == (vertex.watermark is None)
    assert kept.of("gone") is None
