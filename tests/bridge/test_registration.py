"""A receive buffer registers, whatever the connection to the rendezvous does."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from unsteady import DEAD, Unsteady

from penstock.bridge.receive_buffer_actor import registered
from penstock.bridge.receive_buffer_messages import DIED, NO_PROGRAM, UNREACHABLE_PROGRAM
from penstock.bridge.transfer_service import Rendezvous, TransferRequest


def told(rendezvous: Unsteady, instance: str = "instance", away: float = 60.0) -> str | None:
    def call() -> Awaitable[Any]:
        return rendezvous.register.remote("a", 0, 1, instance, 3)

    return asyncio.run(registered(call, away))


@pytest.mark.parametrize("arrives", [False, True])
def test_a_lost_registration_is_made_again_and_counts_once(arrives: bool) -> None:
    rendezvous = Rendezvous()
    assert told(Unsteady(rendezvous, {"register": 2}, arrives=arrives)) is None
    assert asyncio.run(rendezvous.request(0, 0.0)) == TransferRequest("a", (3,))
    assert asyncio.run(rendezvous.request(1, 0.0)) is None


def test_a_refusal_a_dead_rendezvous_and_an_unreachable_one_give_different_reasons() -> None:
    rendezvous = Rendezvous()
    assert told(Unsteady(rendezvous, {})) is None
    assert told(Unsteady(rendezvous, {}), "another") == DIED
    assert told(Unsteady(rendezvous, {"register": 1}, error=DEAD)) == NO_PROGRAM
    assert told(Unsteady(rendezvous, {"register": 1_000}), away=0.0) == UNREACHABLE_PROGRAM

    def no_such_actor() -> Awaitable[Any]:
        raise ValueError

    assert asyncio.run(registered(no_such_actor)) == NO_PROGRAM
