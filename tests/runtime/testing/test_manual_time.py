"""The test's own time: nothing happens unless it is moved."""

import pytest
from manual_work import ManualAsyncRunner

from penstock import ConfigurationError
from penstock.runtime.testing.manual_time import ManualClock, ManualTimers


def test_timers_fire_in_order_and_the_clock_stands_at_each_ones_moment():
    clock = ManualClock(start=50.0)
    timers = ManualTimers(clock)
    fired = []
    for delay in (3, 1, 2, 1):
        timers.call_later(delay, lambda d=delay: fired.append((d, clock.monotonic(), clock.now())))
    timers.advance(2.5)
    assert fired == [(1, 1, 51), (1, 1, 51), (2, 2, 52)]
    assert clock.monotonic() == 2.5
    assert [timer.due for timer in timers.pending] == [3]


def test_a_timer_that_is_set_by_a_timer_fires_within_the_same_advance():
    timers = ManualTimers(ManualClock())
    fired = []

    def again():
        fired.append(len(fired))
        timers.call_later(1, again)

    timers.call_later(1, again)
    timers.advance(3)
    assert fired == [0, 1, 2]


def test_a_cancelled_timer_never_fires():
    timers = ManualTimers(ManualClock())
    fired = []
    timer = timers.call_later(1, lambda: fired.append(1))
    timer.cancel()
    timers.advance(5)
    assert fired == []
    assert not timers.fire_next()


def test_time_never_goes_back():
    clock = ManualClock()
    with pytest.raises(ConfigurationError, match="of at least 0 s"):
        clock.advance(-1)


def test_background_work_waits_for_its_turn_and_tells_exactly_one_outcome():
    runner = ManualAsyncRunner()
    told = []
    runner.run(lambda: 1, lambda r: told.append(("result", r)), lambda e: told.append(("error", e)))
    runner.run(lambda: 1 / 0, lambda r: told.append(("result", r)), lambda e: told.append(type(e)))
    assert told == []
    assert runner.waiting == 2
    assert runner.run_next(1)
    assert told == [ZeroDivisionError]
    assert runner.run_all() == 1
    assert told == [ZeroDivisionError, ("result", 1)]


def test_cancelled_work_is_done_and_nobody_hears_of_it():
    runner = ManualAsyncRunner()
    done, told = [], []
    runner.run(lambda: done.append(1), told.append, told.append).cancel()
    runner.run_all()
    assert (done, told) == ([1], [])
