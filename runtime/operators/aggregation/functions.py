"""Functions over one column that users name: counts, means, extremes, ends, deviations."""

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
    PartialAggregate,
    Parts,
    Reduction,
    State,
    as_doubles,
    numbers,
    refuse_others,
    values_in,
)
from penstock.runtime.record.arrow_types import are_family
from penstock.runtime.state.typed_columns import GrowingColumn, Slots

_SOME: Final = pc.ScalarAggregateOptions(min_count=1)


@dataclass(frozen=True)
class Count(PartialAggregate):
    """Number of rows of a key; with a column, of its values that are not null."""

    column: str = ""

    def prepared(self, column: pa.Array) -> pa.Array:
        """Any column will do."""
        return column

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """One number."""
        return {"count": pa.int64()}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """Number of values."""
        mode = "only_valid" if self.column else "all"
        return [Reduction(column, "count", pc.CountOptions(mode))]

    def of_each(self, column: pa.Array) -> Parts:
        """1, and 0 for a null of a column that was named."""
        return {"count": _ones_of(column) if self.column else pa.array(np.ones(len(column), np.int64))}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Add."""
        count = state["count"]
        more, _ = count.arrays_of(parts["count"])
        count.values[slots] = numbers(count, slots) + more
        count.valid[slots] = True

    def result(self, state: State, slots: Slots) -> pa.Array:
        """Return the number; 0 without counted values."""
        return pa.array(numbers(state["count"], slots))


@dataclass(frozen=True)
class Mean(PartialAggregate):
    """The arithmetic mean of a column of numbers, as a double."""

    column: str

    def prepared(self, column: pa.Array) -> pa.Array:
        """Doubles."""
        return as_doubles(column, self)

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """Sum and number of values."""
        return {"sum": pa.float64(), "count": pa.int64()}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """Sum and number of values."""
        return [Reduction(column, "sum"), Reduction(column, "count")]

    def of_each(self, column: pa.Array) -> Parts:
        """The value, and that it is one."""
        return {"sum": column, "count": _ones_of(column)}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Add both."""
        for name, column in state.items():
            more, valid = column.arrays_of(parts[name])
            with np.errstate(over="ignore", invalid="ignore"):  # as of floats; see `Sum`
                column.values[slots] = numbers(column, slots) + np.where(valid, more, 0)
            column.valid[slots] = True

    def result(self, state: State, slots: Slots) -> pa.Array:
        """Sum by number."""
        count = numbers(state["count"], slots)
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(numbers(state["sum"], slots) / count, mask=count == 0)


class _Extreme(PartialAggregate):
    """The minimum or the maximum."""

    keeps_types = True
    _function: str

    def prepared(self, column: pa.Array) -> pa.Array:
        kind = column.type
        if kinds.is_nested(kind) or kinds.is_interval(kind) or kinds.is_float16(kind):
            msg = f"{type(self).__name__}({self.column!r}) needs values with an order; the column is {kind}"
            raise PenstockError(msg)
        return column

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {self._function: kind}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        # pyarrow compares no durations; their counts of units have the same order.
        plain = column.view(pa.int64()) if kinds.is_duration(column.type) else column
        return [Reduction(plain, self._function, _SOME)]

    def parts_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        (value,) = results
        return {self._function: value.view(column.type) if kinds.is_duration(column.type) else value}

    def of_each(self, column: pa.Array) -> Parts:
        return {self._function: column}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        (part,), (best,) = parts.values(), state.values()
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
        self, own: Mapping[str, GrowingColumn], others: Sequence[GrowingColumn], slots: Slots, parts: Parts
    ) -> None:
        """Keep the best one of each type, if they have an order among each other."""
        (part,) = parts.values()
        strange = [other for other in others if not are_family(other.kind, part.type)]
        refuse_others(self, "which have no order", part, strange, slots)
        self.merge(own, slots, parts)

    def result_of_types(
        self, columns: Sequence[GrowingColumn], slots: Slots
    ) -> list[tuple[Any, pa.DataType]]:
        """The best one; of equal ones that of the first type by name, whichever came first."""
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


