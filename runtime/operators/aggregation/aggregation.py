"""`Aggregation`: several aggregate functions over the same keys, and the accumulators of all keys.

A batch goes two steps. `partials` makes of it one row a key, by pyarrow's `group_by`, in the columns of
*parts* (`total:sum`). `merge` finds the slots of these keys and merges the parts into the table's columns.
The parts of a combiner in front of the exchange come in the same form. Several of its batches may have been
put together on the way. Then a key occurs a few times, and its rows are merged in rounds.

Where keys hardly repeat in a batch, `group_by` takes a third of the time and makes few rows of many no fewer.
Then `merge_each` finds the slot of each row first, and takes each row as parts of its own.

Functions that have no such step are given the rows of the batch behind it, when all keys have their slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.column_aggregate import (
    AggregateError,
    ColumnAggregate,
    PartialAggregate,
    RowAggregate,
)
from penstock.runtime.operators.aggregation.functions import Count
from penstock.runtime.operators.aggregation.grouping import (
    batch_of,
    distinct,
    filtered,
    group_by,
    rounds_of,
    taken,
)
from penstock.runtime.operators.aggregation.vectorized_aggregate import (
    AnyAggregate,
    VectorizedAggregate,
    adapted,
)
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.keyed_chunk import key_list
from penstock.runtime.state.typed_columns import GrowingColumn, Slots, plain_name

#: Metadata of the schema of a batch of partial results, made in front of the exchange.
PARTIAL: Final = {b"penstock": b"reduced"}

#: Between the name of a result and the name of its part.
OF: Final = ":"


class Results(NamedTuple):
    """Results of some slots: `places` among them, the key's columns, and a column for each result."""

    places: NDArray[np.int64]
    keys: pa.RecordBatch
    columns: dict[str, pa.Array]


def is_partial(batch: pa.RecordBatch) -> bool:
    return bool(batch.schema.metadata == PARTIAL)


