"""`ColumnChanges`: blocks of columns merged into one; for each key the newest word counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.state.columns.column_blocks import ColumnBlock
from penstock.runtime.state.columns.column_table import ColumnTable


class ColumnChanges:
    """Merged changes of one table.

    Args:
        table: Its name.
    """

    def __init__(self, table: str) -> None:
        self._table = ColumnTable(table, 1, tracks_changes=False)
        self._is_deleted: NDArray[np.bool_] = np.zeros(0, np.bool_)

    def apply(self, block: ColumnBlock) -> None:
        """Add a block that is newer than all before."""
        slots = self._table.put(block)
        end = int(slots.max(initial=-1)) + 1
        if end > len(self._is_deleted):
            longer = np.zeros(2 * end, np.bool_)
            longer[: len(self._is_deleted)] = self._is_deleted
            self._is_deleted = longer
        self._is_deleted[slots] = block.values is None

    def blocks(self, *, with_deleted: bool = True) -> Iterator[ColumnBlock]:
        """The merged changes: deleted keys, then the others, sorted by key group."""
        slots = self._table.all_slots
        is_deleted = self._is_deleted[slots]
        for deleted in (True, False) if with_deleted else (False,):
            chosen = slots[is_deleted == deleted]
            if len(chosen):
                yield self._table.block(self._table.by_key_group(chosen), deleted=deleted)
