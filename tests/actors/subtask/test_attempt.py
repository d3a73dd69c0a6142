"""Attempts of the subtasks of one job send each other frames, and each has one end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray
from unsteady import Unsteady

from penstock import Checkpointing, DiscardSink, GeneratorSource, StreamEnvironment
from penstock.actors.shared.system_ports import answered
from penstock.actors.subtask.attempt import Attempt
from penstock.actors.subtask.gateway import FirstArgument, RemotePeer
from penstock.actors.subtask.subtask_actor import SubtaskActor
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.processes import (
    Counters,
    DeliveryAnswer,
    Place,
    ProcessSpec,
    SubtaskFailed,
    SubtaskFinished,
    SubtaskStopped,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import OutputChannelSpec, build_execution_graph
from penstock.runtime.io.storage import open_storage, write_proof
from penstock.runtime.job.job_state import Acknowledged
from penstock.runtime.record.elements import CheckpointBarrier
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.task.descriptor import NotifyComplete, TaskDescriptor, TriggerCheckpoint


class Master:
    """A JobMaster that takes all reports."""

    def __init__(self) -> None:
        self.reports: asyncio.Queue[Any] = asyncio.Queue()

    def report(self, role: Role, report: Any) -> None:
        self.reports.put_nowait(report)


class Deployed:
    """A subtask in a process of its own, whose calls are made in this event loop."""

    def __init__(self, descriptor: TaskDescriptor, master: Master) -> None:
        self.actor, self._loop = (
            SubtaskActor("9f04", 1_000, ProcessSpec(0.0, 0.0, 0)),
            asyncio.get_running_loop(),
        )
        self.descriptor = descriptor
        self.role = Role("job", descriptor.id, 1, f"token of {descriptor.id}")
        self._master = cast("Any", Unsteady(master, {}))
        self._lease = 60.0

    async def take_and_deploy(self) -> SubtaskFailed | None:
        assert isinstance(await self.actor.take(self.role, self._lease, 8.0), Place)
        assert self.actor.renew(self.role) == Counters(0, None)
        return await self.actor.deploy(self.role, self.descriptor, self._master)

    @property
    def attempt(self) -> Attempt:
        attempt = self.actor.attempt
        assert isinstance(attempt, Attempt)
        return attempt

    async def deliver(self, first: int, elements: list[bytes]) -> DeliveryAnswer:
        return DeliveryAnswer(await self.actor.deliver(self.role.token, 1, 0, first, elements))

    async def stop(self) -> None:
        await self.actor.stop(self.role)

    async def give_back(self) -> bool:
        return await answered(lambda answer: self.actor.give_back(self.role, answer))

    @property
    def peer(self) -> RemotePeer:
        def remote(
            token: str, attempt: int, channel: int, first: int, frame: FirstArgument, *pieces: bytes
        ) -> Any:
            call = self.actor.deliver(token, attempt, channel, first, frame, *pieces)
            answer: Future[int] = asyncio.run_coroutine_threadsafe(call, self._loop)
            return SimpleNamespace(future=lambda: answer)

        handle = SimpleNamespace(deliver=SimpleNamespace(remote=remote))
        return RemotePeer(cast("Any", handle), self.role)


def subtasks(
    config: JobConfig | None = None,
    count: int | None = 50,
    function: Callable[[int], Any] = abs,
    master: Master | None = None,
) -> tuple[Deployed, Deployed]:
    """A source of numbers, and a function on another subtask that receives them."""
    env = StreamEnvironment()
    numbers = env.from_source("numbers", GeneratorSource(lambda n: n, count=count))
    numbers.rebalance().map(function).sink("out", DiscardSink())
    subtasks = build_execution_graph(env.build()).subtasks
    source = subtasks[0].vertex.operators[0].source
    assert source is not None
    made = []
    for subtask, splits in zip(subtasks, (tuple(source.splits(1)), ()), strict=True):
        descriptor = TaskDescriptor("job", "job", 1, subtask, config or JobConfig(), splits=splits)
        made.append(Deployed(descriptor, master or Master()))
    return made[0], made[1]


async def begun(sender: Deployed, receiver: Deployed) -> list[asyncio.Task[Any]]:
    """Deploy both and start them, the receiver last, so that frames come before its start."""
    for deployed in (sender, receiver):
        assert await deployed.take_and_deploy() is None
    sending = asyncio.create_task(sender.actor.run(sender.role, {receiver.descriptor.id: receiver.peer}))
    await asyncio.sleep(0)
    return [sending, asyncio.create_task(receiver.actor.run(receiver.role, {}))]


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), 30)

    asyncio.run(bounded())


def test_what_one_subtask_sends_another_one_takes_and_both_finish() -> None:
    async def scenario() -> None:
        seen: list[int] = []
        sender, receiver = subtasks(None, 50, seen.append)
        outcomes = await asyncio.gather(*await begun(sender, receiver))
        assert seen == list(range(50))
        assert await receiver.deliver(10_000, [b"late"]) is DeliveryAnswer.CONSUMED
        for deployed, outcome in zip((sender, receiver), outcomes, strict=True):
            assert isinstance(outcome, SubtaskFinished)
            assert outcome.statistics is not None
            assert outcome.statistics.records_in == 50
            link = deployed.attempt._link
            assert not link._closed, "its reports still have to arrive"
            assert await deployed.give_back()
            assert link._closed

    run(scenario)


def test_a_subtask_that_is_stopped_sends_and_takes_nothing_more() -> None:
    async def scenario() -> None:
        entered, loop = asyncio.Event(), asyncio.get_running_loop()

        def enter(number: int) -> None:
            loop.call_soon_threadsafe(entered.set)

        sender, receiver = subtasks(None, None, enter)
        running = await begun(sender, receiver)
        await entered.wait()
        for deployed in (receiver, sender):
            await deployed.stop()
            assert deployed.attempt._link._closed
        assert await asyncio.gather(*running) == [SubtaskStopped()] * 2
        assert await receiver.deliver(10**9, [b"late"]) is DeliveryAnswer.STALE
        assert sender.attempt._link.channels is not None
        assert sender.attempt._link.channels._closed

    run(scenario)


def test_a_subtask_that_fails_says_why_and_its_reports_are_not_repeated() -> None:
    async def scenario() -> None:
        def fail(number: int) -> None:
            raise ValueError("a bug of the user")

        sender, receiver = subtasks(None, 50, fail)
        [running, failing] = await begun(sender, receiver)
        outcome = await failing
        assert isinstance(outcome, SubtaskFailed)
        assert "a bug of the user" in outcome.error
        assert receiver.attempt._link._closed
        await sender.stop()
        await running

    run(scenario)


def test_an_attempt_goes_on_when_the_call_that_waits_for_its_end_is_cancelled() -> None:
    async def scenario() -> None:
        sender, receiver = subtasks(None, None)
        running = await begun(sender, receiver)
        for call in running:
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
        assert await receiver.deliver(1, []) is DeliveryAnswer.CONSUMED
        for deployed in (sender, receiver):
            again = asyncio.create_task(deployed.actor.run(deployed.role, {}))
            await asyncio.sleep(0)
            assert not again.done()
            await deployed.stop()
            assert await again == SubtaskStopped()

    run(scenario)


def test_an_attempt_that_is_being_stopped_repeats_no_report_and_sends_no_frame_any_more() -> None:
    """Also while the task is stuck in users' code."""

    async def scenario() -> None:
        release, entered = threading.Event(), threading.Event()

        def wait(number: int) -> None:
            entered.set()
            release.wait(20)

        sender, receiver = subtasks(None, None, wait)
        running = await begun(sender, receiver)
        await asyncio.to_thread(entered.wait, 20)
        stopping = asyncio.create_task(receiver.stop())
        await asyncio.sleep(0)
        assert not stopping.done()
        assert receiver.attempt._link._closed
        assert receiver.attempt._link.channels is not None
        assert receiver.attempt._link.channels._closed
        release.set()
        await asyncio.gather(stopping, sender.stop(), *running)

    run(scenario)


