"""Copies that views keep are taken by reference: a snapshot encodes none of them while the task waits."""

from __future__ import annotations

import copy
import gc
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pytest
from heap_setup import ALL, Files

from penstock import AggregateFunction
from penstock.runtime.errors import CodecError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state import dirty_entries
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.immutable_values import ImmutableValues
from penstock.runtime.state.keyed_snapshot import KeyedSnapshot
from penstock.runtime.state.keyed_states import (
    AggregatingState,
    KeyedState,
    ListState,
    MapState,
    ReducingState,
    ValueState,
)
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.state.time_to_live import StateTtl
from penstock.runtime.testing.manual_time import ManualClock


@dataclass
class Plain:
    number: int
    items: Any


@dataclass(frozen=True)
class Frozen:
    items: Any


@dataclass(frozen=True, slots=True)
class Slotted:
    items: Any


@dataclass(frozen=True)
class Lazy:
    items: Any

    @cached_property
    def first(self) -> Any:
        return self.items[0]


class Basket(NamedTuple):
    owner: str
    items: Any


@dataclass
class Shared:
    """Its copies are itself."""

    items: Any

    def __deepcopy__(self, memo: Any) -> Shared:
        return self


class Numbers(list[int]):
    """May have attributes."""


CODEC = ValueCodec(True)
OWNED = ImmutableValues(CODEC).owned
ACCEPTED: list[Any] = [
    [1],
    [[1], [2]],
    {"a": [1]},
    {(1, 2): {3}},
    {1, 2},
    deque([[1]], maxlen=3),
    (1, [2]),
    bytearray(b"x"),
    array("i", [1]),
    np.zeros(3),
    Plain(1, [2]),
    [Plain(1, {"a": [2]})],
    Frozen([1]),
    Basket("ann", [1]),
    Slotted((1, 2)),
    [Slotted((1, 2)), 5, None],
]
REFUSED: list[Any] = [
    lambda: 1,
    [lambda: 1],
    np.array([[1], "a"], dtype=object),
    Numbers([1]),
    [Numbers([1])],
    Shared([1]),
    Shared(1),
    [Shared([1])],
    Basket("ann", Shared([1])),
    Slotted([1]),
    Lazy(1),
    [Lazy(1)],
]


def unchangeable(value: Any) -> bool:
    return OWNED.are_immutable([value])


@pytest.mark.parametrize("value", ACCEPTED, ids=repr)
def test_copy_of_plain_parts_may_be_taken_by_reference(value: Any) -> None:
    assert unchangeable(value)
    assert OWNED.mutable({"a": value, "b": 1, "c": [2]}) == []


@pytest.mark.parametrize("value", REFUSED, ids=lambda value: type(value).__name__)
def test_value_that_is_not_copied_by_its_parts_is_refused_alone(value: Any) -> None:
    assert not unchangeable(value)
    assert OWNED.mutable({"a": value, "b": 1, "c": [2]}) == ["a"]


NO_PICKLE = ImmutableValues(ValueCodec(False)).owned


def with_hidden_method(value: Any) -> Any:
    vars(value)["__eq__"] = 1
    return value


@pytest.mark.parametrize(
    "value",
    [
        array("i", [1]),
        [array("i", [1])],
        np.zeros(2, "V3"),
        with_hidden_method(Plain(1, [2])),
    ],
    ids=lambda value: type(value).__name__,
)
def test_value_that_only_pickle_can_encode_is_refused_without_pickle(value: Any) -> None:
    """The task encodes it, so the error fails the task with the names of operator and key."""
    with pytest.raises(CodecError):
        ValueCodec(False).dumps(value)
    assert unchangeable(value)
    values = {"a": Plain(1, [2]), "b": value, "c": [2], "d": np.zeros(2)}
    assert NO_PICKLE.mutable(values) == ["b"]


def test_value_that_contains_itself_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    assert not unchangeable(value)


@pytest.mark.parametrize("value", ACCEPTED, ids=repr)
def test_accepted_value_shares_no_mutable_part_with_its_copy(value: Any) -> None:
    value = copy.deepcopy(value)
    kept = own_copy(value)
    before = CODEC.dumps(kept)
    change_everywhere(value)
    assert CODEC.dumps(kept) == before


def change_everywhere(value: Any) -> None:
    """Change each mutable part of a value."""
    if isinstance(value, Plain | Frozen | Slotted):
        change_everywhere(value.items)
        if isinstance(value, Plain):
            value.number += 1
    elif isinstance(value, list | deque | tuple):
        for part in value:
            change_everywhere(part)
        if not isinstance(value, tuple):
            value.append(9)
    elif isinstance(value, dict):
        for part in value.values():
            change_everywhere(part)
        value["new"] = 9
    elif isinstance(value, set):
        value.add(9)
    elif isinstance(value, bytearray | array | np.ndarray):
        value[0] = 9


