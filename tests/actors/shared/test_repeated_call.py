"""Calls of actors that Ray can't reach for a while: repeated until a deadline."""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from typing import Any

import pytest
import ray
from unsteady import DEAD, Unsteady

from penstock.actors.shared.actor_calls import NoAnswerError, RepeatedCall, ray_text, while_unavailable
from penstock.runtime.errors import DeploymentError
from penstock.runtime.execution.deadlines import BETWEEN_CALLS


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Counter:
    """Counts its calls."""

    def __init__(self) -> None:
        self.count = 0

    def ask(self) -> int:
        self.count += 1
        return self.count


def test_a_call_is_made_again_after_a_pause_and_not_before() -> None:
    clock, handle = Clock(), Unsteady(Counter(), {"ask": 2})
    call = RepeatedCall[int](handle.ask.remote, "it", clock=clock)
    for made, pause in ((1, BETWEEN_CALLS.after(1)), (2, BETWEEN_CALLS.after(2))):
        assert not call.is_done()
        assert not call.is_done()
        assert len(handle.calls) == made
        clock.now += pause
        assert not call.is_done()
    assert len(handle.calls) == 3
    assert call.is_done()
    assert call.result() == 1, "the first two have not arrived"


def test_an_actor_that_stays_away_is_named_in_the_error() -> None:
    clock, handle = Clock(), Unsteady(Counter(), {"ask": 1_000})
    call = RepeatedCall[int](handle.ask.remote, "the buffer", while_unavailable(10.0), clock)
    while not call.is_done():
        clock.now += BETWEEN_CALLS.longest
    assert clock.now == pytest.approx(110.0, abs=2 * BETWEEN_CALLS.longest)
    with pytest.raises(NoAnswerError, match=r"the buffer: Ray could not reach it for 10 s.*`ray status`"):
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
    with pytest.raises(NoAnswerError, match=r"the rendezvous: no answer for 0\.01 s"):
        RepeatedCall[int](Unsteady(Counter(), {"ask": 1_000}).ask.remote, "the rendezvous").answer(0.01)


def test_an_event_loop_waits_for_the_answer_of_an_actor_that_comes_back() -> None:
    handle = Unsteady(Counter(), {"ask": 2})
    assert asyncio.run(RepeatedCall[int](handle.ask.remote, "it").awaited()) == 1
    assert len(handle.calls) == 3


@pytest.mark.parametrize("failures", [2, 1_000], ids=["it comes back", "it stays away"])
def test_an_event_loop_reports_no_error_that_the_call_has_judged(
    failures: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        handle = Unsteady(Counter(), {"ask": failures})
        with suppress(NoAnswerError):
            await RepeatedCall[int](handle.ask.remote, "it", while_unavailable(0.2)).awaited()
        gc.collect()
        await asyncio.sleep(0)

    asyncio.run(scenario())
    assert caplog.messages == []


def test_an_actor_that_is_not_found_counts_as_absent_only_if_the_caller_says_so() -> None:
    found = iter([ValueError("no such actor")])

    def make() -> Any:
        for error in found:
            raise error
        return Unsteady(Counter(), {}).ask.remote()

    with pytest.raises(ValueError, match="no such actor"):
        RepeatedCall[int](make, "it").answer()
    found = iter([ValueError("no such actor")])
    assert RepeatedCall[int](make, "it", lambda error: 5.0).answer() == 1


def test_errors_that_count_as_absence_end_with_the_patience() -> None:
    clock, handle = Clock(), Unsteady(Counter(), {"ask": 1_000}, error=DEAD)
    call = RepeatedCall[int](handle.ask.remote, "it", lambda error: 3.0, clock)
    while not call.is_done():
        clock.now += BETWEEN_CALLS.longest
    assert call.gave_up
    assert call.error is DEAD


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            ray.exceptions.RayActorError(error_msg="It died.\n\tname: a\n\tpid: 7\nThe node is dead.\n"),
            "It died. The node is dead.",
        ),
        (ray.exceptions.RayTaskError("f", "Traceback ...", DeploymentError("no job")), "no job"),
        (ray.exceptions.RayTaskError("f", "Traceback ...", ValueError("no number")), "ValueError: no number"),
        (ray.exceptions.RayError(), "RayError"),
    ],
)
def test_the_text_of_an_error_of_ray_is_whole_and_one_paragraph(error: BaseException, text: str) -> None:
    assert ray_text(error) == text
