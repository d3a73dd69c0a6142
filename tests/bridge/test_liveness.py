"""A receive buffer looks again and again for the other readers of its job, also when no actor answers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import ray
from unsteady import UNAVAILABLE, Unsteady

from penstock.bridge import receive_buffer_actor
from penstock.bridge.receive_buffer_actor import LOOKS, OtherReaders
from penstock.bridge.transfer_service import Rendezvous


@pytest.fixture
def rendezvous(monkeypatch: pytest.MonkeyPatch) -> Rendezvous:
    """One of the two readers of a job has come to it."""
    opened = Rendezvous()
    asyncio.run(opened.register("the-job", 0, 2, "instance-0"))
    return opened


def looks(handle: Any, monkeypatch: pytest.MonkeyPatch, others: OtherReaders, rounds: int) -> list[float]:
    """After how many rounds of looks readers were missed, each time."""
    monkeypatch.setattr(ray, "get_actor", lambda name, namespace: handle)

    async def missing() -> list[float]:
        return [look / LOOKS for look in range(1, rounds * LOOKS + 1) if await others.are_missing()]

    return asyncio.run(missing())


@pytest.fixture
def others() -> OtherReaders:
    return OtherReaders("a-transfer", "the-job", 2)


def test_readers_that_will_not_come_are_missed_at_every_round(
    rendezvous: Rendezvous, others: OtherReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Unsteady(rendezvous, {})
    assert looks(handle, monkeypatch, others, 2) == [1, 2]
    assert len(handle.calls) == 2, "the rendezvous is asked once a round"


@pytest.mark.parametrize("error", [UNAVAILABLE, None])
def test_a_rendezvous_that_is_silent_for_a_round_is_asked_in_the_next_one(
    rendezvous: Rendezvous, others: OtherReaders, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    monkeypatch.setattr(receive_buffer_actor, "_PATIENCE", 0.01)
    assert looks(Unsteady(rendezvous, {"has_all": 1}, error=error), monkeypatch, others, 2) == [2]


def test_readers_that_have_all_come_are_not_looked_for_again(
    rendezvous: Rendezvous, others: OtherReaders, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(rendezvous.register("the-job", 1, 2, "instance-1"))
    handle = Unsteady(rendezvous, {})
    assert looks(handle, monkeypatch, others, 3) == []
    assert len(handle.calls) == 1
