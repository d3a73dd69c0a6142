"""Tables in RocksDB behave as dicts do, whatever of them is in memory."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from rocksdb_setup import GROUPS, MIB, Files, held, opened, put, restored, savepoint, take

from penstock import ListState, MapState, ValueState
from penstock.runtime.errors import ConfigurationError, KeyTypeError, StateMismatchError
from penstock.runtime.io.rocksdb import cached_entries, database
from penstock.runtime.io.rocksdb.rows import TableRows
from penstock.runtime.record.column_key import NAN
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.key_bytes import key_bytes, key_of
from penstock.runtime.state.stable_hash import stable_hash


class Colour(Enum):
    RED = 1
    BLUE = 2


class Size(IntEnum):
    SMALL = 1


@dataclass(frozen=True)
class Place:
    name: str
    number: float


#: Keys that are one key of a dictionary stand together.
SAME: list[list[Any]] = [
    [1, 1.0, True, Decimal(1), Fraction(1), np.int64(1), Size.SMALL],
    [0, 0.0, -0.0, False],
    [0.5, Decimal("0.5"), Fraction(1, 2)],
    [Decimal("0.1")],
    [0.1],
    [float("inf"), Decimal("inf")],
    [NAN],
    [2**64, float(2**64)],
    [-(2**70)],
    [2**600],
    ["1"],
    [""],
    ["é" * 200],
    ["\ud800"],
    [b"1"],
    [None],
    [()],
    [(1, "a"), (True, "a"), (1.0, "a")],
    [(1, ("a", None))],
    [frozenset({1, "b"}), frozenset({"b", 1.0})],
    [Colour.RED],
    [Colour.BLUE],
    [Place("here", 1), Place("here", 1.0)],
    [Place("there", 1)],
    [datetime(2026, 1, 1)],  # noqa: DTZ001
    [
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))),
    ],
    [date(2026, 1, 1)],
    [timedelta(seconds=1), timedelta(milliseconds=1000)],
    [UUID(int=5)],
]


def test_equal_keys_have_equal_bytes_and_no_others_do() -> None:
    seen: dict[bytes, int] = {}
    for number, same in enumerate(SAME):
        for key in same:
            assert seen.setdefault(key_bytes(key)[0], number) == number, key
    every = sorted(seen)
    assert len(every) == len(SAME)
    assert not any(b.startswith(a) for a in every for b in every if a != b)


def test_natural_bytes_give_the_key_back() -> None:
    for key in (
        1,
        -1,
        0,
        255,
        -256,
        2**64,
        -(2**600),
        "word",
        "\ud800",
        b"\x00",
        None,
        (),
        (1, ("a", (None,))),
    ):
        data, is_natural = key_bytes(key)
        assert is_natural
        assert key_of(data) == (key, len(data))
    assert not any(key_bytes(key)[1] for key in (1.0, True, Colour.RED, (1, True), Size.SMALL))


def test_numbers_sort_by_value() -> None:
    draws = random.Random(5)
    numbers = [draws.randint(-(2**k), 2**k) for k in range(1, 700, 3) for _ in range(4)]
    assert [key_of(data)[0] for data in sorted(key_bytes(n)[0] for n in numbers)] == sorted(numbers)


def test_keys_of_every_type_are_found_on_disk_and_come_back_as_they_are() -> None:
    files, backend = Files(), opened()
    model = {same[0]: number for number, same in enumerate(SAME)}
    put(backend, model)
    for handle in (take(backend, files, 1), savepoint(backend, files, 2)):
        again = restored([handle], files)
        entries = again.table("t").entries
        for number, same in enumerate(SAME):
            for key in same:
                assert entries[key] == number
        back = {repr(key) for key in held(restored([handle], files))}
        assert back == {repr(key) for key in model}


def test_what_can_be_no_key_is_refused() -> None:
    entries = opened().table("t").entries
    for key in (float("nan"), 1j, np.float32(0.5)):
        with pytest.raises(KeyTypeError, match="can't be a key"):
            entries.get(key)


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room is made after every few entries."""
    monkeypatch.setattr(cached_entries, "_LEAST_KEYS", 4)
    monkeypatch.setattr(cached_entries, "_OVERHEAD", 1 << 40)
    monkeypatch.setattr(cached_entries, "_MAX_CHANGES", 7)
    monkeypatch.setattr(cached_entries, "_BATCH", 3)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("seed", range(5))
