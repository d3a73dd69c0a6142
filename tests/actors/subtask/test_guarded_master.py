"""How a guard reaches its JobMaster, also before that has deployed anything here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, cast

from penstock.actors.subtask.guarded_master import RayMaster
from penstock.runtime.execution.heartbeat import HeartbeatLimits
from penstock.runtime.execution.master_guard import MasterGuard
from penstock.runtime.execution.processes import Away, CallFailure, Place
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers

#: On this node, and gone.
PLACE = Place(1, "", 5)


class JobMaster:
    """One that answers, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = self

    def remote(self) -> Awaitable[None]:
        self.asked += 1
        return asyncio.sleep(0)


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
