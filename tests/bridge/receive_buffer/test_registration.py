"""A depot announces itself, whatever the connection to the desk does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from unsteady import DEAD, Unsteady

from penstock.bridge.receive_buffer.failure_texts import LOST, NO_PROGRAM, UNREACHABLE_PROGRAM
from penstock.bridge.receive_buffer.registration import announced
from penstock.bridge.transfer.rendezvous import HandOverDesk, Order


def told(desk: Unsteady, stamp: str = "stamp", away: float = 60.0) -> str | None:
    def call() -> Awaitable[Any]:
        return desk.announce.remote("a", 0, 1, stamp, 3)

    return asyncio.run(announced(call, away))


@pytest.mark.parametrize("arrives", [False, True])
def test_a_lost_announcement_is_made_again_and_counts_once(arrives: bool) -> None:
    desk = HandOverDesk()
    assert told(Unsteady(desk, {"announce": 2}, arrives=arrives)) is None
    assert asyncio.run(desk.order(0, 0.0)) == Order("a", (3,))
    assert asyncio.run(desk.order(1, 0.0)) is None


def test_what_the_desk_refuses_and_a_desk_that_is_gone_or_away_are_told_apart() -> None:
    desk = HandOverDesk()
    assert told(Unsteady(desk, {})) is None
    assert told(Unsteady(desk, {}), "another") == LOST
    assert told(Unsteady(desk, {"announce": 1}, error=DEAD)) == NO_PROGRAM
    assert told(Unsteady(desk, {"announce": 1_000}), away=0.0) == UNREACHABLE_PROGRAM

    def no_such_actor() -> Awaitable[Any]:
        raise ValueError

    assert asyncio.run(announced(no_such_actor)) == NO_PROGRAM
