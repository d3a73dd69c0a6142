"""Keys of rows that are merged into a table: the last row of each key, and rows with one of these keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.errors import ConfigurationError

_ROW: Final = "__penstock_row"


def checked_columns(name: str, value: Any) -> tuple[str, ...]:
    """Check a setting that lists columns.

    Raises:
        ConfigurationError: It is no list of distinct names.
    """
    columns = tuple(value)
    if isinstance(value, str) or len(set(columns)) < len(columns) or not all(columns):
        msg = f"{name}={value!r} is not allowed: give a list of distinct column names"
        raise ConfigurationError(msg)
    return columns


def checked_key(key: Any, change_kind: str | None) -> tuple[str, ...]:
    """Check the settings `key` and `change_kind` of a sink.

    Raises:
        ConfigurationError: The key is no list of columns, or the kind of changes needs another key.
    """
    columns = checked_columns("key", key)
    if change_kind is not None and (not columns or change_kind in columns):
        msg = (
            f"change_kind={change_kind!r} needs key=, which must not contain this column: a change applies "
            "to the row of a key"
        )
        raise ConfigurationError(msg)
    return columns


def last_of_each(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    """Keep the last row of each key.

    Example:
        >>> last_of_each(pa.table({"id": [1, 2, 1], "state": ["new", "new", "paid"]}), ["id"]).to_pylist()
        [{'id': 1, 'state': 'paid'}, {'id': 2, 'state': 'new'}]
    """
    keys = [comparable(rows.column(name)) for name in key]
    numbered = pa.table([*keys, pa.array(np.arange(rows.num_rows))], names=[*key, _ROW])
    last = numbered.group_by(list(key), use_threads=False).aggregate([(_ROW, "max")])
    return rows.take(last.column(f"{_ROW}_max"))


def comparable(keys: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace -0.0 by 0.0, and each NaN by the same bits, because a merge finds the same row for them."""
    if not kinds.is_floating(keys.type):
        return keys
    return pc.if_else(
        pc.is_nan(keys), pa.scalar(math.nan, keys.type), pc.add(keys, pa.scalar(0.0, keys.type))
    )


class KeySet:
    """The keys of rows, which may have several columns.

    Each value in a column of the key is replaced by its index among the distinct values of the column. These
    indexes are combined column by column. So any type of column will do, and the numbers stay small.
    """

    def __init__(self, rows: pa.Table, key: Sequence[str]) -> None:
        self.key = tuple(key)
        self.rows = rows.select(list(key))
        self._values = [pc.unique(comparable(rows.column(name))) for name in key]
        self._codes: list[pa.Array] = []
        codes = None
        for place, name in enumerate(key):
            codes = self._combined(codes, rows.column(name), place)
            found = pc.unique(codes)
            self._codes.append(found)
            codes = pc.index_in(codes, value_set=found)

    def contains(self, rows: pa.Table) -> pa.ChunkedArray:
        """Whether the key of each row is in the set; a key with a null never is."""
        codes = None
        for place, name in enumerate(self.key):
            codes = self._combined(codes, rows.column(name), place)
            codes = pc.index_in(codes, value_set=self._codes[place])
        assert codes is not None, "a key has columns"
        return pc.is_valid(codes)

    def _combined(
        self, before: pa.ChunkedArray | None, column: pa.ChunkedArray, place: int
    ) -> pa.ChunkedArray:
        values = self._values[place]
        numbers = pc.index_in(comparable(column), value_set=values, skip_nulls=True).cast(pa.int64())
        if before is None:
            return numbers
        return pc.add(pc.multiply(before.cast(pa.int64()), pa.scalar(len(values), pa.int64())), numbers)
