"""Whatever a subtask's actor answers, the scheduler hears of it: no answer leaves a job running for ever."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, cast

import pytest

from penstock.actors.master.deployment import Deployment
from penstock.actors.master.ray_execution import RayExecution
from penstock.actors.master.subtask_fleet import FleetMember, SubtaskFleet
from penstock.actors.shared.messages import SubtaskFailed, SubtaskOutcome, SubtaskStopped
from penstock.runtime import DiscardSink, GeneratorSource, StreamEnvironment
from penstock.runtime.checkpoint.operator_coordinators.operator_event_valve import EventCallbacks
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.job.failure import FailureCause
from penstock.runtime.snapshot.memory_storage import MemoryStorage
from penstock.runtime.snapshot.subtask_id import SubtaskId


class Call:
    """A remote method with a scripted answer."""

    def __init__(self, answer: Callable[..., Awaitable[object]]) -> None:
        self.remote = answer


class ScriptedActor:
    """Answers as real actors do only when Ray or a program is at fault, which no test can bring about."""

    def __init__(self, outcome: SubtaskOutcome | Exception) -> None:
        self._outcome = outcome
        self.calls: list[str] = []
        self.deploy = Call(self._deploy)
        self.run = Call(self._run)
        self.stop = Call(self._stop)
        self.control = Call(self._control)

    async def _deploy(self, descriptor: Any, master: Any) -> None:
        self.calls.append(f"deploy {descriptor.attempt}")

    async def _run(self, attempt: int, peers: Any) -> SubtaskOutcome:
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def _stop(self, attempt: int) -> None:
        self.calls.append(f"stop {attempt}")

    async def _control(self, attempt: int, message: Any) -> bool:
        self.calls.append(f"control {attempt}")
        return False


class RecordingScheduler:
    def __init__(self) -> None:
        self.heard: list[tuple[str, int, FailureCause | None]] = []
        self.told = asyncio.Event()

    def _hear(self, what: str, attempt: int, cause: FailureCause | None = None) -> None:
        self.heard.append((what, attempt, cause))
        if what != "started":
            self.told.set()

    def on_started(self, attempt: int) -> None:
        self._hear("started", attempt)

    def on_deployed(self, attempt: int) -> None:
        self._hear("deployed", attempt)

    def on_deployment_failed(self, attempt: int, cause: FailureCause) -> None:
        self._hear("deployment failed", attempt, cause)

    def on_subtask_failed(self, attempt: int, subtask: SubtaskId, cause: FailureCause) -> None:
        self._hear("failed", attempt, cause)

    def on_all_stopped(self, attempt: int) -> None:
        self._hear("all stopped", attempt)


def execution(actor: ScriptedActor) -> tuple[RayExecution, RecordingScheduler]:
    env = StreamEnvironment()
    env.from_source("numbers", GeneratorSource(lambda n: n)).sink("out", DiscardSink())
    graph, config = build_execution_graph(env.build()), JobConfig()
    fleet = SubtaskFleet("job", graph, config)
    (subtask,) = graph.subtasks
    fleet.members[subtask.id] = FleetMember(cast("Any", actor), "name", 1, 1, "node")
    nothing = cast("Any", lambda: None)
    pool = ThreadPoolExecutor(1)
    deployment = Deployment("job", graph, config, MemoryStorage(), fleet, cast("Any", None), pool)
    made = RayExecution("job", graph, fleet, deployment, nothing, nothing)
    scheduler = RecordingScheduler()
    made.scheduler = cast("Any", scheduler)
    return made, scheduler


def heard_after(
    actor: ScriptedActor, act: Callable[[RayExecution], None]
) -> list[tuple[str, int, FailureCause | None]]:
    async def scenario() -> list[tuple[str, int, FailureCause | None]]:
        made, scheduler = execution(actor)
        act(made)
        await asyncio.wait_for(scheduler.told.wait(), 10)
        return [entry for entry in scheduler.heard if entry[0] != "started"]

    return asyncio.run(scenario())


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (RuntimeError("no such metric"), "RuntimeError: no such metric"),
        (SubtaskStopped(), "stopped although the job runs"),
    ],
)
def test_an_end_of_a_run_that_nobody_asked_for_fails_the_attempt(
    outcome: SubtaskOutcome | Exception, text: str
) -> None:
    heard = heard_after(ScriptedActor(outcome), lambda made: made.start(4))
    what, attempt, cause = heard[-1]
    assert (what, attempt) == ("failed", 4)
    assert cause is not None
    assert text in cause.message


def test_a_damaged_checkpoint_is_not_tried_again() -> None:
    failed = SubtaskFailed("chk-1/metadata is damaged", "", recoverable=False)
    cause = heard_after(ScriptedActor(failed), lambda made: made.start(4))[-1][2]
    assert cause is not None
    assert not cause.recoverable


def test_a_stop_that_fails_counts_as_a_death() -> None:
    actor = ScriptedActor(SubtaskStopped())

    async def broken(attempt: int) -> None:
        raise RuntimeError("no way to stop")

    actor.stop = Call(broken)

    async def scenario() -> None:
        made, scheduler = execution(actor)
        lost: list[SubtaskId] = []
        made._fleet.lose = lost.append  # type: ignore[method-assign,assignment]
        made.stop_all(2)
        await asyncio.wait_for(scheduler.told.wait(), 10)
        assert scheduler.heard[-1][:2] == ("all stopped", 2)
        assert len(lost) == 1

    asyncio.run(scenario())


def test_older_attempts_are_stopped_before_a_new_one_is_deployed() -> None:
    actor = ScriptedActor(SubtaskStopped())
    assert heard_after(actor, lambda made: made.deploy(3, None))[-1][:2] == ("deployed", 3)
    assert actor.calls == ["stop 2", "deploy 3"]


def test_a_stop_ends_a_deployment_that_is_under_way() -> None:
    actor = ScriptedActor(SubtaskStopped())

    async def scenario() -> None:
        made, scheduler = execution(actor)
        made.deploy(3, None)
        made.stop_all(3)
        await asyncio.wait_for(scheduler.told.wait(), 10)
        await asyncio.gather(*made._tasks, return_exceptions=True)
        assert [what for what, _, _ in scheduler.heard] == ["all stopped"]
        assert "deploy 3" not in actor.calls

    asyncio.run(scenario())


def test_an_error_in_the_execution_itself_fails_the_attempt() -> None:
    def act(made: RayExecution) -> None:
        made._attempt = 5

        async def broken() -> None:
            raise CorruptSnapshotError("impossible")

        made._spawn(broken())

    what, attempt, cause = heard_after(ScriptedActor(SubtaskStopped()), act)[-1]
    assert (what, attempt) == ("deployment failed", 5)
    assert cause is not None
    assert "impossible" in cause.message


def answers_to_an_event(actor: ScriptedActor, attempts: list[int]) -> list[str]:
    """What is heard of an event for the last of these attempts, the first of which was started."""

    async def scenario() -> list[str]:
        made, scheduler = execution(actor)
        heard: list[str] = []
        answered = asyncio.Event()

        def lost(error: BaseException) -> None:
            heard.extend([*(what for what, _, _ in scheduler.heard if what == "failed"), str(error)])
            answered.set()

        (subtask,) = made._all
        made.start(attempts[0])
        made._attempts[subtask] = attempts[0]
        if attempts[1:]:
            made.deploy(attempts[1], None)
        answer = EventCallbacks(lambda: heard.append("it arrived"), lost)
        made.send_operator_event(attempts[-1], subtask, "numbers", "an event", answer)
        await asyncio.wait_for(answered.wait(), 10)
        return heard

    return asyncio.run(scenario())


def test_an_event_that_its_actor_does_not_take_is_lost_behind_the_end_of_the_run() -> None:
    failed, lost = answers_to_an_event(ScriptedActor(SubtaskStopped()), [4])
    assert failed == "failed"
    assert "numbers[0] is gone" in lost


def test_no_event_goes_to_the_actor_of_an_older_attempt() -> None:
    actor = ScriptedActor(SubtaskStopped())
    assert "numbers[0] is gone" in answers_to_an_event(actor, [4, 5])[-1]
    assert not any(call.startswith("control") for call in actor.calls)
