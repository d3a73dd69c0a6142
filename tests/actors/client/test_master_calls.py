"""Answers to a request whose JobMaster died before the job ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import ray
from serving.acting import JOB
from serving.reports import report_of

from penstock.actors.client import master_calls
from penstock.actors.client.job_handle import RayJobHandle
from penstock.runtime.errors import CheckpointError, RequestLostError, RescaleError, SavepointError
from penstock.runtime.graph.executor import JobStatus


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Callable[[Exception], RayJobHandle]:
    """A handle whose JobMaster fails with this error; the cluster has the report of a finished job."""
    ended = report_of(JOB, "words", tmp_path, JobStatus.FINISHED)

    def make(error: Exception) -> RayJobHandle:
        def dying(job_id: str) -> Any:
            raise error

        monkeypatch.setattr(master_calls, "load_from_cluster", lambda job_id: ended)
        monkeypatch.setattr(master_calls, "find_master", dying)
        return RayJobHandle(JOB, "words")

    return make


REQUESTS: dict[str, Callable[[RayJobHandle], Any]] = {
    "a checkpoint": lambda job: job.checkpoint(),
    "a savepoint in /saved": lambda job: job.savepoint("/saved"),
    "a rescale to {'count': 2}": lambda job: job.rescale(count=2),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_request_that_died_with_its_jobmaster_is_said_to_be_lost(
    handle: Callable[[Exception], RayJobHandle], what: str
) -> None:
    job = handle(ray.exceptions.RayActorError())
    with pytest.raises(RequestLostError) as raised:
        REQUESTS[what](job)
    assert str(raised.value).startswith(f"{what} of job {JOB}: the JobMaster died meanwhile, and the job has")


@pytest.mark.parametrize("what", REQUESTS)
def test_a_request_of_a_job_that_had_ended_is_refused(
    handle: Callable[[Exception], RayJobHandle], what: str
) -> None:
    job = handle(ValueError("there is no JobMaster"))
    with pytest.raises((CheckpointError, SavepointError, RescaleError), match="the job has ended: finished"):
        REQUESTS[what](job)


def test_a_stop_is_never_lost_because_the_end_of_the_job_says_what_became_of_it(
    handle: Callable[[Exception], RayJobHandle],
) -> None:
    with pytest.raises(SavepointError, match="the job has ended: finished"):
        handle(ray.exceptions.RayActorError()).stop()


def test_a_wait_for_the_end_is_as_long_as_the_caller_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    reports = [report_of(JOB, "words", tmp_path, JobStatus.RUNNING)] * 3
    reports.append(report_of(JOB, "words", tmp_path, JobStatus.FINISHED))
    monkeypatch.setattr(master_calls.MasterCalls, "quick", lambda *_, **__: reports.pop(0))
    assert RayJobHandle(JOB, "words").ends_within(600)


def test_a_wait_for_the_end_gives_up_at_its_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    running = report_of(JOB, "words", tmp_path, JobStatus.RUNNING)
    monkeypatch.setattr(master_calls.MasterCalls, "quick", lambda *_, **__: running)
    assert not RayJobHandle(JOB, "words").ends_within(0)
