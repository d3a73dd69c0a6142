"""State in columns goes through checkpoints as rows do: incremental, merged, restored, rescaled."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

sys.path.insert(0, str(Path(__file__).parent.parent))

from heap_setup import ALL, NEVER, Files, new_backend, take

from penstock.runtime.errors import CorruptSnapshotError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyedStateHandle
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.key_groups import key_group_of, key_group_range
from penstock.runtime.state.keyed_chunk import read_chunk
from penstock.runtime.state.keyed_snapshot import CompactionPolicy
from penstock.runtime.state.state_backend import BackendSetup

TABLE = "sums"


def put(backend: HeapKeyedStateBackend, entries: dict[str | None, int]) -> None:
    if not entries:
        return
    table = backend.column_table(TABLE)
    slots = table.slots_of({"k": pa.array(list(entries), pa.string())})
    table.column("v", pa.int64()).put(slots, pa.array(list(entries.values()), pa.int64()))
    table.note_changed(slots)


def delete(backend: HeapKeyedStateBackend, keys: list[str | None]) -> None:
    if keys:
        table = backend.column_table(TABLE)
        table.delete(table.slots_of({"k": pa.array(keys, pa.string())}))


def entries_of(backend: HeapKeyedStateBackend) -> dict[Any, Any]:
    table = backend.column_table(TABLE)
    slots = table.all_slots
    if not len(slots):
        return {}
    keys, values = table.keys(slots).column(0), table.values(slots).column(0)
    return dict(zip(keys.to_pylist(), values.to_pylist(), strict=True))


def restored(handle: KeyedStateHandle, files: Files) -> dict[Any, Any]:
    backend = new_backend(own=handle.key_groups)
    backend.restore([handle], files)
    return entries_of(backend)


def test_a_checkpoint_holds_what_has_changed_since_the_confirmed_one() -> None:
    backend, files = new_backend(), Files()
    put(backend, {f"key {number}": number for number in range(1000)})
    first = take(backend, files, 1, -1)
    put(backend, {"key 1": -1})
    delete(backend, ["key 2"])
    second = take(backend, files, 2, 1)
    assert second.files[:1] == first.files
    assert second.files[1].size < first.files[0].size / 10
    expected = {f"key {number}": number for number in range(1000) if number != 2} | {"key 1": -1}
    assert restored(second, files) == expected


def test_a_key_that_was_deleted_and_came_back_is_there() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1, "b": 1})
    take(backend, files, 1, -1)
    delete(backend, ["a"])
    put(backend, {"a": 2})
    assert restored(take(backend, files, 2, 1), files) == {"a": 2, "b": 1}


@pytest.mark.parametrize("policy", [NEVER, CompactionPolicy(max_files=2, growth=2.0)])
def test_every_checkpoint_restores_what_was_there_whatever_was_confirmed(policy: CompactionPolicy) -> None:
    for seed in range(6):
        draws, files, right = Random(seed), Files(), dict[str | None, int]()
        backend, confirmed = new_backend(policy), -1
        for checkpoint in range(1, 15):
            for _ in range(draws.randrange(3)):
                some = {draws.choice([None, *"abcdefgh"]): draws.randrange(100) for _ in range(4)}
                put(backend, some)
                right.update(some)
                gone = [key for key in dict.fromkeys(draws.choices([None, *"abcdefgh"], k=2)) if key in right]
                delete(backend, gone)
                for key in gone:
                    del right[key]
            handle = take(backend, files, checkpoint, confirmed)
            assert restored(handle, files) == right, f"seed {seed}, checkpoint {checkpoint}"
            confirmed = checkpoint if draws.random() < 0.5 else confirmed


def test_a_savepoint_stands_alone() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    take(backend, files, 1, -1)
    put(backend, {"b": 2})
    delete(backend, ["a"])
    savepoint = backend.snapshot(2, 1, self_contained=True).finish(files)
    assert len(savepoint.files) == 1
    assert restored(savepoint, files) == {"b": 2}


@pytest.mark.parametrize(("old", "new"), [(1, 3), (3, 2), (2, 5)])
def test_every_key_is_found_at_another_parallelism(old: int, new: int) -> None:
    files, handles = Files(), []
    right = {None: -1} | {f"key {number}": number for number in range(300)}
    for subtask in range(old):
        own = key_group_range(subtask, old, 128)
        backend = new_backend(own=own)
        put(backend, {k: v for k, v in right.items() if key_group_of(k, 128) in own})
        handles.append(take(backend, files, 1, -1))
    found: dict[Any, Any] = {}
    for subtask in range(new):
        own = key_group_range(subtask, new, 128)
        backend = new_backend(own=own)
        backend.restore([h for h in handles if len(h.key_groups.intersection(own))], files, 1)
        mine = entries_of(backend)
        assert not found.keys() & mine.keys()
        assert all(key_group_of(key, 128) in own for key in mine)
        found |= mine
    assert found == right


def test_keys_of_several_parts_and_extra_parts_come_back() -> None:
    backend, files = new_backend(), Files()
    table = backend.column_table("panes")
    keys = {"a": pa.array([1, 1, None]), "b": pa.array(["x", "y", "x"])}
    slots = table.slots_of(keys, {"start": pa.array([0, 60, 0])})
    table.column("n", pa.int64()).put(slots, pa.array([5, 6, 7]))
    table.note_changed(slots)
    handle = take(backend, files, 1, -1)
    again = new_backend()
    again.restore([handle], files)
    there = again.column_table("panes")
    found = there.slots_of(keys, {"start": pa.array([0, 60, 0])})
    assert there.values(found).column(0).to_pylist() == [5, 6, 7]
    assert len(there) == 3


def test_a_table_of_keys_alone_comes_back() -> None:
    backend, files = new_backend(), Files()
    table = backend.column_table("pairs")
    new = table.insert({"k": pa.array(["a", "b"])}, {"v": pa.array([1.5, None])})
    assert sorted(new.tolist()) == [0, 1]
    again = new_backend(own=key_group_range(0, 2, 128)), new_backend(own=key_group_range(1, 2, 128))
    handle = take(backend, files, 1, -1)
    for part in again:
        part.restore([handle], files)
    assert sum(len(part.column_table("pairs")) for part in again) == 2
    assert table.insert({"k": pa.array(["b", "b"])}, {"v": pa.array([None, 2.5])}).tolist() == [1]


def test_a_damaged_column_is_named_with_its_table() -> None:
    backend, files = new_backend(), Files()
    put(backend, {"a": 1})
    handle = take(backend, files, 1, -1).files[0]
    data = files.content[handle.path]
    import msgpack
    from xxhash import xxh3_64_digest

    body = msgpack.unpackb(data[13:], strict_map_key=False)
    body[1][0][4] = body[1][0][4][:-40]
    packed = msgpack.packb(body)
    damaged = data[:5] + xxh3_64_digest(packed) + packed
    with pytest.raises(CorruptSnapshotError, match="state 'sums'"):
        list(read_chunk(damaged, handle, 128, ValueCodec()))


def test_a_table_without_snapshots_remembers_no_changes() -> None:
    backend = HeapKeyedStateBackend(BackendSetup("op", 128, ALL, ValueCodec(), takes_snapshots=False))
    put(backend, {"a": 1})
    delete(backend, ["a"])
    assert list(backend.column_table(TABLE).take_changes()) == []


def test_slots_of_keys_that_occur_twice_are_the_same() -> None:
    table = new_backend().column_table(TABLE)
    slots = table.slots_of({"k": pa.array(["a", "b", "a"])})
    assert slots[0] == slots[2] != slots[1]
    assert np.array_equal(table.slots_of({"k": pa.array(["a", "b", "a"])}), slots)
