"""A subtask's actor without Ray around it: attempts are fenced whatever order calls come in."""

from __future__ import annotations

import asyncio
import importlib
import logging
import os
import pickle
import threading
import time
import weakref
from collections.abc import Awaitable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import ray

from penstock import Checkpointing, DiscardSink, GeneratorSource, StreamEnvironment
from penstock.actors.shared.cycle_collector import collect_what_has_ended
from penstock.actors.shared.system_ports import answered
from penstock.actors.subtask import attempt as attempt_module
from penstock.actors.subtask import subtask_actor
from penstock.actors.subtask.attempt import Attempt
from penstock.actors.subtask.subtask_actor import SubtaskActor
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.execution.processes import (
    Counters,
    DeliveryAnswer,
    Place,
    ProcessSpec,
    Stale,
    SubtaskFailed,
    SubtaskStopped,
)
from penstock.runtime.execution.role import Role
from penstock.runtime.graph.execution_graph import build_execution_graph
from penstock.runtime.io.connectors.collect_sink import DiscardWriter
from penstock.runtime.io.storage import open_storage, write_proof
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.paths import SnapshotPaths
from penstock.runtime.task.descriptor import NotifyComplete, TaskDescriptor
from penstock.runtime.testing.manual_time import ManualClock

NO_MASTER = cast("Any", None)
LEASE, HEARTBEAT = 60.0, 8.0
ROLE = Role("job", SubtaskId("numbers", 0), 0, "token")
OTHER = Role("other-job", SubtaskId("count", 1), 0, "other")


def descriptor(attempt: int, function: Any = abs, sink: Any = None) -> TaskDescriptor:
    """One subtask: an endless source, a map and a sink in one chain."""
    env = StreamEnvironment()
    env.from_source("numbers", GeneratorSource(lambda n: n)).map(function).sink("out", sink or DiscardSink())
    (subtask,) = build_execution_graph(env.build()).subtasks
    source = subtask.vertex.operators[0].source
    assert source is not None
    return TaskDescriptor("job", "job", attempt, subtask, JobConfig(), splits=tuple(source.splits(1)))


def on_storage(folder: Path) -> TaskDescriptor:
    """The same of a job with checkpoints in this folder, which is a folder of this node."""
    checkpointing = Checkpointing(every=10, storage=str(folder))
    return replace(descriptor(1), config=JobConfig(checkpointing=checkpointing))


async def an_actor() -> SubtaskActor:
    """An actor that holds `ROLE`."""
    actor = SubtaskActor("9f04", 1_000, ProcessSpec(0.0, 0.0, 0))
    assert isinstance(await actor.take(ROLE, LEASE, HEARTBEAT), Place)
    return actor


def attempt_in(actor: SubtaskActor) -> Attempt:
    attempt = actor.attempt
    assert isinstance(attempt, Attempt)
    return attempt


def attempt_of(actor: SubtaskActor) -> int:
    return attempt_in(actor).role.attempt


async def give_back(actor: SubtaskActor, role: Role) -> bool:
    return await answered(lambda answer: actor.give_back(role, answer))


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_deployment_of_an_older_attempt_is_refused_and_the_newer_one_goes_on() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        assert await actor.deploy(ROLE.at(3), descriptor(3), NO_MASTER) is None
        running = asyncio.create_task(actor.run(ROLE.at(3), {}))

        late = await actor.deploy(ROLE.at(2), descriptor(2), NO_MASTER)

        assert isinstance(late, SubtaskFailed)
        assert "attempt 2" in late.error
        assert attempt_of(actor) == 3
        assert not running.done()
        await actor.stop(ROLE.at(3))
        assert await running == SubtaskStopped()

    run(scenario)


def test_a_stop_of_an_older_attempt_leaves_the_newer_one_alone() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(2), descriptor(2), NO_MASTER)
        running = asyncio.create_task(actor.run(ROLE.at(2), {}))

        await actor.stop(ROLE.at(1))

        await asyncio.sleep(0)
        assert not running.done()
        await actor.stop(ROLE.at(2))
        assert await running == SubtaskStopped()

    run(scenario)


@pytest.mark.parametrize("seen", ["the same", "of another job", "nothing"])
def test_a_subtask_whose_node_sees_another_storage_than_the_job_master_is_not_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    node = SimpleNamespace(get_node_id=lambda: "b1f3", get_actor_id=lambda: None)
    monkeypatch.setattr(ray, "get_runtime_context", lambda: node)
    storage, proof = open_storage(str(tmp_path)), SnapshotPaths("job").same_storage
    if seen != "nothing":
        write_proof(storage, proof, "job" if seen == "the same" else "other-job")

    async def scenario() -> None:
        actor = await an_actor()
        failed = await actor.deploy(ROLE.at(1), on_storage(tmp_path), NO_MASTER)
        if seen == "the same":
            assert failed is None
            await actor.stop(ROLE.at(1))
        else:
            assert isinstance(failed, SubtaskFailed)
            assert f"node b1f3 does not see the same {tmp_path}" in failed.error

    run(scenario)


