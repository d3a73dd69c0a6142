"""Records by key for lookups over Arrow batches: the records of a table, or a cache of a function's records.

`TableRecords` keeps the columns of a table as they are, and indexes their rows by key. `CachedRecords` has a
`ColumnTable`, whose slots can be changed and deleted. Both answer a whole batch of keys at once.

The cache follows the rules in `lookup_join.py`. An entry expires by age, even one for a key without a record.
An expired entry is deleted before the function is called again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.joins.column_join import all_valid, filtered
from penstock.runtime.operators.joins.column_names import Columns
from penstock.runtime.operators.joins.lookup_join import CacheSettings
from penstock.runtime.operators.user_code.failure import short_repr
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.key_table import KeyTable
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.typed_columns import Slots

#: Numbers of records; `NO_RECORD` for a key without a record, `UNKNOWN` for a key that must be looked up.
Places = NDArray[np.int64]
NO_RECORD: Final = -1
UNKNOWN: Final = -2

#: Columns of a cache: whether the key has a record, the moment of expiry, and the step of the last use.
FOUND: Final = ":found"
EXPIRES: Final = ":expires"
USED: Final = ":used"
OWN_COLUMNS: Final = (FOUND, EXPIRES, USED)


class KeyedRecords(Protocol):
    """Records by key."""

    @property
    def types(self) -> Mapping[str, pa.DataType]:
        """Types of the columns besides the key columns."""
        ...

    def find(self, keys: Columns, now: float) -> Places:
        """The record of each row's key; no part of a key is null."""
        ...

    def take(self, places: Places) -> Columns:
        """The columns of records besides the key columns; null where there is no record."""
        ...


class TableRecords:
    """The records of a batch, each with a different key; records with a null in their key are never found.

    Args:
        what: Name of the batch in error messages.

    Raises:
        PenstockError: A key occurs twice.

    Example:
        >>> batch = pa.record_batch({"k": ["a", "b"], "m": [1, 2]})
        >>> records = TableRecords(batch, ColumnKey(("k",)), "the table")
        >>> places = records.find({"k": pa.array(["b", "c"])}, 0.0)
        >>> records.take(places)["m"].to_pylist()
        [2, None]
    """

    def __init__(self, batch: pa.RecordBatch, key: ColumnKey, what: str) -> None:
        keys = dict(zip(key.names, key.columns(batch), strict=True))
        has_key = all_valid(keys, batch.num_rows)
        if not has_key.all():
            keys, batch = filtered(keys, has_key), batch.filter(pa.array(has_key))
        self._keys = list(keys.values())
        #: The columns besides those of the key.
        self.values = {name: batch.column(name) for name in batch.schema.names if name not in keys}
        self._slots = KeyTable()
        #: The row in each slot.
        self._rows: Slots = np.zeros(batch.num_rows, np.int64)
        rows = np.arange(batch.num_rows)
        own = self._rows[self._slots.slots_of(key_hashes(self._keys), self._same, self._store)]
        again = np.flatnonzero(own != rows)
        if len(again):
            of_row = [column[int(again[0])].as_py() for column in self._keys]
            shown = short_repr(of_row[0] if key.is_single else tuple(of_row))
            msg = f"{what} has the key {shown} twice: give each key one record"
            raise PenstockError(msg)

    def _store(self, slots: Slots, rows: Slots) -> None:
        self._rows[slots] = rows

    def _same(self, slots: Slots, rows: Slots) -> NDArray[np.bool_]:
        return _are_equal(self._keys, self._rows[slots], self._keys, rows)

    def find(self, keys: Columns, now: float) -> Places:
        asked = list(keys.values())
        hashes = key_hashes(asked)

        def same(slots: Slots, rows: Slots) -> NDArray[np.bool_]:
            return _are_equal(self._keys, self._rows[slots], asked, rows)

        slots = self._slots.find(hashes, same)
        if not len(self._rows):
            return slots
        places = self._rows.take(slots)  # -1 takes the last row
        places[slots == NO_RECORD] = NO_RECORD
        return places

    def take(self, places: Places) -> Columns:
        index = pa.array(places, mask=places < 0)
        return {name: column.take(index) for name, column in self.values.items()}

    @property
    def first_key(self) -> list[pa.Array]:
        return [column.slice(0, 1) for column in self._keys]

    @property
    def types(self) -> dict[str, pa.DataType]:
        return {name: column.type for name, column in self.values.items()}