class CountingCodec(ValueCodec):
    """Counts the values that are encoded in the task's thread."""

    def __init__(self, encoded: list[Any]) -> None:
        super().__init__(True)
        self._encoded, self._task = encoded, threading.get_ident()

    def dumps(self, value: Any) -> bytes:
        self._encoded.append(value)
        return super().dumps(value)

    @contextmanager
    def for_another_thread(self) -> Iterator[ValueCodec]:
        yield ValueCodec(True)


class Joined(AggregateFunction[int, list[int], list[int]]):
    def create_accumulator(self) -> list[int]:
        return []

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        accumulator.append(value)
        return accumulator

    def get_result(self, accumulator: list[int]) -> list[int]:
        accumulator.sort(reverse=True)
        return accumulator


def extended(before: list[int], value: list[int]) -> list[int]:
    before.extend(value)
    return before


def new_backend(encoded: list[Any], *, isolates: bool = True) -> HeapKeyedStateBackend:
    setup = BackendSetup("op", 128, ALL, CountingCodec(encoded), clock=ManualClock(), isolates=isolates)
    return HeapKeyedStateBackend(setup)


def restored(snapshot: KeyedSnapshot, files: Files, *, nested: bool = False) -> dict[Any, Any]:
    backend = new_backend([])
    backend.restore([snapshot.finish(files)], files)
    return backend.table("t", nested=nested).entries


def change_value(state: ValueState[Any], number: int) -> None:
    value = state.value() or []
    value.append(number)
    state.update(value)
    value.append("later")


def add_element(state: ListState[Any], number: int) -> None:
    for element in state.get():
        element.append("read")
    state.add([number])


def change_entry(state: MapState[Any, Any], number: int) -> None:
    value = state.get("part", [])
    value.append(number)
    state["part"] = value
    value.append("later")


def fold_in_place(state: AggregatingState[int, list[int]], number: int) -> None:
    state.get()
    state.add(number)
    state.get()


def reduce_in_place(state: ReducingState[list[int]], number: int) -> None:
    state.add([number])


#: States that a snapshot takes by reference, each with a function that changes the value of the current key.
COPIED: list[tuple[KeyedState, Callable[[Any, int], None]]] = [
    (ValueState(name="t"), change_value),
    (ValueState(name="t", ttl=60.0), change_value),
    (ListState(name="t"), add_element),
    (ListState(name="t", ttl=60.0), add_element),
    (MapState(name="t"), change_entry),
    (MapState(name="t", ttl=60.0), change_entry),
    (AggregatingState(Joined(), name="t"), fold_in_place),
    (AggregatingState(Joined(), name="t", ttl=60.0), fold_in_place),
    (ReducingState(extended, name="t"), reduce_in_place),
    (ReducingState(extended, name="t", ttl=60.0), reduce_in_place),
]


@pytest.mark.parametrize(("declaration", "change"), COPIED, ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("unexamined", [3, 1 << 14])
def test_snapshot_of_many_lists_encodes_none_while_the_task_waits_and_has_all_of_its_moment(
    monkeypatch: pytest.MonkeyPatch,
    declaration: KeyedState,
    change: Callable[[Any, int], None],
    unexamined: int,
) -> None:
    monkeypatch.setattr(dirty_entries, "MAX_UNEXAMINED", unexamined)
    encoded: list[Any] = []
    backend, files = new_backend(encoded), Files()
    state = backend.bind(declaration)

    def change_all(number: int) -> None:
        for key in range(20):
            backend.set_current_key(key)
            change(state, number)
            if backend.is_examination_due:
                backend.examine_changes()

    snapshots = []
    for number in range(4):
        change_all(number)
        encoded.clear()
        snapshot = backend.snapshot(number + 1, -1)
        assert encoded == []
        snapshots.append((snapshot, copy.deepcopy(backend.table("t", nested=declaration.nested).entries)))
    change_all(9)
    for snapshot, there in reversed(snapshots):
        found = restored(snapshot, files, nested=declaration.nested)
        assert found == there
        assert len(found) == 20


def test_examined_lists_are_old_so_that_no_collection_of_young_objects_walks_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dirty_entries, "MAX_UNEXAMINED", 100)
    backend = new_backend([])
    state = backend.bind(ValueState(name="t"))
    for key in range(101):
        backend.set_current_key(key)
        state.update([key])
    assert backend.is_examination_due
    backend.examine_changes()
    young = {id(value) for generation in (0, 1) for value in gc.get_objects(generation)}
    assert young.isdisjoint(map(id, backend.table("t").entries.values()))


