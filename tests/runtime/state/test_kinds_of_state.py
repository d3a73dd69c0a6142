"""Operations of each kind of state for the current key, and its saved content."""

from __future__ import annotations

from collections.abc import MutableMapping
from copy import copy
from typing import Any

import pytest
from either_backend import ALL, new_backend
from heap_setup import Files, take

from penstock import (
    AggregateFunction,
    AggregatingState,
    ListState,
    MapState,
    ReducingState,
    StateTtl,
    ValueState,
)
from penstock.runtime.errors import ConfigurationError, KeyTypeError, PenstockError, StateMismatchError
from penstock.runtime.operators.timers import EVENT_TIMERS, PROCESSING_TIMERS
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorSubtaskState,
)
from penstock.runtime.snapshot.metadata import decode_metadata, encode_metadata
from penstock.runtime.state.key_groups import key_group_of, key_group_range
from penstock.runtime.state.keyed_chunk import tables_of
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state_processor.states import read_keyed
from penstock.runtime.testing.manual_time import ManualClock

pytestmark = pytest.mark.usefixtures("either_backend")


class Mean(AggregateFunction[float, tuple[float, int], float]):
    def create_accumulator(self) -> tuple[float, int]:
        return 0.0, 0

    def add(self, value: float, accumulator: tuple[float, int]) -> tuple[float, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[float, int]) -> float:
        return accumulator[0] / accumulator[1]


def bound(declaration: Any, key: Any = "ann") -> tuple[Any, Any]:
    backend = new_backend()
    backend.set_current_key(key)
    return backend, backend.bind(declaration)


def restored_with(handles: list[KeyedStateHandle], files: Files, *states: KeyedState) -> list[Any]:
    """A backend that starts from these, and the states as it has them for the key "ann"."""
    backend = new_backend()
    backend.restore(handles, files)
    views = [backend.bind(state) for state in states]
    backend.set_current_key("ann")
    return [backend, *views]


def test_a_list_has_its_elements_in_the_order_in_which_they_were_added() -> None:
    backend, waiting = bound(ListState(int, name="waiting"))
    assert (waiting.get(), len(waiting)) == ([], 0)
    waiting.add(3)
    waiting.extend([1, 2])
    assert (waiting.get(), list(waiting), len(waiting)) == ([3, 1, 2], [3, 1, 2], 3)
    backend.set_current_key("bob")
    assert waiting.get() == []
    waiting.add(9)
    backend.set_current_key("ann")
    waiting.update([7])
    assert waiting.get() == [7]
    waiting.clear()
    assert waiting.get() == []
    assert backend.keys("waiting") == ["bob"]


def test_the_list_that_get_returns_is_a_copy() -> None:
    _, waiting = bound(ListState(name="waiting"))
    waiting.add(1)
    waiting.get().append(2)
    assert waiting.get() == [1]


