"""Older files under a snapshot of the heap backend, and their compaction."""

from __future__ import annotations

import pytest
from heap_setup import Files, delete, new_backend, put, restored, take

from penstock.runtime.errors import (
    StorageError,
)
from penstock.runtime.state.keyed_snapshot import CompactionPolicy


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


def test_half_of_many_small_values_changed_is_a_file_of_changes_and_no_second_base() -> None:
    backend, files = new_backend(CompactionPolicy()), Files()
    put(backend, dict.fromkeys(range(1_000), 1))
    first = take(backend, files, 1, -1)
    put(backend, dict.fromkeys(range(500), 2))
    second = take(backend, files, 2, 1)
    assert second.files[:1] == first.files
    assert second.files[1].size < 0.6 * first.files[0].size


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
    second = backend.snapshot(2, -1)
    assert len(second.deltas) == 2
    handle = second.finish(files)
    backend.snapshot_finished(2, handle)
    third = backend.snapshot(3, 2)
    assert (third.deltas, third.base) == ((), handle)
    assert [file.size for file in handle.files] == [len(files.content["chk/1"])]


def test_a_snapshot_costs_what_changed_and_not_what_there_is() -> None:
    backend, files = new_backend(), Files()
    put(backend, {key: key for key in range(100_000)})
    take(backend, files, 1, -1)
    put(backend, {5: -5})
    snapshot = backend.snapshot(2, 1)
    assert sum(len(block) for delta in snapshot.deltas for block in delta.blocks) == 1
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
        snapshot = backend.snapshot(checkpoint_id, -1)
    assert len(snapshot.deltas) <= 8
    assert sum(delta.weight for delta in snapshot.deltas) < 5_000
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


def test_an_aborted_checkpoint_is_never_built_on_and_its_changes_are_written_again() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    first = take(backend, files, 1, -1)
    put(backend, {"b": 2})
    take(backend, files, 2, 1)
    backend.forget(2)
    put(backend, {"c": 3})
    third = take(backend, files, 3, 1)
    assert third.files[:1] == first.files
    assert restored(third, files) == {"a": 1, "b": 2, "c": 3}
    put(backend, {"d": 4})
    fourth = take(backend, files, 4, 2)
    assert len(fourth.files) == 1, "nothing is known of checkpoint 2, so everything is written"
    assert restored(fourth, files) == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_a_snapshot_that_is_written_after_its_abort_is_not_built_on() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    take(backend, files, 1, -1)
    put(backend, {"b": 2})
    snapshot = backend.snapshot(2, 1)
    backend.forget(2)
    backend.snapshot_finished(2, snapshot.finish(files))
    put(backend, {"c": 3})
    third = take(backend, files, 3, 2)
    assert len(third.files) == 1
    assert restored(third, files) == {"a": 1, "b": 2, "c": 3}
