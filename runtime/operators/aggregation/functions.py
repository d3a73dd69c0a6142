"""Aggregate functions over one column: `Count`, `Mean`, `Min`, `Max`, `First`, `Last`, `StdDev`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.operators.aggregation.column_aggregate import (
    Accumulators,
    CountingAggregate,
    Grouping,
    Partial,
    PartialAggregate,
    as_doubles,
    numbers,
    refuse_others,
    values_in,
)
from penstock.runtime.record.arrow_types import are_family
from penstock.runtime.state.typed_columns import GrowingColumn, Slots

_SOME: Final = pc.ScalarAggregateOptions(min_count=1)


@dataclass(frozen=True)
class Count(CountingAggregate, PartialAggregate):
    """Number of rows of a key; with a column, number of its non-null values."""

    column: str = ""

    def groupings(self, column: pa.Array) -> Sequence[Grouping]:
        mode = "only_valid" if self.column else "all"
        return [Grouping(column, "count", pc.CountOptions(mode))]

    def partial_of_each(self, column: pa.Array) -> Partial:
        return {"count": _ones_of(column) if self.column else pa.array(np.ones(len(column), np.int64))}

    def merge(self, accumulators: Accumulators, slots: Slots, partial: Partial) -> None:
        count = accumulators["count"]
        more, _ = count.arrays_of(partial["count"])
        count.values[slots] = numbers(count, slots) + more
        count.valid[slots] = True


@dataclass(frozen=True)
class Mean(PartialAggregate):
    """The arithmetic mean of a column of numbers, as a double."""

    column: str

    def prepared(self, column: pa.Array) -> pa.Array:
        return as_doubles(column, self)

    def accumulator_types(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"sum": pa.float64(), "count": pa.int64()}

    def groupings(self, column: pa.Array) -> Sequence[Grouping]:
        return [Grouping(column, "sum"), Grouping(column, "count")]

    def partial_of_each(self, column: pa.Array) -> Partial:
        return {"sum": column, "count": _ones_of(column)}

    def merge(self, accumulators: Accumulators, slots: Slots, partial: Partial) -> None:
        for name, column in accumulators.items():
            more, valid = column.arrays_of(partial[name])
            with np.errstate(over="ignore", invalid="ignore"):  # sums may be infinite or NaN
                column.values[slots] = numbers(column, slots) + np.where(valid, more, 0)
            column.valid[slots] = True

    def result(self, accumulators: Accumulators, slots: Slots) -> pa.Array:
        count = numbers(accumulators["count"], slots)
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(numbers(accumulators["sum"], slots) / count, mask=count == 0)


class _OneValue(PartialAggregate):
    """Keeps one of the values of a column, in an accumulator with the name of the function."""

    keeps_types = True
    _function: str

    def accumulator_types(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {self._function: kind}

    def partial_of_each(self, column: pa.Array) -> Partial:
        return {self._function: column}


class _Extreme(_OneValue):
    def prepared(self, column: pa.Array) -> pa.Array:
        kind = column.type
        is_extension = isinstance(kind, pa.BaseExtensionType)
        if is_extension or kinds.is_nested(kind) or kinds.is_interval(kind) or kinds.is_float16(kind):
            msg = f"{type(self).__name__}({self.column!r}) needs values with an order; the column is {kind}"
            raise PenstockError(msg)
        return column

    def groupings(self, column: pa.Array) -> Sequence[Grouping]:
        # pyarrow can't compare durations; as integers they have the same order.
        plain = column.view(pa.int64()) if kinds.is_duration(column.type) else column
        return [Grouping(plain, self._function, _SOME)]

    def partial_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Partial:
        (value,) = results
        return {self._function: value.view(column.type) if kinds.is_duration(column.type) else value}

    def merge(self, accumulators: Accumulators, slots: Slots, partial: Partial) -> None:
        (part,), (best,) = partial.values(), accumulators.values()
        if kinds.is_null(part.type):
            return
        best.adopt(part.type)
        more, valid = best.arrays_of(part)
        old, had = best.values[slots], best.valid[slots]
        better = valid & ~had
        both = np.flatnonzero(valid & had)
        if best.is_object:
            better[both] = [self._is_better(more[i], old[i]) for i in both.tolist()]
        else:
            a, b = more[both], old[both]
            better[both] = (a < b) if self._function == "min" else (a > b)
            if a.dtype.kind == "f":
                better[both] |= np.isnan(b) & ~np.isnan(a)
        chosen = slots[better]
        best.values[chosen], best.valid[chosen] = more[better], True

    def merge_beside(
        self, own: Accumulators, others: Sequence[GrowingColumn], slots: Slots, partial: Partial
    ) -> None:
        """Keep the best value of each type, if values of these types can be compared."""
        (part,) = partial.values()
        strange = [other for other in others if not are_family(other.kind, part.type)]
        refuse_others(self, "which have no order", part, strange, slots)
        self.merge(own, slots, partial)

    def result_of_types(
        self, columns: Sequence[GrowingColumn], slots: Slots
    ) -> list[tuple[Any, pa.DataType]]:
        """Return the best value; of equal values, the one whose type name comes first alphabetically."""
        found: list[tuple[Any, pa.DataType]] = [(None, columns[0].kind)] * len(slots)
        for column in sorted(columns, key=lambda column: str(column.kind)):
            for row, value in values_in(column, slots):
                old, _ = found[row]
                if old is None or old != old or (value == value and self._is_better(value, old)):
                    found[row] = (value, column.kind)
        return found

    def _is_better(self, new: Any, old: Any) -> bool:
        return bool(new < old) if self._function == "min" else bool(new > old)


@dataclass(frozen=True)
class Min(_Extreme):
    """The minimum of a column of any ordered type."""

    column: str
    _function = "min"


@dataclass(frozen=True)
class Max(_Extreme):
    """The maximum of a column of any ordered type."""

    column: str
    _function = "max"


class _AtEnd(_OneValue):
    is_ordered = True
    #: Function of pyarrow that finds the position of the value.
    _place: str

    def groupings(self, column: pa.Array) -> Sequence[Grouping]:
        """Group positions in the batch, because pyarrow's `first` and `last` do not support all types."""
        places = pa.array(np.arange(len(column)))
        if column.null_count:
            places = pc.if_else(column.is_valid(), places, pa.scalar(None, pa.int64()))
        return [Grouping(places, self._place, _SOME)]

    def partial_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Partial:
        return {self._function: column.take(results[0])}

    def merge(self, accumulators: Accumulators, slots: Slots, partial: Partial) -> None:
        (part,), (kept,) = partial.values(), accumulators.values()
        if kinds.is_null(part.type):
            return
        kept.adopt(part.type)
        more, valid = kept.arrays_of(part)
        chosen = valid & ~kept.valid[slots] if self._function == "first" else valid
        kept.values[slots[chosen]], kept.valid[slots[chosen]] = more[chosen], True

    def merge_beside(
        self, own: Accumulators, others: Sequence[GrowingColumn], slots: Slots, partial: Partial
    ) -> None:
        (part,) = partial.values()
        if self._function == "first":
            free = ~np.logical_or.reduce([other.valid[slots] for other in others])
            self.merge(own, slots[free], {self._function: part.filter(pa.array(free))})
            return
        self.merge(own, slots, partial)
        replaced = slots[part.is_valid().to_numpy(zero_copy_only=False)]
        for other in others:
            other.clear(replaced)


