"""Operators whose functions change values in place, and snapshots that are written while records continue.

A snapshot may refer to the values of an operator until another thread has encoded them. So each snapshot is
finished some steps after its synchronous half, and must hold the state of that half. The functions change
whatever they receive, and the receiver changes all results. Some values have a class that defines how it is
copied. A snapshot must never refer to these, because their copy might be the object itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeAlias

import pytest
from deep import DEEP
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock import AggregateFunction
from penstock.runtime.config.job_config import ON_HEAP, RocksDB, StateBackend
from penstock.runtime.errors import OperatorError
from penstock.runtime.io.rocksdb import cached_entries
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state import dirty_entries
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.testing.harness import OperatorHarness
from penstock.runtime.testing.harness_state import FilesInHandles, HarnessSnapshot, restored_backend
from penstock.windows import (
    CountTrigger,
    EventTimeSessionWindows,
    Evictor,
    GlobalWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    TimestampedValue,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
)

#: Names of the tables, and whether they are nested.
TABLES = {"reduce": False, "aggregate_function": False, "windows": False, "triggered_windows": True}


@dataclass
class Bag:
    numbers: list[int]


@dataclass
class Single:
    """Defines how it is copied."""

    numbers: list[int] = field(default_factory=list)

    def __deepcopy__(self, memo: object) -> Single:
        return Single([*self.numbers])


@dataclass
class Row:
    key: str
    held: Any


#: Makes the value of a row from a number.
MAKERS: dict[str, Callable[[int], Any]] = {
    "number": lambda n: n,
    "list": lambda n: [n],
    "dict": lambda n: {"numbers": [n]},
    "pair": lambda n: ("pair", [n]),
    "bag": lambda n: Bag([n]),
    "single": lambda n: Single([n]),
}


def append(value: Any, number: int) -> None:
    """Append a number to the first list in a value."""
    if isinstance(value, Row):
        append(value.held, number)
    elif isinstance(value, list):
        value.append(number)
    elif isinstance(value, dict):
        append(value["numbers"], number)
    elif isinstance(value, Bag | Single):
        append(value.numbers, number)
    elif isinstance(value, tuple):
        append(value[1], number)


def key_of(row: Row) -> str:
    return row.key


def grown(before: Row, row: Row) -> Row:
    append(before, 7)
    append(row, 8)
    return before if isinstance(row.held, list) else row


class Gathered(AggregateFunction[Row, list[Any], list[Any]]):
    def create_accumulator(self) -> list[Any]:
        return []

    def add(self, value: Row, accumulator: list[Any]) -> list[Any]:
        for held in accumulator:
            append(held, 9)
        accumulator.append(value.held)
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        accumulator.append(-1)
        return accumulator

    def merge(self, first: list[Any], second: list[Any]) -> list[Any]:
        first += second
        return first


def listed(key: str, window: TimeWindow, rows: list[Row]) -> Iterable[Any]:
    for row in rows:
        append(row, 10)
    rows.append(Row(key, []))
    return rows


class Changing(Evictor[Row]):
    """Takes out every third record, and changes the others."""

    def evict_before(
        self, elements: list[TimestampedValue], window: TimeWindow
    ) -> Sequence[TimestampedValue]:
        for element in elements:
            append(element.value, 11)
        return elements[1:] if len(elements) % 3 == 0 else elements


class EverySecond(Trigger[Row]):
    """Keeps the records that it has received; changes them, and its own state."""

    def on_element(self, element: Row, timestamp: int | None, window: TimeWindow, ctx: Any) -> TriggerResult:
        append(element, 12)
        state = ctx.state("seen", [])
        seen = state.value()
        seen.append(element)
        state.update(seen)
        for row in seen:
            append(row, 13)
        if timestamp is not None and timestamp % 3 == 0:
            ctx.register_event_time_timer(window.max_timestamp)
        return TriggerResult.FIRE if len(seen) % 2 == 0 else TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: TimeWindow, ctx: Any) -> TriggerResult:
        ctx.state("seen").clear()
        return TriggerResult.FIRE_AND_PURGE

    def on_merge(self, window: TimeWindow, ctx: Any) -> None:
        ctx.merge_state("seen", lambda first, second: first + second)


def micros(number: int) -> timedelta:
    return timedelta(microseconds=number)


ASSIGNERS: dict[str, Callable[[Any], Any]] = {
    "tumbling": lambda keyed: keyed.window(TumblingEventTimeWindows(micros(6))),
    "sliding": lambda keyed: keyed.window(SlidingEventTimeWindows(micros(6), micros(2))),
    "session": lambda keyed: keyed.window(EventTimeSessionWindows(micros(3))),
    "late": lambda keyed: keyed.window(TumblingEventTimeWindows(micros(6))).allowed_lateness(micros(5)),
    "triggered": lambda keyed: keyed.window(TumblingEventTimeWindows(micros(6))).trigger(EverySecond()),
    "triggered session": lambda keyed: keyed.window(EventTimeSessionWindows(micros(3))).trigger(
        EverySecond()
    ),
    "global": lambda keyed: keyed.window(GlobalWindows()).trigger(CountTrigger(2)),
    "purged": lambda keyed: keyed.window(GlobalWindows()).trigger(PurgingTrigger(CountTrigger(3))),
    "evicted": lambda keyed: (
        keyed.window(SlidingEventTimeWindows(micros(6), micros(3)))
        .trigger(CountTrigger(2))
        .evictor(Changing())
    ),
    "counted": lambda keyed: keyed.count_window(3),
    "counted, sliding": lambda keyed: keyed.count_window(3, 1),
}
FOLDS: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda stream: stream.reduce("fold", grown),
    "aggregate": lambda stream: stream.aggregate("fold", Gathered()),
    "apply": lambda windows: windows.apply("fold", listed),
}

Step: TypeAlias = list[tuple[str, str, int]] | int | tuple[str, int]
BATCHES = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(sorted(MAKERS)), st.integers(0, 20)),
    min_size=1,
    max_size=4,
)
STEPS = st.lists(
    BATCHES
    | BATCHES
    | st.integers(0, 25)
    | st.tuples(st.sampled_from(["snapshot", "snapshot", "finish", "complete"]), st.integers(0, 3)),
    max_size=25,
)


class Run:
    """An operator, its snapshots that are not finished, and what was there when each was taken."""

    def __init__(self, build: Callable[[Any], Any], backend: StateBackend) -> None:
        self.config, self.files, self.last_id = backend, FilesInHandles(), 0
        self.harness = OperatorHarness.of(build, state_backend=backend)
        self.begun: list[tuple[int, Any, dict[str, Any]]] = []
        self.finished: list[int] = []
        self.completed_id = -1

    def step(self, step: Step) -> None:
        if isinstance(step, list):
            rows = [Row(key, MAKERS[kind](stamp)) for key, kind, stamp in step]
            self.received(self.harness.push(rows, [stamp for *_, stamp in step]))
        elif isinstance(step, int):
            self.received(self.harness.push_watermark(step))
        elif step[0] == "snapshot":
            self.snapshot()
        elif step[0] == "finish" and self.begun:
            self.finish(self.begun.pop(step[1] % len(self.begun)))
        elif step[0] == "complete" and self.finished:
            self.completed_id = self.finished.pop()
            self.finished = [known for known in self.finished if known > self.completed_id]

    def received(self, results: list[Any]) -> None:
        for result in results:
            append(result, 14)

    @property
    def state(self) -> dict[str, Any]:
        return {name: held for name in TABLES if (held := self.harness.state(name))}

    def snapshot(self) -> None:
        backend = self.harness._backend
        assert backend is not None, "the operator has keyed state"
        self.last_id += 1
        there = copy.deepcopy(encoded(self.state))
        self.begun.append((self.last_id, backend.snapshot(self.last_id, self.completed_id), there))

    def finish(self, begun: tuple[int, Any, dict[str, Any]]) -> None:
        checkpoint_id, snapshot, there = begun
        handle = snapshot.finish(self.files)
        setup = BackendSetup("operator", 128, KeyGroupRange(0, 127), ValueCodec())
        restored = restored_backend(
            self.config, setup, [HarnessSnapshot(checkpoint_id, {}, handle)], self.files
        )
        tables = {name: restored.table(name, nested=nested).live() for name, nested in TABLES.items()}
        assert encoded({name: held for name, held in tables.items() if held}) == there
        restored.close()
        backend = self.harness._backend
        assert backend is not None, "the operator has keyed state"
        backend.snapshot_finished(checkpoint_id, handle)
        if checkpoint_id > self.completed_id:
            self.finished.append(checkpoint_id)

    def end(self) -> None:
        while self.begun:
            self.finish(self.begun.pop())
        self.harness.close()


def encoded(state: dict[str, Any]) -> dict[str, Any]:
    """The state as plain values that nothing changes."""
    codec = ValueCodec()
    return {
        name: {key: codec.loads(codec.dumps(held)) for key, held in entries.items()}
        for name, entries in state.items()
    }


def checked(build: Callable[[Any], Any], steps: Sequence[Step], *backends: StateBackend) -> None:
    """Run the steps on each backend; the state must be the same on all of them."""
    runs = [Run(build, backend) for backend in backends]
    try:
        for step in steps:
            for run in runs:
                run.step(step)
            first, *others = [encoded(run.state) for run in runs]
            assert all(state == first for state in others)
    finally:
        for run in runs:
            run.end()


@pytest.fixture(autouse=True, params=[0, 1 << 16], ids=["values", "keys"])
def _many(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reported are values in one run, and keys in the other one; RocksDB keeps few keys in memory."""
    monkeypatch.setattr(dirty_entries, "_MANY", request.param)
    monkeypatch.setattr(dirty_entries, "MAX_UNEXAMINED", request.param)
    monkeypatch.setattr(cached_entries, "_LEAST_KEYS", 2)
    monkeypatch.setattr(cached_entries.CachedEntries, "_most_keys", lambda _: 2)


