"""Files that a checkpoint of RocksDB uploads and names, and the restored state at any parallelism."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from random import randbytes

import pytest
from rocksdb_setup import (
    GROUPS,
    MIB,
    Files,
    delete,
    held,
    opened,
    put,
    rescaled,
    restored,
    savepoint,
    take,
)

from penstock.runtime.errors import CodecError, CorruptSnapshotError, StateMismatchError, StorageError
from penstock.runtime.io.rocksdb.snapshots import download
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    StateHandle,
)
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_of
from penstock.runtime.state.keyed_states import ListState, ValueState
from penstock.runtime.state.state_backend import BackendSetup


def sorted_files(handle: KeyedStateHandle) -> set[str]:
    pairs = zip(handle.names, handle.files, strict=True)
    return {f.path for name, f in pairs if name.endswith(".sst") and isinstance(f, FileHandle)}


def test_a_checkpoint_uploads_only_files_that_the_confirmed_one_does_not_have() -> None:
    backend, files = opened(), Files()
    put(backend, {n: randbytes(500) for n in range(2000)})
    first = take(backend, files, 1)
    before = files.size
    put(backend, {n: randbytes(500) for n in range(20)})
    second = take(backend, files, 2, 1)
    assert sorted_files(first) < sorted_files(second)
    assert len(sorted_files(second) - sorted_files(first)) == 1
    assert files.size - before < before / 20


def test_a_checkpoint_names_no_file_of_one_that_is_not_confirmed() -> None:
    backend, files = opened(), Files()
    put(backend, {n: n for n in range(100)})
    first = take(backend, files, 1)
    put(backend, {"more": 1})
    second = take(backend, files, 2, -1)
    third = take(backend, files, 3, 1)
    assert not sorted_files(second) & sorted_files(first)
    assert not (sorted_files(third) - sorted_files(first)) & sorted_files(second)
    assert sorted_files(first) < sorted_files(third)
    fourth = take(backend, files, 4, 3)
    assert sorted_files(third) == sorted_files(fourth)


def test_a_checkpoint_that_is_given_up_is_never_built_on() -> None:
    backend, files = opened(), Files()
    put(backend, {n: n for n in range(100)})
    first = take(backend, files, 1)
    put(backend, {"more": 1})
    second = take(backend, files, 2, 1)
    backend.forget(2)
    for path in sorted_files(second) - sorted_files(first):
        del files.content[path]
    third = take(backend, files, 3, 1)
    assert held(restored([third], files)) == {**{n: n for n in range(100)}, "more": 1}


def test_files_that_compaction_has_replaced_are_not_named_any_more() -> None:
    backend, files = opened(), Files()
    for checkpoint_id in range(1, 6):
        put(backend, dict.fromkeys(range(200), checkpoint_id))
        before = take(backend, files, checkpoint_id, checkpoint_id - 1 or -1)
    backend._database._db.compact_range(None, None)
    after = take(backend, files, 6, 5)
    assert len(sorted_files(after)) == 1
    assert not sorted_files(after) & sorted_files(before)
    assert held(restored([after], files)) == dict.fromkeys(range(200), 5)


def test_at_unchanged_parallelism_the_files_are_opened_and_no_row_is_written() -> None:
    backend, files = opened(), Files()
    put(backend, dict.fromkeys(range(3000), "x" * 100))
    handle = take(backend, files, 1)
    again = restored([handle], files, restored_id=1)
    on_disk = {file.name: file.read_bytes() for file in again._database.folder.glob("*.sst")}
    pairs = zip(handle.names, handle.files, strict=True)
    assert on_disk == {name: files.read(file) for name, file in pairs if name.endswith(".sst")}
    assert again._database.rows_written == 0
    assert len(held(again)) == 3000
    before = files.size
    assert sorted_files(take(again, files, 2, 1)) == sorted_files(handle)
    assert files.size - before < 2000


def test_two_attempts_that_start_from_one_checkpoint_never_take_each_others_files_for_their_own() -> None:
    backend, files = opened(), Files()
    put(backend, {"n": 0})
    handle = take(backend, files, 1)
    attempts = [restored([handle], files, restored_id=1) for _ in range(2)]
    for number, attempt in enumerate(attempts):
        put(attempt, {"n": number, number: number})
    late, real = (take(attempt, files, 2, 1) for attempt in attempts)
    assert sorted_files(late) & sorted_files(real) == sorted_files(handle)
    after = take(attempts[1], files, 3, 2)
    assert sorted_files(late) & sorted_files(after) == sorted_files(handle)
    assert held(restored([after], files)) == {"n": 1, 1: 1}


@pytest.mark.parametrize("parallelism", [2, 3, 5])
def test_every_subtask_finds_its_keys_at_another_parallelism_and_back(parallelism: int) -> None:
    files, backends = Files(), rescaled([], Files(), 2)
    model = {f"key-{n}": n for n in range(500)}
    for backend in backends:
        put(backend, {key: n for key, n in model.items() if key_group_of(key, GROUPS) in backend.key_groups})
    handles = [take(backend, files, 1) for backend in backends]
    new = rescaled(handles, files, parallelism, 1)
    assert held(*new) == model
    for backend in new:
        assert all(key_group_of(key, GROUPS) in backend.key_groups for key in held(backend))
    handles = [take(backend, files, 2, 1) for backend in new]
    assert held(*rescaled(handles, files, 1, 2)) == model


def test_what_was_deleted_at_one_parallelism_does_not_come_back_at_another() -> None:
    """The part that is opened still has foreign rows in its files, older than their new owner's deletions."""
    files, backend = Files(), opened()
    model = {f"key-{n}": n for n in range(500)}
    put(backend, model)
    two = rescaled([take(backend, files, 1)], files, 2, 1)
    gone = list(model)[:400]
    for each in two:
        delete(each, *(key for key in gone if key_group_of(key, GROUPS) in each.key_groups))
    handles = [take(each, files, 2, 1) for each in two]
    left = {key: n for key, n in model.items() if key not in gone}
    for parallelism in (1, 2, 3):
        assert held(*rescaled(handles, files, parallelism, 2)) == left


