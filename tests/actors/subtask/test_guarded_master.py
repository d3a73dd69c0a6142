"""A guard reaches its JobMaster, also before that has deployed anything here."""

from __future__ import annotations

import asyncio
import gc
import signal
import subprocess
import weakref
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest
import ray

from penstock.actors.shared.node_processes import own_node, own_place
from penstock.actors.shared.system_ports import TASKS
from penstock.actors.subtask import gateway
from penstock.actors.subtask.gateway import RayMaster
from penstock.runtime.execution.heartbeat import HeartbeatLimits, MasterGuard, Silence
from penstock.runtime.execution.processes import Away, CallFailure, Died, Place, Raised
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

#: On this node, and gone.
PLACE = Place(1, "", 5)
#: A node that is not this one, by the name that Ray gives it.
OTHER_NODE = "89abcdef01234567"


class JobMaster:
    """A JobMaster that answers or raises Ray's error, and counts its calls."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked = 0
        self._error = error
        self.answers = self

    def remote(self) -> Awaitable[None]:
        self.asked += 1
        return asyncio.sleep(0) if self._error is None else self._fail(self._error)

    async def _fail(self, error: Exception) -> None:
        raise error


async def all_replies_have_come() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_job_master_that_has_deployed_nothing_yet_can_not_be_reached() -> None:
    async def scenario() -> None:
        heard: list[CallFailure | None] = []
        RayMaster(asyncio.get_running_loop()).ask_master(heard.append)
        assert heard == [], "a reply comes after its call"
        await all_replies_have_come()
        assert heard == [Away()]

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (None, None),
        (ray.exceptions.ActorUnavailableError("the connection broke", b"\0" * 16), Away()),
        (ray.exceptions.RayActorError(error_msg="it was killed"), Died("it was killed")),
    ],
    ids=["it answers", "away", "dead"],
)
def test_what_ray_says_of_a_job_master_is_a_value(
    error: Exception | None, answer: CallFailure | None
) -> None:
    """An unreachable JobMaster may be healthy."""

    async def scenario() -> None:
        heard: list[CallFailure | None] = []
        master = RayMaster(asyncio.get_running_loop())
        master.handle = cast("Any", JobMaster(error))
        master.ask_master(heard.append)
        await all_replies_have_come()
        assert heard == [answer]

    asyncio.run(scenario())


def test_a_guard_that_asked_before_the_first_deployment_asks_again() -> None:
    async def scenario() -> None:
        clock, master, job_master = ManualClock(), RayMaster(asyncio.get_running_loop()), JobMaster()
        timers = ManualTimers(clock)
        limits = HeartbeatLimits.of(8.0, overdue_after=54.0)
        guard = MasterGuard(limits, clock, timers, master, lambda place, silence: None)
        guard.renewed(PLACE)
        timers.advance(4.0)
        await all_replies_have_come()
        master.handle = cast("Any", job_master)
        timers.advance(0.5)
        assert job_master.asked == 1
        await all_replies_have_come()
        guard.end()

    asyncio.run(scenario())


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process that does nothing, as a JobMaster that hangs."""
    with subprocess.Popen(["sleep", "300"]) as process:
        yield process
        process.kill()


def place_of(process: subprocess.Popen[bytes], node_id: str | None = None) -> Place:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return Place(process.pid, own_node() if node_id is None else node_id, int(fields[19]))


def done(act: Callable[[RayMaster], None]) -> None:
    """Let a guard act, and wait until its calls have ended."""

    async def scenario() -> None:
        master = RayMaster(asyncio.get_running_loop())
        act(master)
        while TASKS:
            await asyncio.wait(set(TASKS))
            await all_replies_have_come()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.fixture
