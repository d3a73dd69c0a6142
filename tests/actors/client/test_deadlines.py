"""Time limits of calls, and their errors."""

from __future__ import annotations

import pytest

from penstock.actors.client import master_calls
from penstock.actors.client.master_calls import Deadline
from penstock.runtime.errors import JobTimeoutError


def test_the_time_left_never_exceeds_what_the_caller_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller limits a wait, for example to the interval of a guard."""
    now = [50.0]
    monkeypatch.setattr(master_calls.time, "monotonic", lambda: now[0])
    deadline = Deadline(10, "no answer", "look")
    assert (deadline.left(), deadline.left(4.0), deadline.left(30.0)) == (10.0, 4.0, 10.0)
    now[0] += 8.0
    assert (deadline.left(), deadline.left(4.0), deadline.has_passed) == (2.0, 2.0, False)
    now[0] += 8.0
    assert (deadline.left(), deadline.left(4.0), deadline.has_passed) == (0.0, 0.0, True)
    never = Deadline(None, "no answer", "look")
    assert (never.left(), never.left(4.0), never.has_passed) == (None, 4.0, False)


def test_an_error_says_what_has_not_happened_after_how_long_and_what_to_do() -> None:
    error = Deadline(2.5, "the job has not ended", "look at it").error()
    assert isinstance(error, JobTimeoutError)
    assert str(error) == "the job has not ended after 2.5 s; look at it"
    assert (
        str(Deadline(2.5, "a", "b").error("more is known", "do this")) == "more is known after 2.5 s; do this"
    )