class _AtEnd(PartialAggregate):
    """The first or the last value, by the place of its row."""

    is_ordered = True
    keeps_types = True
    _function: str
    _place: str

    def prepared(self, column: pa.Array) -> pa.Array:
        return column

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        return {self._function: kind}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """The place of the value in the batch; pyarrow's own function does not know all types."""
        places = pa.array(np.arange(len(column)))
        if column.null_count:
            places = pc.if_else(column.is_valid(), places, pa.scalar(None, pa.int64()))
        return [Reduction(places, self._place, _SOME)]

    def parts_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        return {self._function: column.take(results[0])}

    def of_each(self, column: pa.Array) -> Parts:
        return {self._function: column}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        (part,), (kept,) = parts.values(), state.values()
        if kinds.is_null(part.type):
            return
        kept.adopt(part.type)
        more, valid = kept.arrays_of(part)
        chosen = valid & ~kept.valid[slots] if self._function == "first" else valid
        kept.values[slots[chosen]], kept.valid[slots[chosen]] = more[chosen], True

    def merge_beside(
        self, own: Mapping[str, GrowingColumn], others: Sequence[GrowingColumn], slots: Slots, parts: Parts
    ) -> None:
        (part,) = parts.values()
        if self._function == "first":
            free = ~np.logical_or.reduce([other.valid[slots] for other in others])
            self.merge(own, slots[free], {self._function: part.filter(pa.array(free))})
            return
        self.merge(own, slots, parts)
        replaced = slots[part.is_valid().to_numpy(zero_copy_only=False)]
        for other in others:
            other.clear(replaced)


@dataclass(frozen=True)
class First(_AtEnd):
    """The first value that is not null. Records of one channel have an order, those of several do not."""

    column: str
    _function, _place = "first", "min"


@dataclass(frozen=True)
class Last(_AtEnd):
    """The last value that is not null. Records of one channel have an order, those of several do not."""

    column: str
    _function, _place = "last", "max"


@dataclass(frozen=True)
class StdDev(PartialAggregate):
    """The standard deviation of a column of numbers, as a double.

    Parts are merged without a difference of large sums. Source: Chan, Golub and LeVeque, Updating Formulae
    and a Pairwise Algorithm for Computing Sample Variances, 1979.

    Attributes:
        ddof: What is taken off the number of values: 1 for a sample, 0 for all there is. Where no more values
            than that are there, the result is null.
    """

    column: str
    ddof: int = 1

    def __post_init__(self) -> None:
        """Check `ddof`."""
        if isinstance(self.ddof, bool) or not isinstance(self.ddof, int) or self.ddof < 0:
            msg = f"StdDev({self.column!r}): ddof must be a whole number of at least 0, not {self.ddof!r}"
            raise ConfigurationError(msg)

    def prepared(self, column: pa.Array) -> pa.Array:
        """Doubles."""
        return as_doubles(column, self)

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """Number of values, their mean, and the sum of squared distances to it."""
        return {"count": pa.int64(), "mean": pa.float64(), "squares": pa.float64()}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """Number, mean and variance."""
        return [
            Reduction(column, "count"),
            Reduction(column, "mean"),
            Reduction(column, "variance", pc.VarianceOptions(ddof=0)),
        ]

    def parts_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        """The variance times the number."""
        count, mean, variance = results
        squares = pc.multiply(pc.fill_null(variance, 0.0), pc.cast(count, pa.float64()))
        return {"count": count, "mean": pc.fill_null(mean, 0.0), "squares": squares}

    def of_each(self, column: pa.Array) -> Parts:
        """The value as the mean; NaN and infinite values have no distance to it."""
        mean = pc.fill_null(column, 0.0)
        return {"count": _ones_of(column), "mean": mean, "squares": pc.subtract(mean, mean)}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """By Chan's formula."""
        (n_b, _), (mean_b, _), (squares_b, _) = (state[name].arrays_of(parts[name]) for name in state)
        n_a, mean_a, squares_a = (numbers(column, slots) for column in state.values())
        n = n_a + n_b
        share = n_b / np.maximum(n, 1)
        with np.errstate(invalid="ignore", over="ignore"):  # infinite values have no variance
            apart = mean_b - mean_a
            merged = {
                "count": n,
                "mean": mean_a + apart * share,
                "squares": squares_a + squares_b + apart * apart * n_a * share,
            }
        for name, column in state.items():
            column.values[slots], column.valid[slots] = merged[name], True

    def result(self, state: State, slots: Slots) -> pa.Array:
        """The root of the mean square."""
        degrees = numbers(state["count"], slots) - self.ddof
        with np.errstate(invalid="ignore", divide="ignore"):
            roots = np.sqrt(numbers(state["squares"], slots) / degrees)
        return pa.array(roots, mask=degrees <= 0)


def _ones_of(column: pa.Array) -> pa.Array:
    """1 for each value, 0 for each null."""
    return column.is_valid().cast(pa.int64())
