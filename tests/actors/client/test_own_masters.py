"""A submission waits until its job has begun, even if the JobMaster dies first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import ray

from penstock.actors.client import own_masters

DIED = ray.exceptions.RayActorError()
RESTARTS = ray.exceptions.ActorUnavailableError("it is restarting", None)


class Master:
    """An actor whose `ready` fails with these errors, and then succeeds."""

    def __init__(self, errors: Iterable[BaseException | None]) -> None:
        self._errors: Iterator[BaseException | None] = iter(errors)
        self.ready = self
        self.calls = 0

    def remote(self, job_id: str) -> Any:
        self.calls += 1
        self._future: Future[None] = Future()
        if (error := next(self._errors, None)) is None:
            self._future.set_result(None)
        else:
            self._future.set_exception(error)
        return self

    def future(self) -> Future[None]:
        return self._future


def test_the_calls_that_a_restarting_job_master_refuses_are_no_deaths() -> None:
    master = Master([DIED, *[RESTARTS] * (own_masters._STARTS + 2), DIED])
    own_masters._wait_until_ready(master, "words-1")
    assert master.calls == own_masters._STARTS + 5


def test_a_job_master_that_dies_again_and_again_fails_the_submission() -> None:
    master = Master([DIED] * 10)
    with pytest.raises(ray.exceptions.RayActorError):
        own_masters._wait_until_ready(master, "words-1")
    assert master.calls == own_masters._STARTS


def test_an_error_of_the_job_master_is_raised_at_once() -> None:
    master = Master([ValueError("this process is not the JobMaster of words-1")])
    with pytest.raises(ValueError, match="not the JobMaster"):
        own_masters._wait_until_ready(master, "words-1")
    assert master.calls == 1


def test_a_job_master_that_stays_away_is_waited_for_until_the_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(own_masters, "_START_TIMEOUT", 0.3)
    with pytest.raises(TimeoutError) as raised:
        own_masters._wait_until_ready(Master([RESTARTS] * 100), "words-1")
    assert raised.value.__cause__ is RESTARTS