def test_a_checkpoint_that_the_job_master_triggers_goes_through_all_attempts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = SimpleNamespace(get_node_id=lambda: "b1f3", get_actor_id=lambda: None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: node)
    write_proof(open_storage(str(tmp_path)), SnapshotPaths("job").same_storage, "job")
    config = JobConfig(checkpointing=Checkpointing(every=10, storage=str(tmp_path)))

    async def scenario() -> None:
        master = Master()
        sender, receiver = subtasks(config, None, master=master)
        running = await begun(sender, receiver)
        sender.actor.control(sender.role, TriggerCheckpoint(CheckpointBarrier(7, 1_000_000.0)))
        done = [await master.reports.get() for _ in range(2)]
        assert {(type(report), report.subtask, report.checkpoint_id) for report in done} == {
            (Acknowledged, each.descriptor.id, 7) for each in (sender, receiver)
        }
        await asyncio.gather(sender.stop(), receiver.stop(), *running)

    run(scenario)


def test_a_frame_whose_call_was_cancelled_is_consumed_all_the_same() -> None:
    async def scenario() -> None:
        release, entered = threading.Event(), threading.Event()

        def wait(number: int) -> None:
            entered.set()
            release.wait(20)

        sender, receiver = subtasks(None, 50, wait)
        running = await begun(sender, receiver)
        await asyncio.to_thread(entered.wait, 20)
        again, cancelled = (asyncio.create_task(receiver.deliver(1, [])) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        release.set()
        assert await again is DeliveryAnswer.CONSUMED
        outcomes = await asyncio.gather(*running)
        assert all(isinstance(outcome, SubtaskFinished) for outcome in outcomes)

    run(scenario)


def test_messages_and_answers_for_a_subtask_that_is_not_deployed_are_errors() -> None:
    async def scenario() -> None:
        sender, receiver = subtasks()
        channel = OutputChannelSpec(receiver.descriptor.id, 0)
        nobody = cast("Any", None)
        attempt = sender.actor._host.new_attempt(sender.role, sender.descriptor, nobody, nobody)
        for act in (
            lambda: attempt._frame_consumed(channel, 0),
            lambda: attempt._receiver_gone(channel),
        ):
            with pytest.raises(RuntimeError, match=r"numbers\[0\] was called before it was deployed"):
                act()
        assert await sender.take_and_deploy() is None
        assert sender.actor.control(sender.role, NotifyComplete(1))
        await sender.stop()

    run(scenario)


def test_a_folder_of_checkpoints_that_this_node_does_not_have_is_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty storage would look like the job's."""
    node = SimpleNamespace(get_node_id=lambda: "b1f3", get_actor_id=lambda: None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: node)
    folder = tmp_path / "of another node"

    async def scenario() -> None:
        sender, _ = subtasks(JobConfig(checkpointing=Checkpointing(every=10, storage=str(folder))))
        failed = await sender.take_and_deploy()
        assert failed is not None
        assert "is not a folder; check the path" in failed.error
        assert not folder.exists()

    run(scenario)
