"""`RowLog`: keyed rows of any type, ordered by arrival and found by key and time.

`RowRing` has the rows' hashes and times. This class adds their keys and records, which are Python objects,
and a flag for each row. A batch is searched and added with a few calls of numpy. Only keys are compared one
by one, and not even these if they are whole numbers from 0 to 2**61 - 2, whose hashes differ.

**Hashes** are Python's, mixed. They may differ between processes, because rows are hashed again when they are
restored.

**Snapshots.** The rows become entries of a nested table: key and number, with a tuple of timestamp, flag and
record. `RocksDBRowLog` keeps the same entries in RocksDB. A snapshot copies references while the task waits,
and makes the entries when it encodes them (`LoggedRows`). A row that was added and deleted between two
snapshots leaves no trace.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.state.captured_rows import CapturedRows, LoggedRows
from penstock.runtime.state.row_ring import Moments, RowRing
from penstock.runtime.state.stable_hash import HashArray, mix64_array
from penstock.runtime.state.typed_columns import Slots

#: An array of Python objects.
Objects: TypeAlias = NDArray[np.object_]

#: Flags of rows.
Flags: TypeAlias = NDArray[np.bool_]

#: A row in a table: timestamp, flag and record.
Row: TypeAlias = tuple[int, bool, Any]

#: Whole numbers from 0 up to this one have different hashes in Python.
_LARGEST_EXACT: Final = (1 << 61) - 2

_INTS: Final = {int}


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """Keys with the hashes that a `RowLog` uses.

    Attributes:
        are_exact: Whether different keys have different hashes.
    """

    keys: Objects
    hashes: HashArray
    are_exact: bool

    @classmethod
    def of(cls, keys: Sequence[Any]) -> HashedKeys:
        """Hash keys; raises `TypeError` for a key that can't be hashed."""
        objects = as_objects(keys)
        if set(map(type, keys)) == _INTS:
            try:
                numbers = np.array(keys, np.int64)
            except OverflowError:
                pass
            else:
                if numbers.min() >= 0 and numbers.max() <= _LARGEST_EXACT:
                    return cls(objects, mix64_array(numbers), True)
        return cls(objects, mix64_array(np.fromiter(map(hash, keys), np.int64, len(keys))), False)

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, some: Flags | slice) -> HashedKeys:
        return HashedKeys(self.keys[some], self.hashes[some], self.are_exact)


