from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from penstock.runtime.checkpoint.snapshot import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    StateHandle,
)
from penstock.runtime.errors import (
    CodecError,
    ConfigurationError,
    CorruptSnapshotError,
    KeyTypeError,
    StorageError,
)
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.compaction import CompactionPolicy
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state.redistribution import reassign_keyed

ALL = KeyGroupRange(0, 127)
NEVER = CompactionPolicy(max_files=100, growth=100.0)


class Files:
    """A store of files by path; `broken` makes every write fail."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.reads = 0
        self.broken = False

    def write(self, data: bytes) -> StateHandle:
        if self.broken:
            msg = "the disk is full"
            raise StorageError(msg)
        path = f"chk/{len(self.content)}"
        self.content[path] = data
        return FileHandle(path, len(data), "")

    def read(self, handle: StateHandle) -> bytes:
        self.reads += 1
        return handle.data if isinstance(handle, InlineHandle) else self.content[handle.path]


def new_backend(policy: CompactionPolicy = NEVER, own: KeyGroupRange = ALL) -> HeapKeyedStateBackend:
    return HeapKeyedStateBackend(128, own, ValueCodec(), policy)


def put(backend: HeapKeyedStateBackend, entries: dict[Any, Any], table: str = "t") -> None:
    backend.table(table).entries.update(entries)
    backend.table(table).changed.update(entries)


def delete(backend: HeapKeyedStateBackend, keys: Iterable[Any], table: str = "t") -> None:
    for key in keys:
        del backend.table(table).entries[key]
        backend.table(table).changed.add(key)


def take(
    backend: HeapKeyedStateBackend, files: Files, checkpoint_id: int, confirmed_id: int
) -> KeyedStateHandle:
    handle = backend.snapshot(checkpoint_id, confirmed_id).finish(files)
    backend.snapshot_finished(checkpoint_id, handle)
    return handle


def restored(handle: KeyedStateHandle, files: Files, table: str = "t") -> dict[Any, Any]:
    backend = new_backend(own=handle.key_groups)
    backend.restore([handle], files)
    return backend.table(table).entries


def test_a_snapshot_holds_everything_and_comes_back() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1, 2: (3, [4]), None: {"x": 1.5}})
    put(backend, {"a": "other"}, table="u")
    handle = take(backend, files, 1, -1)
    assert restored(handle, files) == {"a": 1, 2: (3, [4]), None: {"x": 1.5}}
    assert restored(handle, files, "u") == {"a": "other"}
    assert (handle.key_groups, handle.entries, len(handle.files)) == (ALL, 4, 1)


def test_a_confirmed_checkpoint_is_built_on_with_one_file_of_changes() -> None:
    backend, files = new_backend(), Files()
    put(backend, dict.fromkeys(range(100), "x" * 100))
    first = take(backend, files, 1, -1)
    put(backend, {1: "new"})
    delete(backend, [2])
    second = take(backend, files, 2, 1)
    assert second.files[:1] == first.files
    assert second.files[1].size < 200
    assert second.entries == 102
    assert restored(second, files) == {key: "x" * 100 for key in range(100) if key != 2} | {1: "new"}


def test_changes_of_an_unconfirmed_checkpoint_are_written_again_and_its_files_not_named() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1, "b": 1, "c": 1})
    first = take(backend, files, 1, -1)
    put(backend, {"b": 2})
    delete(backend, ["c"])
    second = take(backend, files, 2, 1)
    put(backend, {"d": 3})
    third = take(backend, files, 3, 1)
    assert third.files[0] == first.files[0]
    assert second.files[1] not in third.files
    assert len(third.files) == 2
    assert restored(third, files) == {"a": 1, "b": 2, "d": 3}
    put(backend, {"e": 4})
    fourth = take(backend, files, 4, 2)
    assert fourth.files[:2] == second.files
    assert restored(fourth, files) == {"a": 1, "b": 2, "d": 3, "e": 4}


def test_an_upload_that_failed_leaves_its_changes_for_the_next() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    take(backend, files, 1, -1)
    put(backend, {"b": 2})
    files.broken = True
    with pytest.raises(StorageError, match="full"):
        backend.snapshot(2, 1).finish(files)
    files.broken = False
    third = take(backend, files, 3, 1)
    assert restored(third, files) == {"a": 1, "b": 2}


def test_confirmed_changes_leave_memory() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    take(backend, files, 1, -1)
    put(backend, {"b": 1})
    take(backend, files, 2, -1)
    assert backend.statistics().pending_deltas == 2
    take(backend, files, 3, 2)
    statistics = backend.statistics()
    assert (statistics.pending_deltas, statistics.pending_delta_bytes, statistics.confirmed_id) == (0, 0, 2)
    assert statistics.chain_files == 1
    assert statistics.chain_bytes == sum(map(len, [files.content["chk/1"]]))


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


def test_a_snapshot_costs_what_changed_and_not_what_there_is() -> None:
    backend, files = new_backend(), Files()
    put(backend, {key: key for key in range(100_000)})
    take(backend, files, 1, -1)
    put(backend, {5: -5})
    snapshot = backend.snapshot(2, 1)
    assert sum(len(block.keys) for delta in snapshot.deltas for block in delta.blocks) == 1
    assert restored(snapshot.finish(files), files)[5] == -5


def test_an_unknown_confirmed_checkpoint_makes_everything_be_written() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1, "b": 1, "c": 1})
    first = take(backend, files, 1, -1)
    take(backend, files, 2, 1)
    delete(backend, ["b"])
    lost = backend.snapshot(3, 1).finish(files)
    put(backend, {"d": 1})
    fourth = take(backend, files, 4, 3)
    assert not set(fourth.files) & {*first.files, *lost.files}
    assert restored(fourth, files) == {"a": 1, "c": 1, "d": 1}
    assert backend.statistics().full_snapshots == 1


def test_after_writing_everything_an_older_checkpoint_is_not_built_on_again() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1, "b": 1})
    take(backend, files, 1, -1)
    second = take(backend, files, 2, 1)
    delete(backend, ["b"])
    backend.snapshot(3, 1)
    take(backend, files, 4, 99)
    fifth = take(backend, files, 5, 2)
    assert not set(fifth.files) & set(second.files)
    assert restored(fifth, files) == {"a": 1}


def test_many_unconfirmed_changes_are_merged_in_memory() -> None:
    backend, files = new_backend(), Files()
    for checkpoint_id in range(200):
        put(backend, {"hot": checkpoint_id, checkpoint_id % 10: "x" * 50})
        backend.snapshot(checkpoint_id, -1)
    statistics = backend.statistics()
    assert statistics.pending_deltas <= 8
    assert statistics.pending_delta_bytes < 5_000
    handle = backend.snapshot(200, -1).finish(files)
    assert restored(handle, files) == {"hot": 199} | dict.fromkeys(range(10), "x" * 50)


def test_merged_changes_remember_deletions_for_a_chain_that_is_confirmed_later() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1, "b": 1})
    take(backend, files, 0, -1)
    for checkpoint_id in range(1, 30):
        if checkpoint_id == 5:
            delete(backend, ["a"])
        put(backend, {"b": checkpoint_id})
        take(backend, files, checkpoint_id, -1)
    handle = take(backend, files, 30, 3)
    assert restored(handle, files) == {"b": 29}


def test_a_long_chain_is_compacted_without_rewriting_its_base() -> None:
    backend, files = new_backend(CompactionPolicy(max_files=4, growth=10.0)), Files()
    put(backend, dict.fromkeys(range(50), "x" * 1000))
    base = take(backend, files, 0, -1).files[0]
    for checkpoint_id in range(1, 30):
        delete(backend, [checkpoint_id])
        put(backend, {"hot": checkpoint_id})
        handle = take(backend, files, checkpoint_id, checkpoint_id - 1)
        assert len(handle.files) <= 4
        assert handle.files[0] == base
    assert restored(handle, files) == {0: "x" * 1000, "hot": 29} | dict.fromkeys(range(30, 50), "x" * 1000)
    assert files.reads < 100


def test_changes_that_outgrow_the_base_are_compacted_into_a_new_base() -> None:
    backend, files = new_backend(CompactionPolicy(growth=1.0)), Files()
    put(backend, {"a": "x" * 100, "b": "x" * 100})
    first = take(backend, files, 0, -1)
    delete(backend, ["a"])
    put(backend, dict.fromkeys(range(10), "y" * 100))
    second = take(backend, files, 1, 0)
    assert len(second.files) == 1
    assert second.files != first.files
    assert second.entries == 11
    assert restored(second, files) == {"b": "x" * 100} | dict.fromkeys(range(10), "y" * 100)


def test_a_self_contained_snapshot_names_no_older_file_and_is_never_built_on() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1, "b": 1})
    first = take(backend, files, 1, -1)
    put(backend, {"c": 1})
    savepoint = backend.snapshot(2, 1, self_contained=True).finish(files)
    backend.snapshot_finished(2, savepoint)
    assert len(savepoint.files) == 1
    assert not set(savepoint.files) & set(first.files)
    assert restored(savepoint, files) == {"a": 1, "b": 1, "c": 1}
    third = take(backend, files, 3, 2)
    assert not set(third.files) & {*first.files, *savepoint.files}
    assert restored(third, files) == {"a": 1, "b": 1, "c": 1}


def test_a_restored_checkpoint_of_the_same_range_is_built_on() -> None:
    old, files = new_backend(), Files()
    put(old, {key: key for key in range(100)})
    before = take(old, files, 7, -1)
    backend = new_backend()
    backend.restore([before], files, restored_checkpoint_id=7)
    put(backend, {1: "new"})
    handle = take(backend, files, 8, 7)
    assert handle.files[:1] == before.files
    assert restored(handle, files) == {key: key for key in range(100)} | {1: "new"}


@pytest.mark.parametrize("confirmed_id", [9, 5, -1])
def test_a_restored_checkpoint_is_not_built_on_when_another_or_none_is_confirmed(confirmed_id: int) -> None:
    old, files = new_backend(), Files()
    put(old, {"a": 1, "b": 1})
    before = take(old, files, 7, -1)
    backend = new_backend()
    backend.restore([before], files, restored_checkpoint_id=7)
    delete(backend, ["b"])
    handle = take(backend, files, 10, confirmed_id)
    assert not set(handle.files) & set(before.files)
    assert restored(handle, files) == {"a": 1}


def test_a_restored_savepoint_is_not_built_on() -> None:
    old, files = new_backend(), Files()
    put(old, {"a": 1})
    before = take(old, files, 7, -1)
    backend = new_backend()
    backend.restore([before], files)
    handle = take(backend, files, 8, 7)
    assert not set(handle.files) & set(before.files)
    assert restored(handle, files) == {"a": 1}


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
    assert backend.statistics().changed_keys == 0


def test_keys_and_values_keep_their_types() -> None:
    backend, files = new_backend(), Files()
    entries = {("a", 1): (1, 2), b"x": bytearray(b"y"), 1.5: {1, 2}, frozenset([1]): [None, True]}
    put(backend, entries)
    back = restored(take(backend, files, 1, -1), files)
    assert back == entries
    assert [type(value) for value in back.values()] == [type(entries[key]) for key in back]


@pytest.mark.parametrize("position", [0, 7, 20, -1])
def test_a_damaged_file_is_named(position: int) -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    handle = take(backend, files, 1, -1)
    damaged = bytearray(files.content["chk/0"])
    damaged[position] ^= 1
    files.content["chk/0"] = bytes(damaged)
    with pytest.raises(CorruptSnapshotError, match="keyed state in chk/0 is damaged"):
        restored(handle, files)


@pytest.mark.parametrize("length", [0, 4, 12, 40])
def test_a_file_that_is_cut_off_is_named(length: int) -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": "x" * 100})
    handle = take(backend, files, 1, -1)
    inline = replace(handle, files=(InlineHandle(files.content["chk/0"][:length]),))
    with pytest.raises(CorruptSnapshotError, match="the checkpoint's metadata is damaged"):
        restored(inline, files)


def test_a_value_that_can_not_be_decoded_here_is_reported_with_the_file() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": range(3)})
    handle = take(backend, files, 1, -1)
    strict = HeapKeyedStateBackend(128, ALL, ValueCodec(allow_pickle=False))
    with pytest.raises(CorruptSnapshotError, match="keyed state in chk/0 can't be decoded"):
        strict.restore([handle], files)


def test_another_max_parallelism_is_refused() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    handle = take(backend, files, 1, -1)
    other = HeapKeyedStateBackend(256, KeyGroupRange(0, 255), ValueCodec())
    with pytest.raises(ConfigurationError, match="max_parallelism=128 and can't be read with 256"):
        other.restore([handle], files)


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
        with pytest.raises(ValueError, match="ids grow"):
            backend.snapshot(checkpoint_id, -1)


def test_a_notice_of_completion_is_counted_and_decides_nothing() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    first = take(backend, files, 1, -1)
    backend.confirm(1)
    backend.confirm(0)
    assert backend.statistics().completed_id == 1
    second = take(backend, files, 2, -1)
    assert not set(second.files) & set(first.files)


def test_state_over_many_blocks_comes_back() -> None:
    backend, files = new_backend(), Files()
    put(backend, {key: key for key in range(70_000)})
    take(backend, files, 1, -1)
    delete(backend, range(60_000))
    handle = take(backend, files, 2, 1)
    assert restored(handle, files) == {key: key for key in range(60_000, 70_000)}
