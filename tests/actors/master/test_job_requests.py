"""Users' requests, at moments that are hard to meet on a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock import CheckpointResult, JobStatus
from penstock.actors.master import job_requests
from penstock.actors.master.job_requests import JobRequests
from penstock.actors.shared.snapshot_answers import (
    CheckpointReply,
    SavepointAnswer,
    SavepointTaken,
    SnapshotRefused,
)
from penstock.runtime.checkpoint.coordinator.requests import (
    CheckpointAnswer,
    CheckpointFailed,
    CheckpointSucceeded,
)
from penstock.runtime.job.job_state import JobState, RescaleAnswer, RescaleRefused, RescaleStarted
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CheckpointFailureReason
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import FileHandle
from penstock.runtime.testing.manual_time import ManualClock

REFUSED = CheckpointFailed(CheckpointFailureReason.NOT_ALL_REQUIRED_TASKS_RUNNING, "too late")
SAVED = CompletedCheckpoint(1, 1, SnapshotKind.SYNC_SAVEPOINT, {}, 0.0, 0.0)


def requests_to(scheduler: Any, ended: asyncio.Event, report: Any) -> JobRequests:
    """The requests of a started job; used inside an event loop."""
    prepared = asyncio.Event()
    prepared.set()
    requests = JobRequests(nullcontext, prepared, ended, lambda: cast("Any", report))
    requests.serve(scheduler, "/jobs")
    return requests


def stopped(state: JobState, savepoint: str | None) -> SavepointAnswer:
    """The answer to a stop that the scheduler refuses, while the job's last report is still being written."""

    async def scenario() -> SavepointAnswer:
        ended = asyncio.Event()

        def refuse(request: object, on_answer: Any) -> None:
            on_answer(REFUSED)
            asyncio.get_running_loop().call_soon(ended.set)

        scheduler = SimpleNamespace(state=state, stop_with_savepoint=refuse)
        report = SimpleNamespace(savepoint=savepoint, drained=False, status=JobStatus.FINISHED, failure=None)
        requests = requests_to(scheduler, ended, report)
        return await asyncio.wait_for(requests.stop(drain=False, target=None), 30)

    return asyncio.run(scenario())


def test_a_stop_that_has_been_done_already_is_answered_with_its_savepoint() -> None:
    assert stopped(JobState.FINISHED, "/jobs/j/savepoint-1-1") == SavepointTaken("/jobs/j/savepoint-1-1")


def test_a_stop_of_a_job_that_ended_by_itself_says_so() -> None:
    assert stopped(JobState.FINISHED, None) == SnapshotRefused("the job has ended: finished")


def test_a_stop_that_a_running_job_refuses_is_refused() -> None:
    answer = stopped(JobState.RUNNING, None)
    assert isinstance(answer, SnapshotRefused)
    assert answer.why.startswith("too late")


def test_a_checkpoint_that_nobody_answers_is_answered_by_the_end_of_its_job() -> None:
    async def scenario() -> CheckpointReply:
        ended = asyncio.Event()

        def say_nothing(on_answer: Any, full: bool) -> None:
            asyncio.get_running_loop().call_soon(ended.set)

        scheduler = SimpleNamespace(state=JobState.RUNNING, trigger_checkpoint=say_nothing)
        report = SimpleNamespace(savepoint=None, drained=False, status=JobStatus.FINISHED, failure=None)
        requests = requests_to(scheduler, ended, report)
        return await asyncio.wait_for(requests.checkpoint(full=False), 30)

    assert asyncio.run(scenario()) == SnapshotRefused("the job has ended: finished")


