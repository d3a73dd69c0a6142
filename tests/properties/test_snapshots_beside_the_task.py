"""A snapshot holds exactly what was there at its synchronous half, whatever the task does while it is
written.

Each snapshot is written by a thread that goes one step at a time, when the test says so. A step ends when
something is encoded or a file is touched. So any order of writes, expiry, timers, further snapshots, failed
and abandoned ones comes up, and comes up again with the same seed. Blocks, and the number of changes that are
looked at ahead, are so small that every path is taken.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
from deep import DEEP
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.runtime.errors import StorageError
from penstock.runtime.operators.functions.keyed_folds import AggregateFunction
from penstock.runtime.operators.timers import TimerQueue
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import FileHandle, KeyedStateHandle, KeyGroupRange, StateHandle
from penstock.runtime.state import captured_rows, dirty_entries
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.keyed_snapshot import CompactionPolicy
from penstock.runtime.state.keyed_states import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.manual_time import ManualClock

ALL = KeyGroupRange(0, 15)
KEYS = st.sampled_from(["a", "b", "c", 1, (2, "x"), None])
FLAT, NESTED = ("any", "number", "expiring", "folded", "reduced", "direct"), ("pages", "events", "timers")


class Basket(NamedTuple):
    owner: str
    items: Any


@dataclass(frozen=True)
class Note:
    text: str
    marks: Any = ()


class Text(str):
    """May have attributes."""


def extended(before: list[int], value: list[int]) -> list[int]:
    """Change the stored value in place."""
    before.extend(value)
    return before


class Joined(AggregateFunction[int, list[int], list[int]]):
    """Its accumulator is changed in place, even when a result is made from it."""

    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        accumulator.reverse()
        return accumulator


#: Makes a value out of a number; those with a list in them are changed in place later.
MAKERS: list[Callable[[int], Any]] = [
    lambda n: n,
    lambda n: f"text {n}",
    lambda n: (n, ("x", None)),
    lambda n: [n],
    lambda n: {"n": [n]},
    lambda n: ("pair", [n]),
    lambda n: Basket("ann", (n,)),
    lambda n: Basket("ann", [n]),
    lambda n: Note("n", (n,)),
    lambda n: Note("n", {"n": [n]}),
    lambda n: Text(n),
]
NUMBERS, MADE = st.integers(0, 99), st.sampled_from(range(len(MAKERS)))


def change_in_place(value: Any, number: int) -> None:
    """Append to the first list in a value, or set an attribute."""
    if isinstance(value, Text):
        value.mark = number  # type: ignore[attr-defined]
    elif isinstance(value, list):
        value.append(number)
    elif isinstance(value, dict):
        value["n"].append(number)
    elif isinstance(value, Note):
        change_in_place(value.marks, number)
    elif isinstance(value, tuple):
        for part in value:
            change_in_place(part, number)


class Baton:
    """Lets a thread go on by one step, and waits until that is over."""

    def __init__(self) -> None:
        self._go, self._over = threading.Semaphore(0), threading.Semaphore(0)

    def give(self) -> None:
        self._go.release()
        self._over.acquire()

    def pause(self) -> None:
        self._over.release()
        self._go.acquire()

    def begin(self) -> None:
        self._go.acquire()

    def end(self) -> None:
        self._over.release()


class SteppedCodec(ValueCodec):
    """The task's codec; that of another thread pauses in front of each value."""

    pause: Callable[[], None] | None = None

    def dumps(self, value: Any) -> bytes:
        if self.pause is not None:
            self.pause()
        return super().dumps(value)

    @contextmanager
    def for_another_thread(self) -> Iterator[ValueCodec]:
        codec = SteppedCodec()
        codec.pause = batons[threading.get_ident()].pause
        yield codec


#: The baton of each thread that writes a snapshot.
batons: dict[int, Baton] = {}