class RowLog(RowRing):
    """Records by key and event time.

    Example:
        >>> log, keys = RowLog("left"), HashedKeys.of(["a", "b", "a"])
        >>> log.append(keys, np.array([10, 20, 30]), ["x", "y", "z"], np.zeros(3, bool))
        >>> places, slots = log.find(HashedKeys.of(["a", "b"]), np.array([0, 0]), np.array([30, 10]))
        >>> places.tolist(), log.records(slots)
        ([0, 0], ['x', 'z'])
        >>> log.delete(log.until(20))
        >>> len(log), log.first_time
        (1, 30)
    """

    _arrays: ClassVar[tuple[str, ...]] = (*RowRing._arrays, "_keys", "_records", "flags")

    def __init__(self, name: str, *, tracks_changes: bool = True) -> None:
        self.name = name
        super().__init__(tracks_changes=tracks_changes)

    def clear(self) -> None:
        self._are_exact = True
        self._deleted: list[tuple[Objects, NDArray[np.int64]]] = []
        super().clear()

    def _allocate(self, capacity: int) -> None:
        super()._allocate(capacity)
        self._keys: Objects = np.full(capacity, None, np.object_)
        self._records: Objects = np.full(capacity, None, np.object_)
        self.flags: Flags = np.zeros(capacity, np.bool_)

    # -- rows --------------------------------------------------------------------------------------------

    def append(self, keys: HashedKeys, times: Moments, records: Sequence[Any], flags: Flags) -> None:
        """Add rows and report them as changed; earlier slots are invalid afterwards."""
        self._put(keys, times, records, flags, self._new_numbers(len(times)), self._tracks, False)

    def _put(
        self,
        keys: HashedKeys,
        times: Moments,
        records: Sequence[Any],
        flags: Flags,
        numbers: NDArray[np.int64],
        is_changed: bool | Flags,
        is_saved: bool | Flags,
    ) -> None:
        self._are_exact &= keys.are_exact
        objects = as_objects(records)
        for at, some in self._put_cells(
            times, keys.hashes, numbers, is_changed=is_changed, is_saved=is_saved
        ):
            self._keys[at], self._records[at], self.flags[at] = keys.keys[some], objects[some], flags[some]

    def records(self, slots: Slots) -> list[Any]:
        return list(self._records.take(slots))

    def flag(self, slots: Slots) -> None:
        """Flag rows, and report them as changed."""
        self.flags[slots] = True
        self.note_changed(slots)

    def delete(self, slots: Slots) -> None:
        """Delete rows; each slot occurs once and is live."""
        if not len(slots):
            return
        saved = slots[self._is_saved[slots]]
        if len(saved):
            self._deleted.append((self._keys.take(saved), self._numbers[saved]))
        self._keys[slots] = None
        self._records[slots] = None
        self._delete_cells(slots)

    # -- search ------------------------------------------------------------------------------------------

    def find(self, keys: HashedKeys, earliest: Moments, latest: Moments) -> tuple[Slots, Slots]:
        """Find the rows with the same key and a time between two moments, both included.

        Returns:
            Indices into `keys` and slots of the matching rows, sorted by index, then by arrival.
        """
        places, slots, _ = self.find_some(keys, earliest, latest, None)
        return places, slots

    def find_some(
        self, keys: HashedKeys, earliest: Moments, latest: Moments, most: int | None
    ) -> tuple[Slots, Slots, int]:
        """Find rows as `find` does, for the first keys with about `most` rows together; at least one key.

        Returns:
            Indices into `keys` and slots of the matching rows, and the number of keys that were searched.
        """
        places, slots, searched = self._search(keys.hashes, earliest, latest, most)
        if not (self._are_exact and keys.are_exact):
            mine, theirs = keys.keys.take(places), self._keys.take(slots)
            same = np.asarray(mine == theirs, np.bool_)
            # A dict compares identities first: the one NaN that can be a key is not equal to itself.
            for other in np.flatnonzero(~same).tolist():
                same[other] = mine[other] is theirs[other]
            places, slots = places[same], slots[same]
        order = np.argsort(places, kind="stable")
        return places[order], slots[order], searched

    # -- snapshots ---------------------------------------------------------------------------------------

    def take_changes(self) -> Iterator[CapturedRows]:
        """Changes since the last call: deleted rows, then new and changed rows."""
        if self._deleted:
            keys, numbers = (np.concatenate(parts) for parts in zip(*self._deleted, strict=True))
            self._deleted = []
            yield CapturedRows(self.name, LoggedRows(keys, numbers), nested=True)
        changed = self._take_changed()
        if len(changed):
            _, times, numbers = self._cells_of(changed)
            keys, records = self._keys.take(changed), self._records.take(changed)
            rows = LoggedRows(keys, numbers, times, self.flags.take(changed), records)
            yield CapturedRows(self.name, rows, nested=True)

    def fill(
        self, entries: Mapping[Any, Mapping[int, Row]], changed: Container[tuple[Any, int]] = ()
    ) -> None:
        """Replace all rows by the restored entries of a nested table.

        Args:
            changed: Pairs of key and number that the next snapshot must contain.
        """
        self.clear()
        found = [(number, key, row) for key, rows in entries.items() for number, row in rows.items()]
        if not found:
            return
        found.sort(key=lambda entry: entry[0])
        are_changed = _flags((key, number) in changed for number, key, _ in found)
        self._put(
            HashedKeys.of([key for _, key, _ in found]),
            np.array([at for _, _, (at, _, _) in found], np.int64),
            [record for _, _, (_, _, record) in found],
            _flags(flag for _, _, (_, flag, _) in found),
            np.array([number for number, _, _ in found], np.int64),
            are_changed,
            ~are_changed,
        )


def as_objects(values: Sequence[Any]) -> Objects:
    """An array of Python objects, which are not taken apart if they are sequences."""
    return np.fromiter(values, np.object_, len(values))


def _flags(values: Iterable[bool]) -> Flags:
    return np.fromiter(values, np.bool_)
