"""`ColumnLog`: keyed state in columns with many rows per key, ordered by arrival and found by time.

`RowRing` has the rows' hashes and times. This class adds the columns of keys and values. Rows are restored
from a `ColumnTable` (`fill`).

**Snapshots.** A row's key in state consists of its own key and its number. The number is never used to
compute the key group. So blocks of a `ColumnTable` and of a log have one format (`keyed_chunk.py`), and are
merged, restored and redistributed in the same way. A row that was added and deleted between two snapshots
leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow.types import is_null

from penstock.runtime.state.column_table import ColumnTable, have_unique_hashes
from penstock.runtime.state.keyed_chunk import ColumnBlock
from penstock.runtime.state.row_ring import Moments, RowRing
from penstock.runtime.state.stable_hash import HashArray
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.text_column import new_column
from penstock.runtime.state.typed_columns import GrowingColumn, Slots, TypedColumns, alike, plain_name

#: The last part of the key in state: the row's number.
NUMBER: Final = ":row"

#: The row's event time in state, in microseconds.
TIME: Final = ":time"


class ColumnLog(RowRing):
    """Rows by key and event time.

    Example:
        >>> log = ColumnLog("left", 128)
        >>> keys = {"k": pa.array(["a", "b", "a"])}
        >>> log.append(keys, np.array([10, 20, 30]), {"v": pa.array([1, 2, 3])})
        >>> probes, found = log.find({"k": pa.array(["a", "b"])}, np.array([0, 0]), np.array([30, 10]))
        >>> probes.tolist(), log.values(found).to_pydict()
        ([0, 0], {'v': [1, 3]})
        >>> log.delete(log.until(20))
        >>> len(log)
        1
    """

    def __init__(self, name: str, max_parallelism: int, *, tracks_changes: bool = True) -> None:
        self.name = name
        self._max_parallelism = max_parallelism
        super().__init__(tracks_changes=tracks_changes)

    def clear(self) -> None:
        self._keys: dict[str, TypedColumns] = {}
        self._columns: dict[str, GrowingColumn] = {}
        #: Columns that may have a null in a live row.
        self._with_nulls: set[str] = set()
        self._deleted: list[ColumnBlock] = []
        super().clear()

    @property
    def columns(self) -> Mapping[str, GrowingColumn]:
        """Values by slot; after an append or a fill the slots of earlier rows may have changed."""
        return self._columns

    # -- rows --------------------------------------------------------------------------------------------

    def append(
        self,
        keys: Mapping[str, pa.Array],
        times: Moments,
        values: Mapping[str, pa.Array],
        hashes: HashArray | None = None,
    ) -> None:
        """Add rows and report them as changed; earlier slots are invalid afterwards.

        Args:
            keys: Columns of the key in canonical form, with the same names in every call.
            times: Event times in microseconds.
            values: Other columns. A column that is missing here is null in these rows.
            hashes: `key_hashes` of the keys, if they are known.
        """
        hashes = key_hashes(list(keys.values())) if hashes is None else hashes
        numbers = self._new_numbers(len(times))
        self._put(keys, times, values, hashes, numbers, is_changed=self._tracks, is_saved=False)

    def _put(
        self,
        keys: Mapping[str, pa.Array],
        times: Moments,
        values: Mapping[str, pa.Array],
        hashes: HashArray,
        numbers: NDArray[np.int64],
        *,
        is_changed: bool | NDArray[np.bool_],
        is_saved: bool | NDArray[np.bool_],
    ) -> None:
        if not self._keys:
            self._keys = {name: TypedColumns(name) for name in keys}
            for typed in self._keys.values():
                typed.reserve(len(self.times))
        for name, value in values.items():
            self.column(name, value.type)
        self._with_nulls |= self._columns.keys() - values.keys()
        self._with_nulls |= {name for name, value in values.items() if value.null_count}
        for at, some in self._put_cells(times, hashes, numbers, is_changed=is_changed, is_saved=is_saved):
            for name, part in keys.items():
                self._keys[name].put(at, part[some])
            for name, column in self._columns.items():
                if name in values:
                    column.put(at, values[name][some])
                else:
                    column.clear(at)

    def column(self, name: str, kind: pa.DataType) -> GrowingColumn:
        column = self._columns.get(name)
        if column is None or (is_null(column.kind) and not is_null(kind)):
            column = self._columns[name] = new_column(name, kind)
            column.reserve(len(self.times))
            if self._length:
                self._with_nulls.add(name)
        column.adopt(kind)
        return column

    def delete(self, slots: Slots) -> None:
        """Delete rows; each slot occurs once and is live."""
        if not len(slots):
            return
        saved = slots[self._is_saved[slots]]
        if len(saved):
            self._deleted += [self._block(saved[some], deleted=True) for some in self.alike(saved)]
        for column in self._columns.values():
            if column.is_object:
                column.clear(slots)
        self._delete_cells(slots)

    def keys(self, slots: Slots) -> pa.RecordBatch:
        """The keys of rows; each column of the keys must have one type in these rows."""
        return pa.RecordBatch.from_arrays(
            [typed.take(slots) for typed in self._keys.values()], names=list(self._keys)
        )

    @property
    def key_types(self) -> dict[str, list[pa.DataType]]:
        """The types that the keys have had, by column."""
        return {name: [column.kind for column in typed.all] for name, typed in self._keys.items()}

    def values(self, slots: Slots) -> pa.RecordBatch:
        return _batch({name: self.value(name, slots) for name in self._columns}, len(slots))

    def value(self, name: str, slots: Slots) -> pa.Array:
        """One column of live rows."""
        return self._columns[name].take(slots, has_nulls=name in self._with_nulls)

    # -- search ------------------------------------------------------------------------------------------

    def find(
        self,
        keys: Mapping[str, pa.Array],
        earliest: Moments,
        latest: Moments,
        hashes: HashArray | None = None,
    ) -> tuple[Slots, Slots]:
        """Find the rows with the same key and a time between two moments, both included.

        Args:
            keys: Columns of keys in the order of this log's key columns; their names don't matter.
            earliest: First moment for each key, in microseconds.
            latest: Last moment for each key.
            hashes: `key_hashes` of the keys, if they are known.

        Returns:
            Indices into `keys` and slots of the matching rows, sorted by index, then by arrival.
        """
        hashes = key_hashes(list(keys.values())) if hashes is None else hashes
        rows, slots, _ = self._search(hashes, earliest, latest)
        if len(rows) and not (len(self._keys) == 1 and self._are_exact(keys)):
            same = np.ones(len(rows), np.bool_)
            for typed, part in zip(self._keys.values(), keys.values(), strict=True):
                same &= typed.equals_any(slots, part.take(pa.array(rows)))
            rows, slots = rows[same], slots[same]
        order = np.argsort(rows, kind="stable")
        return rows[order], slots[order]

    def _are_exact(self, keys: Mapping[str, pa.Array]) -> bool:
        """Whether equal hashes mean equal keys, in `keys` and in the state."""
        (typed,) = self._keys.values()
        is_one_type = len(typed.all) == 1 and have_unique_hashes(
            {"": typed.all[0].take(np.empty(0, np.int64))}
        )
        return is_one_type and have_unique_hashes(keys) and not any(part.null_count for part in keys.values())

    def _rebuild(self, capacity: int) -> Slots | slice:
        slots = super()._rebuild(capacity)
        for columns in self._keys.values():
            columns.move(slots, capacity)
        for column in self._columns.values():
            column.move(slots, capacity)
        return slots

    # -- snapshots ---------------------------------------------------------------------------------------

    def take_changes(self) -> Iterator[ColumnBlock]:
        """Changes since the last call: deleted rows, then new and changed rows."""
        yield from _joined(self._deleted)
        self._deleted = []
        changed = self._take_changed()
        for some in self.alike(changed) if len(changed) else ():
            yield self._block(changed[some])

    def alike(self, slots: Slots) -> list[Slots]:
        """Positions in `slots`, grouped so that the keys of each group have one type in every column."""
        return alike(list(self._keys.values()), slots)

    def _block(self, slots: Slots, *, deleted: bool = False) -> ColumnBlock:
        hashes, times, numbers = self._cells_of(slots)
        keys = self.keys(slots).append_column(NUMBER, pa.array(numbers))
        values = None
        if not deleted:
            values = _batch({TIME: pa.array(times)} | dict(_items(self.values(slots))))
        groups = (hashes % np.uint64(self._max_parallelism)).astype(np.uint16)
        return ColumnBlock(self.name, keys, groups, values, 1)

    def fill(self, table: ColumnTable) -> None:
        """Replace all rows by the restored rows of a table.

        Rows whose keys have the same types are added together, in order of their numbers.
        """
        self.clear()
        if not len(table):
            return
        slots = table.all_slots
        slots = slots[np.argsort(table.key_numbers(NUMBER, slots), kind="stable")]
        for some in table.alike(slots):
            chosen = slots[some]
            changed = table.are_changed(chosen)
            block = table.block(chosen)
            assert block.values is not None, "rows of a log have a time"
            keys, values = dict(_items(block.keys)), dict(_items(block.values))
            numbers = keys.pop(NUMBER).to_numpy()
            times = values.pop(TIME).to_numpy()
            values = {plain_name(label, value.type): value for label, value in values.items()}
            hashes = key_hashes(list(keys.values()))
            self._put(keys, times, values, hashes, numbers, is_changed=changed, is_saved=~changed)


def _items(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.Array]]:
    return zip(batch.schema.names, batch.columns, strict=True)


def _batch(columns: Mapping[str, pa.Array], rows: int = 0) -> pa.RecordBatch:
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _joined(deleted: Sequence[ColumnBlock]) -> Iterator[ColumnBlock]:
    """Join the blocks whose keys have the same types, because each watermark deletes only a few rows."""
    by_schema: dict[pa.Schema, list[ColumnBlock]] = {}
    for block in deleted:
        by_schema.setdefault(block.keys.schema, []).append(block)
    for blocks in by_schema.values():
        keys = pa.Table.from_batches([block.keys for block in blocks]).combine_chunks().to_batches()[0]
        groups = np.concatenate([block.key_groups for block in blocks])
        yield ColumnBlock(blocks[0].table, keys, groups, None, 1)