@pytest.mark.parametrize("user", [0, 1], ids=["the first uses it", "the second uses it"])
@pytest.mark.parametrize(
    ("before", "now"),
    [
        (ValueState(name="s"), ValueState(name="s", ttl=100)),
        (ValueState(name="s", ttl=100), ValueState(name="s")),
        (ValueState(name="s", ttl=100), ValueState(name="s", ttl=StateTtl(100, time="event"))),
        (ValueState(name="s", ttl=StateTtl(100, time="event")), ValueState(name="s", ttl=100)),
        (ListState(name="s"), ListState(name="s", ttl=100)),
        (ListState(name="s", ttl=100), ListState(name="s")),
        (ValueState(int, name="s"), ValueState(str, name="s", migrate=str)),
        (ValueState(name="s"), ValueState(str, name="s", migrate=str)),
    ],
    ids=[
        "adds a TTL",
        "removes a TTL",
        "to event time",
        "to processing time",
        "adds to a list",
        "removes from a list",
        "migrates",
        "adds a type",
    ],
)
@pytest.mark.parametrize("savepoint", [False, True])
def test_a_state_that_only_some_subtasks_used_since_its_declaration_changed_is_restored_by_others(
    before: Any, now: Any, user: int, savepoint: bool
) -> None:
    """A subtask that has not used a state saves it as it was restored, so handles of a snapshot differ."""
    files, halves = Files(), (KeyGroupRange(0, 63), KeyGroupRange(64, 127))
    handles = []
    for number, half in enumerate(halves):
        old = new_backend(own=half, clock=ManualClock())
        old.time.advance(1)
        state = old.bind(before)
        for key in range(30):
            if key_group_of(key, 128) in half:
                old.set_current_key(key)
                state.add(key) if isinstance(before, ListState) else state.update(key)
        used = new_backend(own=half, clock=ManualClock())
        used.restore([take(old, files, 1, -1)], files, 1)
        if number == user:
            used.bind(now)
        handles.append(used.snapshot(2, 1, self_contained=savepoint).finish(files))

    parts = {number: OperatorSubtaskState(keyed=(handle,)) for number, handle in enumerate(handles)}
    operator, file = OperatorState("op", 2, 128, parts), FileHandle("_metadata", 0, "")
    checkpoint = CompletedCheckpoint(2, 1, SnapshotKind.CHECKPOINT, {"op": operator}, 0.0, 0.0, file, 0)
    decoded = decode_metadata(encode_metadata(checkpoint), "_metadata").operators["op"]
    assert decoded == operator

    values = {key: str(key) if now.types == (str,) else key for key in range(30)}
    expected = {key: [key] for key in range(30)} if isinstance(now, ListState) else values
    for own, parts_of in ((ALL, handles), (halves[0], handles[:1]), (halves[1], handles[1:])):
        next_one = new_backend(own=own, clock=ManualClock())
        next_one.restore(parts_of, files)
        next_one.bind(now)
        mine = {key: value for key, value in expected.items() if key_group_of(key, 128) in own}
        assert next_one.contents("s") == mine
    if savepoint and not now.types:
        read = read_keyed(decoded, "s", ALL, files.read, ValueCodec())
        assert read is not None
        assert dict(zip(read.keys, read.values, strict=True)) == {key: key for key in range(30)}


def test_a_list_that_is_replaced_by_an_element_of_another_type_stays_as_it_was() -> None:
    _, waiting = bound(ListState(int, name="waiting"))
    waiting.extend([1, 2])
    with pytest.raises(TypeError, match="declared as int and can't hold 'x'"):
        waiting.update([3, "x"])
    assert waiting.get() == [1, 2]


def test_a_list_may_be_replaced_by_what_it_holds_itself() -> None:
    _, waiting = bound(ListState(name="waiting"))
    waiting.extend([1, 2, 3])
    waiting.update(value for value in waiting if value != 2)
    assert waiting.get() == [1, 3]


def test_a_map_is_a_mutable_mapping() -> None:
    backend, pages = bound(MapState(str, int, name="pages"))
    assert isinstance(pages, MutableMapping)
    pages.put("/", 1)
    pages["/cart"] = 2
    pages.update({"/pay": 3}, home=4)
    assert (dict(pages), len(pages), "/" in pages) == ({"/": 1, "/cart": 2, "/pay": 3, "home": 4}, 4, True)
    assert (list(pages.keys()), list(pages.values())) == (["/", "/cart", "/pay", "home"], [1, 2, 3, 4])
    assert (pages["/"], pages.get("/none"), pages.get("/none", 0)) == (1, None, 0)
    assert (pages.pop("/pay"), pages.pop("/pay", 7), pages.setdefault("/", 9)) == (3, 7, 1)
    del pages["home"]
    assert pages == {"/": 1, "/cart": 2}
    with pytest.raises(KeyError):
        pages["/none"]
    with pytest.raises(KeyError):
        del pages["/none"]
    backend.set_current_key("bob")
    assert (dict(pages), bool(pages)) == ({}, False)
    backend.set_current_key("ann")
    pages.clear()
    assert backend.keys("pages") == []


def test_a_map_that_has_lost_its_last_entry_is_no_key_of_the_state() -> None:
    backend, pages = bound(MapState(name="pages"))
    pages["/"] = 1
    del pages["/"]
    assert backend.keys("pages") == []
    assert backend.table_names == ()


