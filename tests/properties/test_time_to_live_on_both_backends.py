"""State with a TTL on the heap and in RocksDB side by side: every kind of state shows the same.

Both are restored from checkpoints of their own and from savepoints of either. The parallelism, the TTL and
the states that the program uses change.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from deep import DEEP
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock import AggregateFunction, HeapState, RocksDB, StateTtl
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import InlineHandle, KeyedStateHandle, StateHandle
from penstock.runtime.state.key_groups import KeyToSubtask, key_group_range, reassign_keyed
from penstock.runtime.state.keyed_states import (
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.harness_state import open_state_backend
from penstock.runtime.testing.manual_time import ManualClock

KEY_GROUPS = 8
SECOND = 1_000_000
NAMES = ("value", "list", "map", "reducing", "aggregating")
BACKENDS: dict[str, Any] = {"heap": HeapState(), "rocksdb": RocksDB(8 * 1024 * 1024, "/dev/shm")}
KEYS = st.sampled_from(["a", "b", "c", 1, (2, "x")])

Step: TypeAlias = tuple[Any, ...]
#: Seconds that pass, and how far the watermark of each subtask is behind.
PASSES = st.tuples(
    st.just("pass"),
    st.sampled_from([1, 30, 60, 101]),
    st.lists(st.sampled_from([0, 40]), min_size=3, max_size=3),
)
RESTORES = st.tuples(
    st.just("restore"),
    st.sampled_from(["checkpoint", "savepoint", "savepoint of the other"]),
    st.integers(1, 3),
    st.sampled_from([50, 100, 1000]),
    st.sets(st.sampled_from(NAMES), max_size=2),
)
STEPS = st.lists(
    st.tuples(st.just("write"), KEYS, st.integers(1, 9), st.integers(-30, 10))
    | st.tuples(st.just("read"), KEYS, st.just(0), st.integers(-30, 10))
    | st.tuples(st.just("sweep"), st.integers(1, 5))
    | PASSES
    | RESTORES,
    min_size=10,
    max_size=40,
)


class Summed(AggregateFunction[int, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: int, accumulator: int) -> int:
        return accumulator + value

    def get_result(self, accumulator: int) -> int:
        return accumulator


class Files:
    """Small files inside of their handles."""

    def write(self, data: bytes) -> StateHandle:
        return InlineHandle(data)

    def read(self, handle: StateHandle) -> bytes:
        assert isinstance(handle, InlineHandle)
        return handle.data


@dataclass
class Record:
    timestamp: int | None = None


@dataclass
class Subtask:
    backend: Any
    states: dict[str, Any]
    record: Record = field(default_factory=Record)

    def use(self, step: Step, moment: int | None) -> dict[str, Any]:
        """Write to all states of a key, or read them."""
        what, key, number, _ = step
        self.record.timestamp = moment
        self.backend.set_current_key(key)
        if what == "read":
            return {name: shown(name, state) for name, state in self.states.items()}
        for name, state in self.states.items():
            if name == "map":
                state[number % 3] = number
            else:
                (state.update if name == "value" else state.add)(number)
        return {}


def shown(name: str, state: Any) -> Any:
    if name == "map":
        return sorted(state.items())
    return state.value() if name == "value" else state.get()


def declared(ttl: StateTtl, unused: set[str]) -> dict[str, Any]:
    states: dict[str, Any] = {
        "value": ValueState(int, name="value", ttl=ttl),
        "list": ListState(int, name="list", ttl=ttl),
        "map": MapState(int, int, name="map", ttl=ttl),
        "reducing": ReducingState(lambda one, other: one + other, int, name="reducing", ttl=ttl),
        "aggregating": AggregatingState(Summed(), name="aggregating", ttl=ttl),
    }
    return {name: state for name, state in states.items() if name not in unused}


class Jobs:
    """One job on each backend, in the same time."""

    def __init__(self, time: Any, refreshed_by: Any) -> None:
        self.settings: dict[str, Any] = {"time": time, "refreshed_by": refreshed_by}
        self.clock, self.now, self.last_id = ManualClock(start=1000), 0, 0
        self.of: dict[str, list[Subtask]] = {}
        self.start({}, None, 2, 100, set())

    def start(
        self,
        saved: dict[str, list[KeyedStateHandle]],
        checkpoint: int | None,
        parallelism: int,
        ttl: int,
        unused: set[str],
    ) -> None:
        self.close()
        states = declared(StateTtl(ttl, **self.settings), unused)
        for name, kind in BACKENDS.items():
            old = saved.get(name, [])
            shares = (
                reassign_keyed([[each] for each in old], len(old), parallelism, KEY_GROUPS) if old else None
            )
            self.of[name] = []
            for index in range(parallelism):
                own = key_group_range(index, parallelism, KEY_GROUPS)
                setup = BackendSetup("op", KEY_GROUPS, own, ValueCodec(), clock=self.clock)
                backend = open_state_backend(kind, setup)
                if shares is not None:
                    backend.restore(shares[index], Files(), restored_checkpoint_id=checkpoint)
                bound = {each: backend.bind(state) for each, state in states.items()}
                subtask = Subtask(backend, bound)
                backend.time.record = subtask.record
                self.of[name].append(subtask)

    def close(self) -> None:
        for subtask in (each for subtasks in self.of.values() for each in subtasks):
            subtask.backend.close()

    def do(self, step: Step) -> None:
        match step:
            case ("write" | "read", key, _, ago):
                index = KeyToSubtask(len(self.of["heap"]), KEY_GROUPS)[key]
                is_event = self.settings["time"] == "event"
                moment = max(0, self.now + ago) * SECOND if is_event else None
                seen = {name: subtasks[index].use(step, moment) for name, subtasks in self.of.items()}
                assert seen["heap"] == seen["rocksdb"]
            case ("sweep", most):
                for subtask in (each for subtasks in self.of.values() for each in subtasks):
                    subtask.backend.sweep(most)
            case ("pass", seconds, behind):
                self.now += seconds
                self.clock.advance(seconds)
                for subtasks in self.of.values():
                    for subtask, lag in zip(subtasks, behind, strict=False):
                        subtask.backend.time.advance(max(0, self.now - lag) * SECOND)
            case ("restore", what, parallelism, ttl, unused):
                self.restore(what, parallelism, ttl, unused)

    def restore(self, what: str, parallelism: int, ttl: int, unused: set[str]) -> None:
        self.last_id += 1
        is_savepoint = what != "checkpoint"
        saved: dict[str, list[KeyedStateHandle]] = {}
        for name, subtasks in self.of.items():
            snapshots = [
                each.backend.snapshot(self.last_id, -1, self_contained=is_savepoint) for each in subtasks
            ]
            saved[name] = [snapshot.finish(Files()) for snapshot in snapshots]
            for each, handle in zip(subtasks, saved[name], strict=True):
                each.backend.snapshot_finished(self.last_id, handle)
        if what == "savepoint of the other":
            saved = {"heap": saved["rocksdb"], "rocksdb": saved["heap"]}
        self.start(saved, None if is_savepoint else self.last_id, parallelism, ttl, unused)
        self.last_id = 0 if is_savepoint else self.last_id

    def check_keys(self) -> None:
        for name in self.of["heap"][0].states:
            heap, rocksdb = (
                {key for each in self.of[backend] for key in each.backend.keys(name)} for backend in BACKENDS
            )
            assert heap == rocksdb


@contextmanager
def running(time: str, refreshed_by: str) -> Iterator[Jobs]:
    jobs = Jobs(time, refreshed_by)
    try:
        yield jobs
    finally:
        jobs.close()


@given(
    steps=STEPS,
    time=st.sampled_from(["processing", "event"]),
    refreshed_by=st.sampled_from(["writes", "reads_and_writes"]),
)
@settings(max_examples=25 * DEEP, deadline=None)
def test_heap_and_rocksdb_show_the_same_of_every_kind_of_state_after_every_restore(
    steps: list[Step], time: str, refreshed_by: str
) -> None:
    with running(time, refreshed_by) as jobs:
        for step in steps:
            jobs.do(step)
            jobs.check_keys()
