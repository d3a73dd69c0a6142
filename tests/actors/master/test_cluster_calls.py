"""Calls of the cluster's store keep their order, and a store that does not answer holds up no caller."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import Any

import pytest
from ray.exceptions import RpcError

from penstock.actors.master import cluster_calls
from penstock.actors.master.cluster_calls import ClusterCalls, ClusterTimeoutError
from penstock.runtime.testing.manual_time import ManualClock

#: Seconds for anything that a test waits for.
PATIENCE = 30.0
SOON = 0.01


class Store:
    """A store that answers when the test allows it, and records its calls."""

    def __init__(self) -> None:
        self.called: list[str] = []
        self.is_reached = threading.Event()
        self.answers = threading.Event()

    def call(self, name: str) -> Callable[[], None]:
        def make() -> None:
            self.called.append(name)
            self.is_reached.set()
            assert self.answers.wait(PATIENCE)

        return make


def stuck() -> tuple[ClusterCalls, Store]:
    """Calls to a store that does not answer the first one."""
    calls, store = ClusterCalls(at_once=SOON), Store()
    calls.begin("get stuck", store.call("stuck"))
    assert store.is_reached.wait(PATIENCE)
    return calls, store


def failing() -> None:
    raise RpcError("the store can't be reached")


def test_calls_are_made_one_at_a_time_in_their_order() -> None:
    calls, store = stuck()
    last = [calls.begin(name, store.call(name)) for name in "abc"][-1]
    assert store.called == ["stuck"]
    store.answers.set()
    last.future.result(PATIENCE)
    assert store.called == ["stuck", "a", "b", "c"]


def test_of_the_reports_that_wait_the_newest_is_written_behind_all_that_came_before_it() -> None:
    calls, store = stuck()
    calls.begin_newest("keep a report", store.call("first report"))
    calls.begin("note", store.call("note"))
    newest = calls.begin_newest("keep a report", store.call("last report"))
    store.answers.set()
    newest.future.result(PATIENCE)
    assert store.called == ["stuck", "note", "last report"]


def test_a_report_that_is_being_written_is_written_again_when_there_is_a_newer_one() -> None:
    calls, store = ClusterCalls(), Store()
    calls.begin_newest("keep a report", store.call("first report"))
    assert store.is_reached.wait(PATIENCE)
    newest = calls.begin_newest("keep a report", store.call("last report"))
    store.answers.set()
    newest.future.result(PATIENCE)
    assert store.called == ["first report", "last report"]


def test_who_waits_for_an_older_report_is_answered_with_the_newest() -> None:
    calls, store = stuck()
    older = calls.begin_newest("keep a report", store.call("older"))
    calls.begin_newest("keep a report", store.call("newest"))
    store.answers.set()
    asyncio.run(older.answered(PATIENCE))
    assert store.called == ["stuck", "newest"]


def test_who_waits_for_a_store_that_does_not_answer_gives_up_and_the_call_is_made_later() -> None:
    calls, store = stuck()
    late = calls.begin("note something", store.call("late"))
    with pytest.raises(ClusterTimeoutError, match=r"can't note something: .* within 0\.01 s.* its GCS"):
        asyncio.run(late.answered(SOON))
    store.answers.set()
    late.future.result(PATIENCE)
    assert store.called == ["stuck", "late"]


def test_an_event_loop_goes_on_while_it_waits_for_an_answer() -> None:
    async def scenario() -> str:
        calls, store = stuck()
        waiting = asyncio.create_task(calls.begin("read", lambda: "an answer").answered(PATIENCE))
        await asyncio.sleep(0)
        store.answers.set()
        return await waiting

    assert asyncio.run(scenario()) == "an answer"


def test_an_answer_that_is_needed_at_once_is_given_by_a_store_that_is_well() -> None:
    assert ClusterCalls().at_once("claim a process", lambda: "a process", None) == "a process"


def test_a_call_whose_answer_is_needed_at_once_comes_in_front_of_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls, store = stuck()
    last = [calls.begin(name, store.call(name)) for name in "ab"][-1]

    def answers_now(futures: list[Future[None]], _: float) -> Any:
        store.answers.set()
        return wait(futures, PATIENCE)

    monkeypatch.setattr(cluster_calls, "wait", answers_now)
    calls.at_once("claim", store.call("claim"), None)
    last.future.result(PATIENCE)
    assert store.called == ["stuck", "claim", "a", "b"]


def test_an_answer_that_is_needed_at_once_is_waited_for_only_for_a_while() -> None:
    calls, store = stuck()
    claim = store.call("claim")
    assert calls.at_once("claim a process", lambda: claim() or "a process", None) is None
    store.answers.set()
    assert calls.at_once("claim another", lambda: claim() or "another process", None) is None
    calls.begin("come last", lambda: None).future.result(PATIENCE)
    assert store.called == ["stuck"], "nobody claims what nobody uses"


def test_an_answer_that_comes_too_late_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, store = ClusterCalls(), Store()

    def time_is_up(futures: list[Any], _: float) -> tuple[set[Any], set[Any]]:
        """Called while the call is being made."""
        assert store.is_reached.wait(PATIENCE)
        return set(), set(futures)

    monkeypatch.setattr(cluster_calls, "wait", time_is_up)
    claim, given_back = store.call("claim"), list[str | None]()
    assert calls.at_once("claim", lambda: claim() or "a process", None, given_back.append) is None
    store.answers.set()
    calls.begin("come last", lambda: None).future.result(PATIENCE)
    assert given_back == ["a process"]


def test_a_store_that_can_not_be_reached_is_no_answer_and_does_not_stop_later_calls(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls = ClusterCalls()
    assert calls.at_once("count", lambda: failing() or 7, otherwise=3) == 3
    with caplog.at_level(logging.WARNING), pytest.raises(RpcError):
        asyncio.run(calls.begin("note something", failing).answered(PATIENCE))
    assert "can't note something: RpcError: the store can't be reached" in caplog.text
    assert calls.at_once("count", lambda: 7, otherwise=3) == 7


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> ManualClock:
    clock = ManualClock()
    monkeypatch.setattr(cluster_calls, "time", clock)
    return clock


def test_answers_at_once_hold_up_an_event_loop_for_two_of_ten_seconds(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls, waits, passes = ClusterCalls(), list[float](), list[float]()

    def time_passes(futures: list[Any], seconds: float) -> tuple[set[Any], set[Any]]:
        waits.append(seconds)
        clock.advance(passes.pop(0))
        return set(), set(futures)

    monkeypatch.setattr(cluster_calls, "wait", time_passes)

    def ask(passing: float) -> list[float]:
        """Seconds for which the event loop waits for an answer when so much time passes."""
        passes[:], waits[:] = [passing], []
        assert calls.at_once("claim a process", lambda: "a process", None) is None
        return list(waits)

    clock.advance(100.0)
    assert ask(1.5) == [2.0]
    assert ask(0.75) == [0.5], "what is left of the two seconds"
    assert ask(0.0) == [], "nothing is left"
    clock.advance(7.5)
    assert ask(0.0) == [], "not yet: 9.75 s have gone by"
    clock.advance(0.25)
    assert ask(2.0) == [2.0]
    assert ask(0.0) == [], "nothing is left"
    clock.advance(20.0)
    assert ask(2.0) == [2.0]
    warning = "can't claim a process: the cluster's key-value store does not answer"
    assert caplog.messages == [warning] * 4


@pytest.mark.parametrize(("took", "is_told"), [(4.75, False), (5.0, True), (7.0, True)])
def test_a_call_that_takes_long_is_told_in_the_log(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, took: float, is_told: bool
) -> None:
    calls = ClusterCalls()
    clock.advance(100.0)
    calls.begin("keep a report", lambda: clock.advance(took))
    calls.begin("come last", lambda: None).future.result(PATIENCE)
    told = f"the cluster's key-value store took {took:.0f} s to keep a report"
    assert caplog.messages == ([told] if is_told else [])


@pytest.mark.parametrize("fails", [False, True], ids=["it is given", "it fails"])
@pytest.mark.parametrize("is_wanted", [False, True], ids=["nobody takes it", "somebody would take it"])
def test_an_answer_that_comes_too_late_goes_only_to_those_who_take_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: bool, is_wanted: bool
) -> None:
    calls, store = ClusterCalls(), Store()

    def time_is_up(futures: list[Any], _: float) -> tuple[set[Any], set[Any]]:
        assert store.is_reached.wait(PATIENCE)
        return set(), set(futures)

    monkeypatch.setattr(cluster_calls, "wait", time_is_up)
    claim, given_back = store.call("claim"), list[str]()

    def make() -> str:
        claim()
        return str(failing()) if fails else "a process"

    assert calls.at_once("claim", make, "none", given_back.append if is_wanted else None) == "none"
    store.answers.set()
    calls.begin("come last", lambda: None).future.result(PATIENCE)
    assert given_back == (["a process"] if is_wanted and not fails else [])
    assert "exception calling callback" not in caplog.text


def test_a_call_that_is_given_up_before_it_is_made_has_no_late_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls, store = stuck()
    given_back = list[str]()
    assert calls.at_once("claim", lambda: "a process", "none", given_back.append) == "none"
    store.answers.set()
    calls.begin("come last", lambda: None).future.result(PATIENCE)
    assert given_back == []
    assert "exception calling callback" not in caplog.text


def test_a_call_that_is_stuck_does_not_keep_its_process() -> None:
    before = threading.enumerate()
    ClusterCalls()
    [thread] = [t for t in threading.enumerate() if t.name == "cluster-calls" and t not in before]
    assert thread.daemon
