"""Calls of actors that Ray can't reach for a while: made again, and only so long."""

from __future__ import annotations

import pytest
import ray
from unsteady import DEAD, Unsteady

from penstock.bridge.calls.answers import NoAnswerError
from penstock.bridge.calls.repeated_call import PAUSE, RepeatedCall


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Counter:
    """Counts how often it was asked."""

    def __init__(self) -> None:
        self.count = 0

    def ask(self) -> int:
        self.count += 1
        return self.count


def test_a_call_is_made_again_after_a_pause_and_not_before() -> None:
    clock, handle = Clock(), Unsteady(Counter(), {"ask": 2})
    call = RepeatedCall[int](handle.ask.remote, "it", clock=clock)
    for made in (1, 2):
        assert not call.is_done()
        assert not call.is_done()
        assert len(handle.calls) == made
        clock.now += PAUSE
        assert not call.is_done()
    assert len(handle.calls) == 3
    assert call.is_done()
    assert call.result() == 1, "the first two have not arrived"


def test_an_actor_that_stays_away_is_named_at_last() -> None:
    clock, handle = Clock(), Unsteady(Counter(), {"ask": 1_000})
    call = RepeatedCall[int](handle.ask.remote, "the depot", 10.0, clock)
    while not call.is_done():
        clock.now += PAUSE
    assert clock.now == pytest.approx(110.0, abs=2 * PAUSE)
    with pytest.raises(NoAnswerError, match=r"the depot: Ray could not reach it for 10 s.*`ray status`"):
        call.result()


def test_a_dead_actor_is_asked_once() -> None:
    handle = Unsteady(Counter(), {"ask": 1}, error=DEAD)
    call = RepeatedCall[int](handle.ask.remote, "it")
    assert call.is_done()
    with pytest.raises(ray.exceptions.ActorDiedError):
        call.result()
    assert len(handle.calls) == 1


def test_waiting_ends_with_the_answer_or_in_time() -> None:
    assert RepeatedCall[int](Unsteady(Counter(), {"ask": 2}).ask.remote, "it").answer() == 1
    with pytest.raises(NoAnswerError, match=r"the desk: no answer for 0\.01 s"):
        RepeatedCall[int](Unsteady(Counter(), {"ask": 1_000}).ask.remote, "the desk").answer(0.01)
