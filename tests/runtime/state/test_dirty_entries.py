"""Changes since the last snapshot, and the work of taking it."""

from __future__ import annotations

from typing import Any

import pytest
from heap_setup import ALL, Files, new_backend, restored, take
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.operators.keyed_state_requests import StateSweep
from penstock.runtime.operators.timers import TimerQueue
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state import dirty_entries as module
from penstock.runtime.state.captured_rows import CapturedRows
from penstock.runtime.state.dirty_entries import DirtyEntries
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.immutable_values import DELETED, ImmutableValues
from penstock.runtime.state.keyed_states import MapState, ValueState
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.state.timer_table import TimerTable
from penstock.runtime.testing.manual_time import ManualClock


class CountingFixed(ImmutableValues):
    """Counts the values that are looked at."""

    def __init__(self) -> None:
        super().__init__(ValueCodec())
        self.seen = 0

    def mutable(self, entries: Any) -> list[Any]:
        self.seen += len(entries)
        return super().mutable(entries)


class CountingEntries(dict[Any, Any]):
    """Counts look-ups."""

    looked_up = 0

    def get(self, key: Any, default: Any = None) -> Any:
        self.looked_up += 1
        return super().get(key, default)


@pytest.mark.parametrize("written", [1_000, 100_000])
def test_numbers_are_taken_without_looking_at_one_of_them(written: int) -> None:
    entries, fixed = CountingEntries(), CountingFixed()
    changes = DirtyEntries(entries, fixed)
    for number in range(written):
        entries[number] = changes.written[number] = number
    own = changes.written
    taken = changes.take(changes.mutable())
    assert taken[0] is own
    assert len(taken[0]) == written
    assert (fixed.seen, entries.looked_up) == (0, 0)


def test_timers_are_taken_without_looking_at_one_of_them() -> None:
    fixed = CountingFixed()
    table = StateTable("t", nested=True, changed=lambda entries: DirtyEntries(entries, fixed, nested=True))
    queue = TimerQueue(TimerTable(table))
    for at in range(10_000):
        queue.register("ann", at)
    (taken,) = table.changed.take(table.changed.mutable())
    assert taken == {("ann", at): at for at in range(10_000)}
    assert fixed.seen == 0


def test_records_of_a_batch_are_looked_at_when_they_are_put_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MANY", 50)
    entries, fixed = CountingEntries(), CountingFixed()
    changes = DirtyEntries(entries, fixed)
    for batch in range(100):
        keys = range(batch * 20, batch * 20 + 20)
        values = [("ann", key) for key in keys]
        entries.update(zip(keys, values, strict=True))
        changes.put(keys, values)
    entries[7] = [7]
    changes.put([7], [entries[7]])
    mutable = changes.mutable()
    (taken,) = changes.take(mutable)
    assert mutable == {7: [7]}
    assert {**taken, **mutable} == entries
    assert entries.looked_up <= 50 + 20 + 1


def test_records_of_a_view_are_looked_at_between_batches_so_that_a_snapshot_looks_at_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_UNEXAMINED", 100)
    entries, fixed = CountingEntries(), CountingFixed()
    changes = DirtyEntries(entries, fixed)
    changes.accept_all()
    for batch in range(100):
        for key in range(batch * 20, batch * 20 + 20):
            entries[key] = changes.written[key] = "ann", key
        if changes.is_examination_due:
            changes.examine()
    fixed.seen = 0
    taken = changes.take(changes.mutable())
    assert {**taken[0], **taken[1]} == entries
    assert fixed.seen <= 100 + 20


