"""The rendezvous of a transfer: who may have rows, and what it is asked twice."""

from __future__ import annotations

import asyncio
from typing import Any

from penstock.bridge.receive_buffer_messages import DIED
from penstock.bridge.transfer_service import Rendezvous, TransferRequest

#: Seconds; far more than anything here takes.
LONG = 60.0


def register(rendezvous: Rendezvous, *who: Any) -> str | None:
    return asyncio.run(rendezvous.register(*who))


def request(rendezvous: Rendezvous, number: int) -> TransferRequest | None:
    """An order that is there."""
    return asyncio.run(rendezvous.request(number, 0.0))


def test_a_request_is_complete_with_the_last_buffer_of_its_job() -> None:
    rendezvous = Rendezvous()
    assert register(rendezvous, "a", 1, 2, "instance-1", 7) is None
    assert request(rendezvous, 0) is None
    assert not asyncio.run(rendezvous.has_all("a", 2))
    assert register(rendezvous, "a", 0, 2, "instance-0", 6) is None
    assert request(rendezvous, 0) == TransferRequest("a", (6, 7))
    assert asyncio.run(rendezvous.has_all("a", 2))


def test_the_same_buffer_may_come_again_and_another_one_in_its_place_may_not() -> None:
    rendezvous = Rendezvous()
    for _ in range(2):
        assert register(rendezvous, "a", 0, 1, "instance") is None
    assert request(rendezvous, 0) == TransferRequest("a", (-1,))
    assert request(rendezvous, 1) is None, "it is one order"
    assert register(rendezvous, "a", 0, 1, "another") == DIED


def test_a_stream_is_read_by_one_job_and_others_are_refused_at_once() -> None:
    rendezvous = Rendezvous(one_job=True)
    assert register(rendezvous, "a", 0, 2, "a-0") is None
    assert register(rendezvous, "b", 0, 1, "b-0") == (
        "this streaming DataFrame is read by job a; make a DataFrame for each job"
    )
    assert register(rendezvous, "a", 1, 2, "a-1") is None
    assert request(rendezvous, 0) == TransferRequest("a", (-1, -1))
    assert request(rendezvous, 1) is None


def test_a_dataframe_is_read_by_any_number_of_jobs_and_no_order_is_lost_with_an_answer() -> None:
    rendezvous = Rendezvous()
    for number, job in enumerate("ab"):
        assert register(rendezvous, job, 0, 1, f"{job}-0") is None
        assert request(rendezvous, number) == request(rendezvous, number) == TransferRequest(job, (-1,))


def test_a_waiting_program_gets_a_request_when_it_is_complete() -> None:
    async def waits() -> TransferRequest | None:
        rendezvous = Rendezvous()
        waiting = asyncio.create_task(rendezvous.request(0, LONG))
        await asyncio.sleep(0)
        assert not waiting.done()
        await rendezvous.register("a", 0, 2, "instance-0")
        await asyncio.sleep(0)
        assert not waiting.done()
        await rendezvous.register("a", 1, 2, "instance-1")
        return await asyncio.wait_for(waiting, LONG / 2)

    assert asyncio.run(waits()) == TransferRequest("a", (-1, -1))
