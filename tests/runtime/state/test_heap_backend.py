"""The content of the heap backend's snapshots, and the state that is restored."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from heap_setup import ALL, Files, delete, new_backend, put, restored, take

from penstock.runtime.errors import (
    CodecError,
    CorruptSnapshotError,
    KeyTypeError,
)
from penstock.runtime.snapshot.handles import (
    KeyGroupRange,
    StateHandle,
)
from penstock.runtime.state.key_groups import key_group_range, reassign_keyed


def test_a_snapshot_holds_everything_and_comes_back() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1, 2: (3, [4]), None: {"x": 1.5}})
    put(backend, {"a": "other"}, table="u")
    handle = take(backend, files, 1, -1)
    assert restored(handle, files) == {"a": 1, 2: (3, [4]), None: {"x": 1.5}}
    assert restored(handle, files, "u") == {"a": "other"}
    assert (handle.key_groups, handle.entries, len(handle.files)) == (ALL, 4, 1)


def test_nothing_changed_writes_nothing() -> None:
    backend, files = new_backend(), Files()
    assert take(backend, files, 1, -1).files == ()
    put(backend, {"a": 1})
    second = take(backend, files, 2, 1)
    assert take(backend, files, 3, 2) == second
    assert len(files.content) == 1


def test_a_value_that_changes_after_the_snapshot_is_not_in_it() -> None:
    backend, files = new_backend(), Files()
    value = [1]
    put(backend, {"a": value})
    snapshot = backend.snapshot(1, -1)
    value.append(2)
    put(backend, {"a": value, "b": 1})
    delete(backend, ["b"])
    assert restored(snapshot.finish(files), files) == {"a": [1]}


@pytest.mark.parametrize(("old_parallelism", "new_parallelism"), [(1, 3), (3, 1), (2, 5), (5, 2), (3, 4)])
def test_state_follows_its_keys_to_another_parallelism(old_parallelism: int, new_parallelism: int) -> None:
    files = Files()
    whole = new_backend()
    put(whole, {f"key-{index}": index for index in range(500)})
    everything = take(whole, files, 1, -1)
    handles = []
    for index in range(old_parallelism):
        backend = new_backend(own=key_group_range(index, old_parallelism, 128))
        backend.restore([everything], files)
        handles.append([take(backend, files, 2, 1)])
    seen: dict[Any, Any] = {}
    for index, own in enumerate(reassign_keyed(handles, old_parallelism, new_parallelism, 128)):
        backend = new_backend(own=key_group_range(index, new_parallelism, 128))
        backend.restore(own, files, restored_checkpoint_id=2)
        entries = backend.table("t").entries
        assert entries
        assert not seen.keys() & entries.keys()
        seen |= entries
        again = take(backend, files, 3, 2)
        assert not set(again.files) & {file for handle in own for file in handle.files}
        assert restored(again, files) == entries
    assert seen == {f"key-{index}": index for index in range(500)}


def test_restoring_replaces_what_was_there_and_keeps_the_tables() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    handle = take(backend, files, 1, -1)
    put(backend, {"b": 1})
    put(backend, {"b": 1}, table="u")
    table = backend.table("t")
    backend.restore([handle], files, restored_checkpoint_id=1)
    assert backend.table("t") is table
    assert table.entries == {"a": 1}
    assert backend.table("u").entries == {}
    assert backend.snapshot(2, 1).deltas == ()


def test_keys_and_values_keep_their_types() -> None:
    backend, files = new_backend(), Files()
    entries = {("a", 1): (1, 2), b"x": bytearray(b"y"), 1.5: {1, 2}, frozenset([1]): [None, True]}
    put(backend, entries)
    back = restored(take(backend, files, 1, -1), files)
    assert back == entries
    assert [type(value) for value in back.values()] == [type(entries[key]) for key in back]


def test_a_value_that_can_not_be_encoded_is_named_and_nothing_is_lost() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"good": 1, "bad": lambda: None})
    with pytest.raises(CodecError, match="state 't' of key 'bad'"):
        backend.snapshot(1, -1)
    put(backend, {"bad": 2})
    assert restored(take(backend, files, 2, -1), files) == {"good": 1, "bad": 2}


def test_an_entry_of_a_foreign_key_fails_the_snapshot() -> None:
    backend = new_backend(own=KeyGroupRange(0, 0))
    put(backend, {f"key-{index}": 1 for index in range(50)})
    with pytest.raises(
        ValueError, match=r"state table 't' has an entry of 'key-.*keyed by the stream's own key"
    ):
        backend.snapshot(1, -1).finish(Files())


def test_an_entry_of_something_that_is_no_key_fails_the_snapshot() -> None:
    backend = new_backend()
    put(backend, {range(3): 1})
    with pytest.raises(KeyTypeError, match="can't be a key"):
        backend.snapshot(1, -1).finish(Files())


def test_ids_of_snapshots_grow() -> None:
    backend = new_backend()
    backend.snapshot(5, -1)
    for checkpoint_id in (5, 4):
        with pytest.raises(ValueError, match="ids must increase"):
            backend.snapshot(checkpoint_id, -1)


def test_a_notice_of_completion_decides_nothing() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    first = take(backend, files, 1, -1)
    backend.confirm(1)
    backend.confirm(0)
    second = take(backend, files, 2, -1)
    assert not set(second.files) & set(first.files)


def test_state_over_many_blocks_comes_back() -> None:
    backend, files = new_backend(), Files()
    put(backend, {key: key for key in range(70_000)})
    take(backend, files, 1, -1)
    delete(backend, range(60_000))
    handle = take(backend, files, 2, 1)
    assert restored(handle, files) == {key: key for key in range(60_000, 70_000)}


class _Watched(Files):
    def __init__(self) -> None:
        super().__init__()
        self.collects: list[bool] = []

    def read(self, handle: StateHandle) -> bytes:
        self.collects.append(gc.isenabled())
        return super().read(handle)


def test_a_restore_makes_one_collection_of_cycles_at_its_end() -> None:
    backend, files = new_backend(), _Watched()
    put(backend, {number: [number] for number in range(3)})
    handle = take(backend, files, 1, -1)
    before = [generation["collections"] for generation in gc.get_stats()]

    assert restored(handle, files) == {0: [0], 1: [1], 2: [2]}

    assert files.collects == [False]
    assert gc.isenabled()
    assert gc.get_stats()[1]["collections"] == before[1] + 1


def test_a_restore_leaves_the_collector_off_where_a_program_has_turned_it_off() -> None:
    backend, files = new_backend(), _Watched()
    put(backend, {1: [1]})
    handle = take(backend, files, 1, -1)
    gc.disable()
    try:
        restored(handle, files)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_a_restore_that_fails_turns_the_collector_on_again() -> None:
    backend, files = new_backend(), Files()
    put(backend, {1: [1]})
    handle = take(backend, files, 1, -1)
    files.content["chk/0"] = b"damaged"
    with pytest.raises(CorruptSnapshotError):
        restored(handle, files)
    assert gc.isenabled()