class Aggregation:
    """The functions of one aggregation.

    Args:
        functions: By the name of their result.

    Raises:
        ConfigurationError: A user's function can't be meant.

    Example:
        >>> from penstock.runtime.operators.aggregation.functions import Count
        >>> from penstock.runtime.operators.aggregation.sums import Sum
        >>> aggregation, table = Aggregation(["k"], {"total": Sum("v"), "n": Count()}), ColumnTable("t", 128)
        >>> for values in ([1, 2, 3], [10, 20, 30]):
        ...     keys, inputs = {"k": pa.array([7, 7, 8])}, {"v": pa.array(values)}
        ...     slots = aggregation.merge(table, aggregation.partials(keys, inputs))
        >>> {name: column.to_pylist() for name, column in aggregation.results(table, slots).items()}
        {'total': [33, 33], 'n': [4, 2]}
    """

    def __init__(self, key_names: Sequence[str], functions: Mapping[str, AnyAggregate]) -> None:
        self.key_names = tuple(key_names)
        self._functions = {
            name: adapted(name, function) if isinstance(function, VectorizedAggregate) else function
            for name, function in functions.items()
        }
        self._of_parts = {n: f for n, f in self._functions.items() if isinstance(f, PartialAggregate)}
        self._of_rows = {n: f for n, f in self._functions.items() if isinstance(f, RowAggregate)}
        #: Of each function the table's column of each part.
        self._columns = {
            name: {part: f"{name}{OF}{part}" for part in function.parts(pa.null())}
            for name, function in self._functions.items()
        }

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for f in self._functions.values() for column in f.columns))

    @property
    def counted(self) -> frozenset[str]:
        looks = [(column, isinstance(f, Count)) for f in self._functions.values() for column in f.columns]
        return frozenset(c for c, _ in looks) - {column for column, counts in looks if not counts}

    @property
    def combines(self) -> bool:
        """Whether all functions may do a part of the work in front of the exchange."""
        return not self._of_rows

    @property
    def is_ordered(self) -> bool:
        return any(function.is_ordered for function in self._functions.values())

    @property
    def part_names(self) -> tuple[str, ...]:
        return tuple(full for columns in self._columns.values() for full in columns.values())

    @property
    def pair_columns(self) -> Mapping[str, str]:
        """Results that keep pairs of key and value, with the name of the value in their table."""
        return {name: f.column + OF for name, f in self._of_rows.items() if f.of_new_pairs}

    def and_also(self, functions: Mapping[str, AnyAggregate]) -> Aggregation:
        return Aggregation(self.key_names, {**self._functions, **functions})

    def partials(self, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """One row for each key of a batch: the key's columns in canonical form, then the parts."""
        prepared = {name: _prepared(f, keys, inputs) for name, f in self._of_parts.items()}
        reductions = {name: f.reductions(prepared[name]) for name, f in self._of_parts.items()}
        flat = [reduction for some in reductions.values() for reduction in some]
        key_columns, results = group_by(list(keys.values()), flat)
        columns: dict[str, pa.Array] = dict(zip(keys, key_columns, strict=True))
        left = iter(results)
        for name, function in self._of_parts.items():
            own = [next(left) for _ in reductions[name]]
            try:
                parts = function.parts_of(prepared[name], own)
            except AggregateError as error:
                raise self._with_key(error, columns) from error
            kinds = function.parts(prepared[name].type)
            names = self._columns[name]
            columns |= {names[part]: _typed(array, kinds[part]) for part, array in parts.items()}
        return batch_of(columns)

    def merge(
        self, table: ColumnTable, partials: pa.RecordBatch, extra: Mapping[str, pa.Array] | None = None
    ) -> Slots:
        """Merge partial results into a table; gives the slots that were touched, each once.

        Args:
            partials: As `partials` gives it; columns that are no part of a key or a function do not matter.
            extra: Parts of the key that do not decide its key group.

        Raises:
            SumOverflowError: A sum does not fit; names the key.
            StateMismatchError: A column is of another type than in the state.
        """
        columns = dict(zip(partials.schema.names, partials.columns, strict=True))
        slots = table.slots_of({name: columns[name] for name in self.key_names}, extra)
        touched = slots
        for rows in rounds_of(slots):
            if rows is None:
                self._merge_once(table, slots, columns)
            else:
                chosen = pa.array(rows)
                some = {name: column.take(chosen) for name, column in columns.items()}
                self._merge_once(table, slots[rows], some)
                touched = distinct(slots)
        table.note_changed(touched)
        return touched

    def merge_each(
        self, table: ColumnTable, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]
    ) -> Slots | None:
        """Merge the rows of a batch whose keys hardly repeat, without reducing them first.

        The first row of each key is merged at once. The others are few, and are reduced. The results are
        those of `partials` and `merge`, apart from the order of additions.

        Returns:
            The slots that were touched, each once; `None` if a function can't do it, and nothing was done.

        Raises:
            PenstockError: A function can't work on its column.
            SumOverflowError: A sum does not fit; names the key.
            StateMismatchError: A column is of another type than in the state.
        """
        prepared = {name: _prepared(f, keys, inputs) for name, f in self._of_parts.items()}
        parts = {name: f.of_each(prepared[name]) for name, f in self._of_parts.items()}
        columns = dict(keys)
        for name, function in self._of_parts.items():
            found, names = parts[name], self._columns[name]
            if found is None:
                return None
            types = function.parts(prepared[name].type)
            columns |= {names[part]: _typed(array, types[part]) for part, array in found.items()}
        slots = table.slots_of(keys)
        is_first = table.are_first(slots)
        if is_first.all():
            self._merge_once(table, slots, columns)
            table.note_changed(slots)
            return slots
        first = pa.array(is_first)
        touched = slots[is_first]
        self._merge_once(table, touched, filtered(columns, first))
        table.note_changed(touched)
        others = pc.invert(first)
        self.merge(table, self.partials(filtered(keys, others), filtered(inputs, others)))
        return touched

    def add_rows(
        self,
        table: ColumnTable,
        pairs: Mapping[str, ColumnTable],
        keys: Mapping[str, pa.Array],
        inputs: Mapping[str, pa.Array],
        extra: Mapping[str, pa.Array] | None = None,
    ) -> None:
        """Take the rows of a batch into the functions without parts; their keys are in the table already.

        Args:
            pairs: The pairs of key and value so far, by the results of `pair_columns`.
            keys: The key's columns of the batch.
            inputs: The columns that the functions look at.
        """
        slots: Slots | None = None
        for name, function in self._of_rows.items():
            column = _prepared(function, keys, inputs)
            state = self._state(table, name, function.parts(column.type))
            if function.of_new_pairs:
                valid = column.is_valid()
                some_keys, some_extra = filtered(keys, valid), filtered(extra or {}, valid)
                new = self._new_pairs(pairs[name], name, some_keys, some_extra, column.filter(valid))
                some_keys, some_extra, column = new
                function.add(state, table.slots_of(some_keys, some_extra), column)
                continue
            if slots is None:
                slots = table.slots_of(keys, extra)
            function.add(state, slots, column)

    def _new_pairs(
        self,
        pairs: ColumnTable,
        name: str,
        keys: Mapping[str, pa.Array],
        extra: Mapping[str, pa.Array],
        values: pa.Array,
    ) -> tuple[dict[str, pa.Array], dict[str, pa.Array], pa.Array]:
        found, _ = group_by([*keys.values(), *extra.values(), values], [])
        of_keys = dict(zip(keys, found, strict=False))
        of_extra = dict(zip(extra, found[len(keys) :], strict=False))
        new = pa.array(pairs.insert(of_keys, {**of_extra, self.pair_columns[name]: found[-1]}))
        return taken(of_keys, new), taken(of_extra, new), found[-1].take(new)

    def partials_of(self, table: ColumnTable, slots: Slots) -> pa.RecordBatch:
        """The partial results of some slots, whose keys have one type in each column."""
        keys, values = table.keys(slots), table.values(slots)
        return batch_of(
            dict(
                zip(
                    (*keys.schema.names, *values.schema.names),
                    (*keys.columns, *values.columns),
                    strict=True,
                )
            )
        )

    def results(self, table: ColumnTable, slots: Slots) -> dict[str, pa.Array]:
        """The results of each function for some slots, by name; keys and results have one type a column."""
        (only,) = self.emitted(table, slots)
        return only.columns

    def emitted(self, table: ColumnTable, slots: Slots) -> Iterator[Results]:
        """Results of some slots, in parts whose keys and results have one type a column."""
        for places in table.alike(slots):
            some = slots if len(places) == len(slots) else slots[places]
            keys = table.keys(some)
            mixed = self._results_of_types(table, some, keys)
            if not mixed:
                columns = {
                    name: function.result(self._state(table, name), some)
                    for name, function in self._functions.items()
                }
                yield Results(places, keys, columns)
                continue
            for rows in _of_equal_types(mixed, len(some)):
                columns = {
                    name: _array_of(mixed[name], rows)
                    if name in mixed
                    else function.result(self._state(table, name), some[rows])
                    for name, function in self._functions.items()
                }
                yield Results(places[rows], keys.take(pa.array(rows)), columns)

    def _results_of_types(
        self, table: ColumnTable, slots: Slots, keys: pa.RecordBatch
    ) -> dict[str, list[tuple[Any, pa.DataType]]]:
        found = {}
        for name, function in self._functions.items():
            columns = self._typed(table, name)
            # A sum with more digits than its result may have is in a type of its own.
            if len(columns) > 1 or any(pa.types.is_decimal256(column.kind) for column in columns):
                try:
                    found[name] = function.result_of_types(columns, slots)
                except AggregateError as error:
                    by_name = dict(zip(keys.schema.names, keys.columns, strict=True))
                    raise self._with_key(error, by_name) from error
        return found

    def _typed(self, table: ColumnTable, name: str) -> list[GrowingColumn]:
        """The columns of a function's only part, one for each type; empty where parts have fixed types."""
        if not self._functions[name].keeps_types:
            return []
        (full,) = self._columns[name].values()
        columns = table.columns.get(full)
        return [] if columns is None else columns.all

    def _merge_once(self, table: ColumnTable, slots: Slots, columns: Mapping[str, pa.Array]) -> None:
        others = _labelled(columns)
        for name, function in self._of_parts.items():
            parts = {part: columns[full] for part, full in self._columns[name].items()}
            self._merge_parts(table, name, function, slots, parts, columns)
            if others:
                (part, full), *_ = self._columns[name].items()
                for array in others.get(full, ()):
                    self._merge_parts(table, name, function, slots, {part: array}, columns)

    def _merge_parts(
        self,
        table: ColumnTable,
        name: str,
        function: PartialAggregate,
        slots: Slots,
        parts: Mapping[str, pa.Array],
        columns: Mapping[str, pa.Array],
    ) -> None:
        state = self._state(table, name, {part: array.type for part, array in parts.items()})
        typed = self._typed(table, name)
        try:
            if len(typed) < 2:
                function.merge(state, slots, parts)
                return
            (own,) = state.values()
            others = [column for column in typed if column is not own]
            function.merge_beside(state, others, slots, parts)
        except AggregateError as error:
            wider = function.wider(parts)
            if wider is None:
                raise self._with_key(error, columns) from error
            self._merge_parts(table, name, function, slots, wider, columns)

    def _state(
        self, table: ColumnTable, name: str, types: Mapping[str, pa.DataType] | None = None
    ) -> dict[str, GrowingColumn]:
        """The columns of a function's parts; with types new ones are made."""
        names = self._columns[name]
        many = self._functions[name].keeps_types
        state = {
            part: table.column(names[part], kind, many_types=many) for part, kind in (types or {}).items()
        }
        for part, full in names.items():
            if part not in state:
                columns = table.columns.get(full)
                # Without the column the state is of a program without this function.
                missing = self._functions[name].parts(pa.null())[part]
                state[part] = columns.all[0] if columns is not None else table.column(full, missing)
        return state

    def _with_key(self, error: AggregateError, columns: Mapping[str, pa.Array]) -> PenstockError:
        (key,) = key_list(batch_of({k: columns[k].slice(error.position, 1) for k in self.key_names}))
        return type(error)(f"of key {key!r:.100}: {error}", error.position)


