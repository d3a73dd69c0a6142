"""`TypedColumns`: values of one name by slot that may have several types, a growing column for each of them.

Rows have no declared types, and two of them may hold 2 and 2.5. A common type would depend on which records a
subtask has seen, so parallelism would change results. Here each value keeps its type. Nearly always there is
one type, and then there is one column and no more work than that.

In a block of a snapshot the column of the first type has the plain name. The others have names such as
`total:sum|double`. Which type is the first does not matter to whoever reads them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.state.columns.growing_column import GrowingColumn, Slots

#: Types of one column at most; dicts of rows may have a new one each time.
_MOST: Final = 256
#: Between a column's name and a type.
_AS: Final = "|"
#: Types that values of rows have, apart from those with a unit, a zone, a scale or parts.
_OF_VALUES: Final = (
    pa.bool_(),
    pa.int64(),
    pa.uint64(),
    pa.float64(),
    pa.string(),
    pa.binary(),
    pa.date32(),
    pa.time64("us"),
    pa.time64("ns"),
)
_NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}


class TypedColumns:
    """The columns of one name.

    Args:
        name: For messages and snapshots.

    Attributes:
        all: The columns; several of them hold values of one slot only where an operator has put them there.

    Example:
        >>> columns = TypedColumns("v")
        >>> columns.reserve(2)
        >>> columns.of(pa.int64()).put(np.array([0]), pa.array([2]))
        >>> columns.of(pa.float64()).put(np.array([1]), pa.array([2.5]))
        >>> columns.types_of(np.array([1, 0])).tolist()
        [1, 0]
        >>> list(columns.by_label())
        ['v', 'v|double']
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.all: list[GrowingColumn] = []
        self._capacity = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(column.nbytes for column in self.all)

    def of(self, kind: pa.DataType) -> GrowingColumn:
        """The column for values of a type; nulls go into any.

        Raises:
            StateMismatchError: The column has another type, and a value of a row never has this one.
        """
        for column in self.all:
            if column.kind.equals(kind) or kinds.is_null(kind):
                return column
        if self.all:
            first = self.all[0]
            if kinds.is_null(first.kind) or not (_is_of_values(kind) and _is_of_values(first.kind)):
                first.adopt(kind)
                return first
        if len(self.all) == _MOST:
            msg = (
                f"column {self.name!r} has values of more than {_MOST} types, the last one is {kind}; "
                "convert them with a map in front, for example to text"
            )
            raise StateMismatchError(msg)
        column = GrowingColumn(self.name, kind)
        column.reserve(self._capacity)
        self.all.append(column)
        return column

    def only(self, kind: pa.DataType) -> GrowingColumn:
        """The column for values of a type, which all values have.

        Raises:
            StateMismatchError: There are values of another type.
        """
        if not self.all:
            return self.of(kind)
        self.all[-1].adopt(kind)
        return self.all[-1]

    def reserve(self, capacity: int) -> None:
        """Have room for this many slots."""
        self._capacity = max(self._capacity, capacity)
        for column in self.all:
            column.reserve(capacity)

    def clear(self, slots: Slots) -> None:
        """Make slots null."""
        for column in self.all:
            column.clear(slots)

    def put(self, slots: Slots, column: pa.Array) -> None:
        """Set the values of slots, each of which occurs once."""
        own = self.of(column.type)
        own.put(slots, column)
        for other in self.all:
            if other is not own:
                other.clear(slots)

    def types_of(self, slots: Slots) -> NDArray[np.int64]:
        """For each slot the position of the column that has its value; 0 for null."""
        codes = np.zeros(len(slots), np.int64)
        for position, column in enumerate(self.all[1:], 1):
            codes[column.valid[slots]] = position
        return codes

    def take(self, slots: Slots) -> pa.Array:
        """The values of slots, which are of one type."""
        if len(self.all) == 1:
            return self.all[0].take(slots)
        found = [column for column in self.all if column.valid[slots].any()]
        assert len(found) < 2, f"slots of {self.name!r} hold values of several types"
        return (found or self.all)[0].take(slots)

    def by_label(self) -> dict[str, GrowingColumn]:
        """The columns by the names that they have in a block."""
        return {self.label_of(column): column for column in self.all}

    def label_of(self, column: GrowingColumn) -> str:
        """The name that one of the columns has in a block."""
        return self.name if column is self.all[0] else f"{self.name}{_AS}{column.kind}"

    def equals(self, slots: Slots, column: pa.Array) -> NDArray[np.bool_]:
        """Whether each slot holds the value at the same place of a column.

        Nulls are equal, and values of different types that are equal in Python.
        """
        own = self.of(column.type)
        same = own.equals(slots, column)
        if len(self.all) == 1:
            return same
        valid = np.ones(len(column), np.bool_)
        if column.null_count:
            valid = column.is_valid().to_numpy(zero_copy_only=False)
        for other in self.all:
            if other is own:
                continue
            has = other.valid[slots]
            same &= ~has | valid  # a null is not equal to a value of another type
            rows = np.flatnonzero(has & valid)
            if len(rows):
                theirs = _comparable(column.take(pa.array(rows)))
                pairs = zip(_comparable(other.take(slots[rows])), theirs, strict=True)
                same[rows] = [one == another for one, another in pairs]
        return same

    def settle(self, slots: Slots, column: pa.Array) -> None:
        """Give slots whose values are equal to those of a column the type of the column, if it comes first.

        So the type that a key has does not depend on the order in which its equal values came.

        Args:
            slots: A slot may occur several times.
            column: For each slot a value that is equal to that of the slot.
        """
        if len(self.all) == 1 or kinds.is_null(column.type):
            return
        own = self.of(column.type)
        for other in self.all:
            if _rank(own.kind) < _rank(other.kind):
                rows = np.flatnonzero(other.valid[slots])
                own.values[slots[rows]], own.valid[slots[rows]] = own.arrays_of(column.take(pa.array(rows)))
                other.clear(slots[rows])


