"""Work in threads, and timers: results and failures are posted to the owner's thread."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from penstock.actors.shared.system_ports import BackgroundRunner, LoopTimers

Mail = Callable[[], None]


def heard_of(work: Callable[[], object], *, cancel: bool = False) -> list[object]:
    """Run work; return the callbacks that its owner, this thread, received."""
    mailbox: queue.SimpleQueue[Mail] = queue.SimpleQueue()
    heard: list[object] = []
    with ThreadPoolExecutor(1) as pool:
        runner = BackgroundRunner(pool, mailbox.put)
        handle = runner.run(
            lambda: (work(), threading.get_ident()), lambda result: heard.append(result[0]), heard.append
        )
        mail = mailbox.get(timeout=15)
        if cancel:
            handle.cancel()
        mail()
    assert mailbox.empty(), "one answer"
    return heard


def test_a_result_is_posted_to_the_owner() -> None:
    assert heard_of(lambda: 7) == [7]


@pytest.mark.parametrize("error", [OSError("no disk"), SystemExit(3)], ids=["an error", "an exit"])
def test_whatever_work_raises_is_posted_to_the_owner(error: BaseException) -> None:
    def fail() -> None:
        raise error

    assert heard_of(fail) == [error]


def test_work_that_is_cancelled_before_its_answer_was_taken_is_not_heard_of() -> None:
    assert heard_of(lambda: 7, cancel=True) == []


def test_a_timer_calls_in_its_time_under_its_guard_unless_it_is_cancelled() -> None:
    async def scenario() -> list[str]:
        loop, said, done = asyncio.get_running_loop(), list[str](), asyncio.Event()

        def guard(callback: Mail) -> None:
            said.append("guarded")
            callback()

        timers, now, time = LoopTimers(loop, guard), loop.time(), loop.time
        loop.time = lambda: now  # type: ignore[method-assign] # all are set at one moment
        timers.call_later(0.02, lambda: (said.append("later"), done.set()))  # type: ignore[arg-type, return-value]
        timers.call_later(0.01, lambda: said.append("earlier"))
        timers.call_later(0.0, lambda: said.append("never")).cancel()
        loop.time = time  # type: ignore[method-assign]
        await asyncio.wait_for(done.wait(), 15)
        return said

    assert asyncio.run(scenario()) == ["guarded", "earlier", "guarded", "later"]
