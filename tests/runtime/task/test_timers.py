"""Timers of a subtask fire when the caller that steps it says so, in the order of their times."""

from __future__ import annotations

import pytest

from penstock.runtime.task.task_time import TaskTimers
from penstock.runtime.testing.manual_time import ManualClock


class Fixture:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = TaskTimers(self.clock)
        self.fired: list[str] = []

    def call(self, delay: float, name: str) -> None:
        self.timers.call_later(delay, lambda: self.fired.append(name))

    def pass_time(self, seconds: float) -> list[str]:
        self.clock.advance(seconds)
        self.timers.fire(self.clock.monotonic())
        return self.fired


@pytest.fixture
def f() -> Fixture:
    return Fixture()


def test_timer_fires_once_when_its_time_has_come_and_not_before(f: Fixture) -> None:
    f.call(2.0, "it")
    assert f.pass_time(1.5) == []
    assert f.pass_time(0.5) == ["it"]
    assert f.pass_time(9.0) == ["it"]


def test_time_alone_fires_nothing(f: Fixture) -> None:
    f.call(1.0, "it")
    f.clock.advance(5.0)
    assert f.fired == []


def test_timers_fire_in_the_order_of_their_times_and_equal_ones_in_the_order_they_were_set(
    f: Fixture,
) -> None:
    for delay, name in [(3.0, "d"), (1.0, "a"), (2.0, "b"), (2.0, "c")]:
        f.call(delay, name)
    assert f.pass_time(3.0) == ["a", "b", "c", "d"]


def test_delay_counts_from_the_moment_of_the_call(f: Fixture) -> None:
    f.clock.advance(10.0)
    f.call(1.0, "it")
    assert f.pass_time(0.5) == []
    assert f.pass_time(0.5) == ["it"]


def test_next_time_is_that_of_the_earliest_timer_that_will_fire(f: Fixture) -> None:
    now = f.clock.monotonic()
    early = f.timers.call_later(1.0, lambda: f.fired.append("early"))
    f.call(2.0, "late")
    assert f.timers.next_at == now + 1.0
    early.cancel()
    assert f.timers.next_at == now + 2.0
    assert f.pass_time(2.0) == ["late"]
    assert f.timers.next_at is None


def test_timer_may_be_called_off_again_and_after_it_has_fired(f: Fixture) -> None:
    timer = f.timers.call_later(1.0, lambda: f.fired.append("it"))
    f.pass_time(1.0)
    timer.cancel()
    timer.cancel()
    assert f.pass_time(1.0) == ["it"]


def test_timer_may_call_off_another_that_is_due_and_set_a_new_one(f: Fixture) -> None:
    def first() -> None:
        f.fired.append("first")
        second.cancel()
        f.call(0.0, "third")
        f.call(1.0, "later")

    f.timers.call_later(1.0, first)
    second = f.timers.call_later(1.0, lambda: f.fired.append("second"))
    assert f.pass_time(1.0) == ["first", "third"]
    assert f.timers.next_at == f.clock.monotonic() + 1.0


def test_timer_that_fails_does_not_take_the_others_with_it(f: Fixture) -> None:
    def fail() -> None:
        msg = "no"
        raise ValueError(msg)

    f.timers.call_later(1.0, fail)
    f.call(1.0, "it")
    with pytest.raises(ValueError, match="no"):
        f.pass_time(1.0)
    assert f.pass_time(0.0) == ["it"]
