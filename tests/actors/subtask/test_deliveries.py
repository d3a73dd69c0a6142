"""A deliver call returns when its elements are consumed, and not before."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

from penstock.actors.subtask.deliveries import Deliveries, DeliveryAnswer


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 10))


async def everything_that_is_due() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_call_waits_until_everything_below_its_number_is_consumed() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        first, second = deliveries.wait(0, 5), deliveries.wait(0, 9)
        deliveries.consumed(0, 8)
        await everything_that_is_due()
        assert first.result() is DeliveryAnswer.CONSUMED
        assert not second.done()
        deliveries.consumed(0, 9)
        assert await second is DeliveryAnswer.CONSUMED

    run(test())


def test_calls_that_arrive_out_of_order_are_answered_by_number() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        late, early = deliveries.wait(0, 9), deliveries.wait(0, 5)
        deliveries.consumed(0, 5)
        await everything_that_is_due()
        assert early.done()
        assert not late.done()

    run(test())


def test_a_frame_sent_again_after_it_was_consumed_is_answered_at_once() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        deliveries.consumed(0, 5)
        await everything_that_is_due()
        assert deliveries.wait(0, 5).result() is DeliveryAnswer.CONSUMED
        assert not deliveries.wait(0, 6).done()

    run(test())


def test_an_older_report_takes_nothing_back() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        deliveries.consumed(0, 5)
        deliveries.consumed(0, 3)
        await everything_that_is_due()
        assert deliveries.wait(0, 5).done()

    run(test())


def test_channels_do_not_answer_for_each_other() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        other = deliveries.wait(1, 1)
        deliveries.consumed(0, 100)
        await everything_that_is_due()
        assert not other.done()

    run(test())


def test_closing_answers_every_call_now_and_later() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        waiting = [deliveries.wait(0, 1), deliveries.wait(1, 1)]
        deliveries.close(DeliveryAnswer.STALE)
        later = deliveries.wait(0, 1)
        assert [call.result() for call in (*waiting, later)] == [DeliveryAnswer.STALE] * 3

    run(test())


def test_a_call_that_was_given_up_harms_no_other() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        given_up, other = deliveries.wait(0, 1), deliveries.wait(0, 2)
        given_up.cancel()
        deliveries.consumed(0, 2)
        assert await other is DeliveryAnswer.CONSUMED

    run(test())


def test_another_thread_reports_what_was_consumed() -> None:
    async def test() -> None:
        deliveries = Deliveries(asyncio.get_running_loop())
        call = deliveries.wait(0, 1)
        threading.Thread(target=deliveries.consumed, args=(0, 1)).start()
        assert await call is DeliveryAnswer.CONSUMED

    run(test())