class Writer:
    """Writes one snapshot, step by step."""

    def __init__(self, finish: Callable[[Any], KeyedStateHandle], content: dict[str, bytes]) -> None:
        self._finish, self._content = finish, content
        self.baton = Baton()
        self.handle: KeyedStateHandle | None = None
        self.error: BaseException | None = None
        self.is_broken = self.is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def step(self) -> None:
        if not self.is_over:
            self.baton.give()

    def end(self) -> None:
        while not self.is_over:
            self.step()
        self._thread.join()

    def write(self, data: bytes) -> StateHandle:
        self.baton.pause()
        if self.is_broken:
            msg = "the disk is full"
            raise StorageError(msg)
        path = f"file-{len(self._content)}"
        self._content[path] = data
        return FileHandle(path, len(data), "")

    def read(self, handle: StateHandle) -> bytes:
        self.baton.pause()
        assert isinstance(handle, FileHandle)
        return self._content[handle.path]

    def _run(self) -> None:
        batons[threading.get_ident()] = self.baton
        self.baton.begin()
        try:
            self.handle = self._finish(self)
        except BaseException as error:
            self.error = error
        self.is_over = True
        self.baton.end()


class Files:
    """Reads what the writers have written."""

    def __init__(self, content: dict[str, bytes]) -> None:
        self._content = content

    def read(self, handle: StateHandle) -> bytes:
        assert isinstance(handle, FileHandle)
        return self._content[handle.path]


