"""What makes an aggregate function over columns of a user's `VectorizedAggregate`.

With `merge` it is a `PartialAggregate`: each batch is taken into fresh state, which is merged into that of
the keys. Without it it is a `RowAggregate`, which takes rows into the state of their keys.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.operators.aggregation.column_aggregate import (
    ColumnAggregate,
    PartialAggregate,
    Parts,
    Reduction,
    RowAggregate,
    State,
)
from penstock.runtime.operators.aggregation.vector_calls import VectorCalls
from penstock.runtime.operators.aggregation.vectorized_aggregate import VectorizedAggregate, has_merge
from penstock.runtime.state.columns.growing_column import Slots


def adapted(name: str, function: VectorizedAggregate) -> ColumnAggregate:
    """A user's function as one of columns.

    Args:
        name: Of its result, for messages.

    Raises:
        ConfigurationError: Its columns, its state or the values of new keys can't be meant.
    """
    calls = VectorCalls(name, function)
    return VectorsOfParts(calls) if has_merge(function) else VectorsOfRows(calls)


class _Vectors(ColumnAggregate):
    """What both kinds have in common: they look at columns of any types, and keep what was declared."""

    is_ordered = True

    def __init__(self, calls: VectorCalls) -> None:
        self._calls = calls

    def __repr__(self) -> str:
        return repr(self._calls)

    @property
    def columns(self) -> tuple[str, ...]:
        """Those that the user's function names."""
        return self._calls.columns

    def prepared(self, column: pa.Array) -> pa.Array:
        """Any columns will do."""
        return column

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The state as it was declared."""
        return self._calls.types

    def result(self, state: State, slots: Slots) -> pa.Array:
        """What the user's function gives."""
        return self._calls.result(state, slots)


class VectorsOfParts(_Vectors, PartialAggregate):
    """A user's function that has a `merge`."""

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """The rows of each key."""
        return [Reduction(pa.array(np.arange(len(column))), "list")]

    def reduced(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        """Fresh state that has taken in the rows of each key; null where all of them have nulls."""
        (rows,) = results
        keys = np.empty(len(column), np.int64)
        counts = rows.value_lengths().to_numpy(zero_copy_only=False)
        keys[rows.flatten().to_numpy(zero_copy_only=False)] = np.repeat(np.arange(len(rows)), counts)
        column, keys = _without_nulls(self._calls.columns, column, keys)
        is_empty = np.ones(len(rows), np.bool_)
        is_empty[keys] = False
        state = self._calls.fresh(len(rows))
        self._calls.update(state, column, keys)
        return {part: pa.array(array, mask=is_empty, from_pandas=False) for part, array in state.items()}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Merge where both have taken in rows, and copy where the state has not."""
        arrays = {part: state[part].arrays_of(parts[part]) for part in self._calls.types}
        valid = next(iter(arrays.values()))[1]
        had = next(iter(state.values())).valid[slots]
        new, both = valid & ~had, valid & had
        self._calls.store(state, slots[new], {part: array[new] for part, (array, _) in arrays.items()})
        if both.any():
            merged = self._calls.of_slots(state, slots[both])
            self._calls.merge(merged, {part: array[both] for part, (array, _) in arrays.items()})
            self._calls.store(state, slots[both], merged)


class VectorsOfRows(_Vectors, RowAggregate):
    """A user's function without a `merge`."""

    def add(self, state: State, slots: Slots, column: pa.Array) -> None:
        """Take the rows without nulls into the state of their keys."""
        column, slots = _without_nulls(self._calls.columns, column, slots)
        touched, keys = np.unique(slots, return_inverse=True)
        if not len(touched):
            return
        values = self._calls.of_slots(state, touched)
        self._calls.update(values, column, keys.astype(np.int64, copy=False))
        self._calls.store(state, touched, values)


def _without_nulls(columns: Sequence[str], column: pa.Array, keys: Slots) -> tuple[pa.Array, Slots]:
    """The rows in which no column is null; without columns all rows."""
    valid: pa.Array | None = None
    if len(columns) == 1:
        valid = column.is_valid()
    elif columns:
        for one in column.flatten():
            valid = one.is_valid() if valid is None else pc.and_(valid, one.is_valid())
    if valid is None or not len(valid) or pc.all(valid).as_py():
        return column, keys
    return column.filter(valid), keys[valid.to_numpy(zero_copy_only=False)]