@pytest.mark.parametrize("key", [[1], float("nan"), (1, float("nan")), object()])
def test_what_could_not_be_found_again_is_no_map_key(key: Any) -> None:
    backend, pages = bound(MapState(name="pages"))
    pages["/"] = 0
    with pytest.raises(TypeError):
        pages[key] = 1
    assert dict(pages) == {"/": 0}
    assert set(backend.table("pages", nested=True).changed) == {("ann", "/")}


def test_the_error_for_a_map_key_names_the_state() -> None:
    _, pages = bound(MapState(name="pages"))
    with pytest.raises(KeyTypeError, match=r"state 'pages' can't have this map key: .* of type object"):
        pages[object()] = 1


def test_a_reducing_state_combines_what_is_added() -> None:
    backend, highest = bound(ReducingState(max, int, name="highest"))
    assert highest.get() is None
    for number in (2, 5, 3):
        highest.add(number)
    assert highest.get() == 5
    highest.clear()
    assert (highest.get(), backend.keys("highest")) == (None, [])


def test_an_aggregating_state_folds_what_is_added() -> None:
    backend, mean = bound(AggregatingState(Mean(), name="mean"))
    assert mean.get() is None
    mean.add(1.0)
    mean.add(2.0)
    assert (mean.get(), backend.table("mean").entries) == (1.5, {"ann": (3.0, 2)})
    mean.clear()
    assert mean.get() is None


@pytest.mark.parametrize(
    ("state", "use"),
    [
        (ValueState(int, name="s"), lambda s: s.update("three")),
        (ListState(int, name="s"), lambda s: s.add("three")),
        (MapState(str, int, name="s"), lambda s: s.put("a", "three")),
        (ReducingState(max, int, name="s"), lambda s: s.add("three")),
        (ReducingState(lambda a, b: "three", int, name="s"), lambda s: (s.add(1), s.add(1))),
    ],
)
def test_a_state_holds_nothing_but_values_of_its_type(state: KeyedState, use: Any) -> None:
    _, view = bound(state)
    with pytest.raises(TypeError, match="state 's' is declared as int and can't hold 'three'"):
        use(view)


def test_a_map_has_no_keys_but_those_of_its_type() -> None:
    _, pages = bound(MapState(str, int, name="pages"))
    with pytest.raises(TypeError, match="state 'pages' has map keys of type str and can't have 3"):
        pages[3] = 1


USES: list[tuple[KeyedState, list[Any]]] = [
    (ValueState(name="s"), [lambda s: s.value(), lambda s: s.update(1), lambda s: s.clear()]),
    (ListState(name="s"), [lambda s: s.get(), lambda s: s.add(1), lambda s: s.clear(), len, list]),
    (
        MapState(name="s"),
        [lambda s: s.get(1), lambda s: s.put(1, 1), lambda s: s.clear(), len, list, lambda s: 1 in s],
    ),
    (ReducingState(max, name="s"), [lambda s: s.get(), lambda s: s.add(1), lambda s: s.clear()]),
    (AggregatingState(Mean(), name="s"), [lambda s: s.get(), lambda s: s.add(1.0), lambda s: s.clear()]),
]


@pytest.mark.parametrize(("state", "use"), [(state, use) for state, uses in USES for use in uses])
def test_no_state_is_used_where_there_is_no_key(state: KeyedState, use: Any) -> None:
    view = new_backend().bind(state)
    with pytest.raises(RuntimeError, match="state 's' was used outside the processing of a record"):
        use(view)


@pytest.mark.parametrize(("state", "use"), [(state, use) for state, uses in USES for use in uses])
def test_a_declaration_that_nobody_has_bound_says_so(state: KeyedState, use: Any) -> None:
    with pytest.raises(
        PenstockError, match=r"'s' \(.*test_kinds_of_state.py:\d+ .*\) is a declaration and holds"
    ):
        use(state)


# -- snapshots ----------------------------------------------------------------------------------------------