class StoppingJob:
    """A job whose stops the test answers; used inside an event loop."""

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.asked: asyncio.Queue[Any] = asyncio.Queue()
        self.scheduler = SimpleNamespace(state=JobState.RUNNING, stop_with_savepoint=self._stop)
        self.report = SimpleNamespace(
            savepoint="/jobs/j/savepoint-1-1", drained=False, status=JobStatus.FINISHED, failure=None
        )
        self.requests = requests_to(self.scheduler, self.ended, self.report)

    def _stop(self, request: object, on_answer: Any) -> None:
        self.scheduler.state = JobState.STOPPING
        self.asked.put_nowait(on_answer)

    def stop(self, **request: Any) -> asyncio.Task[SavepointAnswer]:
        return asyncio.create_task(self.requests.stop(**{"drain": False, "target": None, **request}))

    async def both(self) -> tuple[asyncio.Task[SavepointAnswer], asyncio.Task[SavepointAnswer], Any]:
        """Two stops, the second during the first, and the callback that answers the one request."""
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
        assert isinstance(await first, SnapshotRefused)
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
            assert isinstance(answer, SnapshotRefused)
            stop = f"stopped without a drain, with a savepoint in {place}: repeat that request"
            assert f"already being {stop}" in answer.why
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
        assert isinstance(refused, SnapshotRefused)
        assert "it was already stopped without a drain; its savepoint is /jobs/j/" in refused.why
        assert job.asked.empty()

    in_a_loop(scenario)


def asked_for_a_checkpoint(answer: CheckpointAnswer, *, ended: bool = False) -> CheckpointReply:
    """The result when the coordinator gives this answer, after the job has come up."""

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
        requests = requests_to(scheduler, end, report)
        return await asyncio.wait_for(requests.checkpoint(full=True), 30)

    return asyncio.run(scenario())


def test_a_requested_checkpoint_returns_what_it_is_or_why_there_is_none() -> None:
    metadata = FileHandle("j/chk-3-1/metadata", 9, "")
    taken = CompletedCheckpoint(3, 1, SnapshotKind.CHECKPOINT, {}, 0.0, 0.0, metadata, size=40)
    reply = asked_for_a_checkpoint(CheckpointSucceeded(taken, 0.5))
    assert reply == CheckpointResult(3, "/jobs/j/chk-3-1", 40, 0, 0.5)
    refused = SnapshotRefused("too late (not_all_required_tasks_running)")
    assert asked_for_a_checkpoint(REFUSED) == refused
    assert asked_for_a_checkpoint(REFUSED, ended=True) == SnapshotRefused("the job has ended: finished")


class Job:
    """A job whose scheduler gives one answer to everything, or none, so that only its end is an answer.

    Args:
        answer: Of the scheduler; `None` when the job ends without one.
        ended: Whether it has ended before it is asked.
    """

    def __init__(self, answer: Any, *, ended: bool = False) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self._answer = answer
        self._ended = asyncio.Event()
        if ended:
            self._ended.set()
        scheduler = SimpleNamespace(
            state=JobState.RUNNING,
            take_savepoint=lambda target, put: self._ask(put, target),
            rescale=lambda parallelism, put: self._ask(put, parallelism),
        )
        report = SimpleNamespace(
            savepoint="/jobs/j/savepoint-1-1", drained=False, status=JobStatus.FINISHED, failure=None
        )
        self.requests = requests_to(scheduler, self._ended, report)

    def _ask(self, put: Callable[[Any], None], *what: Any) -> None:
        self.asked.append(what)
        if self._answer is None:
            asyncio.get_running_loop().call_soon(self._ended.set)
        else:
            put(self._answer)


def asked_of(job: Callable[[], Job], ask: Callable[[JobRequests], Coroutine[Any, Any, Any]]) -> Any:
    """The answer to a request, and the calls of the scheduler; no task is left in the event loop."""

    async def scenario() -> tuple[Any, list[Any]]:
        asked, before = job(), asyncio.all_tasks()
        answer = await ask(asked.requests)
        await asyncio.sleep(0)
        assert asyncio.all_tasks() == before
        return answer, asked.asked

    return asyncio.run(asyncio.wait_for(scenario(), 30))


def rescaled(answer: RescaleAnswer | None, *, ended: bool = False) -> Any:
    return asked_of(lambda: Job(answer, ended=ended), lambda requests: requests.rescale({"count": 3}))


def saved(answer: CheckpointAnswer | None, *, ended: bool = False) -> Any:
    return asked_of(lambda: Job(answer, ended=ended), lambda requests: requests.savepoint("/backup"))


