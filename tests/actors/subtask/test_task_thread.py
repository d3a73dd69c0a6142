"""The thread of an attempt steps its subtask, takes its mail in between, and closes it at every end."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any, cast

import pytest

from penstock.actors.shared.cycle_collector import FullCollections
from penstock.actors.subtask import attempt
from penstock.actors.subtask.attempt import TaskThread
from penstock.runtime.errors import PenstockError
from penstock.runtime.execution.processes import LongCall
from penstock.runtime.task.subtask import StepResult
from penstock.runtime.testing.manual_time import ManualClock

MORE = StepResult(more=True)
IDLE = StepResult(more=False)
FINISHED = StepResult(more=False, finished=True)

Step = StepResult | BaseException | Callable[[], StepResult]


class Played:
    """A subtask that records its calls, and follows a script step by step.

    Args:
        steps: What each step leaves or raises.
        closing: What `close` raises.
    """

    def __init__(self, *steps: Step, closing: BaseException | None = None) -> None:
        self.happened: list[str] = []
        self.is_taking_checkpoint = False
        self.stepped = threading.Semaphore(0)
        self._steps: Iterator[Step] = iter(steps)
        self._closing = closing

    def step(self) -> StepResult:
        self.happened.append("step")
        self.stepped.release()
        step = next(self._steps)
        if isinstance(step, BaseException):
            raise step
        return step if isinstance(step, StepResult) else step()

    def close(self) -> None:
        self.happened.append("close")
        if self._closing is not None:
            raise self._closing

    async def has_stepped(self) -> None:
        """Wait for the next step that no earlier call has waited for."""
        while not self.stepped.acquire(blocking=False):
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def sleeps_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle thread is woken, or sleeps longer than any test."""
    monkeypatch.setattr(attempt, "_MAX_IDLE", 300.0)


def new_thread(build: Callable[[], Any]) -> TaskThread:
    return TaskThread(asyncio.get_running_loop(), "count[0]", build, FullCollections())


def played(
    subtask: Played,
    act: Callable[[TaskThread], Awaitable[None]] | None = None,
) -> BaseException | None:
    """Deploy and start a subtask, or do something else with it when it is deployed; with what it ended."""

    async def scenario() -> BaseException | None:
        thread = new_thread(lambda: cast("Any", subtask))
        thread.deploy()
        await thread.deployed
        assert thread.subtask is cast("Any", subtask)
        if act is None:
            thread.start()
        else:
            await act(thread)
        await asyncio.wait({thread.ended})
        return thread.ended.exception()

    return asyncio.run(asyncio.wait_for(scenario(), 20))


def test_a_subtask_is_stepped_until_it_has_finished_and_then_closed() -> None:
    """In so many steps that it is still at it after 20 s when it sleeps in between."""
    subtask = Played(*[MORE] * 40, FINISHED)
    assert played(subtask) is None
    assert subtask.happened == ["step"] * 41 + ["close"]


@pytest.mark.parametrize("error", [ValueError("no state"), SystemExit("no state")])
def test_a_subtask_that_can_not_be_built_is_not_deployed_and_has_ended(error: BaseException) -> None:
    async def scenario() -> None:
        def build() -> Any:
            raise error

        thread = new_thread(build)
        thread.deploy()
        with pytest.raises(ValueError if isinstance(error, ValueError) else PenstockError, match="no state"):
            await thread.deployed
        assert await thread.ended is None
        assert thread.subtask is None

    asyncio.run(asyncio.wait_for(scenario(), 20))