def _labelled(columns: Mapping[str, pa.Array]) -> dict[str, list[pa.Array]]:
    """Columns that stand beside the first one of their name, as they hold another type."""
    found: dict[str, list[pa.Array]] = {}
    for label, array in columns.items():
        name = plain_name(label, array.type)
        if name != label:
            found.setdefault(name, []).append(array)
    return found


def _of_equal_types(
    mixed: Mapping[str, list[tuple[Any, pa.DataType]]], rows: int
) -> Iterator[NDArray[np.int64]]:
    groups: dict[tuple[pa.DataType, ...], list[int]] = {}
    for row in range(rows):
        groups.setdefault(tuple(results[row][1] for results in mixed.values()), []).append(row)
    for some in groups.values():
        yield np.array(some, np.int64)


def _array_of(results: list[tuple[Any, pa.DataType]], rows: NDArray[np.int64]) -> pa.Array:
    return pa.array([results[row][0] for row in rows.tolist()], results[int(rows[0])][1], from_pandas=False)


def _prepared(
    function: ColumnAggregate, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]
) -> pa.Array:
    """The column that a function reads, in the form that it works on.

    If none, any column as long as the batch.
    """
    names = function.columns
    if not names:
        return function.prepared(next(iter(keys.values())))
    if len(names) == 1:
        return function.prepared(inputs[names[0]])
    return function.prepared(pa.StructArray.from_arrays([inputs[name] for name in names], list(names)))


def _typed(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return pa.nulls(len(column)) if pa.types.is_null(kind) else column
