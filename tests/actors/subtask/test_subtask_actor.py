"""A subtask's actor without Ray around it: attempts are fenced whatever order calls come in."""

from __future__ import annotations

import asyncio
import threading
from typing import Any, cast

from penstock.actors.shared.messages import NotifyComplete, SubtaskFailed, SubtaskStopped
from penstock.actors.subtask.subtask_actor import SubtaskActor
from penstock.runtime import DiscardSink, GeneratorSource, StreamEnvironment
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.task.descriptor import TaskDescriptor

NO_MASTER = cast("Any", None)


def descriptor(attempt: int, function: Any = abs) -> TaskDescriptor:
    """One subtask: an endless source, a map and a sink in one chain."""
    env = StreamEnvironment()
    env.from_source("numbers", GeneratorSource(lambda n: n)).map(function).sink("out", DiscardSink())
    (subtask,) = build_execution_graph(env.build()).subtasks
    source = subtask.vertex.operators[0].source
    assert source is not None
    return TaskDescriptor("job", "job", attempt, subtask, JobConfig(), splits=tuple(source.splits(1)))


def attempt_of(actor: SubtaskActor) -> int:
    assert actor._attempt is not None
    return actor._attempt.descriptor.attempt


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_deployment_of_an_older_attempt_is_refused_and_the_newer_one_goes_on() -> None:
    async def scenario() -> None:
        actor = SubtaskActor("job", 60.0)
        assert await actor.deploy(descriptor(3), NO_MASTER) is None
        running = asyncio.create_task(actor.run(3, {}))

        late = await actor.deploy(descriptor(2), NO_MASTER)

        assert isinstance(late, SubtaskFailed)
        assert "attempt 2" in late.error
        assert attempt_of(actor) == 3
        assert not running.done()
        await actor.stop(3)
        assert await running == SubtaskStopped()

    run(scenario)


def test_a_stop_of_an_older_attempt_leaves_the_newer_one_alone() -> None:
    async def scenario() -> None:
        actor = SubtaskActor("job", 60.0)
        await actor.deploy(descriptor(2), NO_MASTER)
        running = asyncio.create_task(actor.run(2, {}))

        await actor.stop(1)

        await asyncio.sleep(0)
        assert not running.done()
        await actor.stop(2)
        assert await running == SubtaskStopped()

    run(scenario)


def test_a_deployment_that_a_stop_has_overtaken_is_refused() -> None:
    async def scenario() -> None:
        actor = SubtaskActor("job", 60.0)

        await actor.stop(2)

        assert isinstance(await actor.deploy(descriptor(2), NO_MASTER), SubtaskFailed)
        assert await actor.deploy(descriptor(3), NO_MASTER) is None
        await actor.stop(3)

    run(scenario)


def test_of_two_deployments_that_wait_for_a_stuck_attempt_only_the_newest_goes_on() -> None:
    entered, release = threading.Event(), threading.Event()

    def stuck(value: int) -> int:
        entered.set()
        release.wait(15)
        return value

    async def scenario() -> None:
        actor = SubtaskActor("job", 60.0)
        await actor.deploy(descriptor(1, stuck), NO_MASTER)
        first = asyncio.create_task(actor.run(1, {}))
        await asyncio.to_thread(entered.wait, 15)
        newest = asyncio.create_task(actor.deploy(descriptor(3), NO_MASTER))
        await asyncio.sleep(0)
        older = asyncio.create_task(actor.deploy(descriptor(2), NO_MASTER))
        await asyncio.sleep(0)

        release.set()

        assert await first == SubtaskStopped()
        assert await newest is None
        assert isinstance(await older, SubtaskFailed)
        assert attempt_of(actor) == 3
        await actor.stop(3)

    run(scenario)


def test_a_run_of_an_attempt_that_is_not_deployed_says_that_it_was_stopped() -> None:
    async def scenario() -> None:
        actor = SubtaskActor("job", 60.0)
        await actor.deploy(descriptor(2), NO_MASTER)
        assert await actor.run(1, {}) == SubtaskStopped()
        await actor.stop(2)

    run(scenario)


def test_what_arrives_before_the_run_waits_until_the_subtask_knows_whom_it_sends_to() -> None:
    async def scenario() -> None:
        actor = SubtaskActor("job", 60.0)
        await actor.deploy(descriptor(1), NO_MASTER)
        attempt = actor._attempt
        assert attempt is not None
        knows: list[bool] = []
        taken = threading.Event()

        def frame() -> None:
            knows.append(attempt._gateway.channels is not None)
            taken.set()

        attempt._runner.post(frame)
        await asyncio.to_thread(threading.active_count)  # the task thread has its chance
        running = asyncio.create_task(actor.run(1, {}))
        await asyncio.to_thread(taken.wait, 15)
        assert knows == [True]
        await actor.stop(1)
        assert await running == SubtaskStopped()

    run(scenario)


def test_an_attempt_that_is_stopped_before_its_run_takes_nothing_that_arrived() -> None:
    async def scenario() -> None:
        actor = SubtaskActor("job", 60.0)
        await actor.deploy(descriptor(1), NO_MASTER)
        assert actor._attempt is not None
        taken: list[str] = []
        actor._attempt._runner.post(lambda: taken.append("frame"))
        await actor.stop(1)
        assert taken == []

    run(scenario)


def test_a_message_for_an_attempt_that_does_not_run_is_answered_so() -> None:
    async def scenario() -> None:
        actor, message = SubtaskActor("job", 60.0), NotifyComplete(1)
        assert not await actor.control(2, message)
        await actor.deploy(descriptor(2), NO_MASTER)
        assert await actor.control(2, message)
        assert not await actor.control(1, message)
        assert not await actor.control(3, message)
        await actor.stop(2)
        assert not await actor.control(2, message)

    run(scenario)
