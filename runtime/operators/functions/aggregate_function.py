"""`AggregateFunction`: folds records into an accumulator; the operator of `key_by(...).aggregate(...)`."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from typing import Any, ClassVar, Final, Generic, TypeVar

from penstock.runtime.operators.functions.function_operator import (
    KeyedFunctionOperator,
    check_function,
    only_table,
    rows_of,
)
from penstock.runtime.operators.operator import OperatorContext, Output
from penstock.runtime.operators.user_code.result_collector import Emission
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
        """The accumulator of a window that has no record yet."""

    @abstractmethod
    def add(self, value: T, accumulator: A) -> A:
        """The accumulator with one more record: a new one, or the same one changed."""

    @abstractmethod
    def get_result(self, accumulator: A) -> R:
        """The record to emit."""

    def merge(self, first: A, second: A) -> A:
        """Merge two accumulators; only windows that merge, such as sessions, need it.

        Args:
            first: Accumulator of the window that began earlier; it may be changed and returned.
        """
        raise NotImplementedError


def has_merge(aggregate: AggregateFunction[Any, Any, Any]) -> bool:
    return type(aggregate).merge is not AggregateFunction.merge


class AggregatedContents:
    """Keeps an accumulator of a copy of the user's function object, and emits its result."""

    keeps: ClassVar[str] = "an accumulator"
    isolates = True
    overlap = False

    def __init__(self, aggregate: AggregateFunction[Any, Any, Any]) -> None:
        self._aggregate = copy.deepcopy(aggregate)
        self.function, self.result_function = self._aggregate.add, self._aggregate.get_result
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

    def results(self, key: Any, window: TimeWindow, contents: Any) -> list[Any]:
        return [self._aggregate.get_result(contents)]

    def merged(self, first: Any, second: Any) -> Any:
        return self._aggregate.merge(first, second)

    def copied(self, contents: Any) -> Any:
        """A copy, since the function may change its accumulator in place and return a part of it."""
        return own_copy(contents)


#: Name of the state table that holds the accumulators of an `AggregateFunction`.
AGGREGATE_FUNCTION_STATE: Final = "aggregate_function"


class KeyedAggregateFunctionOperator(KeyedFunctionOperator):
    """Folds each record into the accumulator of its key and emits the result so far.

    A result may be a part of the accumulator, which the function changes in place. So it is computed from a
    copy where this function, or another one of the subtask, could change it.

    Args:
        function: The user's object; the operator works with a copy of it.
    """

    kind: ClassVar[str] = "aggregate"

    def __init__(
        self, key_selector: Callable[[Any], Any], function: AggregateFunction[Any, Any, Any]
    ) -> None:
        self._contents = AggregatedContents(function)
        super().__init__(key_selector, self._contents.function)
        self._table: StateTable | None = None
        self._is_adding = True

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        for function in self._contents.other_functions:
            check_function(self.kind, function)
        self._contents.isolates = self._emission is not Emission.NEVER
        self._table = only_table(context, AGGREGATE_FUNCTION_STATE, "an aggregate of records")

    @property
    def doing(self) -> str:
        if self._is_adding:
            return super().doing
        return f"{self.kind} function {function_location(self._contents.result_function)}"

    @property
    def _functions(self) -> Iterable[Callable[..., Any]]:
        return (self._function, *self._contents.other_functions)

    def process(self, batch: Batch) -> Iterator[Output]:
        assert self._table is not None, "open() comes first"
        rows = rows_of(batch)
        self._records_in += len(rows)
        keys = self._keys_of(rows)
        accumulators: list[Any] = []
        results = self._results(keys, self._cursor.over(rows.rows), self._table.entries, accumulators)
        self._cursor.done()
        self._table.changed.put(keys, accumulators)
        self._records_out += len(results)
        if results:
            yield RowBatch(results, rows.timestamps)

    def _results(
        self,
        keys: list[Any],
        rows: Iterator[Any],
        entries: MutableMapping[Any, Any],
        accumulators: list[Any],
    ) -> list[Any]:
        contents, copied, isolates = self._contents, self._contents.copied, self._contents.isolates
        result_of = contents.result_function
        results: list[Any] = []
        key = None
        try:
            for key, row in zip(keys, rows, strict=True):
                if key in entries:
                    accumulator = contents.add(entries[key], row)
                else:
                    self._check_key(key)
                    accumulator = contents.first(row)
                entries[key] = accumulator
                accumulators.append(accumulator)
                self._is_adding = False
                results.append(
                    own_copy(result_of(copied(accumulator))) if isolates else result_of(accumulator)
                )
                self._is_adding = True
        except TypeError:
            self._after_type_error(key)
            raise
        return results