def test_an_attempt_whose_subtask_was_not_built_can_be_stopped() -> None:
    async def scenario() -> None:
        def build() -> Any:
            raise ValueError("no state")

        thread = new_thread(build)
        thread.deploy()
        with pytest.raises(ValueError, match="no state"):
            await thread.deployed
        before = asyncio.all_tasks()
        thread.stop()
        for begun in asyncio.all_tasks() - before:
            await begun
        assert await thread.ended is None

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.parametrize("closing", [None, OSError("still locked")], ids=["it is closed", "nor be closed"])
def test_a_subtask_that_fails_is_closed_and_its_failure_is_the_end(closing: BaseException | None) -> None:
    subtask = Played(MORE, ValueError("a bug of the user"), closing=closing)
    failure = played(subtask)
    assert isinstance(failure, ValueError)
    assert ("still locked" in str(getattr(failure, "__notes__", ""))) is (closing is not None)
    assert subtask.happened == ["step", "step", "close"]


def test_an_exit_of_users_code_is_a_failure_like_any_other() -> None:
    failure = played(Played(SystemExit(3)))
    assert isinstance(failure, PenstockError)


def test_a_subtask_that_can_not_be_closed_has_failed() -> None:
    failure = played(Played(FINISHED, closing=OSError("still locked")))
    assert isinstance(failure, OSError)


def test_a_subtask_that_is_stopped_before_it_was_started_is_closed_without_a_step() -> None:
    async def stop(thread: TaskThread) -> None:
        thread.stop()

    subtask = Played()
    assert played(subtask, stop) is None
    assert subtask.happened == ["close"]


def test_an_idle_subtask_is_stopped_at_once() -> None:
    subtask = Played(IDLE)

    async def start_and_stop(thread: TaskThread) -> None:
        thread.start()
        await subtask.has_stepped()
        thread.stop()

    assert played(subtask, start_and_stop) is None
    assert subtask.happened == ["step", "close"]


def test_mail_wakes_an_idle_subtask_and_is_taken_before_its_next_step() -> None:
    subtask = Played(IDLE, FINISHED)

    async def post(thread: TaskThread) -> None:
        thread.start()
        await subtask.has_stepped()
        thread.post(lambda: subtask.happened.append("mail"))

    assert played(subtask, post) is None
    assert subtask.happened == ["step", "mail", "step", "close"]


def test_a_letter_wakes_an_idle_subtask_once() -> None:
    subtask = Played(IDLE, IDLE)

    async def post_and_stop(thread: TaskThread) -> None:
        thread.start()
        await subtask.has_stepped()
        thread.post(lambda: None)
        await subtask.has_stepped()
        for _ in range(20):
            await asyncio.sleep(0)
        thread.stop()

    assert played(subtask, post_and_stop) is None
    assert subtask.happened == ["step", "step", "close"]


def test_mail_waits_for_the_start_and_comes_before_the_second_step() -> None:
    subtask = Played(MORE, FINISHED)

    async def post_and_start(thread: TaskThread) -> None:
        for number in range(3):
            thread.post(partial(subtask.happened.append, f"mail {number}"))
        await asyncio.sleep(0)
        assert subtask.happened == []
        thread.start()

    assert played(subtask, post_and_start) is None
    assert [what for what in subtask.happened if what != "step"] == ["mail 0", "mail 1", "mail 2", "close"]
    assert subtask.happened[-2:] == ["step", "close"]


@pytest.mark.parametrize("error", [ValueError("a bug of the user"), queue.Empty(), TimeoutError()])
def test_mail_that_fails_is_a_failure_of_the_subtask(error: Exception) -> None:
    subtask = Played(IDLE)

    async def post(thread: TaskThread) -> None:
        def fail() -> None:
            raise error

        thread.start()
        await subtask.has_stepped()
        thread.post(fail)

    assert played(subtask, post) is error
    assert subtask.happened == ["step", "close"]


@pytest.mark.parametrize("after", [-1.0, 0.01], ids=["it is over", "it is soon"])
def test_an_idle_subtask_is_stepped_when_its_time_has_come(after: float) -> None:
    """So often that it is still at it after 20 s when it sleeps for longer."""
    naps, began = 40, time.monotonic()

    def nap() -> StepResult:
        return StepResult(more=False, wake_at=time.monotonic() + after)

    assert played(Played(*[nap] * naps, FINISHED)) is None
    assert time.monotonic() - began >= naps * after