@pytest.mark.parametrize("fold", ["reduce", "aggregate"])
@given(steps=STEPS)
@settings(max_examples=50 * DEEP)
def test_a_snapshot_of_a_fold_holds_the_values_of_its_moment(fold: str, steps: list[Step]) -> None:
    checked(lambda rows: FOLDS[fold](rows.key_by(key_of)), steps, ON_HEAP)


@pytest.mark.parametrize("fold", sorted(FOLDS))
@given(kind=st.sampled_from(sorted(ASSIGNERS)), steps=STEPS)
@settings(max_examples=50 * DEEP)
def test_a_snapshot_of_windows_holds_the_contents_of_its_moment(
    fold: str, kind: str, steps: list[Step]
) -> None:
    if kind == "evicted":
        fold = "apply"
    checked(lambda rows: FOLDS[fold](ASSIGNERS[kind](rows.key_by(key_of))), steps, ON_HEAP)


@given(kind=st.none() | st.sampled_from(sorted(ASSIGNERS)), fold=st.sampled_from(sorted(FOLDS)), steps=STEPS)
@example(
    kind="sliding",
    fold="apply",
    steps=[
        [("a", "number", 3), ("a", "number", 5), ("b", "number", 1), ("c", "number", 1)],
        5,
        7,
        ("snapshot", 0),
    ],
)
@settings(max_examples=10 * DEEP)
def test_snapshots_in_rocksdb_hold_the_same(kind: str | None, fold: str, steps: list[Step]) -> None:
    if kind == "evicted":
        fold = "apply"
    elif kind is None and fold == "apply":
        fold = "reduce"
    windows = (lambda keyed: keyed) if kind is None else ASSIGNERS[kind]
    checked(lambda rows: FOLDS[fold](windows(rows.key_by(key_of))), steps, ON_HEAP, RocksDB())


