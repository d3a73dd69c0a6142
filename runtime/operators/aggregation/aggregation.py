"""`Aggregation`: several aggregate functions over the same keys, and the accumulators of all keys.

A batch goes two steps. `reduced` makes of it one row a key, by pyarrow's `group_by`, in the columns of
*parts* (`total:sum`). `merge` finds the slots of these keys and merges the parts into the table's columns.
The parts of a combiner in front of the exchange come in the same form. Several of its batches may have been
put together on the way. Then a key occurs a few times, and its rows are merged in rounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.functions import (
    ColumnAggregate,
    CountDistinct,
    Reduction,
    SumOverflowError,
)
from penstock.runtime.state.columns.column_blocks import key_list
from penstock.runtime.state.columns.column_table import ColumnTable
from penstock.runtime.state.columns.growing_column import GrowingColumn, Slots

#: Metadata of the schema of a batch that was reduced in front of the exchange.
REDUCED: Final = {b"penstock": b"reduced"}

#: Slots that there are for each one that was touched: with more, clearing marks costs more than a sort.
_SPARSE: Final = 512

#: Between the name of a result and the name of its part.
OF: Final = ":"


def is_reduced(batch: pa.RecordBatch) -> bool:
    """Whether a batch holds parts, and not records."""
    return bool(batch.schema.metadata == REDUCED)


class Aggregation:
    """The functions of one aggregation.

    Args:
        key_names: The key's columns.
        functions: By the name of their result.

    Example:
        >>> from penstock.runtime.operators.aggregation.functions import Count, Sum
        >>> aggregation, table = Aggregation(["k"], {"total": Sum("v"), "n": Count()}), ColumnTable("t", 128)
        >>> for values in ([1, 2, 3], [10, 20, 30]):
        ...     keys, inputs = {"k": pa.array([7, 7, 8])}, {"v": pa.array(values)}
        ...     slots = aggregation.merge(table, aggregation.reduced(keys, inputs))
        >>> {name: column.to_pylist() for name, column in aggregation.results(table, slots).items()}
        {'total': [33, 33], 'n': [4, 2]}
    """

    def __init__(self, key_names: Sequence[str], functions: Mapping[str, ColumnAggregate]) -> None:
        self.key_names = tuple(key_names)
        self._functions = dict(functions)

    @property
    def inputs(self) -> tuple[str, ...]:
        """The columns that the functions look at, each once."""
        return tuple(dict.fromkeys(f.column for f in self._functions.values() if f.column))

    @property
    def combines(self) -> bool:
        """Whether all functions may do a part of the work in front of the exchange."""
        return all(function.combines for function in self._functions.values())

    def reduced(self, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """One row for each key of a batch: the key's columns, then the parts.

        Args:
            keys: The key's columns in canonical form, by name.
            inputs: The columns that the functions look at, by name.

        Raises:
            PenstockError: A function can't work on its column.
            SumOverflowError: A sum does not fit 64 bits; names the key.
        """
        some_key = next(iter(keys.values()))
        prepared = {
            name: function.prepared(inputs[function.column] if function.column else some_key)
            for name, function in self._functions.items()
        }
        reductions = {name: f.reductions(prepared[name]) for name, f in self._functions.items()}
        flat = [reduction for some in reductions.values() for reduction in some]
        key_columns, results = _group_by(list(keys.values()), flat)
        columns: dict[str, pa.Array] = dict(zip(keys, key_columns, strict=True))
        left = iter(results)
        for name, function in self._functions.items():
            own = [next(left) for _ in reductions[name]]
            try:
                parts = function.reduced(prepared[name], own)
            except SumOverflowError as error:
                raise self._with_key(error, columns) from error
            kinds = function.parts(prepared[name].type)
            columns |= {f"{name}{OF}{part}": _typed(array, kinds[part]) for part, array in parts.items()}
        return _batch_of(columns)

    def merge(
        self, table: ColumnTable, reduced: pa.RecordBatch, extra: Mapping[str, pa.Array] | None = None
    ) -> Slots:
        """Merge reduced rows into a table; gives the slots that were touched, each once.

        Args:
            table: The accumulators.
            reduced: As `reduced` gives it; columns that are no part of a key or a function do not matter.
            extra: Parts of the key that do not decide its key group.

        Raises:
            SumOverflowError: A sum does not fit 64 bits; names the key.
            StateMismatchError: A column is of another type than in the state.
        """
        columns = dict(zip(reduced.schema.names, reduced.columns, strict=True))
        slots = table.slots_of({name: columns[name] for name in self.key_names}, extra)
        touched = slots
        for rows in _rounds(slots):
            if rows is None:
                self._merge_once(table, slots, columns)
            else:
                chosen = pa.array(rows)
                some = {name: column.take(chosen) for name, column in columns.items()}
                self._merge_once(table, slots[rows], some)
                touched = np.unique(slots)
        table.note_changed(touched)
        return touched

    @property
    def distinct(self) -> tuple[str, ...]:
        """Results that count different values."""
        return tuple(name for name, f in self._functions.items() if isinstance(f, CountDistinct))

    def merge_distinct(
        self,
        table: ColumnTable,
        name: str,
        pairs: ColumnTable,
        keys: Mapping[str, pa.Array],
        inputs: Mapping[str, pa.Array],
    ) -> None:
        """Count the values of a batch that a key has not had before; the keys are in the table already.

        Args:
            table: The accumulators.
            name: One of `distinct`.
            pairs: The pairs of key and value so far.
            keys: The key's columns of the batch.
            inputs: The columns that the functions look at.
        """
        function = self._functions[name]
        assert isinstance(function, CountDistinct), f"{name} is {function}"
        table.column(f"{name}{OF}count", pa.int64())
        values = function.prepared(inputs[function.column])
        valid = values.is_valid()
        found, _ = _group_by([*(column.filter(valid) for column in keys.values()), values.filter(valid)], [])
        of_keys = dict(zip(keys, found, strict=False))
        new = pa.array(pairs.insert(of_keys, {function.column + OF: found[-1]}))
        slots = table.slots_of({part: column.take(new) for part, column in of_keys.items()})
        function.add(self._state(table, name, {}), slots)

    def parts(self, table: ColumnTable, slots: Slots) -> pa.RecordBatch:
        """What the accumulators of some slots hold, in the form of `reduced`."""
        keys, values = table.keys(slots), table.values(slots)
        return _batch_of(
            dict(
                zip(
                    (*keys.schema.names, *values.schema.names),
                    (*keys.columns, *values.columns),
                    strict=True,
                )
            )
        )

    def results(self, table: ColumnTable, slots: Slots) -> dict[str, pa.Array]:
        """What each function gives for some slots, by name."""
        return {
            name: function.result(self._state(table, name, {}), slots)
            for name, function in self._functions.items()
        }

    def _merge_once(self, table: ColumnTable, slots: Slots, columns: Mapping[str, pa.Array]) -> None:
        for name, function in self._functions.items():
            start = len(name) + len(OF)
            parts = {full[start:]: column for full, column in columns.items() if full.startswith(name + OF)}
            state = self._state(table, name, parts)
            try:
                function.merge(state, slots, parts)
            except SumOverflowError as error:
                raise self._with_key(error, columns) from error

    def _state(
        self, table: ColumnTable, name: str, parts: Mapping[str, pa.Array]
    ) -> dict[str, GrowingColumn]:
        """The columns of a function's parts; new ones are of the type that the parts have."""
        for part, array in parts.items():
            table.column(f"{name}{OF}{part}", array.type)
        start = len(name) + len(OF)
        return {full[start:]: column for full, column in table.columns.items() if full.startswith(name + OF)}

    def _with_key(self, error: SumOverflowError, columns: Mapping[str, pa.Array]) -> PenstockError:
        (key,) = key_list(_batch_of({k: columns[k].slice(error.position, 1) for k in self.key_names}))
        return SumOverflowError(f"of key {key!r:.100}: {error}", error.position)