def _rank(kind: pa.DataType) -> tuple[bool, str]:
    """Whole numbers of 64 bits come first."""
    return not kinds.is_int64(kind), str(kind)


def plain_name(label: str, kind: pa.DataType) -> str:
    """The name of the columns that a column of a block belongs to.

    Example:
        >>> plain_name("total:sum|double", pa.float64()), plain_name("total:sum", pa.int64())
        ('total:sum', 'total:sum')
    """
    return label.removesuffix(f"{_AS}{kind}")


def alike(columns: Sequence[TypedColumns], slots: Slots) -> list[Slots]:
    """Positions in slots, in parts whose values have one type in each of the columns.

    Example:
        >>> alike([], np.array([7, 3]))
        [array([0, 1])]
    """
    everything = np.arange(len(slots))
    mixed = [each for each in columns if len(each.all) > 1]
    if not mixed:
        return [everything]
    codes = np.zeros(len(slots), np.int64)
    for each in mixed:
        codes = codes * len(each.all) + each.types_of(slots)
        codes = np.unique(codes, return_inverse=True)[1]
    return [np.flatnonzero(codes == code) for code in range(int(codes.max(initial=-1)) + 1)]


def _is_of_values(kind: pa.DataType) -> bool:
    """Whether a value of a row may have this type."""
    return bool(
        kind in _OF_VALUES
        or kinds.is_timestamp(kind)
        or kinds.is_duration(kind)
        or kinds.is_decimal(kind)
        or kinds.is_list(kind)
        or kinds.is_struct(kind)
    )


def _comparable(column: pa.Array) -> list[Any]:
    """Values that Python compares by what they mean: moments by their instants, whatever the zone."""
    kind = column.type
    if kinds.is_timestamp(kind) and kind.tz is not None:
        step = _NANOSECONDS[kind.unit]
        return [("moment", None if v is None else v * step) for v in column.view(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    return values