SIMPLE: dict[str, Callable[[Any], Any]] = {
    "reduce": lambda rows: FOLDS["reduce"](rows.key_by(key_of)),
    "aggregate": lambda rows: FOLDS["aggregate"](rows.key_by(key_of)),
    "tumbling, aggregate": lambda rows: FOLDS["aggregate"](ASSIGNERS["tumbling"](rows.key_by(key_of))),
    "tumbling, apply": lambda rows: FOLDS["apply"](ASSIGNERS["tumbling"](rows.key_by(key_of))),
}


def table_of(harness: OperatorHarness) -> Any:
    backend = harness._backend
    assert backend is not None, "the operator has keyed state"
    (name,) = backend.table_names
    return backend.table(name)


@pytest.mark.parametrize("name", SIMPLE)
def test_values_that_change_in_place_are_not_encoded_while_the_task_waits(name: str) -> None:
    with OperatorHarness.of(SIMPLE[name]) as harness:
        for number in range(3):
            harness.push([Row(key, [number]) for key in "abc"], [1, 2, 3])
        assert table_of(harness).changed.mutable() == {}


@pytest.mark.parametrize("name", SIMPLE)
def test_values_are_copied_once_after_a_snapshot(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[Any] = []
    with OperatorHarness.of(SIMPLE[name]) as harness:
        entries = table_of_pushed(harness)
        monkeypatch.setattr(dirty_entries, "own_copy", lambda value: [copied.append(value), value][1])
        harness.push([Row("a", [1])], [1])
        assert copied == []
        harness.snapshot()
        before = entries["a"]
        harness.push([Row("a", [1])], [1])
        harness.push([Row("a", [1])], [1])
        assert [value is before for value in copied] == [True]


def table_of_pushed(harness: OperatorHarness) -> Any:
    harness.push([Row("a", [1]), Row("b", [1])], [1, 1])
    return table_of(harness).entries


def test_immutable_values_are_not_copied_after_a_snapshot() -> None:
    def summed(pairs: Any) -> Any:
        return pairs.key_by(lambda pair: pair[0]).reduce("sum", lambda a, b: (a[0], a[1] + b[1]))

    with OperatorHarness.of(summed) as harness:
        harness.push([("a", 1), ("b", 2)])
        harness.snapshot()
        harness.push([("a", 1)])
        harness.snapshot()
        assert not table_of(harness).changed.lends_mutable


@dataclass(frozen=True)
class Id:
    number: Any


@pytest.mark.parametrize("name", SIMPLE)
def test_an_invalid_key_after_a_snapshot_is_refused_with_its_record(name: str) -> None:
    with OperatorHarness.of(SIMPLE[name]) as harness:
        harness.push([Row(Id(1), [1])], [1])  # type: ignore[arg-type]
        harness.snapshot()
        refused = Row(Id([2]), [1])  # type: ignore[arg-type]
        with pytest.raises(OperatorError, match=r"key_by .*can't be a key.* on record .*Id\(number=\[2\]\)"):
            harness.push([Row(Id(1), [1]), refused], [1, 1])  # type: ignore[arg-type]
