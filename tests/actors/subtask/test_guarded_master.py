"""How a guard reaches its JobMaster, also before that has deployed anything here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

import pytest
import ray

from penstock.actors.subtask.guarded_master import RayMaster
from penstock.runtime.execution.heartbeat import HeartbeatLimits
from penstock.runtime.execution.master_guard import MasterGuard
from penstock.runtime.execution.processes import Away, CallFailure, Died, Place
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

#: On this node, and gone.
PLACE = Place(1, "", 5)


class JobMaster:
    """One that answers, or of which Ray says something, and that counts how often it was asked."""

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
    """One that can't be reached may be well: only a dead one is gone."""

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
