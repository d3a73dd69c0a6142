"""`KeyTable`: finds the slots of many keys at once, by open addressing in numpy.

The slot of a key is its index in each of the owner's columns. The table keeps a 64-bit hash of each slot
and cells with the numbers of slots. All steps work on arrays: keys that have found neither their slot nor an
empty cell try the next cell together (linear probing).

Why it is correct:

1. *Place.* Different bits of the hash choose the first cell and the key group. With the same bits the keys of
   one subtask would crowd into a part of the cells.
2. *Equal hashes.* Slots are found by hash, then the owner compares the keys. Different keys with one hash are
   tried again with a hash that depends on the number of the try, the *level*. So a key's level depends on the
   keys that were in the table before it. A key is looked up on all levels before it gets a slot.
3. *Contention.* New keys that want the same empty cell all write to it; the key whose number is read back
   wins. The others check the same cell again, which now holds a slot, perhaps of an equal hash.
4. *Deletion* leaves a mark in the cell, so that later cells of the probe are still found. Freed slots are
   reused. The cells are rebuilt when fewer than half of them are empty.

Source: Knuth, The Art of Computer Programming, volume 3, section 6.4, algorithm L.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.state.stable_hash import HashArray, mix64_array

#: Compares the keys of slots with the keys of rows that have the same hashes.
SameKeys: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]]

#: Stores the keys of rows in new slots, which may be greater than all slots so far.
StoreKeys: TypeAlias = Callable[[NDArray[np.int64], NDArray[np.int64]], None]

_EMPTY: Final = -1

_DELETED: Final = -2

_LEAST: Final = 1 << 10


class KeyTable:
    """Slots by hash; the owner stores the keys themselves."""

    def __init__(self) -> None:
        self.clear()

    def __len__(self) -> int:
        return self.end - len(self._free)

    @property
    def nbytes(self) -> int:
        return self._cells.nbytes + self.hashes.nbytes + self.used.nbytes + self._levels.nbytes

    def clear(self) -> None:
        self._cells = np.full(2 * _LEAST, _EMPTY, np.int32)
        self.hashes: HashArray = np.empty(_LEAST, np.uint64)
        self.used: NDArray[np.bool_] = np.zeros(_LEAST, np.bool_)
        self._levels = np.zeros(_LEAST, np.uint8)
        self.end = 0
        self._free: list[int] = []
        self._deleted = 0
        self._last_level = 0

    def slots_of(self, hashes: HashArray, same: SameKeys, store: StoreKeys) -> NDArray[np.int64]:
        """Return the slot of each row's key; keys may repeat, and new keys get a slot.

        `store` is called before a new slot is compared, and once for all new slots of a level.
        """
        slots = self.find(hashes, same)
        missing = np.flatnonzero(slots < 0)
        level = 0
        while missing.size:
            found = self._insert(hashes, missing, level, store)
            is_same = same(found, missing)
            slots[missing[is_same]] = found[is_same]
            missing = missing[~is_same]
            if missing.size:
                level += 1
                self._last_level = max(self._last_level, level)
        return slots

    def find(self, hashes: HashArray, same: SameKeys) -> NDArray[np.int64]:
        slots = np.full(len(hashes), -1, np.int64)
        missing = np.arange(len(hashes))
        for level in range(self._last_level + 1):
            found = self._find(_at_level(hashes[missing], level), level)
            hits = np.flatnonzero(found >= 0)
            hits = hits[same(found[hits], missing[hits])]
            slots[missing[hits]] = found[hits]
            if self._last_level:
                missing = np.delete(missing, hits)
        return slots

    def delete(self, slots: NDArray[np.int64]) -> None:
        """Free slots; each must be in use and occur once."""
        positions = self._positions_of(slots)
        self._cells[positions] = _DELETED
        self.used[slots] = False
        self._free.extend(slots.tolist())
        self._deleted += len(slots)

    def _start(self, hashes: HashArray) -> NDArray[np.int64]:
        return (hashes >> np.uint64(16)).astype(np.int64) & (len(self._cells) - 1)

    def _find(self, hashes: HashArray, level: int) -> NDArray[np.int64]:
        mask, positions = len(self._cells) - 1, self._start(hashes)
        slots = self._cells.take(positions).astype(np.int64)
        going = np.flatnonzero(~((slots == _EMPTY) | self._has(slots, hashes, level)))
        while going.size:
            positions[going] = (positions[going] + 1) & mask
            there = self._cells[positions[going]].astype(np.int64)
            slots[going] = there
            going = going[~((there == _EMPTY) | self._has(there, hashes[going], level))]
        return slots

    def _has(self, slots: NDArray[np.int64], hashes: HashArray, level: int) -> NDArray[np.bool_]:
        """Whether each slot has this level and hash; false for a cell without a slot."""
        has: NDArray[np.bool_]
        if not level and not self._last_level:
            has = (self.hashes.take(slots, mode="wrap") == hashes) & (slots >= 0)
        else:
            own = _at_level(self.hashes[slots], level)
            has = (own == hashes) & (slots >= 0) & (self._levels[slots] == level)
        return has

    def _insert(
        self, all_hashes: HashArray, rows: NDArray[np.int64], level: int, store: StoreKeys
    ) -> NDArray[np.int64]:
        self._make_room(len(rows))
        hashes = _at_level(all_hashes[rows], level)
        mask, positions = len(self._cells) - 1, self._start(hashes)
        result = np.full(len(rows), -1, np.int64)
        going = np.arange(len(rows))
        #: New slots and their rows. The loop compares only hashes, so the keys are stored after it.
        stored: list[tuple[NDArray[np.int64], NDArray[np.int64]]] = []
        while going.size:
            slots = self._cells[positions[going]].astype(np.int64)
            hit = self._has(slots, hashes[going], level)
            result[going[hit]] = slots[hit]
            empty = going[slots == _EMPTY]
            if empty.size:
                # All rows write; the row whose number is read back wins.
                self._cells[positions[empty]] = -3 - empty
                winners = empty[self._cells[positions[empty]] == -3 - empty]
                new = self._take_slots(len(winners))
                self._cells[positions[winners]] = new
                self.hashes[new], self._levels[new] = all_hashes[rows[winners]], level
                self.used[new] = True
                result[winners] = new
                stored.append((new, rows[winners]))
            occupied = going[(slots != _EMPTY) & ~hit]
            positions[occupied] = (positions[occupied] + 1) & mask
            going = going[result[going] < 0]
        if stored:
            store(*(np.concatenate(parts) for parts in zip(*stored, strict=True)))
        return result

    def _take_slots(self, count: int) -> NDArray[np.int64]:
        again = min(count, len(self._free))
        reused = self._free[len(self._free) - again :]
        del self._free[len(self._free) - again :]
        fresh = np.arange(self.end, self.end + count - again, dtype=np.int64)
        self.end += count - again
        return np.concatenate((np.array(reused, np.int64), fresh))

    def _make_room(self, count: int) -> None:
        slots = self.end + count
        if slots > len(self.hashes):
            capacity = max(2 * len(self.hashes), 1 << (slots - 1).bit_length())
            for name in ("hashes", "used", "_levels"):
                old = getattr(self, name)
                new = np.zeros(capacity, old.dtype)
                new[: len(old)] = old
                setattr(self, name, new)
        needed = len(self) + count
        if 2 * (needed + self._deleted) > len(self._cells):
            self._rebuild(max(2 * _LEAST, 1 << (3 * needed - 1).bit_length()))

    def _rebuild(self, cells: int) -> None:
        self._cells = np.full(cells, _EMPTY, np.int32)
        self._deleted = 0
        mask, slots = cells - 1, np.flatnonzero(self.used)
        positions = self._start(self._placing_hashes(slots))
        going = np.arange(len(slots))
        while going.size:
            empty = going[self._cells[positions[going]] == _EMPTY]
            self._cells[positions[empty]] = slots[empty]
            going = going[self._cells[positions[going]] != slots[going]]
            positions[going] = (positions[going] + 1) & mask

    def _positions_of(self, slots: NDArray[np.int64]) -> NDArray[np.int64]:
        mask, positions = len(self._cells) - 1, self._start(self._placing_hashes(slots))
        going = np.flatnonzero(self._cells[positions] != slots)
        while going.size:
            positions[going] = (positions[going] + 1) & mask
            going = going[self._cells[positions[going]] != slots[going]]
        return positions

    def _placing_hashes(self, slots: NDArray[np.int64]) -> HashArray:
        hashes = self.hashes[slots]
        levels = self._levels[slots]
        for level in range(1, self._last_level + 1):
            chosen = levels == level
            hashes[chosen] = _at_level(hashes[chosen], level)
        return hashes


def _at_level(hashes: HashArray, level: int) -> HashArray:
    return mix64_array(hashes ^ np.uint64(level)) if level else hashes
