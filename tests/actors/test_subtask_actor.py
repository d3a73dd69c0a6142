"""A subtask's actor without Ray around it: attempts are fenced whatever order calls come in."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any, cast

from penstock.actors.deliveries import DeliveryAnswer
from penstock.actors.messages import SubtaskFailed, SubtaskStopped
from penstock.actors.subtask_actor import SubtaskActor
from penstock.runtime import StreamEnvironment
from penstock.runtime.checkpoint.config import Checkpointing
from penstock.runtime.checkpoint.snapshot import SubtaskId
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.graph.job_config import JobConfig
from penstock.runtime.io.connectors import DiscardSink, GeneratorSource
from penstock.runtime.record.element_codec import decode_element, encode_element
from penstock.runtime.record.elements import CheckpointBarrier, CheckpointOptions, StreamElement
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


class Peer:
    """A receiver that consumes everything, and a JobMaster that takes every report, as handles of actors."""

    def __init__(self) -> None:
        self.elements: list[StreamElement] = []
        self.reports: list[Any] = []
        self.has_barrier = asyncio.Event()
        self.deliver, self.report = SimpleNamespace(remote=self._deliver), SimpleNamespace(remote=self._report)
        self._loop = asyncio.get_running_loop()

    def _deliver(self, attempt: int, channel: int, first: int, elements: list[bytes]) -> Any:
        self.elements += map(decode_element, elements)
        if any(isinstance(element, CheckpointBarrier) for element in self.elements):
            self._loop.call_soon_threadsafe(self.has_barrier.set)
        answer: Future[DeliveryAnswer] = Future()
        answer.set_result(DeliveryAnswer.CONSUMED)
        return SimpleNamespace(future=lambda: answer)

    async def _report(self, attempt: int, report: Any) -> None:
        self.reports.append(report)


async def all_mail_taken(actor: SubtaskActor) -> None:
    """Wait until the task thread has dealt with everything that was posted so far."""
    assert actor._attempt is not None
    taken = threading.Event()
    actor._attempt._runner.post(taken.set)
    assert await asyncio.to_thread(taken.wait, 15)


def test_an_unaligned_barrier_that_comes_before_the_start_waits_for_it() -> None:
    """Its sender was started earlier; the receiver does not know yet whom to send the barrier on to."""
    env = StreamEnvironment()
    numbers = env.from_source("numbers", GeneratorSource(lambda n: n))
    numbers.rebalance().map(abs, id="middle", parallelism=1).sink("out", DiscardSink(), parallelism=2)
    config = JobConfig(checkpointing=Checkpointing(every=1, unaligned=True))
    graph = build_execution_graph(env.build())
    middle = graph.subtask(SubtaskId("middle", 0))
    barrier = CheckpointBarrier(1, 0.0, CheckpointOptions(unaligned=True))

    async def scenario() -> None:
        actor, peer = SubtaskActor("job", 60.0), Peer()
        assert await actor.deploy(TaskDescriptor("job", "job", 1, middle, config), cast("Any", peer)) is None
        arriving = asyncio.create_task(actor.deliver(1, 0, 0, [encode_element(barrier)]))
        await asyncio.sleep(0)
        await all_mail_taken(actor)
        assert peer.elements == []

        peers = {SubtaskId("out", index): cast("Any", peer) for index in range(2)}
        running = asyncio.create_task(actor.run(1, peers))

        assert await arriving is DeliveryAnswer.CONSUMED
        await peer.has_barrier.wait()
        assert not running.done()
        await actor.stop(1)
        assert await running == SubtaskStopped()

    run(scenario)