def everything() -> list[Any]:
    return [
        ValueState(name="value"),
        ListState(name="list"),
        MapState(name="map"),
        ReducingState(max, name="reducing"),
        AggregatingState(Mean(), name="aggregating"),
    ]


def test_every_kind_comes_back_from_a_snapshot_at_any_parallelism() -> None:
    files, backend = Files(), new_backend()
    views: Any = [backend.bind(state) for state in everything()]
    for number in range(200):
        backend.set_current_key(f"key-{number}")
        views[0].update(number)
        views[1].extend([number, "x", number + 1])
        views[2].update({"a": number, ("b", 1): None})
        views[3].add(number)
        views[4].add(float(number))
    handle = take(backend, files, 1, -1)
    seen = 0
    for index in range(3):
        part = new_backend(own=key_group_range(index, 3, 128), codec=backend._codec)
        part.restore([handle], files)
        again: Any = [part.bind(state) for state in everything()]
        keys = part.keys("value")
        assert all(sorted(part.keys(name)) == sorted(keys) for name in ("list", "map", "reducing"))
        for key in keys:
            number = int(key[4:])
            part.set_current_key(key)
            assert again[0].value() == number
            assert again[1].get() == [number, "x", number + 1]
            assert dict(again[2]) == {"a": number, ("b", 1): None}
            assert (again[3].get(), again[4].get()) == (number, number)
        seen += len(keys)
    assert seen == 200


@pytest.mark.usefixtures("only_heap")
@pytest.mark.parametrize("kind", [MapState, ListState])
def test_a_checkpoint_holds_the_entries_that_changed_and_not_their_map(kind: type[Any]) -> None:
    files = Files()
    backend, state = bound(kind(name="s"))
    for number in range(10_000):
        state.put(number, "x" * 20) if kind is MapState else state.add("x" * 20)
    first = take(backend, files, 1, -1)
    state.put(77, "new") if kind is MapState else state.add("new")
    second = take(backend, files, 2, 1)
    assert [len(handle.files) for handle in (first, second)] == [1, 2]
    assert second.files[1].size < first.files[0].size / 1000
    assert tables_of(files.read(second.files[1]), second.files[1]) == {"s": 1}
    _, again = restored_with([second], files, kind(name="s"))
    assert len(again) == (10_000 if kind is MapState else 10_001)
    assert (again[77] if kind is MapState else again.get()[-1]) == "new"


def test_a_deleted_entry_stays_deleted_through_all_later_snapshots() -> None:
    files = Files()
    backend, pages = bound(MapState(name="pages"))
    pages.update({"a": 1, "b": 2})
    take(backend, files, 1, -1)
    del pages["a"]
    take(backend, files, 2, 1)
    pages["c"] = 3
    handle = take(backend, files, 3, 2)
    _, again = restored_with([handle], files, MapState(name="pages"))
    assert dict(again) == {"b": 2, "c": 3}


def test_a_savepoint_holds_no_entry_that_was_deleted() -> None:
    files = Files()
    backend, pages = bound(MapState(name="pages"))
    pages.update({"a": 1, "b": 2})
    take(backend, files, 1, -1)
    del pages["a"]
    handle = backend.snapshot(2, 1, self_contained=True).finish(files)
    (file,) = handle.files
    assert (tables_of(files.read(file), file), handle.entries) == ({"pages": 1}, 1)


def test_a_list_keeps_its_order_whatever_happened_between_the_snapshots() -> None:
    """Numbers of elements that were cleared are given again; deltas that name them are merged."""
    files = Files()
    backend, waiting = bound(ListState(name="waiting"))
    waiting.extend("abc")
    take(backend, files, 1, -1)
    waiting.clear()
    take(backend, files, 2, -1)
    waiting.extend("wxyz")
    handle = take(backend, files, 3, -1)
    _, again = restored_with([handle], files, ListState(name="waiting"))
    assert again.get() == list("wxyz")
    again.add("!")
    assert again.get() == list("wxyz!")


