"""The slots of a key table are those of a dictionary, whatever the hashes are."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from penstock.runtime.state.key_table import KeyTable


class Owner:
    """Keeps the keys of a table, and a dictionary beside it that says what is right."""

    def __init__(self, hash_bits: int) -> None:
        self.table = KeyTable()
        self.keys: dict[int, int] = {}
        self.slots: dict[int, int] = {}
        self._hash_bits = hash_bits

    def look_up(self, keys: list[int], *, insert: bool) -> list[int]:
        hashes = np.array([(key * 0x9E3779B97F4A7C15) % (1 << self._hash_bits) for key in keys], np.uint64)

        def same(slots: np.ndarray, rows: np.ndarray) -> np.ndarray:
            pairs = zip(slots.tolist(), rows.tolist(), strict=True)
            return np.array([self.keys.get(slot) == keys[row] for slot, row in pairs], np.bool_)

        def store(slots: np.ndarray, rows: np.ndarray) -> None:
            self.keys.update(zip(slots.tolist(), (keys[row] for row in rows.tolist()), strict=True))

        found = self.table.slots_of(hashes, same, store) if insert else self.table.find(hashes, same)
        return found.tolist()

    def delete(self, keys: list[int]) -> None:
        slots = [self.slots.pop(key) for key in keys]
        self.table.delete(np.array(slots, np.int64))
        for slot in slots:
            del self.keys[slot]


@pytest.mark.parametrize("hash_bits", [64, 3, 0])
def test_every_key_keeps_its_own_slot_through_insertions_and_deletions(hash_bits: int) -> None:
    for seed in range(30 if hash_bits == 64 else 6):
        draws, owner = Random(seed), Owner(hash_bits)
        for _ in range(20):
            keys = [draws.randrange(40) for _ in range(draws.randrange(1, 60))]
            if draws.random() < 0.4:
                owner.delete([key for key in dict.fromkeys(keys) if key in owner.slots])
            else:
                for key, slot in zip(keys, owner.look_up(keys, insert=True), strict=True):
                    assert owner.slots.setdefault(key, slot) == slot
            everything = list(range(45))
            assert owner.look_up(everything, insert=False) == [owner.slots.get(k, -1) for k in everything]
            assert len(owner.table) == len(owner.slots) == len(set(owner.slots.values()))


def test_a_table_grows_beyond_its_first_cells() -> None:
    owner = Owner(64)
    first = owner.look_up(list(range(10_000)), insert=True)
    assert sorted(first) == list(range(10_000))
    assert owner.look_up(list(range(10_000)), insert=True) == first


def test_freed_slots_are_given_again_and_never_twice() -> None:
    owner = Owner(64)
    owner.slots = dict(zip(range(100), owner.look_up(list(range(100)), insert=True), strict=True))
    owner.delete(list(range(50)))
    again = owner.look_up(list(range(200, 280)), insert=True)
    assert owner.table.end == 130, "fifty of them are old slots"
    assert not set(again) & {owner.slots[key] for key in range(50, 100)}


def test_keys_that_come_and_go_for_ever_do_not_fill_the_cells() -> None:
    owner = Owner(64)
    for start in range(0, 200_000, 500):
        keys = list(range(start, start + 500))
        owner.slots = dict(zip(keys, owner.look_up(keys, insert=True), strict=True))
        owner.delete(keys)
    assert len(owner.table) == 0
    assert owner.table.nbytes < 100_000