def test_a_deployment_that_a_stop_has_overtaken_is_refused() -> None:
    async def scenario() -> None:
        actor = await an_actor()

        await actor.stop(ROLE.at(2))

        assert isinstance(await actor.deploy(ROLE.at(2), descriptor(2), NO_MASTER), SubtaskFailed)
        assert await actor.deploy(ROLE.at(3), descriptor(3), NO_MASTER) is None
        await actor.stop(ROLE.at(3))

    run(scenario)


def test_of_two_deployments_that_wait_for_a_stuck_attempt_only_the_newest_goes_on() -> None:
    entered, release = threading.Event(), threading.Event()

    def stuck(value: int) -> int:
        entered.set()
        release.wait(15)
        return value

    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(1), descriptor(1, stuck), NO_MASTER)
        first = asyncio.create_task(actor.run(ROLE.at(1), {}))
        await asyncio.to_thread(entered.wait, 15)
        newest = asyncio.create_task(actor.deploy(ROLE.at(3), descriptor(3), NO_MASTER))
        await asyncio.sleep(0)
        older = asyncio.create_task(actor.deploy(ROLE.at(2), descriptor(2), NO_MASTER))
        await asyncio.sleep(0)

        release.set()

        assert await first == SubtaskStopped()
        assert await newest is None
        assert isinstance(await older, SubtaskFailed)
        assert attempt_of(actor) == 3
        await actor.stop(ROLE.at(3))

    run(scenario)


def test_a_run_of_an_attempt_that_is_not_deployed_says_that_it_was_stopped() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(2), descriptor(2), NO_MASTER)
        assert await actor.run(ROLE.at(1), {}) == SubtaskStopped()
        await actor.stop(ROLE.at(2))

    run(scenario)


def test_frames_that_arrive_before_the_run_wait_until_receivers_are_known() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(1), descriptor(1), NO_MASTER)
        attempt = attempt_in(actor)
        knows: list[bool] = []
        taken = threading.Event()

        def frame() -> None:
            knows.append(attempt._link.channels is not None)
            taken.set()

        attempt._thread.post(frame)
        await asyncio.to_thread(threading.active_count)  # the task thread has its chance
        running = asyncio.create_task(actor.run(ROLE.at(1), {}))
        await asyncio.to_thread(taken.wait, 15)
        assert knows == [True]
        await actor.stop(ROLE.at(1))
        assert await running == SubtaskStopped()

    run(scenario)


def test_an_attempt_that_is_stopped_before_its_run_takes_nothing_that_arrived() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(1), descriptor(1), NO_MASTER)
        taken: list[str] = []
        attempt_in(actor)._thread.post(lambda: taken.append("frame"))
        await actor.stop(ROLE.at(1))
        assert taken == []

    run(scenario)


def test_a_message_for_an_attempt_that_does_not_run_returns_false() -> None:
    async def scenario() -> None:
        actor, message = await an_actor(), NotifyComplete(1)
        assert not actor.control(ROLE.at(2), message)
        await actor.deploy(ROLE.at(2), descriptor(2), NO_MASTER)
        assert actor.control(ROLE.at(2), message)
        assert not actor.control(ROLE.at(1), message)
        assert not actor.control(ROLE.at(3), message)
        await actor.stop(ROLE.at(2))
        assert not actor.control(ROLE.at(2), message)

    run(scenario)


def test_an_actor_that_holds_a_role_takes_no_other_one_and_no_call_for_one() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        assert await actor.take(OTHER, LEASE, HEARTBEAT) == Stale()
        assert isinstance(await actor.deploy(OTHER.at(1), descriptor(1), NO_MASTER), SubtaskFailed)
        assert await actor.deploy(ROLE.at(1), descriptor(1), NO_MASTER) is None
        running = asyncio.create_task(actor.run(ROLE.at(1), {}))

        await actor.stop(OTHER.at(9))
        assert actor.renew(OTHER) == Stale()
        assert not actor.control(OTHER.at(1), NotifyComplete(1))
        assert await actor.deliver(OTHER.token, 1, 0, 0, []) == DeliveryAnswer.STALE.value
        assert not await give_back(actor, OTHER)

        assert isinstance(actor.renew(ROLE), Counters)
        assert not running.done()
        await actor.stop(ROLE.at(1))
        assert await running == SubtaskStopped()

    run(scenario)


