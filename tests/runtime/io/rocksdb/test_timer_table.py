"""Timers are in memory; RocksDB gets their changes in batches, and never one that left no trace."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from rocksdb_setup import ALL, Files, opened, put, rescaled, restored, savepoint, take

from penstock.runtime.errors import StateMismatchError, StorageError
from penstock.runtime.io.rocksdb import timer_table
from penstock.runtime.io.rocksdb.database import Database
from penstock.runtime.io.rocksdb.timer_table import RocksDBTimers
from penstock.runtime.operators.timers import TimerQueue
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.state_backend import BackendSetup

TIMERS = "timers"
#: Keys with and without natural bytes, each with its own hash.
KEYS: list[Any] = ["ann", 7, -7, 2.5, ("bob", 1), (1.5, "x"), None, b"raw", "é" * 200, 2**70]


def queue_with(backend: Any, count: int) -> TimerQueue:
    queue = TimerQueue(backend.timer_table(TIMERS))
    for number in range(count):
        queue.register(f"key-{number}", number)
    return queue


def timers_of(*backends: Any) -> list[tuple[Any, int, int]]:
    """All timers; none is in two backends."""
    timers = [timer for backend in backends for timer in backend.timer_table(TIMERS)]
    assert len({(key, at) for key, at, _ in timers}) == len(timers)
    return sorted(timers, key=str)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The prefixes and rows that are read."""
    seen: list[bytes] = []
    scan, get = Database.scan, Database.get

    def noted_scan(self: Database, prefix: bytes, first: bytes = b"") -> Any:
        seen.append(prefix)
        return scan(self, prefix, first)

    def noted_get(self: Database, row: bytes) -> bytes | None:
        seen.append(row)
        return get(self, row)

    monkeypatch.setattr(Database, "scan", noted_scan)
    monkeypatch.setattr(Database, "get", noted_get)
    return seen


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Numbers of rows written and deleted by each call that does either."""
    sizes: list[tuple[int, int]] = []
    write = Database.write

    def noted(self: Database, written: Iterable[Any], deleted: Iterable[bytes] = ()) -> None:
        written, deleted = list(written), list(deleted)
        if written or deleted:
            sizes.append((len(written), len(deleted)))
        write(self, written, deleted)

    monkeypatch.setattr(Database, "write", noted)
    return sizes


def test_setting_firing_and_deleting_timers_reads_nothing(
    monkeypatch: pytest.MonkeyPatch, reads: list[bytes]
) -> None:
    monkeypatch.setattr(timer_table, "_BATCH", 8)
    queue = TimerQueue(opened().timer_table(TIMERS))
    reads.clear()
    for number in range(100):
        queue.register(f"key-{number}", number)
        queue.register(f"key-{number}", number)
        queue.delete(f"key-{number - 1}", number)
    assert len(list(queue.due(50))) == 51
    assert (len(queue), queue.next_at, reads) == (49, 51, [])


def test_timers_are_written_in_batches_before_a_snapshot_is_taken(
    monkeypatch: pytest.MonkeyPatch, batches: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(timer_table, "_BATCH", 10)
    backend = opened()
    queue = queue_with(backend, 25)
    assert batches == [(10, 0), (10, 0)]
    assert len(list(queue.due(9))) == 10
    assert batches[2:] == [(5, 5)]
    take(backend, Files(), 1)
    assert batches[3:] == [(0, 5)]


def test_timer_that_was_set_and_fired_between_two_batches_is_not_written(
    batches: list[tuple[int, int]],
) -> None:
    backend = opened()
    queue = queue_with(backend, 100)
    assert len(list(queue.due(98))) == 99
    take(backend, Files(), 1)
    assert batches == [(1, 0)]


def test_timer_that_is_deleted_and_set_again_between_two_batches_has_its_newest_number(
    batches: list[tuple[int, int]],
) -> None:
    files, backend = Files(), opened()
    queue = queue_with(backend, 3)
    take(backend, files, 1)
    queue.delete("key-0", 0)
    queue.register("key-0", 0)
    handle = take(backend, files, 2)
    assert batches == [(3, 0), (1, 0)]
    assert timers_of(restored([handle], files)) == [("key-0", 0, 3), ("key-1", 1, 1), ("key-2", 2, 2)]


def test_stored_timer_that_is_deleted_set_and_deleted_again_does_not_come_back() -> None:
    files, backend = Files(), opened()
    queue = queue_with(backend, 2)
    take(backend, files, 1)
    queue.delete("key-0", 0)
    queue.register("key-0", 0)
    queue.delete("key-0", 0)
    handle = take(backend, files, 2)
    assert timers_of(restored([handle], files)) == [("key-1", 1, 1)]


def test_timers_with_keys_of_all_kinds_are_restored_at_any_parallelism() -> None:
    files, backend = Files(), opened()
    queue = TimerQueue(backend.timer_table(TIMERS))
    for at in range(3):
        for key in KEYS:
            queue.register(key, at)
    list(queue.due(0))
    expected = timers_of(backend)
    assert len(expected) == 2 * len(KEYS)
    for handle in (take(backend, files, 1), savepoint(backend, files, 2)):
        parts = rescaled([handle], files, 3)
        assert timers_of(*parts) == expected
        again = [take(part, files, 3) for part in parts]
        assert timers_of(restored(again, files)) == expected


def test_heap_and_rocksdb_restore_each_others_timers() -> None:
    files, backend = Files(), opened()
    queue_with(backend, 20)
    on_heap = HeapKeyedStateBackend(BackendSetup("count", 16, ALL, ValueCodec()))
    on_heap.restore([savepoint(backend, files, 1)], files)
    assert timers_of(on_heap) == timers_of(backend)
    queue = TimerQueue(on_heap.timer_table(TIMERS))
    list(queue.due(9))
    handle = on_heap.snapshot(1, -1, self_contained=True).finish(files)
    assert timers_of(restored([handle], files)) == timers_of(on_heap) != []


def test_failed_write_loses_no_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    files, backend = Files(), opened()
    queue = queue_with(backend, 5)
    take(backend, files, 1)
    queue.delete("key-0", 0)
    queue.register("late", 9)
    write = Database.write

    def refuse(self: Database, *_: Any) -> None:
        msg = "no space left"
        raise StorageError(msg)

    monkeypatch.setattr(Database, "write", refuse)
    with pytest.raises(StorageError, match="no space left"):
        backend.snapshot(2, -1)
    monkeypatch.setattr(Database, "write", write)
    handle = take(backend, files, 3)
    assert timers_of(restored([handle], files)) == timers_of(backend)
    assert ("late", 9, 5) in timers_of(backend)


def test_restore_replaces_the_timers_that_are_in_memory() -> None:
    files, old, backend = Files(), opened(), opened()
    queue_with(old, 3)
    handle = take(old, files, 1)
    TimerQueue(backend.timer_table(TIMERS)).register("stale", 1)
    backend.restore([handle], files)
    assert timers_of(backend) == timers_of(old)
    assert timers_of(restored([take(backend, files, 1)], files)) == timers_of(old)


def test_name_of_flat_state_has_no_timers() -> None:
    backend = opened()
    put(backend, {"ann": 1}, TIMERS)
    backend.table(TIMERS).entries.write_back()  # type: ignore[attr-defined]
    with pytest.raises(StateMismatchError, match="timers"):
        backend.timer_table(TIMERS)


def test_each_call_returns_the_same_timers() -> None:
    backend = opened()
    assert isinstance(backend.timer_table(TIMERS), RocksDBTimers)
    assert backend.timer_table(TIMERS) is backend.timer_table(TIMERS)
    queue_with(backend, 1)
    assert backend.table_names == (TIMERS,)


@pytest.mark.parametrize("call", ["register", "delete"])
def test_a_timer_is_as_it_was_if_a_full_batch_can_not_be_written(
    monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(timer_table, "_BATCH", 3)
    files, backend = Files(), opened()
    queue = TimerQueue(backend.timer_table("t"))
    for key in "abc":
        queue.register(key, 1)
    write = Database.write

    def refuse(*arguments: Any) -> None:
        raise StorageError("no space left")

    monkeypatch.setattr(Database, "write", refuse)
    with pytest.raises(StorageError):
        queue.register("d", 1) if call == "register" else queue.delete("c", 1)
    monkeypatch.setattr(Database, "write", write)
    queue.register("d", 1) if call == "register" else queue.delete("c", 1)
    left = ["a", "b", "c", "d"] if call == "register" else ["a", "b"]
    taken = take(backend, files, 1)
    assert len(queue) == len(left)
    assert sorted(key for _, key in queue.due(5)) == left
    again = TimerQueue(restored([taken], files).timer_table("t"))
    assert sorted(key for _, key in again.due(5)) == left
