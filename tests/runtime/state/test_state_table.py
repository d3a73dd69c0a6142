from __future__ import annotations

import pytest

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.keyed_states import ValueState
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.state.state_table import NO_KEY


def backend() -> HeapKeyedStateBackend:
    return HeapKeyedStateBackend(BackendSetup("op", 128, KeyGroupRange(0, 127), ValueCodec()))


def test_a_table_is_always_the_same_object() -> None:
    state = backend()
    assert state.table("a") is state.table("a")
    assert state.table("a") is not state.table("b")


def test_a_value_belongs_to_the_current_key() -> None:
    state = backend()
    count = state.bind(ValueState(int, default=0, name="count"))
    for key in ("a", "b", "a"):
        state.set_current_key(key)
        count.update(count.value() + 1)
    assert state.table("count").entries == {"a": 2, "b": 1}
    assert set(state.table("count").changed) == {"a", "b"}


def test_a_cleared_value_is_the_default_again() -> None:
    state = backend()
    count = state.bind(ValueState(int, default=0, name="count"))
    state.set_current_key("a")
    count.update(5)
    count.clear()
    assert count.value() == 0
    assert state.table("count").entries == {}


def test_clearing_what_is_not_there_changes_nothing() -> None:
    state = backend()
    state.set_current_key("a")
    state.bind(ValueState(name="count")).clear()
    assert not state.table("count").changed


def test_state_that_no_snapshot_saves_does_not_collect_what_changed() -> None:
    state = HeapKeyedStateBackend(
        BackendSetup("op", 128, KeyGroupRange(0, 127), ValueCodec(), takes_snapshots=False)
    )
    count = state.bind(ValueState(name="count"))
    for key in ("a", "b"):
        state.set_current_key(key)
        count.update(1)
    count.clear()
    table = state.table("count")
    table.changed.update(["a", "b"])
    assert (table.entries, len(table.changed)) == ({"a": 1}, 0)
    with pytest.raises(RuntimeError, match="made without snapshots"):
        state.snapshot(1, -1)


def test_keyed_state_outside_of_a_record_is_refused() -> None:
    state = backend()
    count = state.bind(ValueState(name="count"))
    for use in (count.value, count.clear, lambda: count.update(1)):
        with pytest.raises(RuntimeError, match="'count' was used outside the processing of a record"):
            use()
    state.set_current_key(None)
    count.update(1)
    state.set_current_key(NO_KEY)
    assert state.table("count").entries == {None: 1}