def test_few_keys_that_are_written_often_are_never_looked_at_ahead() -> None:
    entries, fixed = CountingEntries(), CountingFixed()
    changes = DirtyEntries(entries, fixed)
    for round_ in range(1_000):
        entries.update(dict.fromkeys("abc", (round_,)))
        changes.put("abc", [(round_,)] * 3)
    assert (fixed.seen, entries.looked_up) == (0, 0)
    assert changes.take(changes.mutable()) == [dict.fromkeys("abc", (999,))]
    assert entries.looked_up == 3


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (ValueState(tuple, name="s"), ValueState(tuple, name="s", ttl=1000)),
        (ValueState(tuple, name="s", ttl=1000), ValueState(tuple, name="s")),
        (ValueState(tuple, name="s"), ValueState(str, name="s", migrate=str)),
        (MapState(int, tuple, name="s"), MapState(int, tuple, name="s", ttl=1000)),
        (MapState(int, tuple, name="s", ttl=1000), MapState(int, tuple, name="s")),
    ],
    ids=["adds a TTL", "removes a TTL", "migrates", "adds a TTL to a map", "removes a TTL from a map"],
)
def test_entries_that_another_declaration_replaces_are_examined_before_the_snapshot(
    before: Any, now: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All entries change; the synchronous part of the next snapshot examines none of them."""
    monkeypatch.setattr(module, "MAX_UNEXAMINED", 10)
    clock, files = ManualClock(), Files()
    setup = BackendSetup("op", 128, ALL, ValueCodec(), clock=clock)
    old, new = HeapKeyedStateBackend(setup), HeapKeyedStateBackend(setup)
    state = old.bind(before)
    for number in range(1_000):
        old.set_current_key(number)
        state.put(1, (number,)) if isinstance(state, MapState) else state.update((number,))
    new.restore([take(old, files, 1, -1)], files, 1)

    new.bind(now)
    sweep, changed = StateSweep(new, clock), new.table("s", nested=now.nested).changed
    assert new.is_examination_due
    while sweep.due_at is not None and sweep.due_at <= clock.monotonic():
        sweep.run_if_due()
        clock.advance(0.01)

    assert (changed.written, changed.dirty_keys) == ({}, set())
    again = HeapKeyedStateBackend(setup)
    again.restore([take(new, files, 2, 1)], files)
    again.bind(now)
    assert again.contents("s") == new.contents("s")
    assert len(again.contents("s")) == 1_000


def test_what_may_change_is_looked_up_again_and_is_in_no_dict_that_another_thread_gets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MAX_UNEXAMINED", 2)
    entries: dict[Any, Any] = {"a": [1], "b": 2, "c": ([],)}
    changes = DirtyEntries(entries, ImmutableValues(ValueCodec()))
    changes.accept_all()
    changes.written.update(entries)
    assert changes.is_examination_due
    changes.examine()
    entries["a"] = changes.written["a"] = 5
    mutable = changes.mutable()
    assert mutable == {"c": ([],)}
    taken = changes.take(mutable)
    assert taken == [{"b": 2}, {"a": 5}]
    assert not changes


def test_a_view_goes_on_with_a_dict_of_its_own_after_a_snapshot() -> None:
    backend = new_backend()
    state = backend.bind(ValueState(int, name="t"))
    backend.set_current_key("a")
    state.update(1)
    first = backend.snapshot(1, -1)
    state.update(2)
    second = backend.snapshot(2, -1)
    state.clear()
    third = backend.snapshot(3, -1)
    for snapshot, held in ((third, {}), (first, {"a": 1}), (second, {"a": 2})):
        files = Files()
        assert restored(snapshot.finish(files), files) == held


def test_a_timer_that_was_set_and_has_fired_between_two_snapshots_leaves_nothing() -> None:
    backend, files = new_backend(), Files()
    queue = TimerQueue(backend.timer_table("t"))
    for key in "abc":
        queue.register(key, 5)
    assert len(list(queue.due(5))) == 3
    assert backend.snapshot(1, -1).deltas == ()
    queue.register("a", 7)
    saved = backend.snapshot(2, -1)
    queue.delete("a", 7)
    queue.register("a", 7)
    queue.delete("a", 7)
    after = backend.snapshot(3, -1)
    assert restored_timers(saved.finish(files), files) == {"a": {7: 3}}
    assert restored_timers(after.finish(files), files) == {}


def test_a_timer_that_is_set_again_after_its_deletion_was_examined_is_deleted_for_good() -> None:
    changes = DirtyEntries({}, ImmutableValues(ValueCodec()), nested=True)
    changes.put_new(("a", 1), 5)
    changes.take(changes.mutable())
    changes.remove(("a", 1))
    changes.examine()
    changes.put_new(("a", 1), 6)
    changes.remove(("a", 1))
    assert changes.take(changes.mutable()) == [{("a", 1): DELETED}]


@given(
    st.lists(st.tuples(st.sampled_from(["new", "again", "remove", "save"]), st.integers(0, 5)), max_size=30)
)
def test_entries_of_a_log_are_saved_with_their_last_values_and_leave_nothing_else(
    steps: list[tuple[str, int]],
) -> None:
    changes = DirtyEntries({}, ImmutableValues(ValueCodec()), nested=True)
    changes.never_in_place = True
    live: dict[Any, int] = {}
    saved: dict[Any, int] = {}
    for number, (step, chosen) in enumerate(steps):
        if step == "new":
            live["k", number] = 0
            changes.put_many_new({("k", number): 0})
        elif step == "save":
            for taken in changes.take(changes.mutable()):
                for entry, value in taken.items():
                    assert value is not DELETED or entry in saved, "it came and went between two snapshots"
                    saved[entry] = value
            saved = {entry: value for entry, value in saved.items() if value is not DELETED}
            assert saved == live
        elif live:
            entry = list(live)[chosen % len(live)]
            if step == "again":
                live[entry] += 1
                changes.put_again({entry: live[entry]})
            else:
                del live[entry]
                changes.remove_many([entry])


def restored_timers(handle: Any, files: Files) -> dict[Any, Any]:
    backend: HeapKeyedStateBackend = new_backend()
    backend.restore([handle], files)
    return backend.table("t", nested=True).entries


def test_a_renamed_state_leaves_nothing_under_its_old_name() -> None:
    old, files = new_backend(), Files()
    old.set_current_key("a")
    old.bind(ValueState(int, name="before")).update(1)
    handle = old.snapshot(1, -1).finish(files)
    backend = new_backend()
    backend.restore([handle], files, restored_checkpoint_id=1)
    now = ValueState(int, name="now", renamed_from="before")
    backend.rename(now)
    backend.bind(now)
    again = new_backend()
    again.restore([backend.snapshot(2, 1).finish(files)], files)
    assert (again.table("now").entries, again.table("before").entries) == ({"a": 1}, {})


def test_entries_are_encoded_once_and_their_references_given_back() -> None:
    backend = new_backend()
    captured = CapturedRows("t", {number: (number, "x") for number in range(40_000)})
    codec = ValueCodec()
    packed = captured.packed(128, backend.key_groups, codec)
    assert sum(block[1] for block in packed) == len(captured) == 40_000
    assert captured.packed(128, backend.key_groups, codec) is packed
    merged: dict[Any, Any] = {1: "older"}
    captured.put_into(merged, codec)
    assert merged == {number: (number, "x") for number in range(40_000)}
    assert captured._rows is None  # nothing else shows that the references are gone


def test_two_that_encode_the_same_entries_at_once_disturb_neither() -> None:
    """The second one begins and ends while the first one is in the middle."""
    backend, codec = new_backend(), ValueCodec()
    captured = CapturedRows("t", {number: number for number in range(40_000)})
    inner: list[Any] = []

    class Interrupting(ValueCodec):
        def dumps(self, value: Any) -> bytes:
            if not inner:
                inner.append(None)
                inner[0] = captured.packed(128, backend.key_groups, codec)
            return super().dumps(value)

    outer = captured.packed(128, backend.key_groups, Interrupting())
    assert outer == inner[0]
    assert sum(block[1] for block in outer) == 40_000
