"""`ColumnTable`: keyed state of one name in columns, with one slot per key; `StateTable` has rows instead.

The operator finds the slots of a batch's keys, changes the columns in place, and reports the changed slots. A
key may end with *extra* parts that are not used to compute its key group, such as the start of a window.
Keys and values may have several types in one column (`typed_columns.py`). Arrays are read from slots whose
keys have one type in each column; `alike` groups slots in this way.

The table must never give two keys one slot, and never forget a deleted key before a snapshot has it.

`ColumnChanges` merges blocks; the newest entry of each key counts. A large state is merged every few
checkpoints, outside the task's thread. Merging through a new table of keys would cost several cache misses
per row. So rows are first partitioned by bits of their hashes, into parts that fit into the cache. Each row
of a part writes its number to a cell that other bits choose, and the last number remains. Rows whose cell has
the number of a row with another hash try again, with other bits. Rows with the same hash are compared by key.
If two keys have the same hash, or a key column has several types, a `ColumnTable` merges the blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.state.column_lifetime import ColumnLifetime
from penstock.runtime.state.key_table import KeyTable
from penstock.runtime.state.keyed_chunk import ColumnBlock
from penstock.runtime.state.stable_hash import HashArray, mix64_array
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.time_to_live import StateTime, StateTtl
from penstock.runtime.state.typed_columns import GrowingColumn, Slots, TypedColumns, alike, plain_name

#: Scatters a hash before an extra part is mixed in; any large odd number will do.
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


class ColumnTable:
    """Keys and values by slot.

    Example:
        >>> table = ColumnTable("sums", 128)
        >>> slots = table.slots_of({"k": pa.array(["a", "b"])})
        >>> table.column("total", pa.int64()).put(slots, pa.array([10, 20]))
        >>> table.note_changed(slots)
        >>> table.keys(slots).to_pydict(), table.values(slots).to_pydict()
        ({'k': ['a', 'b']}, {'total': [10, 20]})
    """

    def __init__(self, name: str, max_parallelism: int, *, tracks_changes: bool = True) -> None:
        self.name = name
        self._max_parallelism = max_parallelism
        self._tracks = tracks_changes
        self.lifetime: ColumnLifetime | None = None
        self._make: Callable[[str, pa.DataType], GrowingColumn] = GrowingColumn
        self.clear()

    def set_ttl(self, ttl: StateTtl, time: StateTime) -> ColumnLifetime:
        self.lifetime = ColumnLifetime(ttl, time, self)
        return self.lifetime

    def set_columns(self, make: Callable[[str, pa.DataType], GrowingColumn]) -> None:
        """Set the function that makes a column of values by name and type."""
        self._make = make
        for columns in self._columns.values():
            columns.remake(make)

    def clear(self) -> None:
        self._slots = KeyTable()
        self._keys: dict[str, TypedColumns] = {}
        self._columns: dict[str, TypedColumns] = {}
        self._groups: NDArray[np.uint16] = np.empty(0, np.uint16)
        self._changed: NDArray[np.bool_] = np.zeros(0, np.bool_)
        #: Scratch space: a row number by slot.
        self._rows: NDArray[np.int32] = np.empty(0, np.int32)
        self._deleted: list[ColumnBlock] = []
        self._extra = 0
        self._has_null = False

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def key_names(self) -> tuple[str, ...]:
        return tuple(self._keys)

    @property
    def key_columns(self) -> Mapping[str, TypedColumns]:
        return self._keys

    @property
    def columns(self) -> Mapping[str, TypedColumns]:
        return self._columns

    @property
    def end(self) -> int:
        """A number above all slots."""
        return self._slots.end

    @property
    def all_slots(self) -> Slots:
        return np.flatnonzero(self._slots.used[: self._slots.end])

    def column(self, name: str, kind: pa.DataType, *, many_types: bool = False) -> GrowingColumn:
        columns = self._columns.get(name)
        if columns is None:
            columns = self._columns[name] = TypedColumns(name, self._make)
            columns.reserve(len(self._changed))
        return columns.of(kind) if many_types else columns.only(kind)

    def alike(self, slots: Slots) -> list[Slots]:
        return alike(list(self._keys.values()), slots)

    def slots_of(
        self,
        keys: Mapping[str, pa.Array],
        extra: Mapping[str, pa.Array] | None = None,
        key_groups: NDArray[np.uint16] | None = None,
    ) -> Slots:
        """Return the slot of each row's key; keys may repeat, and the values of a new key are null."""
        return self._look_up(keys, extra, key_groups)[0]

    def slots_and_new(self, keys: Mapping[str, pa.Array]) -> tuple[Slots, Slots]:
        """Return the slot of each row's key, and the rows whose keys are new, in their order."""
        slots, inserted = self._look_up(keys, None, None)
        if not len(inserted):
            return slots, inserted
        is_new = np.zeros(len(self._changed), np.bool_)
        is_new[slots[inserted]] = True
        return slots, np.flatnonzero(is_new.take(slots))

    def find(self, keys: Mapping[str, pa.Array]) -> Slots:
        """Return the slot of each row's key, or -1 if the table lacks the key.

        Args:
            keys: Columns in the order of this table's key columns; their names don't matter.
        """
        rows = len(next(iter(keys.values())))
        if not self._keys:
            return np.full(rows, -1, np.int64)
        columns = list(self._keys.values())
        is_exact = self._are_exact(columns, keys) and kinds.is_signed_integer(columns[0].all[0].kind)
        is_exact = is_exact and not any(part.null_count for part in keys.values())

        def same(slots: Slots, rows: Slots) -> NDArray[np.bool_]:
            is_same = np.ones(len(rows), np.bool_)
            for column, part in () if is_exact else zip(columns, keys.values(), strict=True):
                is_same &= column.equals_any(slots, part.take(pa.array(rows)))
            return is_same

        return self._slots.find(key_hashes(list(keys.values())), same)

    def _are_exact(self, columns: Sequence[TypedColumns], parts: Mapping[str, pa.Array]) -> bool:
        """Whether equal hashes mean equal keys."""
        return not self._has_null and have_unique_hashes(parts) and len(columns[0].all) == 1

    def insert(
        self,
        keys: Mapping[str, pa.Array],
        extra: Mapping[str, pa.Array],
        hashes: HashArray | None = None,
    ) -> Slots:
        """Insert distinct keys and report the new ones as changed; return the rows of these new keys.

        Args:
            hashes: `key_hashes` of `keys`, if they are known.
        """
        slots, rows = self._look_up(keys, extra, None, hashes)
        self.note_changed(slots[rows])
        return rows

    def _look_up(
        self,
        keys: Mapping[str, pa.Array],
        extra: Mapping[str, pa.Array] | None,
        key_groups: NDArray[np.uint16] | None,
        hashes: HashArray | None = None,
    ) -> tuple[Slots, Slots]:
        new_rows: list[Slots] = []
        hashes = key_hashes(list(keys.values())) if hashes is None else hashes
        parts = {**keys, **(extra or {})}
        columns = self._key_columns(parts)
        self._extra = len(extra or {})

        self._has_null = self._has_null or any(part.null_count for part in parts.values())
        is_exact = self._are_exact(columns, parts)

        def store(slots: Slots, rows: Slots) -> None:
            new_rows.append(rows)
            self._reserve(self._slots.end)
            self._groups[slots] = self._groups_of(hashes[rows]) if key_groups is None else key_groups[rows]
            for column, part in zip(columns, parts.values(), strict=True):
                column.put(slots, part.take(pa.array(rows)))
            for value in self._columns.values():
                value.clear(slots)

        def same(slots: Slots, rows: Slots) -> NDArray[np.bool_]:
            is_same = np.ones(len(rows), np.bool_)
            if is_exact:
                return is_same
            everything = len(rows) == len(hashes)
            for column, part in zip(columns, parts.values(), strict=True):
                is_same &= column.equals(slots, part if everything else part.take(pa.array(rows)))
            return is_same

        slots = self._slots.slots_of(with_extra(hashes, extra), same, store)
        for column, part in zip(columns, parts.values(), strict=True):
            column.settle(slots, part)
        return slots, np.concatenate(new_rows) if new_rows else np.empty(0, np.int64)

    def are_first(self, slots: Slots) -> NDArray[np.bool_]:
        self._note_rows(slots[::-1])
        rows = np.arange(len(slots) - 1, -1, -1, dtype=np.int32)
        are_first: NDArray[np.bool_] = self._rows.take(slots) == rows
        return are_first

    def _note_rows(self, slots: Slots) -> None:
        """Write the last row of each slot into the scratch space."""
        if len(self._rows) < len(self._changed):
            self._rows = np.zeros(len(self._changed), np.int32)
        self._rows[slots] = np.arange(len(slots), dtype=np.int32)

    def last_rows(self, slots: Slots, wanted: Slots) -> Slots:
        """Return the last row of `slots` with each wanted slot; -1 if there is none, or the slot is -1."""
        if not len(slots):
            return np.full(len(wanted), -1, np.int64)
        self._note_rows(slots)
        # A slot that is not in `slots` still has an old row number, and that row has another slot.
        rows = self._rows.take(wanted, mode="wrap").astype(np.int64)
        rows[(rows < 0) | (rows >= len(slots))] = 0
        rows[slots.take(rows) != wanted] = -1
        return rows

    def are_last(self, slots: Slots) -> NDArray[np.bool_]:
        return self.are_first(slots[::-1])[::-1]

    def note_changed(self, slots: Slots) -> None:
        """Report written slots; unreported changes are in no snapshot."""
        if self._tracks:
            self._changed[slots] = True

    def are_changed(self, slots: Slots) -> NDArray[np.bool_]:
        return self._changed[slots]

    def delete(self, slots: Slots) -> None:
        """Delete keys; each slot occurs once."""
        if self._tracks and len(slots):
            self._deleted += [self.block(slots[some], deleted=True) for some in self.alike(slots)]
            self._changed[slots] = False
        self._slots.delete(slots)

    def key_numbers(self, name: str, slots: Slots) -> NDArray[Any]:
        numbers: NDArray[Any] = self._keys[name].all[0].values[slots]
        return numbers

    def key_groups(self, slots: Slots) -> NDArray[np.uint16]:
        return self._groups[slots]

    def keys(self, slots: Slots) -> pa.RecordBatch:
        """The keys of slots; their parts must have one type in each column."""
        return _batch({name: columns.take(slots) for name, columns in self._keys.items()})

    def values(self, slots: Slots) -> pa.RecordBatch:
        """The values of slots; a column with several types becomes one column per type."""
        return _batch(
            {
                label: column.take(slots)
                for columns in self._columns.values()
                for label, column in columns.by_label().items()
            }
        )

    # -- snapshots ---------------------------------------------------------------------------------------

    def mark_all_changed(self) -> None:
        self._changed[: self._slots.end] = self._slots.used[: self._slots.end]

    def take_changes(self) -> Iterator[ColumnBlock]:
        """Changes since the last call: deleted keys first, because a key may have been inserted again."""
        yield from self._deleted
        self._deleted = []
        changed = np.flatnonzero(self._changed)
        if len(changed):
            ordered = self.by_key_group(changed)
            for some in self.alike(ordered):
                yield self.block(ordered[some])
            self._changed[changed] = False

    def by_key_group(self, slots: Slots) -> Slots:
        return slots[np.argsort(self._groups[slots], kind="stable")]

    def block(self, slots: Slots, *, deleted: bool = False) -> ColumnBlock:
        values = None if deleted else self.values(slots)
        return ColumnBlock(self.name, self.keys(slots), self._groups[slots], values, self._extra)

    def put(self, block: ColumnBlock) -> Slots:
        """Set the values of a block's keys, but report no change; return the slots, even of deleted keys."""
        slots = self.slots_of(*_parts(block.keys, block.extra), block.key_groups)
        if block.values is not None:
            for columns in self._columns.values():
                columns.clear(slots)
            for label, column in zip(block.values.schema.names, block.values.columns, strict=True):
                name = plain_name(label, column.type)
                self.column(name, column.type, many_types=True).put(slots, column)
        return slots

    def apply(self, block: ColumnBlock) -> None:
        """Apply a block of a snapshot, including deletions, but report no change."""
        slots = self.put(block)
        if block.values is None:
            self._slots.delete(slots)

    def _key_columns(self, parts: Mapping[str, pa.Array]) -> list[TypedColumns]:
        if not self._keys:
            self._keys = {name: TypedColumns(name) for name in parts}
            for columns in self._keys.values():
                columns.reserve(len(self._changed))
        for name, part in parts.items():
            self._keys[name].of(part.type)
        return list(self._keys.values())

    def _groups_of(self, hashes: HashArray) -> NDArray[np.uint16]:
        return (hashes % np.uint64(self._max_parallelism)).astype(np.uint16)

    def _reserve(self, slots: int) -> None:
        if slots <= len(self._changed):
            return
        capacity = max(1 << 10, 1 << (slots - 1).bit_length())
        for column in (*self._keys.values(), *self._columns.values()):
            column.reserve(capacity)
        old = len(self._changed)
        changed, groups = np.zeros(capacity, np.bool_), np.empty(capacity, np.uint16)
        changed[:old], groups[:old] = self._changed, self._groups
        self._changed, self._groups = changed, groups


