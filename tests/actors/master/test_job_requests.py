"""What users ask of a job, at moments that are hard to meet on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from penstock.actors.master.job_requests import JobRequests
from penstock.actors.shared.checkpoint_answers import CheckpointRefused, CheckpointReply
from penstock.actors.shared.savepoint_answers import SavepointAnswer, SavepointRefused, SavepointTaken
from penstock.runtime import CheckpointResult, JobStatus
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointFailed,
    CheckpointSucceeded,
)
from penstock.runtime.job.job_state import JobState
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.failure_reason import CheckpointFailureReason
from penstock.runtime.snapshot.handles import FileHandle

REFUSED = CheckpointFailed(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, "too late")
SAVED = CompletedCheckpoint(1, 1, SnapshotKind.SYNC_SAVEPOINT, {}, 0.0, 0.0)


def stopped(state: JobState, savepoint: str | None) -> SavepointAnswer:
    """The answer to a stop that the scheduler refuses, while the job's last report is still being written."""

    async def scenario() -> SavepointAnswer:
        ended = asyncio.Event()

        def refuse(request: object, on_answer: Any) -> None:
            on_answer(REFUSED)
            asyncio.get_running_loop().call_soon(ended.set)

        scheduler = SimpleNamespace(state=state, stop_with_savepoint=refuse)
        report = SimpleNamespace(savepoint=savepoint, drained=False, status=JobStatus.FINISHED, failure=None)
        requests = JobRequests(
            cast("Any", scheduler), "/jobs", lambda call: call(), ended, lambda: cast("Any", report)
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


def test_a_checkpoint_that_nobody_answers_is_answered_by_the_end_of_its_job() -> None:
    async def scenario() -> CheckpointReply:
        ended = asyncio.Event()

        def say_nothing(on_answer: Any, full: bool) -> None:
            asyncio.get_running_loop().call_soon(ended.set)

        scheduler = SimpleNamespace(state=JobState.RUNNING, trigger_checkpoint=say_nothing)
        report = SimpleNamespace(savepoint=None, drained=False, status=JobStatus.FINISHED, failure=None)
        requests = JobRequests(
            cast("Any", scheduler), "/jobs", lambda call: call(), ended, lambda: cast("Any", report)
        )
        return await asyncio.wait_for(requests.checkpoint(full=False), 30)

    assert asyncio.run(scenario()) == CheckpointRefused("the job has ended: finished")


class StoppingJob:
    """A job whose stops are answered when the test says so; used inside an event loop."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.asked: asyncio.Queue[Any] = asyncio.Queue()
        self.scheduler = SimpleNamespace(state=JobState.RUNNING, stop_with_savepoint=self._stop)
        self.report = SimpleNamespace(
            savepoint="/jobs/j/savepoint-1-1", drained=False, status=JobStatus.FINISHED, failure=None
        )
        self.requests = JobRequests(
            cast("Any", self.scheduler),
            "/jobs",
            lambda call: call(),
            self.ended,
            lambda: cast("Any", self.report),
        )

    def _stop(self, request: object, on_answer: Any) -> None:
        self.scheduler.state = JobState.STOPPING
        self.asked.put_nowait(on_answer)

    def stop(self, **request: Any) -> asyncio.Task[SavepointAnswer]:
        return asyncio.create_task(self.requests.stop(**{"drain": False, "target": None, **request}))

    async def both(self) -> tuple[asyncio.Task[SavepointAnswer], asyncio.Task[SavepointAnswer], Any]:
        """Two stops, the second while the first runs, and how to answer the scheduler's one request."""
        first = self.stop()
        on_answer = await self.asked.get()
        second = self.stop()
        await asyncio.sleep(0)  # the second one's first step
        return first, second, on_answer


def in_a_loop(scenario: Callable[[StoppingJob], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        await asyncio.wait_for(scenario(StoppingJob()), 30)

    asyncio.run(run())


def test_a_second_stop_is_refused_when_the_first_is_refused() -> None:
    async def scenario(job: StoppingJob) -> None:
        first, second, on_answer = await job.both()
        job.scheduler.state = JobState.RUNNING
        on_answer(REFUSED)
        assert isinstance(await first, SavepointRefused)
        assert await second == await first
        again = job.stop()  # nothing is left of the first one
        (await job.asked.get())(CheckpointSucceeded(SAVED))
        job.ended.set()
        assert isinstance(await again, SavepointTaken)

    in_a_loop(scenario)


def test_a_second_stop_waits_for_the_same_end() -> None:
    async def scenario(job: StoppingJob) -> None:
        first, second, on_answer = await job.both()
        on_answer(CheckpointSucceeded(SAVED))
        job.ended.set()
        assert await first == await second == SavepointTaken("/jobs/j/savepoint-1-1")
        assert job.asked.empty()

    in_a_loop(scenario)


def test_a_second_stop_with_another_target_or_drain_is_refused(tmp_path: Path) -> None:
    place = str(tmp_path / "saved")

    async def scenario(job: StoppingJob) -> None:
        first = job.stop(target=place)
        on_answer = await job.asked.get()
        for other in ({"target": place, "drain": True}, {"target": str(tmp_path)}, {}):
            answer = await job.stop(**other)
            assert isinstance(answer, SavepointRefused)
            assert f"already, without drain, with a savepoint in {place}: ask for the same" in answer.why
        on_answer(CheckpointSucceeded(SAVED))
        job.ended.set()
        assert isinstance(await first, SavepointTaken)

    in_a_loop(scenario)


def test_a_stop_that_an_earlier_job_master_began_is_waited_for() -> None:
    async def scenario(job: StoppingJob) -> None:
        job.scheduler.state = JobState.STOPPING
        waiting, other = job.stop(), job.stop(drain=True)
        await asyncio.sleep(0)
        job.ended.set()
        assert isinstance(await waiting, SavepointTaken)
        refused = await other
        assert isinstance(refused, SavepointRefused)
        assert "it was stopped before, without a drain, with savepoint /jobs/j/" in refused.why
        assert job.asked.empty()

    in_a_loop(scenario)


def asked_for_a_checkpoint(answer: CheckpointAnswer, *, ended: bool = False) -> CheckpointReply:
    """What comes back when the coordinator gives this answer, after the job has come up."""

    async def scenario() -> CheckpointReply:
        end = asyncio.Event()
        if ended:
            end.set()

        def trigger(on_answer: Any, full: bool) -> None:
            assert full
            on_answer(answer)

        scheduler = SimpleNamespace(state=JobState.RESTARTING, trigger_checkpoint=trigger)
        asyncio.get_running_loop().call_soon(setattr, scheduler, "state", JobState.RUNNING)
        report = SimpleNamespace(status=JobStatus.FINISHED, failure=None)
        requests = JobRequests(
            cast("Any", scheduler), "/jobs", lambda call: call(), end, lambda: cast("Any", report)
        )
        return await asyncio.wait_for(requests.checkpoint(full=True), 30)

    return asyncio.run(scenario())


def test_a_requested_checkpoint_returns_what_it_is_or_why_there_is_none() -> None:
    metadata = FileHandle("j/chk-3-1/metadata", 9, "")
    taken = CompletedCheckpoint(3, 1, SnapshotKind.CHECKPOINT, {}, 0.0, 0.0, metadata, size=40)
    reply = asked_for_a_checkpoint(CheckpointSucceeded(taken, 0.5))
    assert reply == CheckpointResult(3, "/jobs/j/chk-3-1", 40, 0, 0.5)
    refused = CheckpointRefused("too late (not_all_required_tasks_running)")
    assert asked_for_a_checkpoint(REFUSED) == refused
    assert asked_for_a_checkpoint(REFUSED, ended=True) == CheckpointRefused("the job has ended: finished")
