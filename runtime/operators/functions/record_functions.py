"""`map`, `filter`, `flat_map`, `split` and `reduce`: operators around a function of one record, or of two."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from itertools import compress
from typing import Any, ClassVar, Final

from penstock.runtime.operators.functions.function_operator import (
    FunctionOperator,
    KeyedFunctionOperator,
    check_function,
    only_table,
    rows_of,
)
from penstock.runtime.operators.operator import OperatorContext, Output, Tagged
from penstock.runtime.operators.user_code.function_class import FunctionClass
from penstock.runtime.operators.user_code.result_collector import Emission, ResultCollector
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.state.state_table import StateTable


class MapOperator(FunctionOperator):
    """Replaces every record by the function's result; timestamps stay.

    Example:
        >>> [batch.rows for batch in MapOperator(str.upper).process(RowBatch(["a", "b"]))]
        [['A', 'B']]
    """

    kind: ClassVar[str] = "map"

    def process(self, batch: Batch) -> Iterator[Output]:
        rows = rows_of(batch)
        self._records_in += len(rows)
        result = self._emission.mapped(self._function, self._cursor.over(rows.rows))
        self._cursor.done()
        self._records_out += len(result)
        if result:
            yield RowBatch(result, rows.timestamps)


class FilterOperator(FunctionOperator):
    """Keeps the records for which the function returns something true, with their timestamps.

    Example:
        >>> [batch.rows for batch in FilterOperator(bool).process(RowBatch([0, 1, 2]))]
        [[1, 2]]
    """

    kind: ClassVar[str] = "filter"

    def process(self, batch: Batch) -> Iterator[Output]:
        rows = rows_of(batch)
        self._records_in += len(rows)
        kept = self._kept(rows)
        self._cursor.done()
        self._records_out += len(kept)
        if kept:
            yield kept

    def _kept(self, batch: RowBatch) -> RowBatch:
        function = self._function
        rows = self._cursor.over(batch.rows)
        stamps = batch.timestamps
        if self._emission is Emission.AT_ONCE:
            kept = [(own_copy(row), place) for place, row in enumerate(rows) if function(row)]
            times = None if stamps is None else [stamps[place] for _, place in kept]
            return RowBatch([row for row, _ in kept], times)
        # A predicate that only reads passes on its only reference.
        if stamps is None:
            return RowBatch([row for row in rows if function(row)])
        pairs = [(row, time) for row, time in zip(rows, stamps, strict=True) if function(row)]
        return RowBatch([row for row, _ in pairs], [time for _, time in pairs])


class FlatMapOperator(FunctionOperator):
    """Emits every record of the function's result, each with the timestamp of its input.

    Args:
        function: From a record to any iterable of records, or `None` for none. A generator may be endless:
            its records are emitted in batches as they come.
    """

    kind: ClassVar[str] = "flat_map"
    takes_generators = True

    def __init__(self, function: Callable[[Any], Iterable[Any] | None] | FunctionClass) -> None:
        super().__init__(function)
        self._collector: ResultCollector | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._collector = self._collector_of(context)

    def process(self, batch: Batch) -> Iterator[Output]:
        assert self._collector is not None, "open() comes first"
        rows = rows_of(batch)
        function = self._function
        self._records_in += len(rows)
        # A generator expression, not map(): a StopIteration of the user's must not look like the end.
        results = (function(row) for row in self._cursor.over(rows.rows))
        for output in self._collector.collect(results, rows.timestamps):
            self._records_out += len(output)
            yield output
        self._cursor.done()


class SplitOperator(FunctionOperator):
    """Emits each record under the tag of the first predicate that is true, else in the main output.

    A predicate receives the records of a batch that no predicate before it has taken.

    Args:
        predicates: Predicates of a record, by tag; at least one.

    Example:
        >>> operator = SplitOperator({"even": lambda n: n % 2 == 0, "large": lambda n: n > 2})
        >>> for output in operator.process(RowBatch([1, 2, 3, 4])):
        ...     print(output)
        Tagged(tag='even', batch=RowBatch(rows=[2, 4], timestamps=None))
        Tagged(tag='large', batch=RowBatch(rows=[3], timestamps=None))
        RowBatch(rows=[1], timestamps=None)
    """

    kind: ClassVar[str] = "split"

    def __init__(self, predicates: Mapping[str, Callable[[Any], object]]) -> None:
        self._predicates = dict(predicates)
        # Messages name the predicate that is called or checked.
        super().__init__(next(iter(predicates.values())))

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        for predicate in self._predicates.values():
            self._function = predicate
            check_function(self.kind, predicate)

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return self._predicates.values()

    def process(self, batch: Batch) -> Iterator[Output]:
        rest = rows_of(batch)
        self._records_in += len(rest)
        if self._emission is Emission.AT_ONCE:
            yield from self._split_one_by_one(rest)
            return
        taken = list[Tagged]()
        for tag, predicate in self._predicates.items():
            self._function = predicate
            found, rest = self._divided(rest)
            if found:
                taken.append(Tagged(tag, found))
        self._cursor.done()
        self._records_out += len(rest)
        yield from taken
        if rest:
            yield rest

    def _split_one_by_one(self, batch: RowBatch) -> Iterator[Output]:
        """Call all predicates on one record before the next, and copy it: they may change or keep it."""
        rest, of_rest, places = list[Any](), list[int](), {tag: list[int]() for tag in self._predicates}
        found: dict[str, list[Any]] = {tag: [] for tag in self._predicates}
        for place, row in enumerate(self._cursor.over(batch.rows)):
            rows, at = rest, of_rest
            for tag, predicate in self._predicates.items():
                self._function = predicate
                if predicate(row):
                    rows, at = found[tag], places[tag]
                    break
            rows.append(own_copy(row))
            at.append(place)
        self._cursor.done()
        self._records_out += len(rest)
        stamps = batch.timestamps
        for tag, rows in found.items():
            if rows:
                yield Tagged(tag, RowBatch(rows, stamps and [stamps[place] for place in places[tag]]))
        if rest:
            yield RowBatch(rest, stamps and [stamps[place] for place in of_rest])

    def _divided(self, batch: RowBatch) -> tuple[RowBatch, RowBatch]:
        predicate = self._function
        is_true = [bool(predicate(row)) for row in self._cursor.over(batch.rows)]
        is_false = [not each for each in is_true]
        return _chosen(batch, is_true), _chosen(batch, is_false)


def _chosen(batch: RowBatch, chosen: list[bool]) -> RowBatch:
    stamps = batch.timestamps
    return RowBatch(
        list(compress(batch.rows, chosen)), None if stamps is None else list(compress(stamps, chosen))
    )


#: Name of the state table that holds the values.
REDUCE_STATE: Final = "reduce"


class KeyedReduceOperator(KeyedFunctionOperator):
    """Combines each record with the value of its key and emits the new value (Flink's `StreamGroupedReduce`).

    The first record of a key is its first value. The table's dict is bound once a batch; the touched keys
    are reported to the backend once a batch, too.

    The value of a key is also the record that was last emitted for it. So it is copied where the function, or
    another one of the subtask, could change one of the two.

    Args:
        function: Combines the value so far and a record into the new value: a new one, or one of the two,
            which it may change.
    """

    kind: ClassVar[str] = "reduce"

    def __init__(self, key_selector: Callable[[Any], Any], function: Callable[[Any, Any], Any]) -> None:
        super().__init__(key_selector, function)
        self._table: StateTable | None = None

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._table = only_table(context, REDUCE_STATE, "a reduce")

    def process(self, batch: Batch) -> Iterator[Output]:
        assert self._table is not None, "open() comes first"
        rows = rows_of(batch)
        self._records_in += len(rows)
        keys = self._keys_of(rows)
        values = self._reduced(keys, self._cursor.over(rows.rows), self._table.entries)
        self._cursor.done()
        self._table.changed.put(keys, values)
        self._records_out += len(values)
        if values:
            yield RowBatch(values, rows.timestamps)

    def _reduced(self, keys: list[Any], rows: Iterator[Any], entries: MutableMapping[Any, Any]) -> list[Any]:
        function, isolates = self._function, self._emission is not Emission.NEVER
        values: list[Any] = []
        key = None
        try:
            for key, row in zip(keys, rows, strict=True):
                if key in entries:
                    entries[key] = value = function(entries[key], row)
                else:
                    self._check_key(key)
                    entries[key] = value = row
                if isolates:
                    entries[key] = own_copy(value)
                    value = own_copy(value)
                values.append(value)
        except TypeError:
            self._after_type_error(key)
            raise
        return values
