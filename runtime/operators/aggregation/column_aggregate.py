"""What an aggregate function over columns is: what it keeps for a key, and how that changes.

A function has *parts*: columns of state, one value a key. There are two kinds of functions.

A `PartialAggregate` works in two steps. A batch is first reduced to one row a key by pyarrow's `group_by`;
that row holds the parts of these rows alone. Then the parts are merged into those of the state, for all keys
of the batch at once. Parts of different batches merge in any order, so a combiner in front of the exchange
may do a part of the work.

A `RowAggregate` has no such step: it needs the state in order to take a row. All its records travel.

Nulls do not count, as in SQL: a function of nothing but nulls gives null, `Count` gives 0. Of floats, NaN
counts in `Sum` and `Mean`, and is passed over by `Min` and `Max` unless there is nothing else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import PenstockError
from penstock.runtime.state.columns.growing_column import GrowingColumn, Slots

#: The parts of one function by name.
Parts: TypeAlias = Mapping[str, pa.Array]
State: TypeAlias = Mapping[str, GrowingColumn]


class SumOverflowError(PenstockError):
    """A sum does not fit 64 bits, or the 38 digits of a decimal.

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
    """One function over a column, or over none.

    Attributes:
        column: Its name; empty where the function looks at no column.
        is_ordered: Whether the result depends on the order of the rows.
    """

    column: str = ""
    is_ordered: bool = False

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
        """What the function gives for each slot; by default its only part."""
        (part,) = state.values()
        return part.take(slots)


class PartialAggregate(ColumnAggregate):
    """A function that is computed of parts of the rows, which are then merged."""

    @abstractmethod
    def reductions(self, column: pa.Array) -> Sequence[Reduction]:
        """What is computed of the prepared column of a batch for each key."""

    def reduced(self, column: pa.Array, results: Sequence[pa.Array]) -> Parts:
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


class RowAggregate(ColumnAggregate):
    """A function that takes rows into its state one batch at a time.

    Attributes:
        of_new_pairs: Whether it is given only rows whose pair of key and value has not been there before.
    """

    of_new_pairs: bool = False

    @abstractmethod
    def add(self, state: State, slots: Slots, column: pa.Array) -> None:
        """Take rows in.

        Args:
            state: The parts.
            slots: Of each row's key; a slot may occur several times.
            column: The prepared column.
        """


def numbers(column: GrowingColumn, slots: Slots) -> NDArray[Any]:
    """The values of slots, 0 where there is none."""
    return np.where(column.valid[slots], column.values[slots], column.values.dtype.type(0))
