"""`ColumnLog` against a list of rows that are searched one by one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parent.parent))

from heap_setup import ALL, Files, new_backend, take

from penstock.runtime.snapshot.handles import KeyedStateHandle
from penstock.runtime.state import row_ring
from penstock.runtime.state.column_log import NUMBER, TIME, ColumnLog
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state.keyed_snapshot import CompactionPolicy

KEYS = st.sampled_from(["a", "b", "c", None])
TIMES = st.integers(0, 30)
ROWS = st.lists(st.tuples(KEYS, TIMES), max_size=12)
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


class Model:
    """Rows as tuples of number, key, time and flag; saved state by key and number."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Any, int, bool]] = []
        self.number = 0


def batch_of(rows: list[tuple[Any, int]]) -> tuple[dict[str, pa.Array], np.ndarray[Any, Any]]:
    keys = {"k": pa.array([key for key, _ in rows], pa.string())}
    return keys, np.array([time for _, time in rows], np.int64)


def numbers(log: ColumnLog, slots: np.ndarray[Any, Any]) -> list[int]:
    found: list[int] = log.values(slots).column("n").to_pylist() if len(slots) else []
    return found


@given(STEPS, ROWS, st.integers(0, 10))
def test_rows_are_found_deleted_and_saved_as_in_a_list(steps: Any, probes: Any, width: int) -> None:
    log, model = ColumnLog("log", 8), Model()
    saved = ColumnTable("log", 8, tracks_changes=False)
    for step, given_rows in steps:
        if step == "append":
            keys, times = batch_of(given_rows)
            count = len(given_rows)
            ns = list(range(model.number, model.number + count))
            model.rows += [(n, key, at, False) for n, (key, at) in zip(ns, given_rows, strict=True)]
            model.number += count
            log.append(
                keys, times, {"n": pa.array(ns, pa.int64()), "flag": pa.array([False] * count, pa.bool_())}
            )
        elif step == "delete":
            slots = log.until(given_rows)
            gone = sorted((r for r in model.rows if r[2] <= given_rows), key=lambda r: (r[2], r[0]))
            assert numbers(log, slots) == [r[0] for r in gone]
            log.delete(slots)
            model.rows = [r for r in model.rows if r[2] > given_rows]
        elif step == "flag":
            slots = log.until(given_rows)
            if len(slots):
                log.columns["flag"].values[slots] = True
                log.note_changed(slots)
            model.rows = [(n, k, t, f or t <= given_rows) for n, k, t, f in model.rows]
        else:
            for block in log.take_changes():
                saved.apply(block)
            check_saved(saved, model)
            assert not list(log.take_changes())
        assert len(log) == len(model.rows)

        keys, times = batch_of(probes)
        at, slots = log.find(keys, times - width, times + width)
        expected = [
            (place, n)
            for place, (key, time) in enumerate(probes)
            for n, k, t, _ in model.rows
            if k == key and abs(t - time) <= width
        ]
        assert list(zip(at.tolist(), numbers(log, slots), strict=True)) == expected

    for block in log.take_changes():
        saved.apply(block)
    restored = ColumnLog("log", 8)
    restored.fill(saved)
    slots = restored.until(1 << 40)
    assert sorted(numbers(restored, slots)) == [r[0] for r in model.rows]
    assert not list(restored.take_changes()), "restored rows are in the snapshot already"
    restored.append({"k": pa.array(["z"])}, np.array([1]), {"n": pa.array([-1])})
    (block,) = restored.take_changes()
    assert block.keys.column(NUMBER)[0].as_py() > max((r[0] for r in model.rows), default=-1)


def check_saved(saved: ColumnTable, model: Model) -> None:
    slots = saved.all_slots
    if not len(slots):
        assert not model.rows
        return
    block = saved.block(slots)
    assert block.values is not None
    columns = [block.values.column(name).to_pylist() for name in ("n", TIME, "flag")]
    rows = zip(columns[0], block.keys.column("k").to_pylist(), columns[1], columns[2], strict=True)
    assert sorted(rows, key=lambda row: row[0]) == model.rows


def test_a_row_far_ahead_in_time_does_not_keep_the_rows_behind_it() -> None:
    log = ColumnLog("log", 8)
    log.append({"k": pa.array(["x"])}, np.array([1_000_000]), {})
    for at in range(1000):
        log.append({"k": pa.array(["y"])}, np.array([at]), {})
        log.delete(log.until(at))
    assert len(log) == 1
    assert len(log.times) == 8


