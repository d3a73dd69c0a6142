"""Aggregate functions over columns: the state for a key, and its changes.

A function has *parts*: columns of state, one value a key. There are two kinds of functions.

A `PartialAggregate` works in two steps. A batch is first reduced to one row a key by pyarrow's `group_by`;
that row holds the parts of these rows alone. Then the parts are merged into those of the state, for all keys
of the batch at once. Parts of different batches merge in any order, so a combiner in front of the exchange
may do a part of the work.

A `RowAggregate` has no such step: it needs the state in order to take a row. All its records travel.

Nulls do not count, as in SQL: a function of nothing but nulls gives null, `Count` gives 0. Of floats, NaN
counts in `Sum` and `Mean`, and is passed over by `Min` and `Max` unless there is nothing else.

Rows may have values of several types in one column. Each batch has one type, and the state has a column for
each type. So what a key gives depends on its own values alone, and never on those of another key.
"""

from __future__ import annotations

import reprlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.state.typed_columns import GrowingColumn, Slots

#: The parts of one function by name.
Parts: TypeAlias = Mapping[str, pa.Array]

State: TypeAlias = Mapping[str, GrowingColumn]


class AggregateError(PenstockError):
    """A function can't work on the values of a key, whose place among those at hand is `position`."""

    def __init__(self, message: str, position: int) -> None:
        super().__init__(message)
        self.position = position


class SumOverflowError(AggregateError):
    """A sum does not fit 64 bits, or the 38 digits of a decimal."""


class MixedTypesError(AggregateError):
    """Values of one key have types that do not go together."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """A column, one value a row, and pyarrow's function for `group_by` to compute of it."""

    column: pa.Array
    function: str
    options: Any = None


class ColumnAggregate(ABC):
    """One function over a column, or over none.

    Attributes:
        column: Its name; empty where the function looks at no column.
        is_ordered: Whether the result depends on the order of the rows.
        keeps_types: Whether it has one part, which is of the type of its values. Then keys may have values of
            different types.
    """

    column: str = ""
    is_ordered: bool = False
    keeps_types: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it looks at. Several of them come as one column of structs."""
        return (self.column,) if self.column else ()

    @abstractmethod
    def prepared(self, column: pa.Array) -> pa.Array:
        """The column in the form that the function works on.

        Raises:
            PenstockError: The function can't work on columns of this type.
        """

    @abstractmethod
    def parts(self, kind: pa.DataType) -> Mapping[str, pa.DataType]:
        """The parts for a prepared column of this type, with their types; their names are always the same."""

    def result(self, state: State, slots: Slots) -> pa.Array:
        """The function's result for each slot; by default its only part."""
        (part,) = state.values()
        return part.take(slots)

    def result_of_types(
        self, columns: Sequence[GrowingColumn], slots: Slots
    ) -> list[tuple[Any, pa.DataType]]:
        """The results of a function of one part, with their types, where the part has several types.

        By default the value that is there.
        """
        found: list[tuple[Any, pa.DataType]] = [(None, columns[0].kind)] * len(slots)
        for column in columns:
            for row, value in values_in(column, slots):
                found[row] = (value, column.kind)
        return found