def test_an_upload_that_still_runs_when_the_role_is_given_back_keeps_the_process_from_another_one() -> None:
    async def scenario() -> None:
        actor, entered, release = await an_actor(), threading.Event(), threading.Event()

        def upload() -> None:
            entered.set()
            release.wait(15)

        pool = actor._host._pool
        pool.submit(upload)
        await asyncio.to_thread(entered.wait, 15)
        waiting = [pool.submit(upload), pool.submit(upload)]

        assert await give_back(actor, ROLE)

        assert any(upload.cancelled() for upload in waiting)
        assert "'snapshot_0' still runs" in str(actor._why_not_again())
        release.set()
        pool.shutdown(wait=True)
        assert actor._why_not_again() is None
        assert isinstance(await actor.take(OTHER, LEASE, HEARTBEAT), Place)
        assert actor._host._pool.submit(lambda: 7).result(15) == 7, "the next role has threads of its own"

    run(scenario)


def test_a_call_of_a_users_function_is_named_when_it_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, entered, release = ManualClock(), threading.Event(), threading.Event()
    monkeypatch.setattr(attempt_module, "time", clock)

    def stuck(value: int) -> int:
        entered.set()
        release.wait(15)
        return value

    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(1), descriptor(1, stuck), NO_MASTER)
        attempt = attempt_in(actor)
        clock.advance(100.0)
        assert attempt.counters().long_call is None, "it waits for its start"
        running = asyncio.create_task(actor.run(ROLE.at(1), {}))
        await asyncio.to_thread(entered.wait, 15)
        clock.advance(4.75)
        assert attempt.counters().long_call is None
        for seconds in (5.0, 6.0):
            clock.advance(100.0 + seconds - clock.monotonic())
            call = attempt.counters().long_call
            assert call is not None
            assert call.what.startswith("map function stuck (")
            assert call.seconds == seconds
        release.set()
        await actor.stop(ROLE.at(1))
        assert await running == SubtaskStopped()

    run(scenario)


def _join_task_threads() -> None:
    for thread in threading.enumerate():
        if thread.name.startswith(str(ROLE.subtask)):
            thread.join(15)


def test_nothing_holds_what_an_ended_role_had_in_memory() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(1), descriptor(1), NO_MASTER)
        running = asyncio.create_task(actor.run(ROLE.at(1), {}))
        await asyncio.sleep(0)
        attempt = weakref.ref(attempt_in(actor))
        assert await give_back(actor, ROLE)
        await running
        del running
        await asyncio.to_thread(_join_task_threads)
        collect_what_has_ended()
        assert attempt() is None

    run(scenario)


def test_an_attempt_is_collected_when_the_next_one_is_deployed() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(1), descriptor(1), NO_MASTER)
        attempt = weakref.ref(attempt_in(actor))
        await actor.stop(ROLE.at(1))
        await asyncio.to_thread(_join_task_threads)  # its last frame has the attempt
        assert await actor.deploy(ROLE.at(2), descriptor(2), NO_MASTER) is None
        assert attempt() is None
        await actor.stop(ROLE.at(2))

    run(scenario)


def test_the_reports_of_an_attempt_that_was_stopped_are_not_repeated() -> None:
    """Another attempt begins, so the JobMaster ignores reports of this one."""

    async def scenario() -> None:
        def fail(value: int) -> int:
            raise ValueError("a bug of the user")

        actor = await an_actor()
        await actor.deploy(ROLE.at(1), descriptor(1, fail), NO_MASTER)
        attempt = attempt_in(actor)
        assert isinstance(await actor.run(ROLE.at(1), {}), SubtaskFailed)
        assert attempt._link._closed

    run(scenario)


class Left(BaseException):
    """The process has ended with an exit code."""


def leaves(monkeypatch: pytest.MonkeyPatch, actor: SubtaskActor, lease: float) -> Awaitable[None]:
    """The watch over a lease of these seconds; it raises `Left` in place of ending the process."""

    def leave(code: int) -> None:
        raise Left(code)

    monkeypatch.setattr(os, "_exit", leave)
    actor._watchdog.cancel()
    actor._lease.change(lease, time.monotonic())
    return actor._watch_lease()


def test_a_process_whose_job_master_is_silent_for_a_whole_lease_leaves(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        actor = await an_actor()
        with pytest.raises(Left, match="1"):
            await leaves(monkeypatch, actor, 0.05)
        assert "heard from no JobMaster" in caplog.text

    run(scenario)


def test_a_process_that_was_given_no_role_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        actor = SubtaskActor("9f04", 1_000, ProcessSpec(0.0, 0.0, 0))
        with pytest.raises(Left, match="0"):
            await leaves(monkeypatch, actor, 0.05)

    run(scenario)


class StillLocked(DiscardSink):
    """A user's sink that can't be closed."""

    def writer(self, context: ConnectorContext) -> DiscardWriter:
        return LockedWriter()


class LockedWriter(DiscardWriter):
    """See `StillLocked`."""

    def close(self) -> None:
        msg = "still locked"
        raise OSError(msg)


def test_a_process_in_which_users_code_can_not_be_closed_serves_no_other_role() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(1), descriptor(1, sink=StillLocked()), NO_MASTER)
        assert await give_back(actor, ROLE), "it was never told to run"
        assert actor._why_not_again() == "users' code has failed here"

    run(scenario)