@dataclass(frozen=True)
class First(_AtEnd):
    """The first non-null value. Only records of the same channel have a defined order."""

    column: str
    _function, _place = "first", "min"


@dataclass(frozen=True)
class Last(_AtEnd):
    """The last non-null value. Only records of the same channel have a defined order."""

    column: str
    _function, _place = "last", "max"


@dataclass(frozen=True)
class StdDev(PartialAggregate):
    """The standard deviation of a column of numbers, as a double.

    The merge of partial results does not subtract large sums, so no digits are lost to cancellation. Source:
    Chan, Golub and LeVeque, Updating Formulae and a Pairwise Algorithm for Computing Sample Variances, 1979.

    Attributes:
        ddof: Number subtracted from the count of values: 1 for a sample, 0 for a population. The result is
            null if there are at most `ddof` values.
    """

    column: str
    ddof: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.ddof, bool) or not isinstance(self.ddof, int) or self.ddof < 0:
            msg = f"StdDev({self.column!r}): ddof must be a whole number of at least 0, not {self.ddof!r}"
            raise ConfigurationError(msg)

    def prepared(self, column: pa.Array) -> pa.Array:
        return as_doubles(column, self)

    def accumulator_types(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {"count": pa.int64(), "mean": pa.float64(), "squares": pa.float64()}

    def groupings(self, column: pa.Array) -> Sequence[Grouping]:
        return [
            Grouping(column, "count"),
            Grouping(column, "mean"),
            Grouping(column, "variance", pc.VarianceOptions(ddof=0)),
        ]

    def partial_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Partial:
        count, mean, variance = results
        squares = pc.multiply(pc.fill_null(variance, 0.0), pc.cast(count, pa.float64()))
        return {"count": count, "mean": pc.fill_null(mean, 0.0), "squares": squares}

    def partial_of_each(self, column: pa.Array) -> Partial:
        """The value as the mean; the squares are 0, or NaN for NaN and infinite values."""
        mean = pc.fill_null(column, 0.0)
        return {"count": _ones_of(column), "mean": mean, "squares": pc.subtract(mean, mean)}

    def merge(self, accumulators: Accumulators, slots: Slots, partial: Partial) -> None:
        more = (column.arrays_of(partial[name]) for name, column in accumulators.items())
        (n_b, _), (mean_b, _), (squares_b, _) = more
        n_a, mean_a, squares_a = (numbers(column, slots) for column in accumulators.values())
        n = n_a + n_b
        share = n_b / np.maximum(n, 1)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no variance
            apart = mean_b - mean_a
            merged = {
                "count": n,
                "mean": mean_a + apart * share,
                "squares": squares_a + squares_b + apart * apart * n_a * share,
            }
        for name, column in accumulators.items():
            column.values[slots], column.valid[slots] = merged[name], True

    def result(self, accumulators: Accumulators, slots: Slots) -> pa.Array:
        degrees = numbers(accumulators["count"], slots) - self.ddof
        with np.errstate(invalid="ignore", divide="ignore"):
            roots = np.sqrt(numbers(accumulators["squares"], slots) / degrees)
        return pa.array(roots, mask=degrees <= 0)


def _ones_of(column: pa.Array) -> pa.Array:
    return column.is_valid().cast(pa.int64())