def asked_nodes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Makes the calls of other nodes here; keeps the names of these nodes."""
    asked: list[str] = []

    async def here(node_id: str, function: Callable[..., Any], *arguments: Any) -> Any:
        asked.append(node_id)
        return function(*arguments)

    monkeypatch.setattr(gateway, "on_node", here)
    return asked


def test_an_error_of_a_job_master_is_a_value_and_says_what_it_was() -> None:
    heard: list[CallFailure | None] = []

    def ask(master: RayMaster) -> None:
        master.handle = cast("Any", JobMaster(ValueError("a bug of the JobMaster")))
        master.ask_master(heard.append)

    done(ask)
    [answer] = heard
    assert isinstance(answer, Raised)
    assert "a bug of the JobMaster" in answer.cause.message


def test_the_processor_time_of_a_job_master_is_read_on_its_node() -> None:
    heard: list[float | CallFailure] = []
    done(lambda master: master.processor_time_of_master(own_place(), heard.append))
    [used] = heard
    assert isinstance(used, float)
    assert used > 0


def test_the_processor_time_of_a_job_master_that_is_gone_is_not_known() -> None:
    heard: list[float | CallFailure] = []
    done(lambda master: master.processor_time_of_master(Place(1, own_node(), 5), heard.append))
    [answer] = heard
    assert isinstance(answer, Raised)
    assert "process 1 no longer exists" in answer.cause.message


def test_a_job_master_that_hangs_is_killed_on_its_node_and_the_log_says_why(
    process: subprocess.Popen[bytes], asked_nodes: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    place = place_of(process, OTHER_NODE)
    done(lambda master: master.end_master(place, "no answer for 8 s"))
    assert process.wait(20) == -signal.SIGKILL
    assert asked_nodes == [OTHER_NODE]
    assert [record.getMessage() for record in caplog.records] == [
        f"pid {process.pid} on node 89abcdef is killed: no answer for 8 s"
    ]


def test_a_job_master_that_ended_before_it_was_killed_is_named_in_the_log(
    process: subprocess.Popen[bytes], caplog: pytest.LogCaptureFixture
) -> None:
    place = place_of(process)
    process.kill()
    process.wait(20)
    done(lambda master: master.end_master(place, "no answer for 8 s"))
    assert caplog.messages[1:] == [f"the JobMaster (pid {process.pid}) has ended before it was killed"]


def test_a_job_master_whose_node_can_not_be_reached_is_left_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def gone(node_id: str, *call: Any) -> None:
        raise ray.exceptions.TaskUnschedulableError(f"the node {node_id} is gone")

    monkeypatch.setattr(gateway, "on_node", gone)
    done(lambda master: master.end_master(Place(4711, OTHER_NODE, 5), "no answer for 8 s"))
    [_, warning] = caplog.messages
    assert warning.startswith("the JobMaster (pid 4711) can't be killed: ")
    assert f"the node {OTHER_NODE} is gone" in warning
    assert "never retrieved" not in caplog.text


def test_people_are_told_of_a_job_master_that_fell_silent(caplog: pytest.LogCaptureFixture) -> None:
    done(lambda master: master.fell_silent(Place(4711, OTHER_NODE, 5), Silence(6.2, True)))
    assert caplog.messages == [
        "the JobMaster (pid 4711 on node 89abcdef): no answer for 6 s; its processor time advances"
    ]


def test_a_question_that_nobody_else_holds_is_answered_and_then_let_go() -> None:
    """An event loop keeps only weak references to its tasks, so garbage collection could end one."""

    async def scenario() -> None:
        loop, heard = asyncio.get_running_loop(), list[CallFailure | None]()
        answers: list[weakref.ref[asyncio.Future[None]]] = []

        class Waits:
            def remote(self) -> Awaitable[None]:
                return self.wait()

            async def wait(self) -> None:
                answer = loop.create_future()
                answers.append(weakref.ref(answer))
                await answer

        master = RayMaster(loop)
        master.handle = cast("Any", Waits())
        cast("Any", master.handle).answers = master.handle
        master.ask_master(heard.append)
        await all_replies_have_come()
        gc.collect()
        answer = answers[0]()
        assert answer is not None, "the question was given up"
        answer.set_result(None)
        await all_replies_have_come()
        assert heard == [None]
        assert not TASKS

    asyncio.run(scenario())
