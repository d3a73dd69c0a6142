"""Timers in a queue: fired in order, once, and found again in their table."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from penstock.runtime.config.job_config import RocksDB
from penstock.runtime.io.rocksdb import timer_table
from penstock.runtime.operators.timers import TimerQueue
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import FileHandle, KeyedStateHandle, KeyGroupRange, StateHandle
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.state.timer_table import TimerTable
from penstock.runtime.testing.harness_state import open_state_backend

KEYS = st.sampled_from(["a", "b", 1, ("a", 2), None])
MOMENTS = st.integers(-3, 12)


#: Makes a table that has these timers.
TableOf = Callable[..., TimerTable]


def with_timers(table: TimerTable, *timers: tuple[Any, int]) -> TimerTable:
    queue = TimerQueue(table)
    for key, at in timers:
        queue.register(key, at)
    return table


@pytest.fixture
def table_of(new_backend: Callable[[], KeyedStateBackend]) -> TableOf:
    return lambda *timers: with_timers(new_backend().timer_table("timers"), *timers)


def test_timers_fire_by_moment_and_then_in_the_order_in_which_they_were_set(table_of: TableOf) -> None:
    queue = TimerQueue(table_of(("late", 30), ("b", 10), ("a", 10), (("not", "comparable"), 10)))
    assert list(queue.due(20)) == [(10, "b"), (10, "a"), (10, ("not", "comparable"))]
    assert list(queue.due(20)) == []
    assert (queue.next_at, len(queue)) == (30, 1)


def test_timer_that_is_set_twice_fires_once_and_keeps_its_place(table_of: TableOf) -> None:
    queue = TimerQueue(table_of(("a", 1), ("b", 1), ("a", 1)))
    assert list(queue.due(1)) == [(1, "a"), (1, "b")]


def test_timer_that_was_deleted_and_set_again_stands_behind_the_others(table_of: TableOf) -> None:
    queue = TimerQueue(table_of(("a", 1), ("b", 1)))
    queue.delete("a", 1)
    queue.register("a", 1)
    assert list(queue.due(1)) == [(1, "b"), (1, "a")]


def test_timers_that_are_set_while_others_fire_fire_in_their_turn(table_of: TableOf) -> None:
    queue = TimerQueue(table_of(("a", 1), ("a", 5)))
    fired = []
    for at, key in queue.due(6):
        fired.append(at)
        queue.register(key, at + 2)
    assert fired == [1, 3, 5]
    assert queue.next_at == 7


def test_table_knows_after_each_timer_which_are_left(table_of: TableOf) -> None:
    table = table_of(("a", 1), ("b", 1), ("b", 2))
    assert list(islice(TimerQueue(table).due(2), 2)) == [(1, "a"), (1, "b")]
    assert list(TimerQueue(table).due(9)) == [(2, "b")]
    assert list(table) == []


def test_timers_that_have_fired_are_changes_for_the_next_checkpoint() -> None:
    table = StateTable("timers", nested=True)
    timers = with_timers(TimerTable(table), ("a", 1), ("b", 1), ("b", 2))
    table.changed.clear()
    assert list(islice(TimerQueue(timers).due(2), 2)) == [(1, "a"), (1, "b")]
    assert set(table.changed) == {("a", 1), ("b", 1)}


def test_timers_of_several_old_subtasks_keep_the_order_of_each(table_of: TableOf) -> None:
    both = table_of()
    for old in (table_of(("a", 1), ("b", 1), ("c", 0)), table_of((1, 1), (2, 1), (3, 0))):
        for key, at, number in old:
            both.put(key, at, number)
    fired = [key for _, key in TimerQueue(both).due(1)]
    assert [key for key in fired if isinstance(key, str)] == ["c", "a", "b"]
    assert [key for key in fired if isinstance(key, int)] == [3, 1, 2]


def test_deleted_timers_leave_the_memory_too(table_of: TableOf) -> None:
    queue = TimerQueue(table_of())
    for at in range(10_000):
        queue.register("session", at)
        queue.delete("session", at - 1)
    assert len(queue) == 1
    assert len(queue._heap) < 5_000  # nothing else shows it


class Files:
    """A store of files in memory."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}

    def write(self, data: bytes) -> StateHandle:
        path = f"file-{len(self.content)}"
        self.content[path] = data
        return FileHandle(path, len(data), "")

    def read(self, handle: StateHandle) -> bytes:
        assert isinstance(handle, FileHandle)
        return self.content[handle.path]


class TimersBesideASortedList(RuleBasedStateMachine):
    """A queue that is built anew from its table now and then, beside a list that is sorted at each look."""

    def __init__(self) -> None:
        super().__init__()
        self.table = self.new_table()
        self.queue = TimerQueue(self.table)
        self.model: list[tuple[int, Any]] = []  # in the order of registration

    def new_table(self) -> TimerTable:
        self.saved = StateTable("timers", nested=True)
        return TimerTable(self.saved)

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
        self.saved.changed.clear()

    @invariant()
    def agrees(self) -> None:
        assert len(self.queue) == len(self.model)
        assert self.queue.next_at == min((at for at, _ in self.model), default=None)
        in_table = sorted((at, str(key)) for key, at, _ in self.table)
        assert in_table == sorted((at, str(key)) for at, key in self.model)


TestTimersBesideASortedList = TimersBesideASortedList.TestCase


class TimersOnRocksDB(TimersBesideASortedList):
    """The same; timers are written back in twos, and a snapshot restores exactly the timers of its moment."""

    def new_table(self) -> TimerTable:
        self.files = Files()
        self.backend = self.new_backend()
        self.checkpoint_id = 0
        return self.backend.timer_table("timers")

    def new_backend(self) -> KeyedStateBackend:
        setup = BackendSetup("op", 128, KeyGroupRange(0, 127), ValueCodec())
        return open_state_backend(RocksDB(8 * 1024 * 1024, "/dev/shm"), setup)

    @rule()
    def snapshot(self) -> None:
        self.taken(self_contained=False)

    @rule(self_contained=st.booleans(), continues=st.booleans())
    def restore(self, self_contained: bool, continues: bool) -> None:
        handle = self.taken(self_contained=self_contained)
        restored = self.new_backend()
        restored.restore([handle], self.files)
        table = restored.timer_table("timers")
        assert sorted(map(str, table)) == sorted(map(str, self.table))
        if continues:
            restored, self.backend = self.backend, restored
            self.table, self.checkpoint_id = table, 0
            self.restart()
        restored.close()

    def taken(self, *, self_contained: bool) -> KeyedStateHandle:
        self.checkpoint_id += 1
        snapshot = self.backend.snapshot(self.checkpoint_id, -1, self_contained=self_contained)
        return snapshot.finish(self.files)

    def teardown(self) -> None:
        self.backend.close()


@pytest.fixture
def _small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer_table, "_BATCH", 2)


@pytest.mark.usefixtures("_small_batches")
def test_timers_in_rocksdb_are_those_of_the_model_however_they_are_written_back() -> None:
    how = settings(max_examples=25, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(TimersOnRocksDB, settings=how)  # type: ignore[no-untyped-call]
