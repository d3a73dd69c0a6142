"""`Aggregation`: several aggregate functions over the same keys, and the accumulators of all keys.

A batch is aggregated in two steps. `partials` groups it into one row of partial results per key, by pyarrow's
`group_by`. A column of partial results has a name such as `total:sum`. `merge` finds the slots of these keys
and merges the rows into the accumulators of the table. A combiner before the exchange sends partial results
in this form, too. Several of its batches may have been concatenated on the way. Then a key occurs several
times, and its rows are merged one after another (`rounds_of`).

If keys hardly repeat in a batch, `group_by` takes a third of the whole time and saves few rows. Then
`merge_each` finds the slot of each row first, and uses each row as a partial result.

Functions without partial results receive the rows of the batch last, when all keys have slots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.operators.aggregation.column_aggregate import (
    AggregateError,
    ColumnAggregate,
    Partial,
    PartialAggregate,
    RowAggregate,
    batch_of,
    distinct,
    filtered,
    group_by,
    rounds_of,
    taken,
)
from penstock.runtime.operators.aggregation.functions import Count
from penstock.runtime.operators.aggregation.vectorized_aggregate import (
    AnyAggregate,
    VectorizedAggregate,
    adapted,
)
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.keyed_chunk import key_list
from penstock.runtime.state.stable_hash import HashArray
from penstock.runtime.state.stable_hash_arrays import key_hashes
from penstock.runtime.state.typed_columns import GrowingColumn, Slots, TypedColumns, plain_name

#: Schema metadata of a combiner's partial results; snapshots contain it in in-flight data.
PARTIAL: Final = {b"penstock": b"reduced"}

#: Separator between the name of a result and the name of its accumulator's column.
OF: Final = ":"


class Accumulating(Protocol):
    """Accumulators by slot: those of a table, or of windows that are combined from panes."""

    @property
    def columns(self) -> Mapping[str, TypedColumns]: ...

    def column(self, name: str, kind: pa.DataType, *, many_types: bool = False) -> GrowingColumn: ...

    def alike(self, slots: Slots) -> list[Slots]: ...

    def keys(self, slots: Slots) -> pa.RecordBatch: ...


class Results(NamedTuple):
    """Results of some of the requested slots; `places` are their indexes in the request."""

    places: NDArray[np.int64]
    keys: pa.RecordBatch
    columns: dict[str, pa.Array]


def is_partial(batch: pa.RecordBatch) -> bool:
    return bool(batch.schema.metadata == PARTIAL)


class Aggregation:
    """The functions of one aggregation, by the name of their result.

    Raises:
        ConfigurationError: A user's function is invalid.

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
        #: Whether no function is the user's own.
        self.is_built_in = not any(isinstance(each, VectorizedAggregate) for each in functions.values())
        self._functions = {
            name: adapted(name, function) if isinstance(function, VectorizedAggregate) else function
            for name, function in functions.items()
        }
        self._combining = {n: f for n, f in self._functions.items() if isinstance(f, PartialAggregate)}
        self._by_row = {n: f for n, f in self._functions.items() if isinstance(f, RowAggregate)}
        #: For each function: its accumulator's columns, and their names in the table.
        self._columns = {
            name: {column: f"{name}{OF}{column}" for column in function.accumulator_types(pa.null())}
            for name, function in self._functions.items()
        }

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for f in self._functions.values() for column in f.columns))

    @property
    def counted(self) -> frozenset[str]:
        """Columns that only `Count` reads, so that only their nulls matter."""
        reads = [(column, isinstance(f, Count)) for f in self._functions.values() for column in f.columns]
        return frozenset(c for c, _ in reads) - {column for column, counts in reads if not counts}

    @property
    def combines(self) -> bool:
        """Whether all functions have partial results, which a combiner can send instead of records."""
        return not self._by_row

    @property
    def is_ordered(self) -> bool:
        return any(function.is_ordered for function in self._functions.values())

    @property
    def accumulator_names(self) -> tuple[str, ...]:
        return tuple(full for columns in self._columns.values() for full in columns.values())

    @property
    def combining_names(self) -> tuple[str, ...]:
        """Columns of the accumulators that can be merged."""
        return tuple(full for name in self._combining for full in self._columns[name].values())

    @property
    def pair_columns(self) -> Mapping[str, str]:
        """For each result that needs pairs of key and value: the value's column in the table of pairs."""
        return {name: f.column + OF for name, f in self._by_row.items() if f.of_new_pairs}

    def and_also(self, functions: Mapping[str, AnyAggregate]) -> Aggregation:
        both = Aggregation(self.key_names, {**self._functions, **functions})
        both.is_built_in &= self.is_built_in
        return both

    def partials(self, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """Return one row per key of a batch: the columns of the key, then the partial results."""
        prepared = {name: _prepared(f, keys, inputs) for name, f in self._combining.items()}
        groupings = {name: f.groupings(prepared[name]) for name, f in self._combining.items()}
        flat = [grouping for some in groupings.values() for grouping in some]
        key_columns, results = group_by(list(keys.values()), flat)
        columns: dict[str, pa.Array] = dict(zip(keys, key_columns, strict=True))
        left = iter(results)
        for name, function in self._combining.items():
            own = [next(left) for _ in groupings[name]]
            try:
                partial = function.partial_of(prepared[name], own)
            except AggregateError as error:
                raise self._with_key(error, columns) from error
            columns |= self._named(name, prepared[name].type, partial)
        return batch_of(columns)

    def _named(self, name: str, kind: pa.DataType, partial: Partial) -> dict[str, pa.Array]:
        names, types = self._columns[name], self._functions[name].accumulator_types(kind)
        return {
            names[column]: pa.nulls(len(array)) if pa.types.is_null(types[column]) else array
            for column, array in partial.items()
        }

    def merge(
        self, table: ColumnTable, partials: pa.RecordBatch, extra: Mapping[str, pa.Array] | None = None
    ) -> Slots:
        """Merge partial results into a table; return the slots that were touched, each once.

        `extra` has columns of the key that are not used to compute its key group.

        Raises:
            SumOverflowError: A sum does not fit; names the key.
            MixedTypesError: A key has values of types that can't be combined; names the key.
            StateMismatchError: A column has a different type in the state.
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
        """Merge the rows of a batch whose keys hardly repeat, without grouping them first.

        The first rows of all keys are merged in one step. The other rows are few, and are grouped. The result
        is the same as with `partials` and `merge`, apart from the order of additions.

        Returns:
            The slots that were touched, each once; `None`, without any change, if a function can't do this.
        """
        prepared = {name: _prepared(f, keys, inputs) for name, f in self._combining.items()}
        columns = dict(keys)
        for name, function in self._combining.items():
            partial = function.partial_of_each(prepared[name])
            if partial is None:
                return None
            columns |= self._named(name, prepared[name].type, partial)
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
        """Add the rows of a batch to the functions without partial results; all keys must have slots.

        Args:
            pairs: Tables of the pairs of key and value so far, for the results of `pair_columns`.
        """
        if not self._by_row:
            return
        slots = table.slots_of(keys, extra)
        hashes: HashArray | None = None
        for name, function in self._by_row.items():
            column = _prepared(function, keys, inputs)
            accumulators = self._accumulators(table, name, function.accumulator_types(column.type))
            if not function.of_new_pairs:
                function.add(accumulators, slots, column)
                continue
            hashes = key_hashes(list(keys.values())) if hashes is None else hashes
            of_pairs, values = _distinct_pairs(slots, column)
            # Equal keys have one slot. So the keys of the pairs are those of any row with their slots.
            rows = table.last_rows(slots, of_pairs)
            of_keys, of_extra = taken(keys, pa.array(rows)), taken(extra or {}, pa.array(rows))
            parts = {**of_extra, self.pair_columns[name]: values}
            new = pairs[name].insert(of_keys, parts, hashes[rows])
            function.add(accumulators, of_pairs[new], values.take(pa.array(new)))

    def combine(self, windows: Accumulating, steps: Iterable[tuple[Slots, Mapping[str, pa.Array]]]) -> None:
        """Merge accumulators into others, step by step; raises as `merge` does.

        Args:
            windows: The accumulators; a step reads values of some slots before they are merged into others.
            steps: Slots, each once, and the values to merge into them, by the name of their column.
        """
        for name in self._combining:
            self._accumulators(windows, name)
        for places, values in steps:
            try:
                self._merge_values(windows, places, values)
            except AggregateError as error:
                keys = windows.keys(places[[error.position]])
                first = type(error)(str(error), 0)
                raise self._with_key(first, {k: keys.column(k) for k in self.key_names}) from error

    def add_pairs(
        self, windows: Accumulating, name: str, rows: Slots, pairs: ColumnTable, slots: Slots
    ) -> None:
        """Add the different values of each row to a function that counts them.

        Args:
            name: Name of the result.
            rows: The slot of each pair's window, in `windows`.
            slots: The slot of each pair, in `pairs`.
        """
        function, column = self._by_row[name], self.pair_columns[name]
        accumulators = self._accumulators(windows, name, function.accumulator_types(pa.null()))
        groups = pairs.alike(slots)
        seen = ColumnTable("pairs of windows", 1, tracks_changes=False)
        for some in groups:
            values = pairs.keys(slots[some]).column(column)
            of_pairs, values = _distinct_pairs(rows[some], values)
            if len(groups) > 1:
                # Equal values of different types count once.
                new = seen.insert({"row": pa.array(of_pairs)}, {column: values})
                of_pairs, values = of_pairs[new], values.take(pa.array(new))
            function.add(accumulators, of_pairs, values)

    def partials_of(self, table: ColumnTable, slots: Slots) -> pa.RecordBatch:
        keys, values = table.keys(slots), table.values(slots)
        names = (*keys.schema.names, *values.schema.names)
        return batch_of(dict(zip(names, (*keys.columns, *values.columns), strict=True)))

    def results(self, table: Accumulating, slots: Slots) -> dict[str, pa.Array]:
        """The results of each function, for slots whose keys and results have one type per column."""
        (only,) = self.emitted(table, slots)
        return only.columns

    def emitted(self, table: Accumulating, slots: Slots) -> Iterator[Results]:
        """Results of some slots, in groups whose keys and results have one type per column."""
        for places in table.alike(slots):
            some = slots if len(places) == len(slots) else slots[places]
            keys = table.keys(some)
            mixed = self._results_of_types(table, some, keys)
            if not mixed:
                columns = {
                    name: function.result(self._accumulators(table, name), some)
                    for name, function in self._functions.items()
                }
                yield Results(places, keys, columns)
                continue
            for rows in _of_equal_types(mixed, len(some)):
                columns = {
                    name: _array_of(mixed[name], rows)
                    if name in mixed
                    else function.result(self._accumulators(table, name), some[rows])
                    for name, function in self._functions.items()
                }
                yield Results(places[rows], keys.take(pa.array(rows)), columns)

    def _results_of_types(
        self, table: Accumulating, slots: Slots, keys: pa.RecordBatch
    ) -> dict[str, list[tuple[Any, pa.DataType]]]:
        found = {}
        for name, function in self._functions.items():
            columns = self._typed(table, name)
            # A sum with more digits than its result can hold has the type decimal256.
            if len(columns) > 1 or any(pa.types.is_decimal256(column.kind) for column in columns):
                try:
                    found[name] = function.result_of_types(columns, slots)
                except AggregateError as error:
                    by_name = dict(zip(keys.schema.names, keys.columns, strict=True))
                    raise self._with_key(error, by_name) from error
        return found

    def _typed(self, table: Accumulating, name: str) -> list[GrowingColumn]:
        if not self._functions[name].keeps_types:
            return []
        (full,) = self._columns[name].values()
        columns = table.columns.get(full)
        return [] if columns is None else columns.all

    def _merge_once(self, table: ColumnTable, slots: Slots, columns: Mapping[str, pa.Array]) -> None:
        try:
            self._merge_values(table, slots, columns)
        except AggregateError as error:
            raise self._with_key(error, columns) from error

    def _merge_values(self, table: Accumulating, slots: Slots, columns: Mapping[str, pa.Array]) -> None:
        others = _labelled(columns)
        for name, function in self._combining.items():
            partial = {column: columns[full] for column, full in self._columns[name].items()}
            self._merge_partial(table, name, function, slots, partial)
            if others:
                (column, full), *_ = self._columns[name].items()
                for array in others.get(full, ()):
                    self._merge_partial(table, name, function, slots, {column: array})

    def _merge_partial(
        self,
        table: Accumulating,
        name: str,
        function: PartialAggregate,
        slots: Slots,
        partial: Partial,
    ) -> None:
        types = {column: array.type for column, array in partial.items()}
        accumulators = self._accumulators(table, name, types)
        typed = self._typed(table, name)
        try:
            if len(typed) < 2:
                function.merge(accumulators, slots, partial)
                return
            (own,) = accumulators.values()
            others = [column for column in typed if column is not own]
            function.merge_beside(accumulators, others, slots, partial)
        except AggregateError:
            wider = function.wider(partial)
            if wider is None:
                raise
            self._merge_partial(table, name, function, slots, wider)

    def _accumulators(
        self, table: Accumulating, name: str, types: Mapping[str, pa.DataType] | None = None
    ) -> dict[str, GrowingColumn]:
        names = self._columns[name]
        many = self._functions[name].keeps_types
        found = {
            column: table.column(names[column], kind, many_types=many)
            for column, kind in (types or {}).items()
        }
        for column, full in names.items():
            if column not in found:
                known = table.columns.get(full)
                # The column is missing if a program without this function saved the state.
                missing = self._functions[name].accumulator_types(pa.null())[column]
                found[column] = known.all[0] if known is not None else table.column(full, missing)
        return found

    def _with_key(self, error: AggregateError, columns: Mapping[str, pa.Array]) -> PenstockError:
        (key,) = key_list(batch_of({k: columns[k].slice(error.position, 1) for k in self.key_names}))
        return type(error)(f"at key {key!r:.100}: {error}", error.position)


def _labelled(columns: Mapping[str, pa.Array]) -> dict[str, list[pa.Array]]:
    """Return columns of additional types, such as `total:sum|double`, by their plain name (`total:sum`)."""
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


def _distinct_pairs(slots: Slots, values: pa.Array) -> tuple[Slots, pa.Array]:
    """The distinct pairs of slot and value, without nulls, in the order of their first rows."""
    of_rows = pa.array(slots)
    if values.null_count:
        valid = values.is_valid()
        of_rows, values = of_rows.filter(valid), values.filter(valid)
    (of_pairs, distinct_values), _ = group_by([of_rows, values], [])
    return of_pairs.to_numpy(), distinct_values


def _prepared(
    function: ColumnAggregate, keys: Mapping[str, pa.Array], inputs: Mapping[str, pa.Array]
) -> pa.Array:
    """Return the prepared input of a function; if it reads no column, any column of the batch's length."""
    names = function.columns
    if not names:
        return function.prepared(next(iter(keys.values())))
    if len(names) == 1:
        return function.prepared(inputs[names[0]])
    return function.prepared(pa.StructArray.from_arrays([inputs[name] for name in names], list(names)))
