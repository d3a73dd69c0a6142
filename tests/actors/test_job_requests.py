"""What users ask of a job, at moments that are hard to meet on a cluster."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

from penstock.actors.job_requests import JobRequests
from penstock.actors.savepoint_answers import SavepointAnswer, SavepointRefused, SavepointTaken
from penstock.runtime import JobStatus
from penstock.runtime.checkpoint.coordinator_requests import (
    CheckpointAnswer,
    CheckpointCompleted,
    CheckpointFailed,
)
from penstock.runtime.checkpoint.failure_reason import CheckpointFailureReason
from penstock.runtime.job.job_state import JobState

REFUSED = CheckpointFailed(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, "too late")


def stopped(state: JobState, savepoint: str | None) -> SavepointAnswer:
    """The answer to a stop that the scheduler refuses, while the job's last report is still being written."""

    async def scenario() -> SavepointAnswer:
        ended = asyncio.Event()

        def refuse(request: object, on_answer: Any) -> None:
            on_answer(REFUSED)
            asyncio.get_running_loop().call_soon(ended.set)

        scheduler = SimpleNamespace(state=state, stop_with_savepoint=refuse)
        report = SimpleNamespace(savepoint=savepoint, status=JobStatus.FINISHED, failure=None)
        with ThreadPoolExecutor(1) as pool:
            requests = JobRequests(
                cast("Any", scheduler), "/jobs", lambda call: call(), pool, ended, lambda: cast("Any", report)
            )
            return await asyncio.wait_for(requests.stop(drain=False, target=None), 30)

    return asyncio.run(scenario())


def test_a_stop_that_has_been_done_already_is_answered_with_its_savepoint() -> None:
    assert stopped(JobState.FINISHED, "/jobs/j/savepoint-1-1") == SavepointTaken("/jobs/j/savepoint-1-1")


def test_a_stop_of_a_job_that_ended_by_itself_says_so() -> None:
    assert stopped(JobState.FINISHED, None) == SavepointRefused("the job has ended: finished")


def test_a_stop_that_a_running_job_refuses_is_refused() -> None:
    answer = stopped(JobState.RUNNING, None)
    assert isinstance(answer, SavepointRefused)
    assert answer.why.startswith("too late")


def asked_for_a_checkpoint(answer: CheckpointAnswer, *, ended: bool = False) -> str | None:
    """What comes back when the coordinator gives this answer, after the job has come up."""

    async def scenario() -> str | None:
        end = asyncio.Event()
        if ended:
            end.set()
        scheduler = SimpleNamespace(
            state=JobState.RESTARTING, trigger_checkpoint=lambda on_answer: on_answer(answer)
        )
        asyncio.get_running_loop().call_soon(setattr, scheduler, "state", JobState.RUNNING)
        report = SimpleNamespace(status=JobStatus.FINISHED)
        with ThreadPoolExecutor(1) as pool:
            requests = JobRequests(
                cast("Any", scheduler), "/jobs", lambda call: call(), pool, end, lambda: cast("Any", report)
            )
            return await asyncio.wait_for(requests.checkpoint(), 30)

    return asyncio.run(scenario())


def test_a_checkpoint_that_is_asked_for_is_answered_with_nothing_or_with_why_there_is_none() -> None:
    assert asked_for_a_checkpoint(CheckpointCompleted(cast("Any", None))) is None
    assert asked_for_a_checkpoint(REFUSED) == "too late (not_all_required_tasks_running)"
    assert asked_for_a_checkpoint(REFUSED, ended=True) == "the job has ended: finished"