def test_rows_that_are_only_read_by_time_are_never_linked() -> None:
    log = ColumnLog("log", 8)
    log.append({"k": pa.array(["x", "y"])}, np.array([1, 2]), {"n": pa.array([0, 1])})
    assert numbers(log, log.until(5)) == [0, 1]
    assert not len(log._newest)
    _, slots = log.find({"k": pa.array(["y"])}, np.array([0]), np.array([5]))
    assert numbers(log, slots) == [1]


def test_a_column_that_begins_with_nulls_keeps_them_when_it_gets_values() -> None:
    log = ColumnLog("log", 8)
    log.append({"k": pa.array(["x"])}, np.array([1]), {})
    log.append({"k": pa.array(["x"])}, np.array([2]), {"n": pa.array([5])})
    log.append({"k": pa.array(["x"])}, np.array([3]), {"n": pa.array([None], pa.int64())})
    assert numbers(log, log.until(5)) == [None, 5, None]


def test_a_row_that_came_and_went_between_two_snapshots_leaves_no_trace() -> None:
    log = ColumnLog("log", 8)
    log.append({"k": pa.array(["x", "y"])}, np.array([1, 2]), {})
    log.delete(log.until(1))
    (block,) = log.take_changes()
    assert block.keys.column("k").to_pylist() == ["y"]
    log.delete(log.until(2))
    (block,) = log.take_changes()
    assert block.values is None


def test_keys_of_other_types_match_where_they_are_equal() -> None:
    log = ColumnLog("log", 8)
    log.append({"k": pa.array([2, 3])}, np.array([1, 1]), {"n": pa.array([0, 1])})
    log.append({"k": pa.array([2.0, 3.5])}, np.array([1, 1]), {"n": pa.array([2, 3])})
    places, slots = log.find({"k": pa.array([2.0])}, np.array([0]), np.array([5]))
    assert (places.tolist(), numbers(log, slots)) == ([0, 0], [0, 2])


def add_rows(backend: HeapKeyedStateBackend, keys: list[str], at: int) -> None:
    values = {"n": pa.array([at] * len(keys))}
    backend.column_log("log").append({"k": pa.array(keys)}, np.full(len(keys), at), values)


def rows_of(backend: HeapKeyedStateBackend) -> list[tuple[str, int]]:
    log = backend.column_log("log")
    slots = log.until(1 << 40)
    if not len(slots):
        return []
    return sorted(zip(log.keys(slots).column(0).to_pylist(), numbers(log, slots), strict=True))


def restored(handles: list[KeyedStateHandle], files: Files, own: Any = ALL) -> HeapKeyedStateBackend:
    backend = new_backend(own=own)
    backend.restore(handles, files)
    return backend


def test_a_checkpoint_writes_the_rows_that_came_and_went_since_the_confirmed_one() -> None:
    backend, files = new_backend(), Files()
    add_rows(backend, ["a", "b"], 1)
    add_rows(backend, ["c"], 9)
    first = take(backend, files, 1, -1)
    add_rows(backend, ["a"], 2)
    backend.column_log("log").delete(backend.column_log("log").until(1))
    second = take(backend, files, 2, 1)
    assert [len(handle.files) for handle in (first, second)] == [1, 2]
    assert second.files[0] == first.files[0]
    assert rows_of(restored([first], files)) == [("a", 1), ("b", 1), ("c", 9)]
    assert rows_of(restored([second], files)) == [("a", 2), ("c", 9)]


def test_rows_survive_merging_of_files_and_go_to_the_subtasks_of_their_keys() -> None:
    keys = [f"key {n}" for n in range(50)]
    backend, files = new_backend(CompactionPolicy(max_files=2, growth=0.5)), Files()
    handle = None
    for at in range(6):
        add_rows(backend, keys, at)
        backend.column_log("log").delete(backend.column_log("log").until(at - 3))
        handle = take(backend, files, at + 1, at)
    assert handle is not None
    expected = sorted((key, at) for key in keys for at in (3, 4, 5))
    halves = [restored([handle], files, key_group_range(half, 2, 128)) for half in (0, 1)]
    assert all(map(rows_of, halves))
    assert sorted(rows_of(halves[0]) + rows_of(halves[1])) == expected

    for half in halves:
        add_rows(half, [key for key, at in rows_of(half) if at == 5], 6)
    together = [take(half, files, 20 + n, -1) for n, half in enumerate(halves)]
    assert rows_of(restored(together, files)) == sorted(expected + [(key, 6) for key in keys])