def _group_by(
    keys: Sequence[pa.Array], reductions: Sequence[Reduction]
) -> tuple[list[pa.Array], list[pa.Array]]:
    """The distinct keys, and of each reduction the value for each of them."""
    names = [f"k{number}" for number in range(len(keys))]
    inputs = [f"v{number}" for number in range(len(reductions))]
    table = pa.table([*keys, *(reduction.column for reduction in reductions)], names=[*names, *inputs])
    wanted: list[Any] = [
        (name, reduction.function, reduction.options)
        for name, reduction in zip(inputs, reductions, strict=True)
    ]
    grouped = table.group_by(names, use_threads=False).aggregate(wanted)
    results = [
        _only_chunk(grouped.column(f"{name}_{reduction.function}"))
        for name, reduction in zip(inputs, reductions, strict=True)
    ]
    return [_only_chunk(grouped.column(name)) for name in names], results


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A part in its type; pyarrow makes numbers of what has no type."""
    return pa.nulls(len(column)) if pa.types.is_null(kind) else column


def _only_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _rounds(slots: Slots) -> Iterator[Slots | None]:
    """Rows in rounds in which no slot occurs twice, in order; `None` for all rows at once."""
    if _are_different(slots):
        yield None
        return
    order = np.argsort(slots, kind="stable")
    ordered = slots[order]
    begins = np.ones(len(slots), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(begins)
    rank = np.arange(len(slots)) - np.repeat(starts, np.diff(np.append(starts, len(slots))))
    for number in range(int(rank.max()) + 1):
        yield order[rank == number]


def _are_different(slots: Slots) -> bool:
    """Whether no slot occurs twice; a mark for each slot that there is costs a tenth of a sort."""
    end = int(slots.max(initial=-1)) + 1
    if end > _SPARSE * len(slots):
        ordered = np.sort(slots)
        return bool((ordered[1:] != ordered[:-1]).all())
    seen = np.zeros(end, np.bool_)
    seen[slots] = True
    return int(np.count_nonzero(seen)) == len(slots)


def _batch_of(columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    schema = pa.schema([(name, column.type) for name, column in columns.items()])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)