def test_a_table_is_like_a_dict_however_little_of_it_is_in_memory(seed: int) -> None:
    draws, backend, files = random.Random(seed), opened(), Files()
    value, waiting = (
        backend.bind(ValueState(int, default=-1, name="v")),
        backend.bind(ListState(int, name="l")),
    )
    pages = backend.bind(MapState(str, int, name="m"))
    values: dict[str, int] = {}
    lists: dict[str, list[int]] = {}
    maps: dict[str, dict[str, int]] = {}
    for step in range(600):
        key, number = f"key-{draws.randrange(25)}", draws.randrange(5)
        backend.set_current_key(key)
        assert value.value() == values.get(key, -1)
        assert waiting.get() == lists.get(key, [])
        assert dict(pages) == maps.get(key, {})
        match draws.randrange(8):
            case 0 | 1:
                value.update(step)
                values[key] = step
            case 2:
                value.clear()
                values.pop(key, None)
            case 3:
                waiting.add(step)
                lists.setdefault(key, []).append(step)
            case 4:
                waiting.clear()
                lists.pop(key, None)
            case 5 | 6:
                pages[str(number)] = step
                maps.setdefault(key, {})[str(number)] = step
            case 7 if str(number) in pages:
                del pages[str(number)]
                del maps[key][str(number)]
                maps = {k: m for k, m in maps.items() if m}
        if step % 97 == 0:
            assert [backend.contents(name) for name in "vlm"] == [values, lists, maps]
            assert sorted(backend.keys("m")) == sorted(maps)
            take(backend, files, step + 1)
        assert dict.__len__(backend.table("v").entries) <= 12
    assert len(backend.table("v").entries) == len(values)
    assert bool(backend.table("v").entries) == bool(values)


@pytest.mark.usefixtures("little_memory")
def test_a_value_that_an_operator_changes_in_place_and_tells_at_the_end_of_a_batch_is_kept() -> None:
    backend = opened()
    table = backend.table("t")
    for _ in range(3):
        keys = [f"key-{n}" for n in range(50)]
        for key in keys:
            entry = table.entries.get(key)
            if entry is None:
                table.entries[key] = entry = []
            entry.append(1)
        table.changed.update(keys)
    assert held(backend) == {f"key-{n}": [1, 1, 1] for n in range(50)}
    assert dict.__len__(table.entries) <= 4


@pytest.mark.usefixtures("little_memory")
def test_a_deleted_entry_is_not_seen_before_and_after_it_is_told() -> None:
    backend = opened()
    table = backend.table("t")
    put(backend, {n: n for n in range(20)})
    del table.entries[3]
    assert 3 not in table.entries
    assert table.entries.get(3) is None
    assert len(table.entries) == 19
    table.changed.add(3)
    table.changed.update([19, 18, 17])  # told without a write: costs only time
    assert held(backend) == {n: n for n in range(20) if n != 3}
    with pytest.raises(KeyError):
        del table.entries[3]
    with pytest.raises(KeyError):
        table.entries.pop(3)
    assert table.entries.pop(3, None) is None
    assert table.entries.setdefault(3, 30) == 30


@pytest.fixture
def memory_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory of a process never shrinks: what other tests asked for does not count here."""
    monkeypatch.setattr(database, "_ONE", [])


@pytest.mark.usefixtures("memory_anew")
def test_state_that_is_larger_than_its_memory_is_all_there() -> None:
    backend = opened(memory=4 * MIB)
    value = backend.bind(ValueState(bytes, name="v"))
    for n in range(3000):
        backend.set_current_key(n)
        value.update(n.to_bytes(2) * 2000)
    entries = backend.table("v").entries
    assert dict.__len__(entries) * 4000 < 4 * MIB
    for n in range(0, 3000, 7):
        backend.set_current_key(n)
        assert value.value() == n.to_bytes(2) * 2000
    assert len(entries) == 3000


@pytest.mark.usefixtures("memory_anew")
def test_blind_writes_make_room_too() -> None:
    backend = opened(memory=4 * MIB)
    value = backend.bind(ValueState(bytes, name="v"))
    most = 0
    for n in range(2000):
        backend.set_current_key(n)
        value.update(b"x" * 10_000)
        most = max(most, dict.__len__(backend.table("v").entries))
    assert most * 10_000 < 4 * MIB


def test_rows_of_a_key_group_stand_together_and_in_the_order_of_the_groups() -> None:
    rows = TableRows("t", nested=False, max_parallelism=GROUPS, codec=ValueCodec())
    keys = sorted((f"key-{n}" for n in range(500)), key=rows.of_key)
    groups = [stable_hash(key) % GROUPS for key in keys]
    assert groups == sorted(groups)


def test_a_table_of_one_form_is_not_taken_for_one_of_the_other() -> None:
    backend = opened()
    put(backend, {"a": 1})
    with pytest.raises(StateMismatchError, match="'t' was saved with one entry per key and is now used with"):
        backend.table("t", nested=True)
    files = Files()
    handle = take(backend, files, 1)
    with pytest.raises(StateMismatchError, match="'t' was saved with one entry per key and is now used with"):
        restored([handle], files).table("t", nested=True)


def test_columns_are_refused_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError, match=r"'count' keeps its state 'sums' in columns.*HeapState\(\)"):
        opened().column_table("sums")