class PartialAggregate(ColumnAggregate):
    """A function that is computed of parts of the rows, which are then merged."""

    @abstractmethod
    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """The reductions of the prepared column of a batch for each key."""

    def parts_of(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
        """The parts, from the results of `reductions` in their order."""
        return dict(zip(self.parts(column.type), results, strict=True))

    def of_each(self, column: pa.Array) -> Parts | None:
        """The parts of each row as if it were alone in its key; `None` if only `reductions` can tell."""
        return None

    @abstractmethod
    def merge(self, state: State, slots: Slots, parts: Parts) -> None:
        """Merge parts into those of the state; each slot occurs once.

        Raises:
            SumOverflowError: A sum does not fit; nothing was changed.
        """

    def wider(self, parts: Parts) -> Parts | None:
        """Parts that a merge has refused, in a type with more digits; `None` if there is none."""
        return None

    def merge_beside(
        self, own: Mapping[str, GrowingColumn], others: Sequence[GrowingColumn], slots: Slots, parts: Parts
    ) -> None:
        """Merge a part of one type where the state has several types.

        Args:
            own: The column of the part's type.
            others: The columns of other types.
            parts: One part, whose name is that of the column.

        Raises:
            MixedTypesError: A key has values of types that do not go together; nothing was changed.
        """
        self.merge(own, slots, parts)


class RowAggregate(ColumnAggregate):
    """A function that takes rows into its state one batch at a time.

    Attributes:
        of_new_pairs: Whether it is given only rows whose pair of key and value has not been there before.
    """

    of_new_pairs: bool = False

    @abstractmethod
    def add(self, state: State, slots: Slots, column: pa.Array) -> None:
        """Take rows in; a slot may occur several times."""


def values_in(column: GrowingColumn, slots: Slots) -> Iterator[tuple[int, Any]]:
    rows = np.flatnonzero(column.valid[slots])
    return zip(rows.tolist(), column.take(slots[rows]).to_pylist(), strict=True)


def refuse_others(
    function: ColumnAggregate,
    why: str,
    part: pa.Array,
    others: Sequence[GrowingColumn],
    slots: Slots,
) -> None:
    """Raise `MixedTypesError` for the first key that has a value in one of the other columns."""
    valid = part.is_valid().to_numpy(zero_copy_only=False)
    for other in others:
        both = np.flatnonzero(valid & other.valid[slots])
        if len(both):
            at = int(both[0])
            (value,) = other.take(slots[both[:1]]).to_pylist()
            one, two = reprlib.repr(part[at].as_py()), reprlib.repr(value)
            msg = (
                f"{type(function).__name__}({function.column!r}) meets {one} of type {part.type} and {two} "
                f"of type {other.kind}, {why}; make them of one type with a map in front of key_by"
            )
            raise MixedTypesError(msg, at)


def numbers(column: GrowingColumn, slots: Slots) -> NDArray[Any]:
    return np.where(column.valid[slots], column.values[slots], column.values.dtype.type(0))


def widened(column: pa.Array, function: ColumnAggregate) -> pa.Array:
    """Numbers in their widest type: int64 of whole numbers and truth values, doubles, decimals as they are.

    Raises:
        PenstockError: The values are no numbers, or do not fit 64 bits.
    """
    kind = column.type
    if kinds.is_null(kind) or kinds.is_decimal128(kind):
        return column
    if kinds.is_integer(kind) or kinds.is_boolean(kind):
        return column if kind.equals(pa.int64()) else _cast(column, pa.int64(), function)
    if kinds.is_floating(kind):
        return _cast(column, pa.float64(), function)
    _need_numbers(column, function)


def as_doubles(column: pa.Array, function: ColumnAggregate) -> pa.Array:
    """Numbers as doubles, which may lose digits.

    Raises:
        PenstockError: The values are no numbers.
    """
    kind = column.type
    if kinds.is_boolean(kind):
        return column.cast(pa.int8()).cast(pa.float64())
    if kinds.is_null(kind) or kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_decimal(kind):
        return column.cast(pa.float64(), safe=False)
    _need_numbers(column, function)


def _need_numbers(column: pa.Array, function: ColumnAggregate) -> NoReturn:
    msg = f"{type(function).__name__}({function.column!r}) needs numbers; the column is of type {column.type}"
    if len(values := column.drop_null()):
        msg += f" and holds {reprlib.repr(values[0].as_py())}"
    raise PenstockError(msg)


def _cast(column: pa.Array, kind: pa.DataType, function: ColumnAggregate) -> pa.Array:
    try:
        return column.cast(kind)
    except pa.ArrowInvalid as error:
        msg = f"{type(function).__name__}({function.column!r}): {error}; cast the column yourself"
        raise PenstockError(msg) from error