def test_a_part_that_takes_the_place_of_a_deleted_range_is_seen() -> None:
    """Rows that are taken over must lie above the deletion of the range that they are in."""
    files, backend = Files(), opened()
    put(backend, {f"key-{n}": 0 for n in range(200)})
    two = rescaled([take(backend, files, 1)], files, 2, 1)
    for each in two:
        put(each, dict.fromkeys(held(each), 1))
    handles = [take(each, files, 2, 1) for each in two]
    (one,) = rescaled(handles, files, 1, 2)
    assert set(held(one).values()) == {1}
    handle = take(one, files, 3, 2)
    assert held(restored([handle], files)) == {f"key-{n}": 1 for n in range(200)}


def test_empty_state_is_saved_and_restored() -> None:
    files = Files()
    handle = take(opened(), files, 1)
    assert [held(each) for each in rescaled([handle], files, 3)] == [{}, {}, {}]
    assert held(restored([savepoint(opened(), files, 1)], files)) == {}


def test_a_restore_replaces_what_was_there() -> None:
    files, backend = Files(), opened()
    put(backend, {"old": 1})
    saved = [take(backend, files, 1), savepoint(backend, files, 2)]
    for handle in saved:
        other = opened()
        put(other, {"new": 2})
        other.restore([handle], files)
        assert held(other) == {"old": 1}


# -- savepoints ---------------------------------------------------------------------------------------------


def on_heap(handles: list[KeyedStateHandle], files: Files) -> HeapKeyedStateBackend:
    backend = HeapKeyedStateBackend(BackendSetup("op", GROUPS, opened().key_groups, ValueCodec()))
    backend.restore(handles, files)
    return backend


def test_a_savepoint_of_one_backend_starts_the_other() -> None:
    files, backend = Files(), opened()
    count, seen = backend.bind(ValueState(int, name="count")), backend.bind(ListState(str, name="seen"))
    for key in ("ann", ("bob", 1), 2.5, None):
        backend.set_current_key(key)
        count.update(3)
        seen.extend(["a", "b"])
    heap = on_heap([savepoint(backend, files, 1)], files)
    assert heap.contents("count") == dict.fromkeys(["ann", ("bob", 1), 2.5, None], 3)
    heap.set_current_key("ann")
    heap.bind(ListState(str, name="seen")).add("c")
    back = restored([heap.snapshot(1, -1, self_contained=True).finish(files)], files)
    again = back.bind(ListState(str, name="seen"))
    back.set_current_key("ann")
    assert again.get() == ["a", "b", "c"]


def test_a_savepoint_is_written_piece_by_piece() -> None:
    files, backend = Files(), opened()
    put(backend, dict.fromkeys(range(20000), "x" * 1000))
    handle = savepoint(backend, files, 1)
    assert len(handle.files) == 3
    assert max(file.size for file in handle.files) < 9 * MIB
    assert handle.entries == 20_000
    assert len(on_heap([handle], files).table("t").entries) == 20_000


def test_a_savepoint_is_no_base_of_a_checkpoint() -> None:
    files, backend = Files(), opened()
    put(backend, {"a": 1})
    save = savepoint(backend, files, 1)
    after = take(backend, files, 2, 1)
    assert not {f.path for f in save.files if isinstance(f, FileHandle)} & sorted_files(after)
    assert held(restored([after], files)) == {"a": 1}


