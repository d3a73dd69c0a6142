"""Several calls are waited for together, only so long, and told of once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scripted_processes import timers

from penstock.runtime.execution.processes import Away, Replies
from penstock.runtime.testing.manual_time import ManualTimers


def gathering(*keys: str) -> tuple[Replies[str, int], ManualTimers, list[Mapping[str, Any]]]:
    told: list[Mapping[str, Any]] = []
    time = timers()[1]
    return Replies(keys, time, 5.0, told.append), time, told


def test_it_is_done_with_the_last_answer_and_not_before() -> None:
    made, time, told = gathering("a", "b")
    made.reply("a")(1)
    assert told == []
    made.reply("b")(Away())
    assert told == [{"a": 1, "b": Away()}]
    time.advance(10)
    assert len(told) == 1


def test_who_has_not_answered_in_time_is_missing_and_a_late_answer_says_nothing() -> None:
    made, time, told = gathering("a", "b")
    made.reply("a")(1)
    time.advance(5)
    made.reply("b")(2)
    assert told == [{"a": 1}]


def test_an_answer_that_comes_twice_counts_once() -> None:
    made, _, told = gathering("a", "b")
    made.reply("a")(1)
    made.reply("a")(2)
    assert told == []
    made.reply("b")(3)
    assert told == [{"a": 1, "b": 3}]


def test_one_that_waits_for_nobody_is_done_soon_and_never_at_once() -> None:
    _, time, told = gathering()
    assert told == []
    time.advance(0)
    assert told == [{}]


def test_one_that_was_called_off_tells_nothing() -> None:
    made, time, told = gathering("a")
    made.cancel()
    made.reply("a")(1)
    time.advance(10)
    assert told == []
