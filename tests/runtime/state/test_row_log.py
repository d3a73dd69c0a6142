"""`RowLog` against a list of rows that are searched one by one, and its entries in snapshots."""

from __future__ import annotations

import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent))

from heap_setup import ALL, Files, new_backend, take

from penstock.runtime.record.column_key import NAN
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyedStateHandle
from penstock.runtime.state import captured_rows, row_ring
from penstock.runtime.state.captured_rows import LoggedRows
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.immutable_values import DELETED
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state.keyed_chunk import read_chunk
from penstock.runtime.state.keyed_snapshot import CompactionPolicy
from penstock.runtime.state.row_log import HashedKeys, RowLog

#: Keys that are equal or have one hash in Python, though their types or values differ, among others.
KEYS = st.sampled_from(
    [1, 1.0, True, Decimal(1), 2**61, -1, -2, "a", "b", b"a", None, NAN, (1, "a"), (1.0, "a"), (NAN,), 2**70]
)
SMALL = st.integers(0, 3)
ROWS = st.one_of(
    st.lists(st.tuples(KEYS, st.integers(0, 30)), max_size=12),
    st.lists(st.tuples(SMALL, st.integers(0, 30)), max_size=12),
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), ROWS),
        st.tuples(st.just("delete"), st.integers(0, 30)),
        st.tuples(st.just("save"), st.just(None)),
        st.tuples(st.just("flag"), st.integers(0, 30)),
    ),
    max_size=12,
)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small limits, so that few rows wrap around the ring, fill segments and are searched by sorting."""
    for name, value in {
        "_LEAST": 8,
        "_SEGMENT": 4,
        "_LEAST_STEPS": 3,
        "_STEP_COST": 4,
        "_FEW": 2,
        "_LINKED_AT_ONCE": 3,
    }.items():
        monkeypatch.setattr(row_ring, name, value)
    monkeypatch.setattr(captured_rows, "BLOCK_ENTRIES", 3)


def add(log: RowLog, rows: list[tuple[Any, int]], records: list[Any]) -> None:
    keys = HashedKeys.of([key for key, _ in rows])
    log.append(keys, times_of(rows), records, np.zeros(len(rows), np.bool_))


def times_of(rows: list[tuple[Any, int]]) -> np.ndarray[Any, Any]:
    return np.array([at for _, at in rows], np.int64)


def save(log: RowLog, saved: dict[Any, Any]) -> None:
    """Write the changes of a log over the entries that are saved, as a restore does."""
    changes: dict[Any, Any] = {}
    for block in log.take_changes():
        block.put_into(changes, ValueCodec())
    saved.update(changes)
    for entry in [entry for entry, value in saved.items() if value is DELETED]:
        del saved[entry]


@given(STEPS, ROWS, st.integers(0, 10))
def test_rows_are_found_deleted_and_saved_as_in_a_list(steps: Any, probes: Any, width: int) -> None:
    log, saved, number = RowLog("log"), {}, 0  # type: tuple[RowLog, dict[Any, Any], int]
    rows: list[tuple[int, Any, int, bool]] = []
    for step, given_rows in steps:
        if step == "append":
            numbers = list(range(number, number + len(given_rows)))
            rows += [(n, key, at, False) for n, (key, at) in zip(numbers, given_rows, strict=True)]
            number += len(given_rows)
            add(log, given_rows, [{"n": n} for n in numbers])
        elif step == "delete":
            slots = log.until(given_rows)
            gone = sorted((row for row in rows if row[2] <= given_rows), key=lambda row: (row[2], row[0]))
            assert log.records(slots) == [{"n": row[0]} for row in gone]
            log.delete(slots)
            rows = [row for row in rows if row[2] > given_rows]
        elif step == "flag":
            log.flag(log.until(given_rows))
            rows = [(n, key, at, flag or at <= given_rows) for n, key, at, flag in rows]
        else:
            save(log, saved)
            assert saved == {(key, n): (at, flag, {"n": n}) for n, key, at, flag in rows}
            assert not list(log.take_changes())
        assert len(log) == len(rows)
        assert log.first_time == min((at for _, _, at, _ in rows), default=None)

        times = times_of(probes)
        places, slots = log.find(HashedKeys.of([key for key, _ in probes]), times - width, times + width)
        assert list(zip(places.tolist(), (row["n"] for row in log.records(slots)), strict=True)) == [
            (place, n)
            for place, (key, time) in enumerate(probes)
            for n, other, at, _ in rows
            if (key is other or key == other) and abs(at - time) <= width
        ]

    save(log, saved)
    restored, entries = RowLog("log"), {}  # type: tuple[RowLog, dict[Any, Any]]
    for (key, n), row in saved.items():
        entries.setdefault(key, {})[n] = row
    restored.fill(entries)
    slots = restored.until(1 << 40)
    found = zip(restored.records(slots), restored.times[slots], restored.flags[slots], strict=True)
    assert sorted((row["n"], at, flag) for row, at, flag in found) == [
        (n, at, flag) for n, _, at, flag in rows
    ]
    assert not list(restored.take_changes()), "restored rows are in the snapshot already"
    add(restored, [("z", 1)], ["new"])
    save(restored, saved)
    ((last, _),) = [entry[::-1] for entry, row in saved.items() if row[2] == "new"]
    assert last > max((n for n, *_ in rows), default=-1)


@given(ROWS, ROWS, st.integers(0, 30), st.integers(0, 12), st.integers(0, 12))
def test_a_limited_search_finds_all_rows_of_the_first_keys(
    rows: Any, probes: Any, gone: int, width: int, most: int
) -> None:
    log = RowLog("log")
    add(log, rows * 3, list(range(3 * len(rows))))
    log.delete(log.until(gone))
    keys, times = HashedKeys.of([key for key, _ in probes]), times_of(probes)
    places, slots = log.find(keys, times - width, times + width)
    some, some_slots, searched = log.find_some(keys, times - width, times + width, most)
    assert min(1, len(probes)) <= searched <= len(probes)
    assert some.tolist() == places[places < searched].tolist()
    assert some_slots.tolist() == slots[places < searched].tolist()


@pytest.mark.parametrize("probes", [2, 5])
def test_a_limited_search_of_keys_with_many_rows_stops_after_the_first_of_them(probes: int) -> None:
    log = RowLog("log")
    add(log, [(key, 1) for key in "abcde"] * 100, list(range(500)))
    keys, times = HashedKeys.of(list("abcde"[:probes])), np.ones(probes, np.int64)
    places, _, searched = log.find_some(keys, times, times, 50)
    assert (searched, np.bincount(places).tolist()) == (1, [100])
    places, _, searched = log.find_some(keys, times, times, 299)
    assert searched == min(probes, 2)
    assert np.bincount(places).tolist() == [100] * searched


def test_the_ring_is_copied_only_if_that_costs_less_than_walking(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    find_sorted = RowLog._find_sorted

    def counted(log: RowLog, *arguments: Any) -> Any:
        copied.append(len(log))
        return find_sorted(log, *arguments)

    monkeypatch.setattr(RowLog, "_find_sorted", counted)
    for keys, copies in ((200, []), (1, [4000])):
        log = RowLog("log")
        add(log, [(n % keys, n) for n in range(4000)], list(range(4000)))
        _, slots = log.find(HashedKeys.of([0]), np.array([0]), np.array([4000]))
        assert (len(slots), copied) == (4000 // keys, copies)


def test_records_and_keys_of_deleted_rows_are_released() -> None:
    class Record:
        alive = 0

        def __init__(self) -> None:
            Record.alive += 1

        def __del__(self) -> None:
            Record.alive -= 1

    log = RowLog("log")
    add(log, [(Record(), 1), (Record(), 2)], [Record(), Record()])
    assert Record.alive == 4
    log.delete(log.until(1))
    assert Record.alive == 2


def test_rows_that_came_and_went_between_two_snapshots_leave_no_trace() -> None:
    log = RowLog("log")
    add(log, [("a", 1), ("a", 2)], ["x", "y"])
    log.delete(log.until(1))
    assert [len(block) for block in log.take_changes()] == [1]
    add(log, [("a", 3)], ["z"])
    log.delete(log.until(3))
    assert [len(block) for block in log.take_changes()] == [1], "only the row that was saved is deleted"


@pytest.mark.parametrize("others_read", [False, True])
def test_packed_rows_release_keys_and_records_unless_another_checkpoint_reads_them(others_read: bool) -> None:
    log = RowLog("log")
    add(log, [("a", 1), ("b", 2)], ["x", "y"])
    (block,) = log.take_changes()
    rows = block._rows
    assert isinstance(rows, LoggedRows)
    if others_read:
        block._readers.append(None)
    block.packed(128, ALL, ValueCodec())
    keys, *_, records = rows._columns
    assert records is not None
    held = [*keys.tolist(), *records.tolist()]
    assert held == (["a", "b", "x", "y"] if others_read else [None] * 4)
    assert block._rows is None
    assert sum(packed[1] for packed in block.packed(128, ALL, ValueCodec())) == 2


def test_records_that_are_sequences_stay_whole() -> None:
    log = RowLog("log")
    add(log, [((1, 2), 1), ((3, 4), 2)], [[1, 2], [3, 4]])
    assert log.records(log.until(5)) == [[1, 2], [3, 4]]
    places, slots = log.find(HashedKeys.of([(3, 4)]), np.array([0]), np.array([5]))
    assert (places.tolist(), log.records(slots)) == ([0], [[3, 4]])


def test_a_key_that_can_not_be_hashed_is_refused() -> None:
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        HashedKeys.of(["a", ["b"]])


def test_until_reads_the_segments_with_the_earliest_times_first() -> None:
    log = RowLog("log")
    add(log, [("a", at) for at in (9, 9, 9, 9, 1, 2, 3, 9)], list(range(8)))
    assert log.records(log.until(9, 1)) == [4, 5, 6, 7]
    assert log.records(log.until(9)) == [4, 5, 6, 0, 1, 2, 3, 7]


def grow(backend: HeapKeyedStateBackend, keys: list[str], at: int) -> None:
    add(backend.row_log("log"), [(key, at) for key in keys], [{"at": at}] * len(keys))


def rows_of(backend: HeapKeyedStateBackend) -> list[tuple[str, int]]:
    log = backend.row_log("log")
    slots = log.until(1 << 40)
    return sorted(zip(log._keys[slots], (record["at"] for record in log.records(slots)), strict=True))


def restored_from(handles: list[KeyedStateHandle], files: Files, own: Any = ALL) -> HeapKeyedStateBackend:
    backend = new_backend(own=own)
    backend.restore(handles, files)
    return backend


def test_a_checkpoint_writes_the_rows_that_came_and_went_since_the_confirmed_one() -> None:
    backend, files = new_backend(), Files()
    grow(backend, ["a", "b"], 1)
    grow(backend, ["c"], 9)
    first = take(backend, files, 1, -1)
    grow(backend, ["a"], 2)
    backend.row_log("log").delete(backend.row_log("log").until(1))
    second = take(backend, files, 2, 1)
    assert [len(handle.files) for handle in (first, second)] == [1, 2]
    assert second.files[0] == first.files[0]
    assert rows_of(restored_from([first], files)) == [("a", 1), ("b", 1), ("c", 9)]
    assert rows_of(restored_from([second], files)) == [("a", 2), ("c", 9)]


def test_files_whose_rows_are_all_deleted_are_dropped_without_being_read() -> None:
    backend, files = new_backend(CompactionPolicy()), Files()
    handle = None
    for at in range(1, 60):
        grow(backend, ["a", "b", "c"], at)
        backend.row_log("log").delete(backend.row_log("log").until(at - 5))
        handle = take(backend, files, at, at - 1)
        assert len(handle.files) <= 5
    assert files.reads == 0
    assert handle is not None
    assert handle.entries == sum(len(file_entries(handle, file, files)) for file in handle.files)
    assert rows_of(restored_from([handle], files)) == [(key, at) for key in "abc" for at in range(55, 60)]


def test_snapshots_whose_end_is_never_reported_leave_nothing_behind() -> None:
    backend, files, confirmed = new_backend(), Files(), -1
    for at in range(1, 30):
        grow(backend, ["a"], at)
        if at % 10:
            backend.snapshot(at, confirmed).finish(files)
        else:
            take(backend, files, at, confirmed)
            confirmed = at
    backend.snapshot(30, confirmed)
    assert set(backend._log_files._begun) == {*range(21, 31)}


def test_a_row_that_lives_long_does_not_keep_all_files_for_ever() -> None:
    backend, files = new_backend(CompactionPolicy()), Files()
    grow(backend, ["old"], 1_000)
    for at in range(1, 100):
        grow(backend, ["a", "b", "c"], at)
        backend.row_log("log").delete(backend.row_log("log").until(at - 2))
        handle = take(backend, files, at, at - 1)
        assert handle.entries <= 6 * 7 + 12
    assert rows_of(restored_from([handle], files))[-1] == ("old", 1_000)


def file_entries(handle: KeyedStateHandle, file: Any, files: Files) -> list[Any]:
    blocks = read_chunk(files.read(file), file, 128, ValueCodec())
    return [key for block in blocks for key in block.keys]


@given(
    st.lists(
        st.tuples(
            st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 8)), max_size=4),
            st.integers(0, 9),
            st.sampled_from(["complete", "complete", "written", "aborted", "none", "restart", "savepoint"]),
        ),
        max_size=30,
    )
)
def test_a_restored_log_has_the_live_rows_whichever_checkpoints_complete(steps: Any) -> None:
    backend, files, completed = new_backend(CompactionPolicy(max_files=3)), Files(), -1
    live: list[tuple[str, int]] = []
    saved: tuple[KeyedStateHandle, list[tuple[str, int]]] | None = None
    now = 0
    for number, (rows, passed, outcome) in enumerate(steps):
        for key, ahead in rows:
            grow(backend, [key], now + ahead)
        live += [(key, now + ahead) for key, ahead in rows]
        now += passed
        backend.row_log("log").delete(backend.row_log("log").until(now - 4))
        live = [row for row in live if row[1] > now - 4]
        if outcome == "restart" and saved is not None:
            backend = new_backend(CompactionPolicy(max_files=3))
            backend.restore([saved[0]], files, completed)
            live = list(saved[1])
            assert rows_of(backend) == sorted(live)
        elif outcome == "savepoint":
            handle = backend.snapshot(number, completed, self_contained=True).finish(files)
            assert rows_of(restored_from([handle], files)) == sorted(live)
        elif outcome not in ("none", "restart"):
            handle = backend.snapshot(number, completed).finish(files)
            assert rows_of(restored_from([handle], files)) == sorted(live)
            if outcome == "aborted":
                backend.forget(number)
            else:
                backend.snapshot_finished(number, handle)
            if outcome == "complete":
                completed, saved = number, (handle, list(live))


def test_a_checkpoint_after_a_restore_writes_that_restored_rows_were_deleted() -> None:
    backend, files = new_backend(), Files()
    grow(backend, ["a", "b"], 1)
    grow(backend, ["a"], 2)
    first = take(backend, files, 1, -1)
    again = new_backend()
    again.restore([first], files, restored_checkpoint_id=1)
    again.row_log("log").delete(again.row_log("log").until(1))
    second = take(again, files, 2, 1)
    assert second.files[0] == first.files[0]
    assert rows_of(restored_from([second], files)) == [("a", 2)]


def test_a_checkpoint_after_one_that_was_not_confirmed_has_all_rows() -> None:
    backend, files = new_backend(), Files()
    grow(backend, ["a"], 1)
    take(backend, files, 1, -1)
    backend.start_anew()
    grow(backend, ["b"], 2)
    assert rows_of(restored_from([take(backend, files, 2, -1)], files)) == [("a", 1), ("b", 2)]


def test_rows_survive_merging_of_files_and_go_to_the_subtasks_of_their_keys() -> None:
    keys = [f"key {n}" for n in range(50)]
    backend, files = new_backend(CompactionPolicy(max_files=2, growth=0.5)), Files()
    handle = None
    for at in range(6):
        grow(backend, keys, at)
        backend.row_log("log").delete(backend.row_log("log").until(at - 3))
        handle = take(backend, files, at + 1, at)
    assert handle is not None
    expected = sorted((key, at) for key in keys for at in (3, 4, 5))
    halves = [restored_from([handle], files, key_group_range(half, 2, 128)) for half in (0, 1)]
    assert all(map(rows_of, halves))
    assert sorted(rows_of(halves[0]) + rows_of(halves[1])) == expected

    for half in halves:
        grow(half, [key for key, at in rows_of(half) if at == 5], 6)
    together = [take(half, files, 20 + n, -1) for n, half in enumerate(halves)]
    assert rows_of(restored_from(together, files)) == sorted(expected + [(key, 6) for key in keys])