def test_a_value_that_changes_after_the_snapshot_is_not_in_it() -> None:
    files = Files()
    backend, pages = bound(MapState(name="pages"))
    pages["a"] = [1]
    snapshot = backend.snapshot(1, -1)
    pages["a"].append(2)
    _, again = restored_with([snapshot.finish(files)], files, MapState(name="pages"))
    assert again["a"] == [1]


@pytest.mark.parametrize(
    ("saved", "now"),
    [
        (ValueState(name="s"), MapState(name="s")),
        (MapState(name="s"), ListState(name="s")),
        (ReducingState(max, name="s"), ValueState(name="s")),
    ],
)
def test_a_state_of_another_kind_is_refused(saved: KeyedState, now: KeyedState) -> None:
    files = Files()
    backend, _ = bound(saved)
    handle = take(backend, files, 1, -1)
    what = f"state 's' is a {type(now).__name__}, but .* holds a {type(saved).__name__} of this name"
    with pytest.raises(StateMismatchError, match=what):
        restored_with([handle], files, now)


def test_a_map_does_not_take_values_that_were_saved_before_kinds_were() -> None:
    files = Files()
    backend = new_backend()
    backend.table("s").entries["ann"] = {"a": 1}
    backend.table("s").changed.add("ann")
    handle = take(backend, files, 1, -1)
    with pytest.raises(
        StateMismatchError, match="state 's' was saved with one entry per key and is now used"
    ):
        restored_with([handle], files, MapState(name="s"))


def test_values_that_were_saved_before_kinds_were_are_those_of_any_kind_with_one_value() -> None:
    files = Files()
    backend = new_backend()
    backend.table("s").entries["ann"] = 3
    backend.table("s").changed.add("ann")
    handle = take(backend, files, 1, -1)
    assert restored_with([handle], files, ValueState(name="s"))[1].value() == 3
    assert restored_with([handle], files, ReducingState(max, name="s"))[1].get() == 3


# -- types, names -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("saved", "now", "found"),
    [
        (ValueState(name="s"), ValueState(int, name="s", migrate=int), lambda s: s.value()),
        (ListState(name="s"), ListState(int, name="s", migrate=int), lambda s: s.get()[0]),
        (MapState(name="s"), MapState(str, int, name="s", migrate=int), lambda s: s["a"]),
        (ReducingState(max, name="s"), ReducingState(max, int, name="s", migrate=int), lambda s: s.get()),
    ],
)
def test_saved_values_of_another_type_are_migrated_once(
    saved: KeyedState, now: KeyedState, found: Any
) -> None:
    files = Files()
    backend, view = bound(saved)
    {"value": lambda: view.update("12"), "map": lambda: view.put("a", "12")}.get(
        saved.kind, lambda: view.add("12")
    )()
    first = take(backend, files, 1, -1)
    again, view = restored_with([first], files, now)
    assert found(view) == 12
    second = again.snapshot(1, -1).finish(files)
    of_the_type = copy(now)
    of_the_type.migrate = None
    assert found(restored_with([second], files, of_the_type)[1]) == 12


def test_values_that_are_of_the_type_already_are_left_alone() -> None:
    files = Files()
    backend, view = bound(ValueState(name="s"))
    for key, value in (("ann", 1), ("bob", "2")):
        backend.set_current_key(key)
        view.update(value)
    handle = take(backend, files, 1, -1)
    again, _ = restored_with([handle], files, ValueState(int, name="s", migrate=lambda old: int(old) * 10))
    assert again.table("s").entries == {"ann": 1, "bob": 20}


def raises(value: Any) -> int:
    msg = "no idea"
    raise ValueError(msg)


@pytest.mark.parametrize(
    ("migrate", "what"),
    [
        (raises, r"migrate function raises \(.*py:\d+\) failed on 'x' of key 'ann': ValueError: no idea"),
        (str.upper, r"is declared as int, but migrate function str.upper returned 'X' for 'x' of key 'ann'"),
    ],
)
def test_a_migration_that_does_not_work_is_named(migrate: Any, what: str) -> None:
    files = Files()
    backend, view = bound(ValueState(name="s"))
    view.update("x")
    handle = take(backend, files, 1, -1)
    with pytest.raises(StateMismatchError, match=what):
        restored_with([handle], files, ValueState(int, name="s", migrate=migrate))