def _parts(keys: pa.RecordBatch, extra: int) -> tuple[dict[str, pa.Array], dict[str, pa.Array]]:
    """The parts of keys that are used to compute the key group, and the extra parts."""
    parts = dict(zip(keys.schema.names, keys.columns, strict=True))
    return parts, {name: parts.pop(name) for name in keys.schema.names[len(parts) - extra :]}


def have_unique_hashes(parts: Mapping[str, pa.Array]) -> bool:
    """Whether no two keys share a hash: the hash of integers is one-to-one."""
    kind = next(iter(parts.values())).type
    return len(parts) == 1 and bool(kinds.is_signed_integer(kind))


def with_extra(hashes: HashArray, extra: Mapping[str, pa.Array] | None) -> HashArray:
    """Hashes of keys with their extra parts; the order of the parts matters."""
    for part in (extra or {}).values():
        hashes = mix64_array(hashes * _ODD ^ key_hashes([part]))
    return hashes


#: Approximate number of rows in a part; its cells and hashes stay in the processor's cache.
_PART: Final = 1 << 14

#: Maximum number of hash bits that choose a part: values of 8 bits sort fastest.
_PART_BITS: Final = 8


class ColumnChanges:
    """Collects the changes of one table; `blocks` merges them."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._blocks: list[ColumnBlock] = []

    def apply(self, block: ColumnBlock) -> None:
        if len(block):
            self._blocks.append(block)

    def blocks(self, *, with_deleted: bool = True) -> Iterator[ColumnBlock]:
        """The merged changes: deleted keys, then the other keys, sorted by key group."""
        if not self._blocks:
            return
        keys = _joined([block.keys for block in self._blocks])
        has_types = len(keys.schema.names) > self._blocks[-1].keys.num_columns
        newest = None if has_types else _newest(keys, self._blocks[-1].extra)
        if newest is None:
            yield from self._merged_by_table(with_deleted=with_deleted)
            return
        groups = np.concatenate([block.key_groups for block in self._blocks])
        values = [_values_of(block) for block in self._blocks]
        is_deleted = np.repeat(
            [block.values is None for block in self._blocks], [len(block) for block in self._blocks]
        )
        newest = newest[np.argsort(groups[newest], kind="stable")]
        for deleted in (True, False) if with_deleted else (False,):
            rows = newest[is_deleted[newest] == deleted]
            if len(rows):
                chosen = None if deleted else _joined(values, rows)
                extra = self._blocks[-1].extra
                yield ColumnBlock(self._table, _taken(keys, rows), groups[rows], chosen, extra)

    def _merged_by_table(self, *, with_deleted: bool) -> Iterator[ColumnBlock]:
        table, deleted_slots = ColumnTable(self._table, 1, tracks_changes=False), np.zeros(0, np.bool_)
        for block in self._blocks:
            slots = table.put(block)
            longer = np.zeros(max(len(deleted_slots), int(slots.max()) + 1), np.bool_)
            longer[: len(deleted_slots)] = deleted_slots
            deleted_slots = longer
            deleted_slots[slots] = block.values is None
        slots = table.all_slots
        for deleted in (True, False) if with_deleted else (False,):
            chosen = table.by_key_group(slots[deleted_slots[slots] == deleted])
            for some in table.alike(chosen) if len(chosen) else ():
                yield table.block(chosen[some], deleted=deleted)


def _newest(keys: pa.RecordBatch, extra: int) -> Slots | None:
    """The last row of each key; `None` if two keys share a hash."""
    parts, others = _parts(keys, extra)
    hashes = with_extra(key_hashes(list(parts.values())), others)
    last = _last_of_each(hashes)
    older = np.flatnonzero(last != np.arange(len(last)))
    left, right = pa.array(older), pa.array(last[older])
    for column in keys.columns:
        bits = _bits(column)
        if not bits.take(left).equals(bits.take(right)):
            return None
    is_newest = np.ones(len(last), np.bool_)
    is_newest[older] = False
    return np.flatnonzero(is_newest)


def _last_of_each(hashes: HashArray) -> Slots:
    bits = min(_PART_BITS, (len(hashes) // _PART).bit_length())
    if not bits:
        return _last_in_part(hashes)
    parts = (hashes >> np.uint64(64 - bits)).astype(np.uint8)
    order = np.argsort(parts, kind="stable")
    dealt = hashes[order]
    ends = np.cumsum(np.bincount(parts, minlength=1 << bits)).tolist()
    last = np.empty(len(hashes), np.int64)
    for start, end in zip((0, *ends[:-1]), ends, strict=True):
        rows = order[start:end]
        last[rows] = rows[_last_in_part(dealt[start:end])]
    return last


def _last_in_part(hashes: HashArray) -> Slots:
    last = np.empty(len(hashes), np.int64)
    shift = np.uint64(64 - (4 * len(hashes) | 1).bit_length())
    cells = np.empty(1 << (64 - int(shift)), np.int32)
    going, scattered = np.arange(len(hashes), dtype=np.int32), hashes * _ODD
    while len(going):
        positions = scattered >> shift
        cells[positions] = going  # the last number of a cell stays
        found = cells[positions]
        is_same = hashes[found] == hashes[going]
        last[going[is_same]] = found[is_same]
        going, scattered = going[~is_same], scattered[~is_same] * _ODD
    return last


def _values_of(block: ColumnBlock) -> pa.RecordBatch:
    return _batch({}, len(block)) if block.values is None else block.values


def _joined(batches: Sequence[pa.RecordBatch], rows: Slots | None = None) -> pa.RecordBatch:
    """Concatenate batches; a column that a batch does not have is null there.

    Args:
        rows: Rows of the result; `None` for all. Columns are made one by one, so their memory is used again.
    """
    names: dict[str, TypedColumns] = {}
    found: list[dict[tuple[str, pa.DataType], pa.Array]] = []
    for batch in batches:
        found.append({})
        for field, column in zip(batch.schema, batch.columns, strict=True):
            name = plain_name(field.name, field.type)
            names.setdefault(name, TypedColumns(name)).of(field.type)
            found[-1].setdefault((name, field.type), column)
    chosen = None if rows is None else pa.array(rows)
    columns = {}
    for name, typed in names.items():
        for label, own in typed.by_label().items():
            joined = pa.concat_arrays(
                [
                    known[name, own.kind] if (name, own.kind) in known else pa.nulls(batch.num_rows, own.kind)
                    for known, batch in zip(found, batches, strict=True)
                ]
            )
            columns[label] = joined if chosen is None else joined.take(chosen)
    return _batch(columns, sum(batch.num_rows for batch in batches) if rows is None else len(rows))


def _bits(column: pa.Array) -> pa.Array:
    """Return a column that Arrow can compare: floats become their canonical bits, so NaN equals NaN."""
    return column.view(f"int{column.type.bit_width}") if kinds.is_floating(column.type) else column


def _taken(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    chosen = pa.array(rows)
    return _batch({name: batch.column(name).take(chosen) for name in batch.schema.names}, len(rows))


def _batch(columns: dict[str, pa.Array], rows: int = 0) -> pa.RecordBatch:
    """Make a batch of columns, or a batch of `rows` rows without columns."""
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