def _are_equal(
    some: list[pa.Array], some_rows: Slots, others: list[pa.Array], other_rows: Slots
) -> NDArray[np.bool_]:
    """Compare keys of equal hashes, without nulls."""
    first, second = some[0].type, others[0].type
    if len(some) == 1 and kinds.is_signed_integer(first) and kinds.is_signed_integer(second):
        return np.ones(len(some_rows), np.bool_)  # the hash of an integer is one-to-one
    same = np.ones(len(some_rows), np.bool_)
    for one, other in zip(some, others, strict=True):
        mine, theirs = one.take(pa.array(some_rows)), other.take(pa.array(other_rows))
        same &= _equal_values(mine, theirs)
    return same


def _equal_values(mine: pa.Array, theirs: pa.Array) -> NDArray[np.bool_]:
    try:
        equal = pc.equal(mine, theirs)
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # types that Arrow does not compare
        pairs = zip(mine.to_pylist(), theirs.to_pylist(), strict=True)
        return np.array([one == other for one, other in pairs], np.bool_)
    if kinds.is_floating(mine.type) and kinds.is_floating(theirs.type):
        equal = pc.or_(equal, pc.and_(pc.is_nan(mine), pc.is_nan(theirs)))
    are_equal: NDArray[np.bool_] = equal.to_numpy(zero_copy_only=False)
    return are_equal


class CachedRecords:
    """Records that a function has returned.

    Args:
        key_names: Columns of the key.
    """

    def __init__(self, settings: CacheSettings, key_names: tuple[str, ...]) -> None:
        self._settings = settings
        self._key_names = key_names
        self._table = ColumnTable("cache", 1, tracks_changes=False)
        self._step = 0

    def __len__(self) -> int:
        return len(self._table)

    @property
    def types(self) -> dict[str, pa.DataType]:
        columns = self._table.columns.items()
        return {name: typed.all[-1].kind for name, typed in columns if name not in OWN_COLUMNS}

    def note(self, schema: pa.Schema) -> None:
        """Add columns for the fields of records, except the key; a column keeps its type."""
        for field in schema:
            if field.name not in self._key_names:
                self._table.column(field.name, field.type)

    def find(self, keys: Columns, now: float) -> Places:
        table = self._table
        slots = table.find(keys)
        rows = np.flatnonzero(slots >= 0)
        places = np.full(len(slots), UNKNOWN)
        if not len(rows):
            return places
        expires = table.column(EXPIRES, pa.float64())
        known = slots[rows]
        has_expired = expires.valid[known] & (expires.values[known] <= now)
        table.delete(np.unique(known[has_expired]))
        rows, known = rows[~has_expired], known[~has_expired]
        self._step += 1
        table.column(USED, pa.int64()).values[known] = self._step
        places[rows] = np.where(table.column(FOUND, pa.bool_()).values[known], known, NO_RECORD)
        return places

    def take(self, places: Places) -> Columns:
        has = places >= 0
        index = pa.array(np.cumsum(has) - 1, mask=~has)
        columns = self._table.columns
        return {name: columns[name].take(places[has]).take(index) for name in self.types}

    def put(self, keys: Columns, places: Places, values: Columns, now: float) -> None:
        """Add distinct keys; `places` are the row numbers of their records in `values`."""
        settings, table = self._settings, self._table
        if not settings.size:
            return
        slots, has = table.slots_of(keys), places >= 0
        for name, column in values.items():
            table.column(name, column.type).put(slots[has], column.take(pa.array(places[has])))
        for name in self.types.keys() - values.keys():
            table.columns[name].clear(slots)
        ages = [np.nan if ttl is None else now + ttl for ttl in (settings.ttl, settings.negative_ttl)]
        expires = np.where(has, *ages)
        table.column(EXPIRES, pa.float64()).put(slots, pa.array(expires, mask=np.isnan(expires)))
        table.column(FOUND, pa.bool_()).put(slots, pa.array(has))
        self._step += 1
        table.column(USED, pa.int64()).put(slots, pa.array(np.full(len(slots), self._step)))
        excess = len(table) - settings.size
        if excess > 0:
            every = table.all_slots
            used = table.column(USED, pa.int64()).values[every]
            table.delete(every[np.argpartition(used, excess - 1)[:excess]])