def test_an_idle_subtask_is_looked_at_now_and_then_whatever_it_waits_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(attempt, "_MAX_IDLE", 0.01)
    later = StepResult(more=False, wake_at=time.monotonic() + 300.0)
    assert played(Played(IDLE, later, FINISHED)) is None


def test_a_deployment_whose_call_was_cancelled_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    release, subtask = threading.Event(), Played()

    def build() -> Any:
        assert release.wait(20)
        return subtask

    async def scenario() -> None:
        thread = new_thread(build)
        thread.deploy()
        thread.deployed.cancel()
        release.set()
        thread.stop()
        assert await thread.ended is None

    asyncio.run(asyncio.wait_for(scenario(), 20))
    assert subtask.happened == ["close"]
    assert caplog.messages == []


class Gate:
    """A piece of work that lasts until the test has looked."""

    def __init__(self) -> None:
        self.entered, self.release = threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None

    def work(self, result: Any = None) -> Any:
        self.thread = threading.current_thread()
        self.entered.set()
        assert self.release.wait(20)
        return result


def test_a_thread_is_asked_what_it_does_only_while_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    monkeypatch.setattr(attempt, "time", clock)
    monkeypatch.setattr(attempt, "running_call", lambda frame: "map function parse (job.py:12)")
    building, stepping, taking_mail = Gate(), Gate(), Gate()
    subtask = Played(lambda: cast("StepResult", stepping.work(IDLE)), IDLE)

    async def scenario() -> None:
        thread = new_thread(lambda: building.work(subtask))

        async def is_seen_in(gate: Gate) -> None:
            await asyncio.to_thread(gate.entered.wait, 20)
            assert thread.long_call() is None
            clock.advance(5.0)
            assert thread.long_call() == LongCall("map function parse (job.py:12)", 5.0)
            gate.release.set()

        clock.advance(100.0)
        assert thread.long_call() is None
        thread.deploy()
        await is_seen_in(building)
        await thread.deployed
        clock.advance(100.0)
        assert thread.long_call() is None, "it waits for its start"
        thread.start()
        await is_seen_in(stepping)
        while thread.long_call() is not None:  # until it waits for mail
            await asyncio.sleep(0.001)
        clock.advance(100.0)
        thread.post(taking_mail.work)
        await is_seen_in(taking_mail)
        thread.stop()
        assert await thread.ended is None
        assert stepping.thread is not None
        assert (stepping.thread.name, stepping.thread.daemon) == ("count[0]", True)

    asyncio.run(asyncio.wait_for(scenario(), 30))


class Noted(FullCollections):
    """Notes when a full collection would be allowed, and wakes the idle thread."""

    def __init__(self, wake: Callable[[], None]) -> None:
        super().__init__()
        self.noted: list[tuple[bool, bool]] = []
        self._wake = wake

    def collect_if_due(self, *, is_idle: bool, is_taking_checkpoint: bool) -> None:
        self.noted.append((is_idle, is_taking_checkpoint))
        if is_idle:
            self._wake()


def test_full_collections_learn_when_the_subtask_is_idle_or_takes_a_checkpoint() -> None:
    async def scenario() -> None:
        def take_checkpoint() -> StepResult:
            subtask.is_taking_checkpoint = True
            thread.post(lambda: None)
            return IDLE

        subtask = Played(MORE, IDLE, take_checkpoint, FINISHED)
        collections = Noted(lambda: thread.post(lambda: None))
        thread = TaskThread(asyncio.get_running_loop(), "count[0]", lambda: cast("Any", subtask), collections)
        thread.deploy()
        await thread.deployed
        thread.start()
        await asyncio.wait({thread.ended})
        assert thread.ended.exception() is None
        assert collections.noted == [(False, False), (True, False), (False, True)], "waiting mail is work"

    asyncio.run(asyncio.wait_for(scenario(), 20))
