"""An error in the scheduler ends the JobMaster's process; any other error is logged."""

from __future__ import annotations

import asyncio
import gc
import os
import weakref

import pytest

from penstock.actors.shared.system_ports import TASKS, GuardedLoop, answered, spawn


def fail() -> None:
    raise ValueError("a bug of the scheduler")


@pytest.fixture
def exits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    codes: list[int] = []
    monkeypatch.setattr(os, "_exit", codes.append)
    return codes


@pytest.mark.parametrize("is_retired", [False, True], ids=["it runs", "it has ended"])
def test_a_failure_of_the_scheduler_ends_the_process_until_its_job_has_ended(
    exits: list[int], is_retired: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        guarded = GuardedLoop(asyncio.get_running_loop(), "words-1")
        if is_retired:
            guarded.retire()
        guarded.post(fail)
        guarded.post(lambda: None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert exits == ([] if is_retired else [1])
    assert "a bug of the scheduler" in caplog.text


def test_a_failure_of_anything_else_is_told_and_ends_nothing(
    exits: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async def part() -> None:
            fail()

        loop = asyncio.get_running_loop()
        spawn(loop, part())
        await asyncio.sleep(0)
        await answered(loop.call_soon)

    asyncio.run(scenario())
    assert exits == []
    assert "a task of this process has failed" in caplog.text
    assert "a bug of the scheduler" in caplog.text


def test_a_part_that_is_cancelled_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        spawn(asyncio.get_running_loop(), asyncio.sleep(300))
        await asyncio.sleep(0)
        [part] = asyncio.all_tasks() - {asyncio.current_task()}
        part.cancel()
        await asyncio.wait({part})
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert caplog.messages == []


def test_a_part_that_nobody_else_holds_goes_on_and_is_let_go_at_its_end() -> None:
    """An event loop refers to its tasks weakly, so the cycle collector could end one."""

    async def scenario() -> None:
        loop, ends = asyncio.get_running_loop(), list[bool]()
        news: list[weakref.ref[asyncio.Future[None]]] = []

        async def part() -> None:
            future = loop.create_future()
            news.append(weakref.ref(future))
            await future
            ends.append(True)

        spawn(loop, part())
        await asyncio.sleep(0)
        gc.collect()
        future = news[0]()
        assert future is not None, "the part was given up"
        future.set_result(None)
        for _ in range(3):
            await asyncio.sleep(0)
        assert ends == [True]
        assert not TASKS

    asyncio.run(scenario())