@pytest.mark.parametrize("answer", [RescaleStarted(4), RescaleRefused("no such operator")])
def test_a_rescale_is_answered_by_the_scheduler(answer: RescaleAnswer) -> None:
    assert rescaled(answer) == (answer, [({"count": 3},)])


def test_a_rescale_that_nobody_answers_is_answered_by_the_end_of_its_job() -> None:
    answer, asked = rescaled(None)
    assert answer == RescaleRefused("the job has ended: finished")
    assert asked == [({"count": 3},)]


def test_a_job_that_has_ended_is_not_rescaled() -> None:
    assert rescaled(RescaleStarted(4), ended=True) == (RescaleRefused("the job has ended: finished"), [])


def test_a_savepoint_is_answered_with_its_place_or_why_there_is_none() -> None:
    metadata = FileHandle("/backup/savepoint-3/metadata", 9, "")
    taken = CompletedCheckpoint(3, 1, SnapshotKind.SAVEPOINT, {}, 0.0, 0.0, metadata)
    answer, asked = saved(CheckpointSucceeded(taken))
    assert isinstance(answer, SavepointTaken)
    assert asked == [("/backup",)]
    assert saved(REFUSED)[0] == SnapshotRefused("too late (not_all_required_tasks_running)")


@pytest.mark.parametrize("ended", [False, True], ids=["it ends meanwhile", "it has ended"])
def test_a_savepoint_that_a_job_that_ends_does_not_take_is_the_one_that_it_was_stopped_with(
    ended: bool,
) -> None:
    answer, asked = saved(None, ended=ended)
    assert answer == SavepointTaken("/jobs/j/savepoint-1-1")
    assert asked == ([] if ended else [("/backup",)])


class ComesUp:
    """A scheduler of a job that never comes up; a look at it takes some time.

    Args:
        looks: Seconds until each look.
    """

    def __init__(self, clock: ManualClock, looks: list[float]) -> None:
        self._clock, self.looks = clock, looks
        self.asked_at: list[float] = []

    @property
    def state(self) -> JobState:
        self._clock.advance(self.looks.pop(0))
        return JobState.RESTARTING

    def rescale(self, parallelism: Mapping[str, int], put: Callable[[RescaleAnswer], None]) -> None:
        self.asked_at.append(self._clock.monotonic())
        put(RescaleRefused("it restarts"))


@pytest.mark.parametrize("last", [0.5, 0.75], ids=["just then", "a little later"])
def test_a_request_waits_a_minute_for_a_job_to_come_up_and_is_made_then(
    monkeypatch: pytest.MonkeyPatch, last: float
) -> None:
    async def scenario() -> None:
        clock = ManualClock()
        monkeypatch.setattr(job_requests, "time", clock)
        scheduler = ComesUp(clock, [30.0, 29.5, last])
        requests = requests_to(scheduler, asyncio.Event(), None)
        assert await requests.rescale({"count": 3}) == RescaleRefused("it restarts")
        assert scheduler.asked_at == [59.5 + last]

    asyncio.run(asyncio.wait_for(scenario(), 30))


def test_a_job_that_comes_up_is_looked_at_some_times_a_second() -> None:
    assert 0 < job_requests._POLL < 1


def test_a_job_that_could_not_be_taken_up_answers_requests_with_its_end() -> None:
    async def scenario() -> tuple[Any, ...]:
        ended, prepared = asyncio.Event(), asyncio.Event()
        report = SimpleNamespace(savepoint=None, drained=False, status=JobStatus.CANCELLED, failure=None)
        requests = JobRequests(nullcontext, prepared, ended, lambda: cast("Any", report))
        answers = asyncio.gather(
            requests.checkpoint(full=False),
            requests.savepoint(None),
            requests.stop(drain=False, target=None),
            requests.rescale({"count": 3}),
        )
        await asyncio.sleep(0)
        assert not answers.done()
        ended.set()
        prepared.set()
        return tuple(await answers)

    why = "the job has ended: cancelled"
    refused = (SnapshotRefused(why), SnapshotRefused(why), SnapshotRefused(why), RescaleRefused(why))
    assert asyncio.run(asyncio.wait_for(scenario(), 30)) == refused
