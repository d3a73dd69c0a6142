"""Triggers of requests: found under their own job, for a limited time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.actors.web import server
from penstock.actors.web.server import RequestTriggers


async def answer(result: dict[str, Any]) -> dict[str, Any]:
    return result


async def all_have_ended() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_a_request_is_known_to_the_job_that_it_was_made_to_alone() -> None:
    async def scenario() -> None:
        known = RequestTriggers()
        trigger = known.begin("words-1", answer({"location": "/there"}))
        made = known.get("words-1", trigger)
        assert made is not None
        assert made.to_dict() == {"status": {"id": "IN_PROGRESS"}}
        await all_have_ended()
        assert made.to_dict()["operation"] == {"result": {"location": "/there"}}
        assert known.get("words-2", trigger) is None
        assert known.get("words-1", "0") is None

    asyncio.run(scenario())


def test_the_oldest_ended_requests_are_forgotten_and_none_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_KEPT", 2)

    async def scenario() -> None:
        known, goes_on = RequestTriggers(), asyncio.Event()
        running = known.begin("words-1", wait(goes_on))
        ended = [known.begin("words-1", answer({"n": n})) for n in range(5)]
        await all_have_ended()
        newest = known.begin("words-1", answer({}))
        found = [known.get("words-1", each) is not None for each in (running, *ended, newest)]
        assert found == [True, False, False, False, True, True, True]
        goes_on.set()
        await all_have_ended()

    asyncio.run(scenario())


async def wait(goes_on: asyncio.Event) -> dict[str, Any]:
    await goes_on.wait()
    return {}
