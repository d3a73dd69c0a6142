"""`OutputColumns`: names and order of the columns of a join's output.

The left columns come before the right columns. On each side the columns of the key come first. If both sides
have the same key columns, these appear once. A right column with the name of a left column gets a suffix.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.joins.interval_join import LEFT, RIGHT, Side
from penstock.runtime.record.column_key import ColumnKey

#: Columns by their names in their own stream.
Columns = Mapping[str, pa.Array]


def columns_of(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return dict(zip(batch.schema.names, batch.columns, strict=True))


class OutputColumns:
    """Puts the columns of both sides together.

    Args:
        keys: Keys of both sides.
        suffix: Appended to the name of a right column if the left side has the same name.

    Example:
        >>> output = OutputColumns((ColumnKey(("k",)), ColumnKey(("k",))), "_right")
        >>> left, right = {"k": pa.array([1]), "v": pa.array([2])}, {"k": pa.array([1]), "v": pa.array([3])}
        >>> output.pairs(left, right).to_pydict()
        {'k': [1], 'v': [2], 'v_right': [3]}
        >>> output.alone(1, {"k": pa.array([1]), "v": pa.array([3])}, {"v": pa.int64()}).to_pydict()
        {'k': [1], 'v': [None], 'v_right': [3]}
    """

    def __init__(self, keys: tuple[ColumnKey, ColumnKey], suffix: str) -> None:
        self._keys = keys
        self._suffix = suffix
        self.shares_key = keys[LEFT].names == keys[RIGHT].names

    def pairs(self, left: Columns, right: Columns) -> pa.RecordBatch:
        """The output of pairs: row n of `left` with row n of `right`."""
        left_names, right_names = list(left), list(right)
        if self.shares_key:
            right_names = [name for name in right_names if name not in self._keys[RIGHT].names]
        else:
            right_names = self._ordered(RIGHT, right_names)
        arrays = [left[name] for name in self._ordered(LEFT, left_names)]
        arrays += [right[name] for name in right_names]
        names = [*self._ordered(LEFT, left_names), *self._renamed(right_names, left_names)]
        return pa.RecordBatch.from_arrays(arrays, names=names)

    def only(self, left: Columns) -> pa.RecordBatch:
        """The output of left rows in a join that emits no right columns."""
        return pa.RecordBatch.from_arrays(
            [left[name] for name in self._ordered(LEFT, left)], names=self._ordered(LEFT, left)
        )

    def alone(self, side: Side, columns: Columns, others: Mapping[str, pa.DataType]) -> pa.RecordBatch:
        """The output of rows without a partner; the columns of the other side (`others`) are null."""
        rows = len(next(iter(columns.values())))
        nulls = {name: pa.nulls(rows, kind) for name, kind in others.items()}
        if self.shares_key:
            nulls |= {name: columns[name] for name in self._keys[side].names}
        return self.pairs(columns, nulls) if side == LEFT else self.pairs(nulls, columns)

    def _ordered(self, side: Side, names: Iterable[str]) -> list[str]:
        key = self._keys[side].names
        return [*(name for name in key if name in names), *(name for name in names if name not in key)]

    def _renamed(self, right: Iterable[str], left: Iterable[str]) -> list[str]:
        taken = set(left)
        renamed = [f"{name}{self._suffix}" if name in taken else name for name in right]
        twice = [name for at, name in enumerate(renamed) if name in taken or name in renamed[:at]]
        if twice:
            msg = (
                f"the output would have the column {twice[0]!r} twice: with the suffix {self._suffix!r} a "
                "right column gets the name of another column; rename one with map_batches, or give join "
                "another suffix"
            )
            raise PenstockError(msg)
        return renamed
