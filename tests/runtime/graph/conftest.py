"""Parts that graph tests share: a sink and an executor that are real objects and do next to nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.executor import JobResult, JobStatistics, JobStatus
from penstock.runtime.graph.job_graph import JobGraph
from penstock.runtime.io.connectors.collect_sink import DiscardSink


class FinishedJob:
    """A handle of a job that finished at once."""

    def __init__(self, job: JobGraph) -> None:
        self.job_id = "job-1"
        self.name = job.name
        self.waited_for: Any = "nothing"
        self.shows_progress: bool | None = None

    def status(self) -> JobStatus:
        return JobStatus.FINISHED

    def wait(self, timeout: Any = None, *, progress: bool = False) -> JobResult:
        self.waited_for = timeout
        self.shows_progress = progress
        return JobResult(self.job_id, self.name, self.status(), 0.0, self.statistics())

    def cancel(self) -> None:
        pass

    def statistics(self) -> JobStatistics:
        return JobStatistics(self.status())

    def describe(self) -> str:
        return self.name


class RecordingExecutor:
    """Remembers what it was given."""

    def __init__(self) -> None:
        self.submitted: list[tuple[JobGraph, JobConfig]] = []
        self.handles: list[FinishedJob] = []

    def submit(self, job: JobGraph, config: JobConfig) -> FinishedJob:
        self.submitted.append((job, config))
        self.handles.append(FinishedJob(job))
        return self.handles[-1]


@pytest.fixture
def executor() -> RecordingExecutor:
    return RecordingExecutor()


@pytest.fixture
def discard() -> DiscardSink:
    return DiscardSink()


@pytest.fixture
def numbers() -> Sequence[int]:
    return range(10)
