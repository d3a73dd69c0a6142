"""A deliver call is answered when its elements are consumed, and not before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.execution.processes import (
    Away,
    Deliveries,
    DeliveryAnswer,
    Died,
    SenderStep,
    step_after,
)


class Call:
    """A deliver call that may have been answered."""

    def __init__(self, deliveries: Deliveries, channel: int, end: int) -> None:
        self.answers: list[DeliveryAnswer] = []
        self.is_new = deliveries.wait(channel, end, self.answers.append)


CONSUMED, STALE = [DeliveryAnswer.CONSUMED], [DeliveryAnswer.STALE]


def test_a_call_waits_until_everything_below_its_number_is_consumed() -> None:
    deliveries = Deliveries()
    first, second = Call(deliveries, 0, 5), Call(deliveries, 0, 9)
    deliveries.consumed(0, 8)
    assert (first.answers, second.answers) == (CONSUMED, [])
    deliveries.consumed(0, 9)
    assert second.answers == CONSUMED


def test_calls_that_arrive_out_of_order_are_answered_by_number() -> None:
    deliveries = Deliveries()
    late, early = Call(deliveries, 0, 9), Call(deliveries, 0, 5)
    deliveries.consumed(0, 5)
    assert (early.answers, late.answers) == (CONSUMED, [])


def test_a_frame_sent_again_after_it_was_consumed_is_answered_at_once_and_not_taken_again() -> None:
    deliveries = Deliveries()
    deliveries.consumed(0, 5)
    again, new = Call(deliveries, 0, 5), Call(deliveries, 0, 6)
    assert (again.answers, again.is_new) == (CONSUMED, False)
    assert (new.answers, new.is_new) == ([], True)


def test_a_frame_sent_again_before_it_was_consumed_is_answered_as_often_as_it_came() -> None:
    deliveries = Deliveries()
    calls = [Call(deliveries, 0, 5), Call(deliveries, 0, 5)]
    deliveries.consumed(0, 5)
    assert [call.answers for call in calls] == [CONSUMED, CONSUMED]


def test_an_older_report_takes_nothing_back() -> None:
    deliveries = Deliveries()
    deliveries.consumed(0, 5)
    deliveries.consumed(0, 3)
    assert Call(deliveries, 0, 5).answers == CONSUMED


def test_channels_do_not_answer_for_each_other() -> None:
    deliveries = Deliveries()
    other = Call(deliveries, 1, 1)
    deliveries.consumed(0, 100)
    assert other.answers == []


def test_closing_answers_every_call_now_and_later() -> None:
    deliveries = Deliveries()
    waiting = [Call(deliveries, 0, 1), Call(deliveries, 1, 1)]
    deliveries.close(DeliveryAnswer.STALE)
    later = Call(deliveries, 0, 1)
    assert [call.answers for call in (*waiting, later)] == [STALE] * 3
    assert not later.is_new


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=30),
    st.lists(st.tuples(st.integers(0, 2), st.integers(1, 20)), max_size=30),
    st.randoms(),
)
def test_a_call_has_its_credit_exactly_if_its_elements_are_consumed_whatever_the_order(
    calls: list[tuple[int, int]], reports: list[tuple[int, int]], random: object
) -> None:
    deliveries, reached = Deliveries(), dict.fromkeys(range(3), 0)
    made: list[tuple[int, int, Call]] = []
    events = [*((True, *call) for call in calls), *((False, *report) for report in reports)]
    random.shuffle(events)  # type: ignore[attr-defined]
    for is_call, channel, number in events:
        if is_call:
            made.append((channel, number, Call(deliveries, channel, number)))
        else:
            deliveries.consumed(channel, number)
            reached[channel] = max(reached[channel], number)
        for its_channel, end, call in made:
            assert call.answers == (CONSUMED if end <= reached[its_channel] else [])


@pytest.mark.parametrize(
    ("answer", "step"),
    [
        (DeliveryAnswer.CONSUMED, SenderStep.TAKE_CREDIT),
        (DeliveryAnswer.NOT_YET, SenderStep.SEND_AGAIN),
        (DeliveryAnswer.STALE, SenderStep.END_CHANNEL),
        (Away(), SenderStep.SEND_AGAIN),
        (Died("killed"), SenderStep.END_CHANNEL),
    ],
)
def test_only_what_was_consumed_is_a_credit(answer: DeliveryAnswer | Away | Died, step: SenderStep) -> None:
    assert step_after(answer) is step