def test_the_heap_refuses_a_checkpoint_of_rocksdb_and_says_what_to_do() -> None:
    files, backend = Files(), opened()
    put(backend, {"a": 1})
    handle = take(backend, files, 1)
    with pytest.raises(StateMismatchError, match=r"in the files of RocksDB.*Take a savepoint"):
        on_heap([handle], files)


# -- what goes wrong ----------------------------------------------------------------------------------------


def test_an_upload_that_fails_leaves_everything_to_the_next_checkpoint() -> None:
    files, backend = Files(), opened()
    put(backend, {n: n for n in range(100)})
    take(backend, files, 1)
    put(backend, {"more": 1})
    snapshot = backend.snapshot(2, 1)
    files.broken = True
    with pytest.raises(StorageError, match="the store is gone"):
        snapshot.finish(files)
    files.broken = False
    assert len(held(restored([take(backend, files, 3, 1)], files))) == 101


def test_a_value_that_cannot_be_saved_is_named_and_loses_no_other_change() -> None:
    files, backend = Files(), opened(codec=ValueCodec(allow_pickle=False))
    put(backend, {"good": 1, "bad": object()})
    with pytest.raises(CodecError, match=r"state 't' of key 'bad' can't be stored in RocksDB"):
        backend.snapshot(1, -1)
    put(backend, {"bad": 2})
    assert held(restored([take(backend, files, 2)], files)) == {"good": 1, "bad": 2}


def test_a_snapshot_whose_subtask_has_ended_fails_and_leaves_nothing_behind() -> None:
    for self_contained in (False, True):
        backend = opened()
        put(backend, {"a": 1})
        snapshot = backend.snapshot(1, -1, self_contained=self_contained)
        folder = backend._scratch.path
        backend.close()
        with pytest.raises(StorageError, match="RocksDB"):
            snapshot.finish(Files())
        assert not folder.exists()


def test_a_checkpoint_with_a_file_that_is_gone_is_not_restored_in_part() -> None:
    files, backend = Files(), opened()
    put(backend, {"a": 1})
    handle = take(backend, files, 1)
    files.content.popitem()
    with pytest.raises(CorruptSnapshotError, match="is gone"):
        restored([handle], files)


@pytest.mark.parametrize(
    "name",
    [
        *("../CURRENT", "OPTIONS-000007", "000004.log", "\0", "\ud800", "", "a/1.sst", "1.sst\n"),
        *("1" * 300 + ".sst", "MANIFEST-" + "1" * 300),
    ],
)
def test_a_file_that_no_checkpoint_has_is_refused_by_its_name(name: str, tmp_path: Path) -> None:
    handle = KeyedStateHandle(KeyGroupRange(0, 7), (InlineHandle(b"..."),) * 2, names=(name, "CURRENT"))
    with pytest.raises(CorruptSnapshotError, match="which is not a file of RocksDB's checkpoints"):
        download(handle, Files(), tmp_path / "db")
    assert not (tmp_path / "db").exists()


@pytest.mark.parametrize("damaged", ["CURRENT", "MANIFEST", ".sst"])
def test_files_that_are_no_database_are_damage_that_no_further_try_mends(damaged: str) -> None:
    files = Files()
    written = opened()
    put(written, {n: n for n in range(100)})
    handle = take(written, files, 1)
    parts = zip(handle.names, handle.files, strict=True)
    changed = tuple(InlineHandle(b"no database") if damaged in name else file for name, file in parts)
    with pytest.raises(CorruptSnapshotError, match="RocksDB files of operator 'count' are damaged"):
        opened().restore([replace(handle, files=changed)], files)


@pytest.mark.parametrize("gone", ["CURRENT", "MANIFEST", ".sst"])
def test_a_checkpoint_that_lacks_a_file_is_damaged_and_no_empty_state(gone: str) -> None:
    files = Files()
    written = opened()
    put(written, {n: n for n in range(100)})
    handle = take(written, files, 1)
    parts = zip(handle.names, handle.files, strict=True)
    names, left = zip(*((name, file) for name, file in parts if gone not in name), strict=True)
    with pytest.raises(
        CorruptSnapshotError, match=r"names no file CURRENT|RocksDB files of operator 'count' are damaged"
    ):
        opened().restore([replace(handle, names=names, files=left)], files)


def test_a_folder_that_is_gone_is_no_damage_of_the_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files()
    written = opened()
    put(written, {n: n for n in range(100)})
    handle = take(written, files, 1)
    restored_into = opened()
    read = files.read

    def read_and_lose_the_folder(each: StateHandle) -> bytes:
        shutil.rmtree(restored_into._database.folder, ignore_errors=True)
        monkeypatch.setattr(Path, "mkdir", lambda *args, **more: None)  # it is not made again
        return read(each)

    monkeypatch.setattr(files, "read", read_and_lose_the_folder)
    with pytest.raises(StorageError) as raised:
        restored_into.restore([handle], files)
    assert not isinstance(raised.value, CorruptSnapshotError)
