"""Aggregate functions over columns: what each keeps for a key, and how two of them become one.

A function has *parts*: columns of state, one value a key. A batch is first reduced to one row a key by
pyarrow's `group_by`; that row holds the parts of these rows alone. Then the parts are merged into those of
the state, for all keys of the batch at once. Parts of different batches merge in any order, so a combiner in
front of the exchange may do a part of the work.

Nulls do not count, as in SQL: a function of nothing but nulls gives null, `Count` gives 0. Of floats, NaN
counts in `Sum` and `Mean`, and is passed over by `Min` and `Max` unless there is nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.errors import ConfigurationError, PenstockError
from penstock.runtime.record.key_columns import canonical_column
from penstock.runtime.state.columns.growing_column import GrowingColumn, Slots

#: The parts of one function by name.
Parts: TypeAlias = Mapping[str, pa.Array]
State: TypeAlias = Mapping[str, GrowingColumn]

#: Adds decimals exactly; 76 digits are what Arrow can hold at most.
_EXACT: Final = Context(prec=76)
_INT64: Final = np.iinfo(np.int64)
_SOME: Final = pc.ScalarAggregateOptions(min_count=1)


class SumOverflowError(PenstockError):
    """A sum does not fit 64 bits.

    Attributes:
        position: Which of the keys at hand it belongs to.
    """

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


@dataclass(frozen=True, slots=True)
class Reduction:
    """What `group_by` is to compute of one column.

    Attributes:
        column: The values, one a row.
        function: Name of pyarrow's function.
    """

    column: pa.Array
    function: str
    options: Any = None


class ColumnAggregate(ABC):
    """One function over one column.

    Attributes:
        column: Its name; empty where the function looks at no column.
    """

    column: str = ""

    @property
    def combines(self) -> bool:
        """Whether a part of the work may be done in front of the exchange."""
        return True

    @abstractmethod
    def prepared(self, column: pa.Array) -> pa.Array:
        """The column in the form that the function works on.

        Raises:
            PenstockError: The function can't work on columns of this type.
        """

    @abstractmethod
    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The parts for a prepared column of this type, with their types."""

    @abstractmethod
    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """What is computed of the prepared column of a batch for each key."""

    def reduced(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        """The parts, from the results of `reductions` in their order."""
        return dict(zip(self.parts(column.type), results, strict=True))

    @abstractmethod
    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Merge parts into those of the state; each slot occurs once.

        Raises:
            SumOverflowError: A sum does not fit; nothing was changed.
        """

    def result(self, state: State, slots: Slots) -> pa.Array:
        """What the function gives for each slot; by default its only part."""
        (part,) = state.values()
        return part.take(slots)


@dataclass(frozen=True)
class Count(ColumnAggregate):
    """How many rows a key has; with a column how many of its values are not null."""

    column: str = ""

    def prepared(self, column: pa.Array) -> pa.Array:
        """Any column will do."""
        return column

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """One number."""
        return {"count": pa.int64()}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """How many values."""
        mode = "only_valid" if self.column else "all"
        return [Reduction(column, "count", pc.CountOptions(mode))]

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Add."""
        count = state["count"]
        more, _ = count.arrays_of(parts["count"])
        count.values[slots] = _numbers(count, slots) + more
        count.valid[slots] = True

    def result(self, state: State, slots: Slots) -> pa.Array:
        """The number; 0 where nothing was counted."""
        return pa.array(_numbers(state["count"], slots))


@dataclass(frozen=True)
class Sum(ColumnAggregate):
    """The sum of a column: int64 of whole numbers and booleans, double of floats, exact of decimals.

    A sum of whole numbers that does not fit 64 bits fails the job; the error names the key.
    """

    column: str

    def prepared(self, column: pa.Array) -> pa.Array:
        """Numbers in their widest type."""
        return _widened(column, self)

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The sum."""
        return {"sum": pa.decimal128(38, kind.scale) if kinds.is_decimal(kind) else kind}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """The sum; of whole numbers in two halves where it might not fit 64 bits."""
        if kinds.is_integer(column.type) and _may_overflow(column):
            low = pc.bit_wise_and(column, 0xFFFFFFFF)
            return [
                Reduction(pc.shift_right(column, 32), "sum", _SOME),
                Reduction(low, "sum", _SOME),
            ]
        return [Reduction(column, "sum", _SOME)]

    def reduced(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        """The halves put together."""
        if len(results) == 1:
            return {"sum": results[0]}
        sums = [
            None if high is None else (high << 32) + low
            for high, low in zip(*(half.to_pylist() for half in results), strict=True)
        ]
        for position, total in enumerate(sums):
            if total is not None and not _INT64.min <= total <= _INT64.max:
                raise _too_large(self.column, total, position)
        return {"sum": pa.array(sums, pa.int64())}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Add."""
        total = state["sum"]
        if kinds.is_null(parts["sum"].type):
            return
        total.adopt(parts["sum"].type)
        more, valid = total.arrays_of(parts["sum"])
        old, had = total.values[slots], total.valid[slots]
        if total.is_object:
            new = np.array(
                [
                    b if not a_valid else a if not b_valid else _EXACT.add(a, b)
                    for a, b, a_valid, b_valid in zip(old, more, had, valid, strict=True)
                ],
                np.object_,
            )
            _check_digits(self.column, new, total.kind)
        else:
            zero = total.values.dtype.type(0)
            old, more = np.where(had, old, zero), np.where(valid, more, zero)
            with np.errstate(over="ignore", invalid="ignore"):
                new = old + more
            if new.dtype.kind == "i":
                wrong = np.flatnonzero(((old ^ new) & (more ^ new)) < 0)
                if wrong.size:
                    at = int(wrong[0])
                    raise _too_large(self.column, int(old[at]) + int(more[at]), at)
        total.values[slots], total.valid[slots] = new, had | valid


@dataclass(frozen=True)
class Mean(ColumnAggregate):
    """The arithmetic mean of a column of numbers, as a double."""

    column: str

    def prepared(self, column: pa.Array) -> pa.Array:
        """Doubles."""
        return _as_doubles(column, self)

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """Sum and number of values."""
        return {"sum": pa.float64(), "count": pa.int64()}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """Sum and number of values."""
        return [Reduction(column, "sum"), Reduction(column, "count")]

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Add both."""
        for name, column in state.items():
            more, valid = column.arrays_of(parts[name])
            column.values[slots] = _numbers(column, slots) + np.where(valid, more, 0)
            column.valid[slots] = True

    def result(self, state: State, slots: Slots) -> pa.Array:
        """Sum by number."""
        count = _numbers(state["count"], slots)
        with np.errstate(invalid="ignore", divide="ignore"):
            return pa.array(_numbers(state["sum"], slots) / count, mask=count == 0)


class _Extreme(ColumnAggregate):
    """The least or the greatest value."""

    _function: str

    def prepared(self, column: pa.Array) -> pa.Array:
        """Values that have an order."""
        kind = column.type
        if kinds.is_nested(kind) or kinds.is_interval(kind) or kinds.is_float16(kind):
            msg = f"{type(self).__name__}({self.column!r}) needs values with an order; the column is {kind}"
            raise PenstockError(msg)
        return column

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The value."""
        return {self._function: kind}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """The value among the rows of the batch."""
        # pyarrow compares no durations; their counts of units have the same order.
        plain = column.view(pa.int64()) if kinds.is_duration(column.type) else column
        return [Reduction(plain, self._function, _SOME)]

    def reduced(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        """In the column's own type."""
        (value,) = results
        return {self._function: value.view(column.type) if kinds.is_duration(column.type) else value}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Keep the better one."""
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

    def _is_better(self, new: Any, old: Any) -> bool:
        return bool(new < old) if self._function == "min" else bool(new > old)


@dataclass(frozen=True)
class Min(_Extreme):
    """The least value of a column of anything that has an order."""

    column: str
    _function = "min"


@dataclass(frozen=True)
class Max(_Extreme):
    """The greatest value of a column of anything that has an order."""

    column: str
    _function = "max"


class _AtEnd(ColumnAggregate):
    """The first or the last value, by the place of its row."""

    _function: str
    _place: str

    def prepared(self, column: pa.Array) -> pa.Array:
        """Any column will do."""
        return column

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The value."""
        return {self._function: kind}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """The place of the value in the batch; pyarrow's own function does not know all types."""
        places = pa.array(np.arange(len(column)))
        if column.null_count:
            places = pc.if_else(column.is_valid(), places, pa.scalar(None, pa.int64()))
        return [Reduction(places, self._place, _SOME)]

    def reduced(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        """The values at these places."""
        return {self._function: column.take(results[0])}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Keep the one that came first, or last."""
        (part,), (kept,) = parts.values(), state.values()
        if kinds.is_null(part.type):
            return
        kept.adopt(part.type)
        more, valid = kept.arrays_of(part)
        chosen = valid & ~kept.valid[slots] if self._function == "first" else valid
        kept.values[slots[chosen]], kept.valid[slots[chosen]] = more[chosen], True


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
class StdDev(ColumnAggregate):
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
        return _as_doubles(column, self)

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

    def reduced(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        """The variance times the number."""
        count, mean, variance = results
        squares = pc.multiply(pc.fill_null(variance, 0.0), pc.cast(count, pa.float64()))
        return {"count": count, "mean": pc.fill_null(mean, 0.0), "squares": squares}

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """By Chan's formula."""
        (n_b, _), (mean_b, _), (squares_b, _) = (state[name].arrays_of(parts[name]) for name in state)
        n_a, mean_a, squares_a = (_numbers(column, slots) for column in state.values())
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
        degrees = _numbers(state["count"], slots) - self.ddof
        with np.errstate(invalid="ignore", divide="ignore"):
            roots = np.sqrt(_numbers(state["squares"], slots) / degrees)
        return pa.array(roots, mask=degrees <= 0)


@dataclass(frozen=True)
class CountDistinct(ColumnAggregate):
    """How many different values a column has, exactly. Its state holds each pair of key and value once.

    It does not combine in front of the exchange: all records travel.
    """

    column: str

    @property
    def combines(self) -> bool:
        """A number of values says nothing about which ones they were."""
        return False

    def prepared(self, column: pa.Array) -> pa.Array:
        """Values that can be part of a key.

        Raises:
            KeyTypeError: They can't.
        """
        return canonical_column(column, self.column)

    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The number; `Aggregation` counts the new pairs."""
        return {}

    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """None: the pairs have a table of their own."""
        return []

    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Nothing: see `add`."""

    def add(self, state: State, slots: Slots) -> None:
        """New pairs belong to these slots, one each."""
        count = state["count"]
        count.values[slots] = _numbers(count, slots)
        count.valid[slots] = True
        np.add.at(count.values, slots, 1)

    def result(self, state: State, slots: Slots) -> pa.Array:
        """The number; 0 where nothing was counted."""
        return pa.array(_numbers(state["count"], slots))


def _numbers(column: GrowingColumn, slots: Slots) -> NDArray[Any]:
    """The values of slots, 0 where there is none."""
    return np.where(column.valid[slots], column.values[slots], column.values.dtype.type(0))


def _widened(column: pa.Array, function: ColumnAggregate) -> pa.Array:
    kind = column.type
    if kinds.is_null(kind) or kinds.is_decimal128(kind):
        return column
    if kinds.is_integer(kind) or kinds.is_boolean(kind):
        return column if kind.equals(pa.int64()) else _cast(column, pa.int64(), function)
    if kinds.is_floating(kind):
        return _cast(column, pa.float64(), function)
    return _need_numbers(column, function)


def _as_doubles(column: pa.Array, function: ColumnAggregate) -> pa.Array:
    kind = column.type
    if kinds.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if kinds.is_null(kind) or kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    return _need_numbers(column, function)


def _need_numbers(column: pa.Array, function: ColumnAggregate) -> pa.Array:
    msg = f"{type(function).__name__}({function.column!r}) needs numbers; the column is of type {column.type}"
    raise PenstockError(msg)


def _cast(column: pa.Array, kind: pa.DataType, function: ColumnAggregate) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        msg = f"{type(function).__name__}({function.column!r}): {error}; cast the column yourself"
        raise PenstockError(msg) from error


def _may_overflow(column: pa.Array) -> bool:
    """Whether a sum of some values might not fit 64 bits; most batches are far from that."""
    extremes = pc.min_max(column).as_py()
    largest = max(abs(extremes["min"] or 0), abs(extremes["max"] or 0))
    return bool(largest * len(column) > _INT64.max)


def _too_large(column: str, total: Any, position: int) -> SumOverflowError:
    msg = (
        f"Sum({column!r}) is {total}, which does not fit 64 bits; cast the column to double or to a decimal, "
        "or sum over windows"
    )
    return SumOverflowError(msg, position)


def _check_digits(column: str, sums: NDArray[np.object_], kind: pa.DataType) -> None:
    limit = Decimal(10) ** (38 - kind.scale)
    for position, total in enumerate(sums):
        if total is not None and abs(total) >= limit:
            msg = f"Sum({column!r}) is {total}, which has more than the 38 digits of {kind}"
            raise SumOverflowError(msg, position)