def test_a_process_that_has_worked_for_long_serves_no_other_role(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        actor = await an_actor()
        assert await give_back(actor, ROLE)
        assert actor._why_not_again() is None
        monkeypatch.setattr(subtask_actor, "_MOST_WORK", 0.0)
        assert "of processor time" in str(actor._why_not_again())

    run(scenario)


def test_an_actor_that_has_given_its_role_back_can_take_one_of_another_job() -> None:
    async def scenario() -> None:
        actor = await an_actor()
        await actor.deploy(ROLE.at(7), descriptor(7), NO_MASTER)
        running = asyncio.create_task(actor.run(ROLE.at(7), {}))
        assert await give_back(actor, ROLE)
        assert await running == SubtaskStopped(), "what ran was stopped"
        assert (actor.ask()).role is None

        assert isinstance(await actor.take(OTHER, LEASE, HEARTBEAT), Place)
        assert await actor.deploy(OTHER.at(1), descriptor(1), NO_MASTER) is None

        assert isinstance(await actor.deploy(ROLE.at(8), descriptor(8), NO_MASTER), SubtaskFailed)
        assert await actor.deliver(ROLE.token, 7, 0, 0, []) == DeliveryAnswer.STALE.value
        assert (actor.ask()).role == OTHER.at(1)
        await actor.stop(OTHER.at(1))

    run(scenario)


def raise_error(kind: type[BaseException]) -> None:
    raise kind("no such module")


class Code:
    """Code of a job with an effect when it is loaded."""

    def __init__(self, act: Any, *arguments: Any) -> None:
        self._act, self._arguments = act, arguments

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return self._act, self._arguments

    def chunks(self) -> tuple[bytes, ...]:
        return (pickle.dumps(self),)


def test_who_asks_keeps_a_process_without_a_role_and_no_other_one() -> None:
    async def scenario() -> None:
        for has_role in (False, True):
            actor = SubtaskActor("9f04", 1_000, ProcessSpec(0.0, 0.0, 0))
            if has_role:
                await actor.take(ROLE, LEASE, HEARTBEAT)
            actor._lease.is_over(time.monotonic() + 5.0)
            silent = actor._lease.silent
            actor.ask()
            assert actor._lease.silent == (silent if has_role else 0.0)

    run(scenario)


@pytest.mark.parametrize("kind", [ImportError, ValueError, KeyboardInterrupt, SystemExit])
def test_a_process_lives_though_the_code_that_it_prepares_can_not_be_loaded(
    kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    """The deployment raises the error again, and names the operator."""

    async def scenario() -> None:
        actor = SubtaskActor("9f04", 1_000, ProcessSpec(0.0, 0.0, 0))
        assert not (actor.ask()).is_prepared
        actor._lease.is_over(time.monotonic() + 5.0)
        await actor.prepare(Code(raise_error, kind).chunks())
        assert actor._lease.silent == 0.0
        assert (actor.ask()).is_prepared
        assert "the code of the job can't be loaded yet" in caplog.text
        assert "no such module" in caplog.text
        assert isinstance(await actor.take(ROLE, LEASE, HEARTBEAT), Place)
        assert not (actor.ask()).is_prepared, "the next role may be of another job"

    with caplog.at_level(logging.INFO):
        run(scenario)


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_process_whose_prepared_code_has_changed_takes_no_role(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_changed: bool
) -> None:
    name = f"module_of_a_user_{os.urandom(4).hex()}"
    module = tmp_path / f"{name}.py"
    module.write_text("answer = 1\n")
    os.utime(module, (1_000_000_000, 1_000_000_000))
    monkeypatch.syspath_prepend(tmp_path)

    async def scenario() -> None:
        actor = SubtaskActor("9f04", 1_000, ProcessSpec(0.0, 0.0, 0))
        await actor.prepare(Code(importlib.import_module, name).chunks())
        if is_changed:
            module.write_text("answer = 2\n")
        taken = await actor.take(ROLE, LEASE, HEARTBEAT)
        assert (taken == Stale()) is is_changed
        assert (f"this process takes no other role: {module} has changed" in caplog.text) is is_changed

    with caplog.at_level(logging.INFO):
        run(scenario)