class SnapshotsBesideTheTask(RuleBasedStateMachine):
    @initialize(files=st.integers(1, 4))
    def deploy(self, files: int) -> None:
        self.policy = CompactionPolicy(max_files=files)
        self.clock = ManualClock()
        self.content: dict[str, bytes] = {}
        self.backend = self.new_backend(SteppedCodec())
        bind = self.backend.bind
        self.any = bind(ValueState(name="any"))
        self.number = bind(ValueState(int, name="number"))
        self.expiring = bind(ValueState(name="expiring", ttl=10.0))
        self.folded = bind(AggregatingState(Joined(), name="folded"))
        self.reduced = bind(ReducingState(extended, name="reduced"))
        self.pages = bind(MapState(name="pages"))
        self.events = bind(ListState(name="events"))
        self.direct = self.backend.table("direct")
        self.timers = TimerQueue(self.backend.timer_table("timers"))
        self.writers: dict[int, tuple[Writer, dict[str, Any]]] = {}
        self.last_id = 0
        self.completed_id = -1

    def new_backend(self, codec: ValueCodec) -> HeapKeyedStateBackend:
        return HeapKeyedStateBackend(BackendSetup("op", 16, ALL, codec, clock=self.clock), self.policy)

    def contents(self, backend: HeapKeyedStateBackend) -> dict[str, Any]:
        tables = {name: backend.table(name).entries for name in FLAT}
        return tables | {name: backend.table(name, nested=True).entries for name in NESTED}

    @rule(key=KEYS, number=NUMBERS, made=MADE)
    def writes(self, key: Any, number: int, made: int) -> None:
        self.backend.set_current_key(key)
        values = [MAKERS[made](number), MAKERS[-made](number), MAKERS[made](number), MAKERS[made](number)]
        self.any.update(values[0])
        self.number.update(number)
        self.expiring.update(values[1])
        self.folded.add(number)
        self.pages[number % 3] = values[2]
        self.events.add(values[3])
        for value in values:
            change_in_place(value, number)  # a state keeps copies

    @rule(key=KEYS, number=NUMBERS)
    def changes_in_place_what_it_reads(self, key: Any, number: int) -> None:
        self.backend.set_current_key(key)
        folded = self.folded.get() or []
        for value in [
            self.any.value(),
            self.expiring.value(),
            *self.pages.values(),
            *self.events.get(),
            folded,
        ]:
            change_in_place(value, number)

    @rule(key=KEYS, number=NUMBERS)
    def reduces_in_place(self, key: Any, number: int) -> None:
        self.backend.set_current_key(key)
        self.reduced.add([number])

    @rule(key=KEYS, number=NUMBERS, made=MADE)
    def an_operator_writes(self, key: Any, number: int, made: int) -> None:
        value = self.direct.entries[key] = MAKERS[made](number)
        if number % 2:
            self.direct.changed.put([key], [value])
        else:
            self.direct.changed.add(key)

    @rule(key=KEYS, number=NUMBERS)
    def changes_in_place_what_it_reads_and_writes_it_again(self, key: Any, number: int) -> None:
        self.backend.set_current_key(key)
        for state in (self.any, self.expiring):
            value = state.value()
            change_in_place(value, number)
            if value is not None:
                state.update(value)
        for part, value in list(self.pages.items()):
            change_in_place(value, number)
            self.pages[part] = value
        if key in self.direct.entries:
            change_in_place(self.direct.entries[key], number)
            self.direct.changed.update([key])

    @rule(key=KEYS)
    def deletes(self, key: Any) -> None:
        self.backend.set_current_key(key)
        for state in (self.any, self.number, self.expiring, self.folded, self.reduced, self.events):
            state.clear()
        if self.pages:
            del self.pages[next(iter(self.pages))]
        self.direct.entries.pop(key, None)
        self.direct.changed.add(key)

    @rule(key=KEYS, at=st.integers(0, 5), is_set=st.booleans())
    def sets_or_deletes_a_timer(self, key: Any, at: int, is_set: bool) -> None:
        (self.timers.register if is_set else self.timers.delete)(key, at)

    @rule(until=st.integers(0, 5))
    def fires_timers(self, until: int) -> None:
        for _ in self.timers.due(until):
            pass

    @rule(seconds=st.sampled_from([1.0, 4.0, 11.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def sweeps(self) -> None:
        self.backend.sweep(3)

    @rule()
    def looks_ahead(self) -> None:
        if self.backend.is_examination_due:
            self.backend.examine_changes()

    @precondition(lambda self: len(self.writers) < 4)
    @rule(is_savepoint=st.sampled_from([False, False, False, True]))
    def takes_a_snapshot(self, is_savepoint: bool) -> None:
        self.last_id += 1
        snapshot = self.backend.snapshot(self.last_id, self.completed_id, self_contained=is_savepoint)
        there = copy.deepcopy(self.contents(self.backend))
        self.writers[self.last_id] = Writer(snapshot.finish, self.content), there

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), steps=st.integers(1, 5))
    def another_thread_goes_on(self, data: st.DataObject, steps: int) -> None:
        writer, _ = self.writers[data.draw(st.sampled_from(sorted(self.writers)))]
        for _ in range(steps):
            writer.step()

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), completes=st.booleans())
    def one_is_written(self, data: st.DataObject, completes: bool) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.writers)))
        writer, there = self.writers.pop(checkpoint_id)
        writer.end()
        assert writer.error is None, writer.error
        assert writer.handle is not None
        restored = self.new_backend(ValueCodec())
        restored.restore([writer.handle], Files(self.content))
        assert self.contents(restored) == there
        marks = [getattr(value, "mark", None) for value in there["any"].values()]
        assert [getattr(restored.table("any").entries[key], "mark", None) for key in there["any"]] == marks
        self.backend.snapshot_finished(checkpoint_id, writer.handle)
        if completes and checkpoint_id > self.completed_id:
            self.completed_id = checkpoint_id

    @precondition(lambda self: self.writers)
    @rule(data=st.data(), is_told_first=st.booleans())
    def one_fails_or_is_given_up(self, data: st.DataObject, is_told_first: bool) -> None:
        checkpoint_id = data.draw(st.sampled_from(sorted(self.writers)))
        writer, _ = self.writers.pop(checkpoint_id)
        if is_told_first:
            self.backend.forget(checkpoint_id)
        writer.is_broken = True
        writer.end()
        if not is_told_first:
            self.backend.forget(checkpoint_id)

    @rule()
    def a_damaged_file_is_found(self) -> None:
        self.backend.start_anew()

    def teardown(self) -> None:
        for writer, _ in getattr(self, "writers", {}).values():
            writer.end()


@pytest.fixture(autouse=True)
def _everything_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_rows, "BLOCK_ENTRIES", 2)
    monkeypatch.setattr(captured_rows, "BLOCK_ENTRIES", 2)
    monkeypatch.setattr(captured_rows, "_RELEASED", 1)
    monkeypatch.setattr(dirty_entries, "MAX_UNEXAMINED", 3)
    monkeypatch.setattr(dirty_entries, "_MANY", 2)


def test_a_snapshot_holds_what_was_there_whatever_the_task_does_meanwhile() -> None:
    how = settings(max_examples=30 * DEEP, stateful_step_count=40, deadline=None)
    run_state_machine_as_test(SnapshotsBesideTheTask, settings=how)  # type: ignore[no-untyped-call]
