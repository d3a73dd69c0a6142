"""`ColumnChanges`: blocks of columns merged into one; for each key the newest word counts.

A large state is merged every few checkpoints, beside the task's own work. A table of keys would be made anew
for it, at the cost of some misses of the processor's cache for each row. So the rows of all blocks are first
dealt out by bits of their hashes, in parts that fit into the cache. In a part each row writes its number to a
cell that other bits choose. The last one stays: rows of one key find their newest one there. Rows that find a
row of another hash take part in the next round, with other bits.

Two keys of one hash are possible. So a row's key is compared with that of its newest one. Where any two
differ, a table does the work after all: that is next to never, and must be right. It also does the work where
keys have several types in one column (`typed_columns.py`), since 1 and 1.0 are one key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.state.columns.column_table import ColumnBlock, ColumnTable, with_extra
from penstock.runtime.state.columns.typed_columns import Slots, TypedColumns, plain_name
from penstock.runtime.state.stable_hash import HashArray
from penstock.runtime.state.stable_hash_arrays import key_hashes

#: Rows of a part, about; its cells and hashes stay in the processor's cache.
_PART: Final = 1 << 14

#: Bits of a hash at most that choose a part: the order of a column of 8 bits costs least.
_PART_BITS: Final = 8

#: Scatters a hash anew for the next round; any large odd number does.
_ODD: Final = np.uint64(0x9E3779B97F4A7C15)


class ColumnChanges:
    """Merged changes of one table; it holds all blocks until they are asked for."""

    def __init__(self, table: str) -> None:
        self._table = table
        self._blocks: list[ColumnBlock] = []

    def apply(self, block: ColumnBlock) -> None:
        if len(block):
            self._blocks.append(block)

    def blocks(self, *, with_deleted: bool = True) -> Iterator[ColumnBlock]:
        """The merged changes: deleted keys, then the others, sorted by key group.

        Raises:
            StateMismatchError: A column is of different types in two blocks.
        """
        if not self._blocks:
            return
        keys = _joined([block.keys for block in self._blocks])
        has_types = len(keys.schema.names) > self._blocks[-1].keys.num_columns
        newest = None if has_types else _newest(keys, self._blocks[-1].extra)
        if newest is None:
            yield from self._merged_by_table(with_deleted=with_deleted)
            return
        groups = np.concatenate([block.key_groups for block in self._blocks])
        values = _joined([_values_of(block) for block in self._blocks])
        is_deleted = np.repeat(
            [block.values is None for block in self._blocks], [len(block) for block in self._blocks]
        )
        newest = newest[np.argsort(groups[newest], kind="stable")]
        for deleted in (True, False) if with_deleted else (False,):
            rows = newest[is_deleted[newest] == deleted]
            if len(rows):
                chosen = None if deleted else _taken(values, rows)
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
    """The last row of each key; `None` where two keys have one hash."""
    names = keys.schema.names
    parts = dict(zip(names, keys.columns, strict=True))
    others = {name: parts.pop(name) for name in names[len(names) - extra :]}
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
        cells[positions] = going  # of several numbers for one cell the last one stays
        found = cells[positions]
        is_same = hashes[found] == hashes[going]
        last[going[is_same]] = found[is_same]
        going, scattered = going[~is_same], scattered[~is_same] * _ODD
    return last


def _values_of(block: ColumnBlock) -> pa.RecordBatch:
    return _of_columns({}, len(block)) if block.values is None else block.values


def _joined(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches one behind the other; a column that one of them does not have is null there."""
    names: dict[str, TypedColumns] = {}
    for batch in batches:
        for field in batch.schema:
            name = plain_name(field.name, field.type)
            names.setdefault(name, TypedColumns(name)).of(field.type)
    rows = sum(batch.num_rows for batch in batches)
    columns = {}
    for name, typed in names.items():
        for label, column in typed.by_label().items():
            arrays = [_as(batch, name, column.kind) for batch in batches]
            columns[label] = pa.concat_arrays(arrays)
    return _of_columns(columns, rows)


def _as(batch: pa.RecordBatch, name: str, kind: pa.DataType) -> pa.Array:
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if field.type.equals(kind) and plain_name(field.name, kind) == name:
            return column
    return pa.nulls(batch.num_rows, kind)


def _bits(column: pa.Array) -> pa.Array:
    """A column whose equal values are equal to Arrow, too: two NaN are not, but their canonical bits are."""
    return column.view(f"int{column.type.bit_width}") if kinds.is_floating(column.type) else column


def _taken(batch: pa.RecordBatch, rows: NDArray[np.int64]) -> pa.RecordBatch:
    chosen = pa.array(rows)
    names = batch.schema.names
    return _of_columns({name: batch.column(name).take(chosen) for name in names}, len(rows))


def _of_columns(columns: dict[str, pa.Array], rows: int) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
