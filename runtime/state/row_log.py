"""`RowLog`: keyed state in columns whose keys have many rows each, ordered by arrival and found by time.

A join keeps the rows of each side until no row of the other side can match them. A row is added once, found
by key and time, flagged at most once, and deleted when event time has passed it. `ColumnTable` would look up
each row before it adds it. This class appends instead.

**Ring.** All columns have one capacity, a power of two. The n-th row is in slot `n & mask`. Rows are deleted
roughly in the order of their arrival, so the first live row moves ahead and frees slots. A full ring is
rebuilt. The live rows move to the front, and the capacity doubles if they need more than three quarters of
it. So a row with a time far ahead, which blocks the first slot, costs rebuilds, but not unlimited memory. A
smaller ring is faster, because the first access to new memory costs more than the row.

**Cells.** Hash, time, previous row of the chain, and number of a row share one cell of 32 bytes. A search
reads rows in random order, so a row costs one cache miss instead of four.

**Chains.** The rows whose hashes share some bits form a chain, the newest first. A search walks the chains of
all its keys together, one row each per step. It compares hash and time in arrays, then the keys of the hits.
A chain ends at the first row that has left the ring. A search first links the rows that came since the last
one. So rows that are only read by time are never linked. A step has a fixed cost, however few keys are left,
and a key may have a million rows. So after `_MOST_STEPS` the remaining keys are searched in a sorted copy of
their rows.

**Time.** A segment is a run of slots. For each segment the log has the earliest time of its live rows. A
search for rows up to a moment reads only the segments that have such rows.

**Snapshots.** The key of a row in state is its own key and a number. The number grows with each row, and is
never used to compute the key group. So blocks of a `ColumnTable` and of a log have one format
(`keyed_chunk.py`), and are merged, restored and redistributed in the same way. A row that was added and
deleted between two snapshots leaves no trace. Restored rows come from a `ColumnTable` (`fill`).

No two live rows of a key have the same number: the next number is greater than all restored numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.state.column_table import ColumnTable, have_unique_hashes
from penstock.runtime.state.keyed_chunk import ColumnBlock
from penstock.runtime.state.stable_hash import HashArray
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.typed_columns import GrowingColumn, Slots, TypedColumns, alike, plain_name

#: Event times in microseconds.
Moments = NDArray[np.int64]

#: The last part of the key in state: the row's number.
NUMBER: Final = ":row"

#: The row's event time in state, in microseconds.
TIME: Final = ":time"

_LEAST: Final = 1 << 10

#: Slots of a segment.
_SEGMENT: Final = 1 << 12

#: Rows of a chain that a search examines before it sorts.
_MOST_STEPS: Final = 128

#: Rounds in which rows of one chain are linked one by one before they are sorted.
_MOST_ROUNDS: Final = 4

#: Rows that are linked together; their chains stay in the processor's cache.
_LINKED_AT_ONCE: Final = 1 << 14

_FAR: Final = np.iinfo(np.int64).max

#: Columns of the cells.
_HASH, _TIME, _PREVIOUS, _NUMBER = range(4)


class RowLog:
    """Rows by key and event time.

    Example:
        >>> log = RowLog("left", 128)
        >>> keys = {"k": pa.array(["a", "b", "a"])}
        >>> slots = log.append(keys, np.array([10, 20, 30]), {"v": pa.array([1, 2, 3])})
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
        self._tracks = tracks_changes
        self.clear()

    def clear(self) -> None:
        self._keys: dict[str, TypedColumns] = {}
        self._columns: dict[str, GrowingColumn] = {}
        #: Columns that may have a null in a live row.
        self._with_nulls: set[str] = set()
        self._deleted: list[ColumnBlock] = []
        self._length = 0
        self._next_number = 0
        self._allocate(_LEAST)

    def _allocate(self, capacity: int) -> None:
        """Make the arrays of an empty ring; the columns keep theirs."""
        self._mask = capacity - 1
        self._first = self._end = 0
        self._cells: NDArray[np.int64] = np.empty((capacity, 4), np.int64)
        self._hashes: HashArray = self._cells.view(np.uint64)[:, _HASH]
        self.times: Moments = self._cells[:, _TIME]
        self._previous: NDArray[np.int64] = self._cells[:, _PREVIOUS]
        self._numbers: NDArray[np.int64] = self._cells[:, _NUMBER]
        self._is_live: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        self._is_saved: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        self._is_changed: NDArray[np.bool_] = np.zeros(capacity, np.bool_)
        #: The newest row of each chain, by its position; empty before the first search.
        self._newest: NDArray[np.int64] = np.empty(0, np.int64)
        #: Rows up to this position are in chains.
        self._linked = 0
        self._earliest: Moments = np.full(max(1, capacity // _SEGMENT), _FAR, np.int64)

    def __len__(self) -> int:
        return self._length

    @property
    def columns(self) -> Mapping[str, GrowingColumn]:
        """Values by slot; after an append or a fill the slots of earlier rows may have changed."""
        return self._columns

    @property
    def all_slots(self) -> Slots:
        return np.flatnonzero(self._is_live)

    # -- rows --------------------------------------------------------------------------------------------

    def append(
        self,
        keys: Mapping[str, pa.Array],
        times: Moments,
        values: Mapping[str, pa.Array],
        hashes: HashArray | None = None,
    ) -> Slots:
        """Add rows and report them as changed; earlier slots are invalid afterwards.

        Args:
            keys: Columns of the key in canonical form, of the same names in every call.
            times: Event times in microseconds.
            values: Other columns. A column that is missing here is null in these rows.
            hashes: `key_hashes` of the keys, if they are known.
        """
        hashes = key_hashes(list(keys.values())) if hashes is None else hashes
        numbers = np.arange(self._next_number, self._next_number + len(times))
        return self._put(keys, times, values, hashes, numbers, is_changed=self._tracks, is_saved=False)

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
    ) -> Slots:
        self._make_room(len(times))
        slots: Slots = np.arange(self._end, self._end + len(times)) & self._mask
        if not self._keys:
            self._keys = {name: TypedColumns(name) for name in keys}
            for typed in self._keys.values():
                typed.reserve(len(self.times))
        for name, value in values.items():
            self.column(name, value.type)
        self._with_nulls |= self._columns.keys() - values.keys()
        self._with_nulls |= {name for name, value in values.items() if value.null_count}
        for at, some in self._spans(len(times)):
            for name, part in keys.items():
                self._keys[name].put(at, part[some])
            for name, column in self._columns.items():
                if name in values:
                    column.put(at, values[name][some])
                else:
                    column.clear(at)
            self._hashes[at], self.times[at], self._numbers[at] = hashes[some], times[some], numbers[some]
        self._is_live[slots], self._is_saved[slots], self._is_changed[slots] = True, is_saved, is_changed
        np.minimum.at(self._earliest, slots // _SEGMENT, times)
        self._end += len(times)
        self._length += len(times)
        self._next_number = max(self._next_number, int(numbers.max(initial=-1)) + 1)
        return slots

    def _spans(self, rows: int) -> Iterator[tuple[slice, slice]]:
        """The next slots, and the rows for them; two pairs where the ring wraps around."""
        start = self._end & self._mask
        fit = min(rows, self._mask + 1 - start)
        yield slice(start, start + fit), slice(0, fit)
        if fit < rows:
            yield slice(0, rows - fit), slice(fit, rows)

    def column(self, name: str, kind: pa.DataType) -> GrowingColumn:
        column = self._columns.get(name)
        if column is None:
            column = self._columns[name] = GrowingColumn(name, kind)
            column.reserve(len(self.times))
            if self._length:
                self._with_nulls.add(name)
        column.adopt(kind)
        return column

    def note_changed(self, slots: Slots) -> None:
        """Report values that were changed in place; unreported changes are in no snapshot."""
        if self._tracks:
            self._is_changed[slots] = True

    def delete(self, slots: Slots) -> None:
        """Delete rows; each slot occurs once and is live."""
        if not len(slots):
            return
        saved = slots[self._is_saved[slots]]
        if len(saved):
            self._deleted += [self._block(saved[some], deleted=True) for some in self.alike(saved)]
        self._is_live[slots] = self._is_changed[slots] = False
        for column in self._columns.values():
            if column.is_object:
                column.clear(slots)
        self._length -= len(slots)
        touched = np.zeros(len(self._earliest), np.bool_)
        touched[slots // _SEGMENT] = True
        segments = np.flatnonzero(touched)
        live, times = self._segments(self._is_live, segments), self._segments(self.times, segments)
        self._earliest[segments] = np.where(live, times, _FAR).min(axis=1)
        self._move_first()

    def _move_first(self) -> None:
        """Move the first position to the next live row."""
        while self._first < self._end:
            start = self._first & self._mask
            run = self._is_live[start : min(start + self._end - self._first, self._mask + 1)]
            ahead = int(run.argmax())
            if run[ahead]:
                self._first += ahead
                return
            self._first += len(run)

    def until(self, moment: int) -> Slots:
        """The rows with times up to a moment, by time and then by arrival."""
        segments = np.flatnonzero(self._earliest <= moment)
        live, times = self._segments(self._is_live, segments), self._segments(self.times, segments)
        found = np.flatnonzero(live & (times <= moment))
        slots: Slots = segments.take(found // _SEGMENT) * _SEGMENT + found % _SEGMENT
        moments = self.times[slots]
        if (moments[1:] > moments[:-1]).all():
            return slots
        return slots[np.lexsort((self._numbers[slots], moments))]

    def _segments(self, array: NDArray[Any], segments: Slots) -> NDArray[Any]:
        return array.reshape(len(self._earliest), -1)[segments]

    def keys(self, slots: Slots) -> pa.RecordBatch:
        """The keys of rows; their parts must have one type in each column."""
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
            Places in `keys` and slots of the matching rows, by place and then by arrival.
        """
        if not self._length:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        hashes = key_hashes(list(keys.values())) if hashes is None else hashes
        self._link_new()
        rows, positions = self._walk(hashes, earliest, latest)
        slots = positions & self._mask
        if not (len(self._keys) == 1 and self._are_exact(keys)):
            same = np.ones(len(rows), np.bool_)
            for typed, part in zip(self._keys.values(), keys.values(), strict=True):
                same &= typed.equals_any(slots, part.take(pa.array(rows)))
            rows, slots = rows[same], slots[same]
        order = np.argsort(rows, kind="stable")
        return rows[order], slots[order]

    def _are_exact(self, keys: Mapping[str, pa.Array]) -> bool:
        """Whether equal hashes mean equal keys, here and in the state."""
        (typed,) = self._keys.values()
        is_one_type = len(typed.all) == 1 and have_unique_hashes(
            {"": typed.all[0].take(np.empty(0, np.int64))}
        )
        return is_one_type and have_unique_hashes(keys) and not any(part.null_count for part in keys.values())

    def _walk(self, hashes: HashArray, earliest: Moments, latest: Moments) -> tuple[Slots, Slots]:
        """Walk the chains of all hashes together; return pairs of a row of `hashes` and a position.

        Each step yields a run of pairs in order of the rows, oldest step first. So a stable sort by row only
        merges runs, and leaves the pairs of each row in order of arrival.
        """
        found_rows, found_positions = [], []
        wanted = hashes.view(np.int64)
        rows, at = np.arange(len(hashes)), self._newest.take(self._chains(hashes))
        has_holes = self._length < self._end - self._first
        for _ in range(_MOST_STEPS):
            going = np.flatnonzero(at >= self._first)
            if len(going) < len(rows):
                rows, at, wanted = rows.take(going), at.take(going), wanted.take(going)
                earliest, latest = earliest.take(going), latest.take(going)
            if not len(rows):
                break
            cells = self._cells.take(at & self._mask, axis=0)
            times = cells[:, _TIME]
            hit = np.flatnonzero((cells[:, _HASH] == wanted) & (times >= earliest) & (times <= latest))
            if has_holes:
                hit = hit[self._is_live.take(at[hit] & self._mask)]
            found_rows.append(rows.take(hit))
            found_positions.append(at.take(hit))
            at = cells[:, _PREVIOUS]
        else:
            here, there = self._find_sorted(wanted.view(np.uint64), earliest, latest, at)
            by_arrival = np.argsort(there)
            found_rows.append(rows[here[by_arrival]])
            found_positions.append(there[by_arrival])
        if not found_rows:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        return np.concatenate(found_rows[::-1]), np.concatenate(found_positions[::-1])

    def _find_sorted(
        self, hashes: HashArray, earliest: Moments, latest: Moments, newest: Slots
    ) -> tuple[Slots, Slots]:
        """Find rows up to the position `newest` of each hash, in a copy that is sorted by hash and time."""
        wanted = np.unique(hashes)
        positions = np.arange(self._first, self._end)
        slots = positions & self._mask
        chosen = np.flatnonzero(self._is_live[slots] & np.isin(self._hashes[slots], wanted))
        positions, slots = positions[chosen], slots[chosen]
        moments = np.unique(self.times[slots])
        # One number combines hash and time, so the order of numbers is the order by hash and time.
        base = np.int64(len(moments) + 1)
        numbers = np.searchsorted(wanted, self._hashes[slots]) * base + np.searchsorted(
            moments, self.times[slots]
        )
        order = np.argsort(numbers, kind="stable")
        numbers, positions = numbers[order], positions[order]
        of_hash = np.searchsorted(wanted, hashes) * base
        starts = np.searchsorted(numbers, of_hash + np.searchsorted(moments, earliest))
        ends = np.searchsorted(numbers, of_hash + np.searchsorted(moments, latest, side="right"))
        counts = np.maximum(ends - starts, 0)
        rows = np.repeat(np.arange(len(hashes)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        there = positions[np.repeat(starts, counts) + within]
        older = there <= newest[rows]
        return rows[older], there[older]

    def _chains(self, hashes: HashArray) -> Slots:
        """The chain of each hash, from higher bits than those that select the key group."""
        return (hashes >> np.uint64(16)).astype(np.int64) & (len(self._newest) - 1)

    def _link_new(self) -> None:
        """Put the rows that came since the last search into chains."""
        if not len(self._newest):
            self._newest = np.full(2 * len(self.times), -1, np.int64)
        for start in range(max(self._linked, self._first), self._end, _LINKED_AT_ONCE):
            self._link(np.arange(start, min(start + _LINKED_AT_ONCE, self._end)))
        self._linked = self._end

    def _link(self, positions: Slots) -> None:
        """Put rows at the front of their chains, in order of their positions."""
        chains = self._chains(self._hashes[positions & self._mask])
        for _ in range(_MOST_ROUNDS):
            before = self._newest.take(chains)
            self._newest[chains[::-1]] = positions[::-1]  # the last write wins: the chain's first row
            is_first = self._newest.take(chains) == positions
            if is_first.all():
                self._previous[positions & self._mask] = before
                return
            self._previous[positions[is_first] & self._mask] = before[is_first]
            positions, chains = positions[~is_first], chains[~is_first]
        if not len(positions):
            return
        order = np.argsort(chains, kind="stable")
        positions, chains = positions[order], chains[order]
        begins = np.ones(len(chains), np.bool_)
        begins[1:] = chains[1:] != chains[:-1]
        before = np.empty_like(positions)
        before[1:] = positions[:-1]
        before[begins] = self._newest[chains[begins]]
        self._previous[positions & self._mask] = before
        ends = np.append(begins[1:], True)
        self._newest[chains[ends]] = positions[ends]

    def _make_room(self, rows: int) -> None:
        capacity = self._mask + 1
        if self._end - self._first + rows <= capacity:
            return
        while 4 * (self._length + rows) > 3 * capacity:
            capacity *= 2
        self._rebuild(capacity)

    def _rebuild(self, capacity: int) -> None:
        slots = np.arange(self._first, self._end) & self._mask
        slots = slots[self._is_live[slots]]
        kept = {
            name: getattr(self, name).take(slots, axis=0)
            for name in ("_cells", "_is_live", "_is_saved", "_is_changed")
        }
        self._allocate(capacity)
        for name, array in kept.items():
            getattr(self, name)[: len(slots)] = array
        typed = [column for columns in self._keys.values() for column in columns.all]
        for columns in self._keys.values():
            columns.reserve(capacity)
        for column in (*typed, *self._columns.values()):
            column.reserve(capacity)
            values, valid = column.values[slots], column.valid[slots]
            column.clear(np.arange(len(column.valid)))
            column.values[: len(slots)], column.valid[: len(slots)] = values, valid
        self._end = len(slots)
        np.minimum.at(self._earliest, np.arange(self._end) // _SEGMENT, self.times[: self._end])

    # -- snapshots ---------------------------------------------------------------------------------------

    def mark_all_changed(self) -> None:
        self._is_changed |= self._is_live

    def take_changes(self) -> Iterator[ColumnBlock]:
        """Changes since the last call: deleted rows, then new and changed rows."""
        yield from _joined(self._deleted)
        self._deleted = []
        changed = np.flatnonzero(self._is_changed)
        if len(changed):
            numbers = self._numbers[changed]
            if (numbers[1:] < numbers[:-1]).any():
                changed = changed[np.argsort(numbers, kind="stable")]
            for some in self.alike(changed):
                yield self._block(changed[some])
            self._is_saved[changed], self._is_changed[changed] = True, False

    def alike(self, slots: Slots) -> list[Slots]:
        """Positions in `slots`, grouped so that the keys of each group have one type in every column."""
        return alike(list(self._keys.values()), slots)

    def _block(self, slots: Slots, *, deleted: bool = False) -> ColumnBlock:
        cells = self._cells.take(slots, axis=0)
        keys = self.keys(slots).append_column(NUMBER, pa.array(cells[:, _NUMBER].copy()))
        values = None
        if not deleted:
            values = _batch({TIME: pa.array(cells[:, _TIME].copy())} | dict(_items(self.values(slots))))
        hashes = cells.view(np.uint64)[:, _HASH]
        groups = (hashes % np.uint64(self._max_parallelism)).astype(np.uint16)
        return ColumnBlock(self.name, keys, groups, values, 1)

    def fill(self, table: ColumnTable) -> None:
        """Replace all rows by the restored rows of a table, in order of their numbers."""
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
    """One block for all deleted rows with keys of the same types: each watermark deletes only a few rows."""
    by_schema: dict[pa.Schema, list[ColumnBlock]] = {}
    for block in deleted:
        by_schema.setdefault(block.keys.schema, []).append(block)
    for blocks in by_schema.values():
        keys = pa.Table.from_batches([block.keys for block in blocks]).combine_chunks().to_batches()[0]
        groups = np.concatenate([block.key_groups for block in blocks])
        yield ColumnBlock(blocks[0].table, keys, groups, None, 1)
