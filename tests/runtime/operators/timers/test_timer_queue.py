"""Timers in a queue: fired in order, once, and found again in their table."""

from __future__ import annotations

from itertools import islice
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.runtime.operators.timers.timer_queue import TimerQueue
from penstock.runtime.state.state_table import StateTable

KEYS = st.sampled_from(["a", "b", 1, ("a", 2), None])
MOMENTS = st.integers(-3, 12)


def table_of(*timers: tuple[Any, int]) -> StateTable:
    table = StateTable("timers", nested=True)
    queue = TimerQueue(table)
    for key, at in timers:
        queue.register(key, at)
    return table


def test_timers_fire_by_moment_and_then_in_the_order_in_which_they_were_set():
    queue = TimerQueue(table_of(("late", 30), ("b", 10), ("a", 10), (("not", "comparable"), 10)))
    assert list(queue.due(20)) == [(10, "b"), (10, "a"), (10, ("not", "comparable"))]
    assert list(queue.due(20)) == []
    assert (queue.next_at, len(queue)) == (30, 1)


def test_timer_that_is_set_twice_fires_once_and_keeps_its_place():
    queue = TimerQueue(table_of(("a", 1), ("b", 1), ("a", 1)))
    assert list(queue.due(1)) == [(1, "a"), (1, "b")]


def test_timer_that_was_deleted_and_set_again_stands_behind_the_others():
    queue = TimerQueue(table_of(("a", 1), ("b", 1)))
    queue.delete("a", 1)
    queue.register("a", 1)
    assert list(queue.due(1)) == [(1, "b"), (1, "a")]


def test_timers_that_are_set_while_others_fire_fire_in_their_turn():
    queue = TimerQueue(table_of(("a", 1), ("a", 5)))
    fired = []
    for at, key in queue.due(6):
        fired.append(at)
        queue.register(key, at + 2)
    assert fired == [1, 3, 5]
    assert queue.next_at == 7


def test_table_knows_after_each_timer_which_are_left():
    table = table_of(("a", 1), ("b", 1), ("b", 2))
    table.changed.clear()
    due = TimerQueue(table).due(2)
    assert list(islice(due, 2)) == [(1, "a"), (1, "b")]
    assert set(table.changed) == {("a", 1), ("b", 1)}
    assert list(TimerQueue(table).due(9)) == [(2, "b")]
    assert table.entries == {}


def test_timers_of_several_old_subtasks_keep_the_order_of_each():
    both = StateTable("timers", nested=True)
    for old in (table_of(("a", 1), ("b", 1), ("c", 0)), table_of((1, 1), (2, 1), (3, 0))):
        both.entries.update(old.entries)
    fired = [key for _, key in TimerQueue(both).due(1)]
    assert [key for key in fired if isinstance(key, str)] == ["c", "a", "b"]
    assert [key for key in fired if isinstance(key, int)] == [3, 1, 2]


def test_deleted_timers_leave_the_memory_too():
    queue = TimerQueue(table_of())
    for at in range(100_000):
        queue.register("session", at)
        queue.delete("session", at - 1)
    assert len(queue) == 1
    assert len(queue._heap) < 5_000  # nothing else shows it


class TimersBesideASortedList(RuleBasedStateMachine):
    """A queue that is built anew from its table now and then, beside a list that is sorted at each look."""

    def __init__(self) -> None:
        super().__init__()
        self.table = StateTable("timers", nested=True)
        self.queue = TimerQueue(self.table)
        self.model: list[tuple[int, Any]] = []  # in the order of registration

    @rule(key=KEYS, at=MOMENTS)
    def register(self, key: Any, at: int) -> None:
        self.queue.register(key, at)
        if (at, key) not in self.model:
            self.model.append((at, key))

    @rule(key=KEYS, at=MOMENTS)
    def delete(self, key: Any, at: int) -> None:
        self.queue.delete(key, at)
        self.model = [timer for timer in self.model if timer != (at, key)]

    @rule(until=MOMENTS, most=st.integers(0, 4))
    def fire(self, until: int, most: int) -> None:
        in_order = sorted(self.model, key=lambda timer: timer[0])
        expected = [timer for timer in in_order if timer[0] <= until][:most]
        assert list(islice(self.queue.due(until), most)) == expected
        self.model = [timer for timer in self.model if timer not in expected]

    @rule()
    def restart(self) -> None:
        self.queue = TimerQueue(self.table)

    @rule()
    def snapshot(self) -> None:
        self.table.changed.clear()

    @invariant()
    def agrees(self) -> None:
        assert len(self.queue) == len(self.model)
        assert self.queue.next_at == min((at for at, _ in self.model), default=None)
        assert sorted(
            (at, str(key)) for key, moments in self.table.entries.items() for at in moments
        ) == sorted((at, str(key)) for at, key in self.model)


TestTimersBesideASortedList = TimersBesideASortedList.TestCase