@pytest.mark.parametrize("ttl", [None, StateTtl(60.0, refreshed_by="reads_and_writes")])
def test_result_that_is_read_changes_no_accumulator_that_a_snapshot_holds(ttl: StateTtl | None) -> None:
    backend, files = new_backend([]), Files()
    state = backend.bind(AggregatingState(Joined(), name="t", ttl=ttl))
    backend.set_current_key("a")
    for number in range(3):
        state.add(number)
    snapshot = backend.snapshot(1, -1)
    before = copy.deepcopy(backend.table("t").entries)
    assert state.get() == [2, 1, 0]
    state.add(3)
    assert state.get() == [3, 2, 1, 0]
    assert restored(snapshot, files) == before


def test_accumulator_is_copied_once_between_two_snapshots() -> None:
    backend = new_backend([])
    state = backend.bind(AggregatingState(Joined(), name="t"))
    entries = backend.table("t").entries
    backend.set_current_key("a")
    state.add(1)
    first = entries["a"]
    state.add(2)
    assert entries["a"] is first
    backend.snapshot(1, -1)
    state.add(3)
    second = entries["a"]
    assert second is not first
    state.add(4)
    assert entries["a"] is second
    assert (first, second) == ([1, 2], [1, 2, 3, 4])


@pytest.mark.parametrize("takes_snapshots", [True, False])
def test_accumulators_of_a_job_without_snapshots_are_neither_copied_nor_noted(
    *, takes_snapshots: bool
) -> None:
    setup = BackendSetup("op", 128, ALL, ValueCodec(), takes_snapshots=takes_snapshots)
    backend = HeapKeyedStateBackend(setup)
    states: list[Any] = [
        backend.bind(AggregatingState(Joined(), name="t")),
        backend.bind(ReducingState(extended, name="u")),
    ]
    for key in range(3):
        backend.set_current_key(key)
        states[0].add(key)
        states[1].add([key])
    noted = {0, 1, 2} if takes_snapshots else set()
    assert [backend.table(name).changed.own_accumulators for name in ("t", "u")] == [noted, noted]


def test_value_of_a_class_that_returns_itself_as_its_copy_is_encoded_at_once() -> None:
    backend, files = new_backend([]), Files()
    state = backend.bind(ValueState(name="t"))
    backend.set_current_key("a")
    shared = Shared([1])
    state.update([shared])
    snapshot = backend.snapshot(1, -1)
    shared.items.append(2)
    assert restored(snapshot, files) == {"a": [Shared([1])]}


def test_backend_that_does_not_copy_encodes_lists_at_once() -> None:
    encoded: list[Any] = []
    backend, files = new_backend(encoded, isolates=False), Files()
    state = backend.bind(ValueState(name="t"))
    backend.set_current_key("a")
    value = [1]
    state.update(value)
    snapshot = backend.snapshot(1, -1)
    assert len(encoded) == 1
    value.append(2)
    assert restored(snapshot, files) == {"a": [1]}


def test_list_that_can_not_be_encoded_is_named_in_the_task() -> None:
    backend = HeapKeyedStateBackend(BackendSetup("op", 128, ALL, ValueCodec()))
    state = backend.bind(ValueState(name="t"))
    for key, value in (("good", [1]), ("bad", [lambda: 1])):
        backend.set_current_key(key)
        state.update(value)
    with pytest.raises(CodecError, match="state 't' of key 'bad'"):
        backend.snapshot(1, -1)


def test_value_that_a_migration_returned_may_be_changed_by_its_function() -> None:
    files, old, new = Files(), new_backend([]), new_backend([])
    state = old.bind(ValueState(int, name="t"))
    old.set_current_key("a")
    state.update(1)
    kept: list[list[int]] = []

    def to_list(number: int) -> list[int]:
        kept.append([number])
        return kept[-1]

    new.restore([old.snapshot(1, -1).finish(files)], files)
    new.bind(ValueState(list, name="t", migrate=to_list))
    snapshot = new.snapshot(1, -1)
    kept[0].append(2)
    assert restored(snapshot, files) == {"a": [1]}


def test_examination_makes_no_further_copy_of_an_accumulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dirty_entries, "MAX_UNEXAMINED", 0)
    backend, files = new_backend([]), Files()
    state = backend.bind(AggregatingState(Joined(), name="t"))
    backend.set_current_key("a")
    state.add(1)
    first = backend.table("t").entries["a"]
    assert backend.is_examination_due
    backend.examine_changes()
    state.add(2)
    assert backend.table("t").entries["a"] is first
    snapshot = backend.snapshot(1, -1)
    state.add(3)
    assert restored(snapshot, files) == {"a": [1, 2]}
