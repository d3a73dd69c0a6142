"""Folds by key: `reduce`, and `aggregate` with an `AggregateFunction`."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeAlias, TypeVar

from penstock.runtime.operators.functions.function_operator import (
    KeyedFunctionOperator,
    check_function,
    only_table,
    rows_of,
    selector_location,
)
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.operators.user_code.result_collector import Emission
from penstock.runtime.record.column_key import ColumnKey
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.state.own_copy import own_copy
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.time.windows import TimeWindow
from penstock.runtime.user_location import function_location

T = TypeVar("T")

A = TypeVar("A")

R = TypeVar("R")


class AggregateFunction(ABC, Generic[T, A, R]):
    """Folds the records of a key or of a window into an accumulator (Flink's `AggregateFunction`).

    Example:
        >>> class Mean(AggregateFunction[float, tuple[float, int], float]):
        ...     def create_accumulator(self):
        ...         return 0.0, 0
        ...
        ...     def add(self, value, accumulator):
        ...         return accumulator[0] + value, accumulator[1] + 1
        ...
        ...     def get_result(self, accumulator):
        ...         return accumulator[0] / accumulator[1]
        >>> mean = Mean()
        >>> mean.get_result(mean.add(2.0, mean.add(1.0, mean.create_accumulator())))
        1.5
    """

    @abstractmethod
    def create_accumulator(self) -> A:
        """Return the accumulator of a key or window without records."""

    @abstractmethod
    def add(self, value: T, accumulator: A) -> A:
        """Add a record and return the accumulator; may change it in place."""

    @abstractmethod
    def get_result(self, accumulator: A) -> R:
        """Return the record to emit."""

    def merge(self, first: A, second: A) -> A:
        """Merge the accumulators of two windows; may change and return `first`.

        `first` belongs to the earlier window. Only windows that merge, such as sessions, need this method.
        """
        raise NotImplementedError


def has_merge(aggregate: AggregateFunction[Any, Any, Any]) -> bool:
    return type(aggregate).merge is not AggregateFunction.merge


#: Takes a key, a window and the window's result, and returns the records to emit instead of the result.
WindowFunction: TypeAlias = Callable[[Any, TimeWindow, Any], Iterable[Any] | None]


class OneResult(ABC):
    """Contents that are folded into one result, which a window function may replace."""

    isolates = True
    overlap = False

    def __init__(self, function: Callable[..., Any], window_function: WindowFunction | None) -> None:
        self._window_function = window_function
        self.result_function: Callable[..., Any] = function if window_function is None else window_function

    @abstractmethod
    def _result(self, contents: Any) -> Any: ...

    def results(self, key: Any, window: TimeWindow, contents: Any) -> Iterable[Any] | None:
        result, window_function = self._result(contents), self._window_function
        return [result] if window_function is None else window_function(key, window, result)


class AggregatedContents(OneResult):
    """Keeps an accumulator, folded by a copy of the user's function object, and emits its result."""

    keeps: ClassVar[str] = "an accumulator"

    def __init__(
        self, aggregate: AggregateFunction[Any, Any, Any], window_function: WindowFunction | None = None
    ) -> None:
        self._aggregate = copy.deepcopy(aggregate)
        super().__init__(self._aggregate.get_result, window_function)
        self.function, self.merge_function = self._aggregate.add, self._aggregate.merge
        merge = (self._aggregate.merge,) if has_merge(aggregate) else ()
        self.other_functions: Sequence[Callable[..., Any]] = (
            self._aggregate.create_accumulator,
            self._aggregate.get_result,
            *merge,
        )

    def first(self, row: Any) -> Any:
        created = self._aggregate.create_accumulator()
        return self.add(own_copy(created) if self.isolates else created, row)

    def add(self, contents: Any, row: Any) -> Any:
        return self._aggregate.add(own_copy(row) if self.isolates and self.overlap else row, contents)

    def _result(self, contents: Any) -> Any:
        return self._aggregate.get_result(contents)

    def merged(self, first: Any, second: Any) -> Any:
        return self._aggregate.merge(first, second)

    def copied(self, contents: Any) -> Any:
        return own_copy(contents)


#: Names of the state tables of an `AggregateFunction` and of a `reduce`.
AGGREGATE_FUNCTION_STATE: Final = "aggregate_function"
REDUCE_STATE: Final = "reduce"


class _KeyedFoldOperator(KeyedFunctionOperator):
    state_name: ClassVar[str]
    owner: ClassVar[str]
    _table: StateTable

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        self._table = only_table(context, self.state_name, self.owner)
        self._table.changed.accept_copies()

    def process(self, batch: Batch) -> Iterator[Output]:
        rows = rows_of(batch)
        keys = self._keys_of(rows)
        if self._table.changed.lends_mutable:
            self._own_values(self._table, keys, rows)
        try:
            values, results = self._folded(keys, self._cursor.over(rows.rows), self._table.entries)
        except TypeError:
            self._after_type_error(keys)
            raise
        self._cursor.done()
        self._table.changed.put(keys, values)
        yield RowBatch(results, rows.timestamps)

    @abstractmethod
    def _folded(
        self, keys: list[Any], rows: Iterator[Any], entries: MutableMapping[Any, Any]
    ) -> tuple[list[Any], list[Any]]:
        """Return the new value of each row's key, and the result of each row."""


class KeyedReduceOperator(_KeyedFoldOperator):
    """Combines each record with the value of its key and emits the new value (Flink's `StreamGroupedReduce`).

    The first record of a key is its first value. The new value is both kept and emitted. So it is copied if a
    function of the subtask could change it.

    Args:
        function: Combines the value so far and a record into the new value; may change and return either.
    """

    kind: ClassVar[str] = "reduce"
    state_name, owner = REDUCE_STATE, "a reduce"

    #: Keys of the rows that `_fold_in_one_walk` has taken so far; `None` outside of it.
    _walked: list[Any] | None = None

    def process(self, batch: Batch) -> Iterator[Output]:
        # If all functions only read, calling selector and function alternately changes no result.
        if self._emission is Emission.NEVER and not isinstance(self._select, ColumnKey):
            return self._fold_in_one_walk(rows_of(batch))
        return super().process(batch)

    @property
    def doing(self) -> str:
        keys = self._walked
        is_selecting = keys is not None and len(keys) <= self._cursor.index
        return selector_location(self._select) if is_selecting else super().doing

    def _fold_in_one_walk(self, batch: RowBatch) -> Iterator[Output]:
        """Select each key and fold its row at once; a list of all keys first would be a second walk."""
        select, function, entries = self._selector, self._function, self._table.entries
        keys: list[Any] = []
        values: list[Any] = []
        self._walked = keys
        try:
            for row in self._cursor.over(batch.rows):
                key = select(row)
                keys.append(key)
                if key in entries:
                    value = function(entries[key], row)
                else:
                    self._check_key(key)
                    value = row
                entries[key] = value
                values.append(value)
        except Exception as error:
            if len(keys) > self._cursor.index:  # else the selector failed
                self._check_types(keys, batch.rows[: len(keys)])  # an invalid key comes first
                if isinstance(error, TypeError):
                    self._after_type_error(keys)
            raise
        self._check_types(keys, batch.rows)
        self._walked = None
        self._cursor.done()
        self._table.changed.put(keys, values)
        yield RowBatch(values, batch.timestamps)

    def _folded(
        self, keys: list[Any], rows: Iterator[Any], entries: MutableMapping[Any, Any]
    ) -> tuple[list[Any], list[Any]]:
        function, isolates = self._function, self._emission is not Emission.NEVER
        values: list[Any] = []
        results: list[Any] = [] if isolates else values
        for key, row in zip(keys, rows, strict=True):
            if key in entries:
                entries[key] = value = function(entries[key], row)
            else:
                self._check_key(key)
                entries[key] = value = row
            if isolates:
                result, value = value, own_copy(value)
                if value is not result:
                    entries[key], result = value, own_copy(value)
                results.append(result)
            values.append(value)
        return values, results


class KeyedAggregateFunctionOperator(_KeyedFoldOperator):
    """Folds each record into the accumulator of its key and emits the result so far.

    A result may be a part of the accumulator, which the next record changes in place. So the result is made
    from a copy of the accumulator if a function of the subtask could change it.
    """

    kind: ClassVar[str] = "aggregate"
    state_name, owner = AGGREGATE_FUNCTION_STATE, "an aggregate of records"

    def __init__(
        self, key_selector: Callable[[Any], Any], function: AggregateFunction[Any, Any, Any]
    ) -> None:
        self._contents = AggregatedContents(function)
        super().__init__(key_selector, self._contents.function)
        self._is_adding = True

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        for function in self._contents.other_functions:
            check_function(self.kind, function)
        self._contents.isolates = self._emission is not Emission.NEVER

    @property
    def doing(self) -> str:
        if self._is_adding:
            return super().doing
        return f"{self.kind} function {function_location(self._contents.result_function)}"

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return (self._function, *self._contents.other_functions)

    def _folded(
        self, keys: list[Any], rows: Iterator[Any], entries: MutableMapping[Any, Any]
    ) -> tuple[list[Any], list[Any]]:
        contents, copied, isolates = self._contents, self._contents.copied, self._contents.isolates
        result_of = contents.result_function
        accumulators, results = list[Any](), list[Any]()
        for key, row in zip(keys, rows, strict=True):
            if key in entries:
                accumulator = contents.add(entries[key], row)
            else:
                self._check_key(key)
                accumulator = contents.first(row)
            entries[key] = accumulator
            accumulators.append(accumulator)
            self._is_adding = False
            results.append(own_copy(result_of(copied(accumulator))) if isolates else result_of(accumulator))
            self._is_adding = True
        return accumulators, results
