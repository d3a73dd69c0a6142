"""Ray's errors are values for `runtime/execution`, and every call is answered, later and once.

A cluster that does not answer holds up only those who need it.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest
import ray

from penstock.actors.master import ray_processes
from penstock.actors.master.cluster_calls import ClusterCall, ClusterCalls
from penstock.actors.master.ray_processes import RayProcesses
from penstock.actors.shared import registry
from penstock.actors.shared.system_ports import GuardedLoop
from penstock.actors.subtask.gateway import settled
from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.execution.processes import Away, CallFailure, Died, ProcessSpec, Raised, Room
from penstock.runtime.execution.role import Role
from penstock.runtime.snapshot.ids import SubtaskId

ROLE = Role("job", SubtaskId("count", 0), 1, "token")


async def ending_with(outcome: object) -> object:
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


@pytest.mark.parametrize(
    ("outcome", "answer"),
    [
        ("an answer", "an answer"),
        (ray.exceptions.ActorUnavailableError("the connection broke", b"\0" * 16), Away()),
        (ray.exceptions.RayActorError(error_msg="killed\n\tpid: 7\nby a test"), Died("killed by a test")),
    ],
)
def test_what_ray_says_of_a_process_is_a_value(outcome: object, answer: object) -> None:
    assert asyncio.run(settled(ending_with(outcome))) == answer


def test_an_error_of_the_call_itself_says_whether_another_attempt_may_go_better() -> None:
    for error, recoverable in ((ValueError("wrong"), True), (CorruptSnapshotError("damaged"), False)):
        answer = asyncio.run(settled(ending_with(error)))
        assert isinstance(answer, Raised)
        assert str(error) in answer.cause.message
        assert answer.cause.recoverable is recoverable


class Method:
    def __init__(self, call: Callable[..., Awaitable[object]]) -> None:
        self.remote = call


class Handle:
    """An actor with the given `stop`."""

    def __init__(self, stop: Callable[..., Awaitable[object]]) -> None:
        self.stop = Method(stop)


def processes_in(cluster: ClusterCalls) -> RayProcesses:
    guarded = GuardedLoop(asyncio.get_running_loop(), "job")
    return RayProcesses("job", JobConfig(), cast("Any", None), guarded, cluster, ())


def stop(handle: Handle | None) -> list[object]:
    """The answer to a stop, and whether there was one before the call had returned."""

    async def scenario() -> list[object]:
        processes = processes_in(ClusterCalls())
        if handle is not None:
            processes._handles["a"] = cast("Any", handle)
        heard: list[object] = []
        answered = asyncio.Event()

        def reply(answer: CallFailure | None) -> None:
            heard.append(answer)
            answered.set()

        processes.stop("a", ROLE, reply)
        assert heard == []
        await asyncio.wait_for(answered.wait(), 10)
        return heard

    return asyncio.run(scenario())


def test_a_call_is_answered_when_its_process_answers() -> None:
    assert stop(Handle(lambda role: ending_with(None))) == [None]


def test_an_open_call_of_a_process_that_was_killed_says_why() -> None:
    async def scenario() -> None:
        killed = ray.exceptions.RayActorError(error_msg="it has exited")
        processes = processes_in(ClusterCalls())
        processes._handles["a"] = cast("Any", Handle(lambda role: ending_with(killed)))
        processes._killed["a"] = "it was killed, because it hung"
        heard: asyncio.Queue[object] = asyncio.Queue()
        processes.stop("a", ROLE, heard.put_nowait)
        assert await asyncio.wait_for(heard.get(), 10) == Died("it was killed, because it hung")

    asyncio.run(scenario())


def test_a_process_that_is_claimed_too_late_is_offered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store answers too late for the JobMaster; otherwise no other job could claim the process."""
    offered: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
    answers, asked = threading.Event(), threading.Event()

    def claim(job_id: str, calls: int) -> str:
        asked.set()
        assert answers.wait(10)
        return "a"

    monkeypatch.setattr(registry, "claim", claim)
    monkeypatch.setattr(registry, "offer", lambda *what: offered.put(what))
    monkeypatch.setattr(ray_processes, "_find", lambda process: Handle(lambda role: ending_with(None)))

    async def scenario() -> None:
        processes = processes_in(ClusterCalls(at_once=0.05))
        assert processes.claim(ProcessSpec(0.0, 0.0, 1)) is None
        assert asked.wait(10)
        answers.set()
        assert offered.get(timeout=10) == ("job", "a")
        assert processes.left_behind() == []

    asyncio.run(scenario())


def test_a_call_of_a_process_that_was_ended_is_answered_as_one_of_a_dead_process() -> None:
    assert stop(None) == [Died("the JobMaster has ended it")]


def test_arguments_that_can_not_be_sent_are_an_answer_too() -> None:
    def refuse(role: Role) -> Awaitable[object]:
        raise TypeError("cannot pickle it")

    (answer,) = stop(Handle(refuse))
    assert isinstance(answer, Raised)
    assert "cannot pickle it" in answer.cause.message


def test_a_call_of_a_process_that_is_being_started_waits_until_it_is() -> None:
    async def scenario() -> None:
        cluster, answers = ClusterCalls(), threading.Event()

        def start() -> Handle:
            assert answers.wait(10)
            return Handle(lambda role: ending_with(None))

        processes = processes_in(cluster)
        started: ClusterCall[Any] = cluster.begin("start a process", start)
        processes._handles["a"] = started
        heard: asyncio.Queue[object] = asyncio.Queue()
        processes.stop("a", ROLE, heard.put_nowait)
        await asyncio.sleep(0)
        assert heard.empty()
        answers.set()
        assert await asyncio.wait_for(heard.get(), 10) is None

    asyncio.run(scenario())


def test_a_start_that_fails_is_an_answer_of_the_first_call() -> None:
    async def scenario() -> None:
        def start() -> Handle:
            raise ray.exceptions.RpcError("no GCS")

        cluster = ClusterCalls()
        processes = processes_in(cluster)
        processes._handles["a"] = cast("Any", cluster.begin("start a process", start))
        heard: asyncio.Queue[object] = asyncio.Queue()
        processes.stop("a", ROLE, heard.put_nowait)
        answer = await asyncio.wait_for(heard.get(), 10)
        assert isinstance(answer, Raised)
        assert "no GCS" in answer.cause.message

    asyncio.run(scenario())


def test_a_cluster_that_does_not_answer_has_no_warm_process_and_no_room() -> None:
    async def scenario() -> None:
        cluster, stuck, answers = ClusterCalls(at_once=0.01), threading.Event(), threading.Event()
        cluster.begin("get stuck", lambda: (stuck.set(), answers.wait(10)))
        assert stuck.wait(10), "a call that is at once would be made before it"
        processes = processes_in(cluster)
        assert processes.claim(ProcessSpec(0.0, 0.0, 1)) is None
        assert processes.room() == Room({}, {})
        answers.set()

    asyncio.run(scenario())
