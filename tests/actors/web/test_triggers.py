"""Triggers of requests: found under their own job, for a limited time."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from penstock.actors.web import server
from penstock.actors.web.server import RequestTriggers


def answer(result: dict[str, Any]) -> Future[dict[str, Any]]:
    call: Future[dict[str, Any]] = Future()
    call.set_result(result)
    return call


def test_a_request_is_known_to_the_job_that_it_was_made_to_alone() -> None:
    known, call = RequestTriggers(), Future[dict[str, Any]]()
    trigger = known.add("words-1", call)
    made = known.get("words-1", trigger)
    assert made is not None
    assert made.to_dict() == {"status": {"id": "IN_PROGRESS"}}
    call.set_result({"location": "/there"})
    assert made.to_dict()["operation"] == {"result": {"location": "/there"}}
    assert known.get("words-2", trigger) is None
    assert known.get("words-1", "0") is None


def test_a_request_that_never_began_has_no_known_outcome() -> None:
    known, call = RequestTriggers(), Future[dict[str, Any]]()
    made = known.get("words-1", known.add("words-1", call))
    assert made is not None
    assert call.cancel()
    cause = made.to_dict()["operation"]["failure-cause"]
    assert (cause["class"], cause["outcome"]) == ("CancelledError", "unknown")


def test_the_oldest_ended_requests_are_forgotten_and_none_that_goes_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(server, "_KEPT", 2)
    known = RequestTriggers()
    running = known.add("words-1", Future())
    ended = [known.add("words-1", answer({"n": n})) for n in range(5)]
    found = [known.get("words-1", each) is not None for each in (running, *ended)]
    assert found == [True, False, False, False, True, True]