def test_map_keys_of_another_type_are_refused() -> None:
    files = Files()
    backend, pages = bound(MapState(name="pages"))
    pages[3] = 1
    handle = take(backend, files, 1, -1)
    with pytest.raises(StateMismatchError, match=r"declared as map keys of type str, but holds int in "):
        restored_with([handle], files, MapState(str, name="pages"))


@pytest.mark.parametrize("kind", [ValueState, MapState])
def test_a_renamed_state_takes_over_what_has_the_old_name_once(kind: Any) -> None:
    files = Files()
    backend, view = bound(kind(name="old"))
    view.put("a", 1) if kind is MapState else view.update(1)
    first = take(backend, files, 1, -1)

    backend = new_backend()
    backend.restore([first], files, restored_checkpoint_id=1)
    now = kind(name="new", renamed_from="old")
    backend.rename(now)
    view = backend.bind(now)
    backend.set_current_key("ann")
    assert (view["a"] if kind is MapState else view.value()) == 1
    assert backend.keys("old") == []
    second = take(backend, files, 2, 1)
    assert [state.name for state in second.states] == ["new"]

    backend = new_backend()
    backend.restore([second], files, restored_checkpoint_id=2)
    assert backend.keys("old") == []
    old = backend.bind(kind(name="old"))
    backend.set_current_key("ann")
    old.put("a", 2) if kind is MapState else old.update(2)
    backend.rename(now)
    view = backend.bind(now)
    assert (view["a"] if kind is MapState else view.value()) == 1


@pytest.mark.parametrize("name", ["", "x" * 201, "a\nb", "\ud800", " a", 3])
def test_what_can_not_be_a_name_is_refused_where_it_is_written(name: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"ValueState \(.*test_kinds_of_state.py:\d+.*\): a name "):
        ValueState(name=name)
    with pytest.raises(ConfigurationError, match="a name "):
        ValueState(name="now", renamed_from=name)


def test_the_name_of_a_table_of_penstocks_own_is_refused_as_name_and_as_old_name() -> None:
    """Otherwise a state would be taken for the timers of its operator."""
    with pytest.raises(ConfigurationError, match="'penstock:' belong to tables of Penstock, such as timers"):
        ValueState(name=EVENT_TIMERS)
    with pytest.raises(ConfigurationError, match="'penstock:' belong to tables of Penstock, such as timers"):
        MapState(renamed_from=PROCESSING_TIMERS)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: ValueState(default=[]), "a default of type list is not allowed"),
        (lambda: ValueState(3), "a type is a class such as int"),  # type: ignore[call-overload]
        (lambda: MapState(str, migrate=int), "migrate=... needs the type of the values"),
        (lambda: ListState(int, migrate=3), "migrate must be a function that converts an old value, not 3"),  # type: ignore[arg-type]
        (lambda: ReducingState(3), "give it a function of two values, not 3"),  # type: ignore[arg-type]
        (lambda: AggregatingState(Mean), "give it an instance of an AggregateFunction class"),  # type: ignore[arg-type]
        (lambda: AggregatingState(max), "give it an instance of an AggregateFunction class"),  # type: ignore[arg-type]
    ],
)
def test_a_declaration_that_can_not_be_is_refused_with_its_line(make: Any, what: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"State \(.*test_kinds_of_state.py:\d+ .*\): {what}"):
        make()


def test_a_generic_type_stands_for_its_class() -> None:
    assert ValueState(list[int]).of_type is list


@pytest.mark.usefixtures("only_heap")
def test_what_was_never_written_is_no_block_of_a_snapshot() -> None:
    files = Files()
    backend = new_backend(own=KeyGroupRange(0, 127))
    for state in everything():
        backend.bind(state)
    handle = take(backend, files, 1, -1)
    assert handle.files == ()
    assert [(s.name, s.kind) for s in handle.states] == sorted((s.name, s.kind) for s in everything())
