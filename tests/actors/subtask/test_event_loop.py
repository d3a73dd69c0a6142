"""The event loop beside a task thread: a real loop in a real thread, and an owner that takes its mail."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from queue import Empty, SimpleQueue
from typing import Any

import pytest

from penstock.actors.subtask.event_loop import ThreadedEventLoop

Mail = Callable[[], None]

#: Seconds until a test that waits for mail gives up.
PATIENCE = 30.0


class Owner:
    """Takes the mail of a loop in the thread of the test."""

    def __init__(self, **settings: Any) -> None:
        self.mail: SimpleQueue[Mail] = SimpleQueue()
        self.results: list[Any] = []
        self.errors: list[BaseException] = []
        self.blocked: list[tuple[str, float]] = []
        self.loop = ThreadedEventLoop("subtask 'x'", self.mail.put, self._blocked, **settings)

    def _blocked(self, where: str, seconds: float) -> None:
        self.blocked.append((where, seconds))

    def start(self, work: Callable[[], Any]) -> None:
        self.loop.start(work, self.results.append, self.errors.append)

    def take(self, count: int = 1) -> None:
        """Take mail until this many callbacks more were called."""
        wanted = self._called + count
        while self._called < wanted:
            self.mail.get(timeout=PATIENCE)()

    @property
    def _called(self) -> int:
        return len(self.results) + len(self.errors) + len(self.blocked)


@pytest.fixture
def owner() -> Iterator[Owner]:
    owner = Owner()
    yield owner
    owner.loop.close()


def test_answers_come_as_mail_of_the_owner(owner: Owner) -> None:
    async def where() -> str:
        return threading.current_thread().name

    owner.start(where)
    assert owner.results == []
    owner.take()
    assert owner.results == ["subtask 'x' coroutines"]


@pytest.mark.parametrize("error", [ValueError, SystemExit, asyncio.CancelledError])
def test_whatever_a_coroutine_raises_reaches_the_owner(owner: Owner, error: type[BaseException]) -> None:
    async def fails() -> None:
        raise error("no")

    owner.start(fails)
    owner.take()
    assert [type(each) for each in owner.errors] == [error]
    owner.start(lambda: asyncio.sleep(0, "still there"))
    owner.take()
    assert owner.results == ["still there"]


def test_loop_survives_a_task_of_a_coroutine_that_exits(
    owner: Owner, caplog: pytest.LogCaptureFixture
) -> None:
    """asyncio lets a `SystemExit` of a task end the loop, where nothing would ever be answered again."""

    async def exits() -> None:
        raise SystemExit(3)

    async def gathers() -> None:
        await asyncio.gather(exits())

    with caplog.at_level(logging.WARNING, logger="penstock.actors.subtask.event_loop"):
        owner.start(gathers)
        owner.take()
    assert [type(each) for each in owner.errors] == [SystemExit]
    assert "would have ended its event loop" in caplog.text
    owner.start(lambda: asyncio.sleep(0, "still there"))
    owner.take()
    assert owner.results == ["still there"]


def test_five_thousand_calls_run_at_once(owner: Owner) -> None:
    """No call is answered before all of them have begun."""
    begun = 0
    all_begun = asyncio.Event()

    async def held(number: int) -> int:
        nonlocal begun
        begun += 1
        if begun == 5000:
            all_begun.set()
        await all_begun.wait()
        return number

    for number in range(5000):
        owner.start(lambda number=number: held(number))
    owner.take(5000)
    assert sorted(owner.results) == list(range(5000))


def test_close_cancels_what_runs_and_waits_for_the_last_coroutine() -> None:
    owner = Owner()
    log: list[str] = []
    running = threading.Event()

    async def endless() -> None:
        running.set()
        try:
            await asyncio.Event().wait()
        finally:
            log.append("cancelled")

    async def last() -> None:
        await asyncio.sleep(0)
        log.append("closed")

    owner.start(endless)
    assert running.wait(PATIENCE)
    owner.loop.close(last)
    assert log == ["cancelled", "closed"]
    while True:
        try:
            owner.mail.get_nowait()()
        except Empty:
            break
    assert (owner.results, owner.errors) == ([], []), "a closed loop calls nothing back"


@pytest.mark.parametrize("fails", [False, True])
def test_tasks_that_calls_have_begun_end_after_the_last_coroutine(fails: bool) -> None:
    owner = Owner()
    log: list[str] = []

    async def refreshes() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)
            log.append("refresh ended")

    async def begins() -> asyncio.Task[None]:
        task = asyncio.create_task(refreshes())
        await asyncio.sleep(0)
        return task

    async def last() -> None:
        log.append("closed")
        if fails:
            raise ConnectionError

    owner.start(begins)
    owner.take()
    with pytest.raises(ConnectionError) if fails else nullcontext():
        owner.loop.close(last)
    assert log == ["closed", "refresh ended"]


def test_error_of_the_last_coroutine_is_raised() -> None:
    async def last() -> None:
        raise ConnectionError("not closed")

    with pytest.raises(ConnectionError, match="not closed"):
        Owner().loop.close(last)


def test_a_call_that_blocks_the_loop_is_named(caplog: pytest.LogCaptureFixture) -> None:
    owner = Owner(warn_after=0.05, limit=0.3)
    released = threading.Event()

    async def blocks() -> None:
        released.wait(PATIENCE)

    with caplog.at_level(logging.WARNING, logger="penstock.actors.subtask.event_loop"):
        owner.start(blocks)
        owner.take()
        released.set()
        owner.loop.close()
    ((where, seconds),) = owner.blocked
    assert "test_event_loop.py:" in where
    assert "blocks" in where
    assert seconds == 0.3
    assert "has blocked its event loop for over 0.1 seconds, at " in caplog.text
    assert where in caplog.text


def test_a_call_that_has_blocked_the_loop_is_named_though_its_last_line_is_unknown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    owner = Owner(warn_after=0.05, limit=0.3)
    released, found, line = threading.Event(), [], owner.loop._line

    def once() -> Any:
        found.append(line())
        return found[0] if len(found) == 1 else None

    async def blocks() -> None:
        released.wait(PATIENCE)

    monkeypatch.setattr(owner.loop, "_line", once)
    owner.start(blocks)
    owner.take()
    released.set()
    owner.loop.close()
    ((where, _),) = owner.blocked
    assert where == str(found[0])


def test_first_steps_of_many_coroutines_are_not_taken_for_one_that_blocks() -> None:
    owner = Owner(warn_after=0.05, limit=0.3)
    never = threading.Event()

    async def works() -> None:
        never.wait(0.02)

    for _ in range(60):
        owner.start(works)
    owner.take(60)
    assert owner.blocked == []
    assert len(owner.results) == 60
    owner.loop.close()


def test_loop_that_waits_is_not_blamed() -> None:
    owner = Owner(warn_after=0.02, limit=0.05)
    done = threading.Event()

    async def waits() -> None:
        for _ in range(20):
            await asyncio.sleep(0.02)
        done.set()

    owner.start(waits)
    owner.take()
    assert done.is_set()
    assert owner.blocked == []
    owner.loop.close()


def test_loop_that_is_blocked_for_ever_does_not_hold_up_its_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("penstock.actors.subtask.event_loop._CLOSE_WITHIN", 0.1)
    owner = Owner()
    running, released = threading.Event(), threading.Event()

    async def blocks() -> None:
        running.set()
        released.wait(PATIENCE)

    owner.start(blocks)
    assert running.wait(PATIENCE)
    begun = time.monotonic()
    owner.loop.close()
    assert time.monotonic() - begun < PATIENCE / 2
    assert "have not ended in time; they are abandoned, at" in caplog.text
    released.set()
