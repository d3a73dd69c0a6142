"""`CombinedPanes`: the accumulators of windows, combined from the accumulators of their panes.

A *part* is a pane of a key within one window. The parts are sorted by window, key and pane. The values of all
parts are copied into columns, with one place per part. Then every second place of a key and window is merged
into the place before it, and dropped, until one place is left. So a window of n panes takes `log2(n)` steps,
and each step works on the columns of all keys and windows at once.

Only neighbours are merged, the earlier pane first. So sums of floats do not depend on the order of the slots,
which a restore changes.

`KeyNumbers` numbers the keys, so that the parts of a key are found without comparing keys in each window.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.operators.aggregation.column_aggregate import grown
from penstock.runtime.operators.aggregation.panes import Moments
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.typed_columns import GrowingColumn, Slots, TypedColumns, alike_in

#: Numbers of keys or of windows.
Numbers = NDArray[np.int64]

_MOST: Final = np.iinfo(np.int64).max


class CombinedPanes:
    """One row for each key and window of some parts, in the order of the windows.

    A row is a place in the columns, and is passed like a slot of a table.

    Args:
        table: The table with the accumulators of the panes. It must not change while this object is in use.
        slots: The slot of each part.
        panes: The pane of each part.
        numbers: The number of each part's key.
        ends: The end of each part's window.
    """

    def __init__(
        self, table: ColumnTable, slots: Slots, panes: Moments, numbers: Numbers, ends: Moments
    ) -> None:
        self._table = table
        self._windows, windows = np.unique(ends, return_inverse=True)
        self._keys = int(numbers.max()) + 1
        order = order_of_parts(windows, numbers, panes)
        self._slots, codes = slots[order], self._codes(windows, numbers)[order]
        self._begins = np.ones(len(order), np.bool_)
        self._begins[1:] = codes[1:] != codes[:-1]
        self.rows: Slots = np.flatnonzero(self._begins)
        self.ends: Moments = ends[order][self.rows]
        self._of_rows = codes[self.rows]
        self._key_slots = {name: self._with_precedence(typed) for name, typed in table.key_columns.items()}
        self._columns: dict[str, TypedColumns] = {}

    @property
    def columns(self) -> Mapping[str, TypedColumns]:
        return self._columns

    def column(self, name: str, kind: pa.DataType, *, many_types: bool = False) -> GrowingColumn:
        columns = self._columns.get(name)
        if columns is None:
            columns = self._columns[name] = TypedColumns(name)
            columns.reserve(len(self._slots))
        return columns.of(kind) if many_types else columns.only(kind)

    def alike(self, rows: Slots) -> list[Slots]:
        typed = self._table.key_columns.items()
        return alike_in([(columns, self._key_slots[name][rows]) for name, columns in typed], len(rows))

    def keys(self, rows: Slots) -> pa.RecordBatch:
        typed = self._table.key_columns.items()
        arrays = {name: columns.take(self._key_slots[name][rows]) for name, columns in typed}
        return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))

    def rows_of(self, numbers: Numbers, ends: Moments) -> Slots:
        """The rows of some keys and windows; each must exist."""
        codes = self._codes(np.searchsorted(self._windows, ends), numbers)
        rows: Slots = self.rows[np.searchsorted(self._of_rows, codes)]
        return rows

    def copy_values(self, names: Sequence[str]) -> None:
        """Copy these columns of the table, for all parts."""
        for name in names:
            typed = self._table.columns.get(name)
            for column in () if typed is None else typed.all:
                self.column(name, column.kind, many_types=True).put(slice(None), column.take(self._slots))

    def steps(self) -> Iterator[tuple[Slots, dict[str, pa.Array]]]:
        """Yield places, and the values that the caller must merge into them before the next step."""
        live, begins = np.arange(len(self._slots)), self._begins
        while len(live) > len(self.rows):
            places = np.arange(len(live))
            in_row = places - np.maximum.accumulate(np.where(begins, places, 0))
            is_odd = (in_row & 1).astype(np.bool_)
            later = np.flatnonzero(is_odd)
            yield live[later - 1], self._values(live[later])
            live, begins = live[~is_odd], begins[~is_odd]

    def _values(self, places: Slots) -> dict[str, pa.Array]:
        return {
            label: column.take(places)
            for columns in self._columns.values()
            for label, column in columns.by_label().items()
        }

    def _codes(self, windows: Numbers, numbers: Numbers) -> Numbers:
        """A number for each window and key; a table has fewer than 2**31 keys."""
        codes: Numbers = windows * self._keys + numbers
        return codes

    def _with_precedence(self, typed: TypedColumns) -> Slots:
        """Return a slot for each place, whose key has the type with precedence among the parts of its row."""
        if len(typed.all) == 1:
            return self._slots
        chosen = self._slots.copy()
        of_row = np.cumsum(self._begins) - 1
        best = np.lexsort((typed.precedence(self._slots), of_row))[self.rows]
        chosen[self.rows] = self._slots[best]
        return chosen


def order_of_parts(windows: Numbers, numbers: Numbers, panes: Moments) -> Slots:
    """Sort parts by window, key and pane; one sort of a combined number is faster than three.

    Example:
        >>> order_of_parts(np.array([1, 0, 0]), np.array([5, 5, 4]), np.array([10, 30, 20])).tolist()
        [2, 1, 0]
    """
    first, keys = int(panes.min()), int(numbers.max()) + 1
    span = int(panes.max()) - first + 1
    if span * keys * (int(windows.max()) + 1) > _MOST:
        return np.lexsort((panes, numbers, windows))
    return np.argsort((windows * keys + numbers) * span + (panes - first))


class KeyNumbers:
    """A number for each key, and the numbers of the slots of tables whose keys also have a pane.

    Example:
        >>> table, numbers = ColumnTable("counts", 1), KeyNumbers(["k"])
        >>> slots = table.slots_of({"k": pa.array(["a", "b", "a"])}, {":pane": pa.array([0, 0, 2])})
        >>> one, other, again = numbers.of(table, slots)
        >>> one == again != other
        np.True_
    """

    def __init__(self, key_names: Sequence[str]) -> None:
        self._key_names = tuple(key_names)
        self._table = ColumnTable("numbers of keys", 1, tracks_changes=False)
        #: For each table: one more than the number of each slot's key; 0 if it is unknown.
        self._of_slots: dict[str, Numbers] = {}

    def __len__(self) -> int:
        return len(self._table)

    def of(self, table: ColumnTable, slots: Slots) -> Numbers:
        known = grown(self._of_slots.get(table.name, np.zeros(0, np.int64)), slots)
        self._of_slots[table.name] = known
        unknown = slots[known[slots] == 0]
        for some in table.alike(unknown) if len(unknown) else ():
            keys = table.keys(unknown[some])
            own = {name: keys.column(name) for name in self._key_names}
            known[unknown[some]] = self._table.slots_of(own) + 1
        numbers: Numbers = known[slots] - 1
        return numbers

    def forget(self, table: ColumnTable, slots: Slots) -> None:
        """Forget the numbers of deleted slots."""
        known = self._of_slots.get(table.name)
        if known is not None:
            known[slots[slots < len(known)]] = 0

    def delete_unused(self, table: ColumnTable) -> None:
        """Delete the keys that no slot of this table has."""
        used = np.zeros(self._table.end + 1, np.bool_)
        used[self._of_slots.get(table.name, np.zeros(0, np.int64))] = True
        numbers = self._table.all_slots
        self._table.delete(numbers[~used[numbers + 1]])
