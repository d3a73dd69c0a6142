"""The desk of a hand-over: who may have rows, and what it is asked twice."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.bridge.receive_buffer.failure_texts import LOST
from penstock.bridge.transfer.rendezvous import HandOverDesk, Order

#: Seconds; far more than anything here takes.
LONG = 60.0


def announce(desk: HandOverDesk, *who: Any) -> str | None:
    return asyncio.run(desk.announce(*who))


def order(desk: HandOverDesk, number: int) -> Order | None:
    """An order that is there."""
    return asyncio.run(desk.order(number, 0.0))


def test_an_order_is_complete_with_the_last_depot_of_its_job() -> None:
    desk = HandOverDesk()
    assert announce(desk, "a", 1, 2, "stamp-1", 7) is None
    assert order(desk, 0) is None
    assert not asyncio.run(desk.has_all("a", 2))
    assert announce(desk, "a", 0, 2, "stamp-0", 6) is None
    assert order(desk, 0) == Order("a", (6, 7))
    assert asyncio.run(desk.has_all("a", 2))


def test_the_same_depot_may_come_again_and_another_one_in_its_place_may_not() -> None:
    desk = HandOverDesk()
    for _ in range(2):
        assert announce(desk, "a", 0, 1, "stamp") is None
    assert order(desk, 0) == Order("a", (-1,))
    assert order(desk, 1) is None, "it is one order"
    assert announce(desk, "a", 0, 1, "another") == LOST


def test_a_stream_is_read_by_one_job_and_others_are_refused_at_once() -> None:
    desk = HandOverDesk(one_job=True)
    assert announce(desk, "a", 0, 2, "a-0") is None
    assert announce(desk, "b", 0, 1, "b-0") == (
        "this streaming DataFrame is read by job a; make another one for each job"
    )
    assert announce(desk, "a", 1, 2, "a-1") is None
    assert order(desk, 0) == Order("a", (-1, -1))
    assert order(desk, 1) is None


def test_a_dataframe_is_read_by_any_number_of_jobs_and_no_order_is_lost_with_an_answer() -> None:
    desk = HandOverDesk()
    for number, job in enumerate("ab"):
        assert announce(desk, job, 0, 1, f"{job}-0") is None
        assert order(desk, number) == order(desk, number) == Order(job, (-1,))


def test_who_waits_for_an_order_is_told_when_it_comes() -> None:
    async def waits() -> Order | None:
        desk = HandOverDesk()
        waiting = asyncio.create_task(desk.order(0, LONG))
        await asyncio.sleep(0)
        assert not waiting.done()
        await desk.announce("a", 0, 2, "stamp-0")
        await asyncio.sleep(0)
        assert not waiting.done()
        await desk.announce("a", 1, 2, "stamp-1")
        return await asyncio.wait_for(waiting, LONG / 2)

    assert asyncio.run(waits()) == Order("a", (-1, -1))
