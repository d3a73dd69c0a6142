"""`TypedColumns`: values by slot, with a growing column for each type that occurs under one name.

Rows have no declared types, and two rows may hold 2 and 2.5. A common type would depend on the records that a
subtask has seen, so parallelism would change results. Here each value keeps its type. Nearly always there is
only one type, and then there is only one column.

In a block of a snapshot the column of the first type has the plain name. The other columns have names such as
`total:sum|double`. Readers don't depend on which type is the first.

`GrowingColumn` has values of one Arrow type. Arrow arrays can't be changed, so the values are in a numpy
array, with a mask of the slots that have a value. Numbers, booleans and times are plain numpy values. All
other values, such as text, bytes, decimals and lists, are Python objects. A null among objects is `None`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.errors import StateMismatchError

#: Slot numbers.
Slots = NDArray[np.int64]

#: Mask of values without nulls, whatever their number: `all()` of an empty mask is true.
_NO_NULLS: Final = np.ones(0, np.bool_)

_BY_BYTES: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


class GrowingColumn:
    """Values of one type by slot; a slot that was never written is null.

    Attributes:
        values: Undefined where `valid` is false. Operators may change them in place.
    """

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name = name
        self.kind = kind
        self.values: NDArray[Any] = np.empty(0, _dtype_of(kind))
        self.valid: NDArray[np.bool_] = np.zeros(0, np.bool_)

    @property
    def is_object(self) -> bool:
        return self.values.dtype == np.object_

    def reserve(self, capacity: int) -> None:
        old = len(self.valid)
        if capacity <= old:
            return
        self.values, self.valid = _longer(self.values, capacity), _longer(self.valid, capacity)
        self.valid[old:] = False

    def move(self, slots: Slots | slice, capacity: int) -> None:
        """Move the values of these slots to the first slots, forget all others, and have this capacity."""
        values, valid = self.values[slots], self.valid[slots]
        self.values, self.valid = np.empty(capacity, values.dtype), np.zeros(capacity, np.bool_)
        self.values[: len(values)], self.valid[: len(valid)] = values, valid

    def put(self, slots: Slots | slice, column: pa.Array) -> None:
        self.adopt(column.type)
        if kinds.is_null(column.type):
            self.clear(slots)
            return
        self.values[slots], self.valid[slots] = self.arrays_of(column)

    def clear(self, slots: Slots | slice) -> None:
        self.valid[slots] = False
        if self.is_object:
            self.values[slots] = None

    def take(self, slots: Slots, *, has_nulls: bool = True) -> pa.Array:
        """The values of slots; with `has_nulls=False` each slot must have a value."""
        return self.array_of(self.values.take(slots), self.valid.take(slots) if has_nulls else _NO_NULLS)

    def array_of(self, values: NDArray[Any], valid: NDArray[np.bool_]) -> pa.Array:
        """Convert values of this column to an Arrow array, the inverse of `arrays_of`."""
        if kinds.is_null(self.kind):
            return pa.nulls(len(values))
        if self.is_object:
            return pa.array(values, self.kind, from_pandas=False)
        storage = pa.array(values, mask=None if valid.all() else ~valid)
        return storage if storage.type.equals(self.kind) else storage.view(self.kind)

    def equals(self, slots: Slots, column: pa.Array) -> NDArray[np.bool_]:
        """Whether each slot holds the value at the same position of a column; nulls are equal."""
        self.adopt(column.type)
        if kinds.is_null(column.type):
            return ~self.valid[slots]
        values, valid = self.arrays_of(column)
        if not column.null_count and self.values.dtype.kind in "biu":
            plain: NDArray[np.bool_] = self.values.take(slots) == values
            plain &= self.valid.take(slots)
            return plain
        mine = self.valid[slots]
        same: NDArray[np.bool_] = self.values[slots] == values
        if self.values.dtype.kind == "f":
            same |= (values != values) & (self.values[slots] != self.values[slots])
        equal: NDArray[np.bool_] = (mine == valid) & (same.astype(np.bool_) | ~valid)
        return equal

    def adopt(self, kind: pa.DataType) -> None:
        if kind.equals(self.kind) or kinds.is_null(kind):
            return
        if not kinds.is_null(self.kind):
            msg = (
                f"column {self.name!r} is of type {kind} here and of type {self.kind} in the state: a column "
                "keeps its type; cast it before this operator"
            )
            raise StateMismatchError(msg)
        self.kind = kind
        self.values = np.empty(len(self.valid), _dtype_of(kind))

    def arrays_of(self, column: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Convert an Arrow array of this column's type to values and mask."""
        if self.is_object:
            values = np.empty(len(column), np.object_)
            values[:] = column.to_pylist()
            return values, valid_of(column)
        valid = valid_of(column)
        storage = column if kinds.is_boolean(self.kind) else column.view(_storage_of(self.kind))
        if column.null_count:
            storage = storage.fill_null(False if kinds.is_boolean(self.kind) else 0)
        return storage.to_numpy(zero_copy_only=False), valid


def _dtype_of(kind: pa.DataType) -> np.dtype[Any]:
    if not kinds.is_primitive(kind) or kinds.is_interval(kind) or kinds.is_decimal(kind):
        return np.dtype(np.object_)
    return np.dtype(np.bool_) if kinds.is_boolean(kind) else np.dtype(_storage_of(kind).to_pandas_dtype())


def _storage_of(kind: pa.DataType) -> pa.DataType:
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        return kind
    return pa.from_numpy_dtype(_BY_BYTES[kind.bit_width // 8])


def valid_of(column: pa.Array) -> NDArray[np.bool_]:
    if column.null_count == 0:
        return np.ones(len(column), np.bool_)
    valid: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _longer(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    longer = np.empty(capacity, array.dtype)
    longer[: len(array)] = array
    return longer


#: Maximum number of types of one column; dicts with different keys have different types.
_MOST: Final = 256
#: Separator of a column's name and a type.
_AS: Final = "|"
#: Types of row values; `_is_of_values` adds timestamps, durations, decimals, lists and structs.
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
        make: Makes a column of a name and a type; by default a `GrowingColumn`.
    """

    def __init__(self, name: str, make: Callable[[str, pa.DataType], GrowingColumn] = GrowingColumn) -> None:
        self.name = name
        self.all: list[GrowingColumn] = []
        self._capacity = 0
        self._make = make

    def of(self, kind: pa.DataType) -> GrowingColumn:
        """The column for values of a type; nulls fit into any column."""
        for column in self.all:
            if column.kind.equals(kind) or kinds.is_null(kind):
                return column
        if self.all:
            first = self.all[0]
            if kinds.is_null(first.kind) or not (_is_of_values(kind) and _is_of_values(first.kind)):
                return self._adopted(0, kind)
        if len(self.all) == _MOST:
            msg = (
                f"column {self.name!r} has values of more than {_MOST} types; the last one is {kind}. "
                "Convert them with a map before this operator, for example to text"
            )
            raise StateMismatchError(msg)
        column = self._new(kind)
        self.all.append(column)
        return column

    def _new(self, kind: pa.DataType) -> GrowingColumn:
        column = self._make(self.name, kind)
        column.reserve(self._capacity)
        return column

    def _adopted(self, place: int, kind: pa.DataType) -> GrowingColumn:
        """The column at a place, after it has got its type."""
        if kinds.is_null(self.all[place].kind) and not kinds.is_null(kind):
            self.all[place] = self._new(kind)
        self.all[place].adopt(kind)
        return self.all[place]

    def remake(self, make: Callable[[str, pa.DataType], GrowingColumn]) -> None:
        """Make the columns with another function, and copy their values."""
        self._make = make
        for place, old in enumerate(self.all):
            new = self.all[place] = self._new(old.kind)
            slots = np.flatnonzero(old.valid)
            if len(slots):
                new.put(slots, old.take(slots))

    def only(self, kind: pa.DataType) -> GrowingColumn:
        if not self.all:
            return self.of(kind)
        return self._adopted(-1, kind)

    def reserve(self, capacity: int) -> None:
        self._capacity = max(self._capacity, capacity)
        for column in self.all:
            column.reserve(capacity)

    def move(self, slots: Slots | slice, capacity: int) -> None:
        """`GrowingColumn.move` for the column of each type."""
        self._capacity = capacity
        for column in self.all:
            column.move(slots, capacity)

    def clear(self, slots: Slots | slice) -> None:
        for column in self.all:
            column.clear(slots)

    def put(self, slots: Slots | slice, column: pa.Array) -> None:
        own = self.of(column.type)
        own.put(slots, column)
        for other in self.all:
            if other is not own:
                other.clear(slots)

    def types_of(self, slots: Slots) -> NDArray[np.int64]:
        """The position of the column with the value of each slot; 0 for null."""
        codes = np.zeros(len(slots), np.int64)
        for position, column in enumerate(self.all[1:], 1):
            codes[column.valid[slots]] = position
        return codes

    def precedence(self, slots: Slots) -> NDArray[np.int64]:
        """The rank of the type of each slot's value; of equal values, the lowest rank is kept (`settle`)."""
        ranks = np.argsort(np.argsort([f"{_rank(column.kind)}" for column in self.all]))
        return ranks[self.types_of(slots)]

    def take(self, slots: Slots) -> pa.Array:
        if len(self.all) == 1:
            return self.all[0].take(slots)
        found = [column for column in self.all if column.valid[slots].any()]
        assert len(found) < 2, f"slots of {self.name!r} hold values of several types"
        return (found or self.all)[0].take(slots)

    def by_label(self) -> dict[str, GrowingColumn]:
        return {self.label_of(column): column for column in self.all}

    def label_of(self, column: GrowingColumn) -> str:
        return self.name if column is self.all[0] else f"{self.name}{_AS}{column.kind}"

    def equals(self, slots: Slots, column: pa.Array) -> NDArray[np.bool_]:
        """Whether each slot holds the value at the same position of a column.

        Nulls are equal, and so are values of different types that are equal in Python.
        """
        own = self.of(column.type)
        same = own.equals(slots, column)
        if len(self.all) == 1:
            return same
        valid = valid_of(column)
        for other in self.all:
            if other is own:
                continue
            has = other.valid[slots]
            same &= ~has | valid  # a null is not equal to a value of another type
            rows = np.flatnonzero(has & valid)
            if len(rows):
                same[rows] = _equal_values(other, slots[rows], column.take(pa.array(rows)))
        return same

    def equals_any(self, slots: Slots, column: pa.Array) -> NDArray[np.bool_]:
        """Like `equals`, but adds no column for a new type."""
        if kinds.is_null(column.type) or any(own.kind.equals(column.type) for own in self.all):
            return self.equals(slots, column)
        valid, has_value = valid_of(column), np.zeros(len(slots), np.bool_)
        same = np.zeros(len(slots), np.bool_)
        for own in self.all:
            has_value |= own.valid[slots]
            rows = np.flatnonzero(own.valid[slots] & valid)
            if len(rows):
                same[rows] = _equal_values(own, slots[rows], column.take(pa.array(rows)))
        return same | ~(valid | has_value)

    def settle(self, slots: Slots, column: pa.Array) -> None:
        """Give slots with equal values the type of `column` if this type has precedence over theirs."""
        if len(self.all) == 1 or kinds.is_null(column.type):
            return
        own = self.of(column.type)
        for other in self.all:
            if _rank(own.kind) < _rank(other.kind):
                rows = np.flatnonzero(other.valid[slots])
                own.values[slots[rows]], own.valid[slots[rows]] = own.arrays_of(column.take(pa.array(rows)))
                other.clear(slots[rows])


def _rank(kind: pa.DataType) -> tuple[bool, str]:
    """Precedence of a type; 64-bit integers come first."""
    return not kinds.is_int64(kind), str(kind)


def plain_name(label: str, kind: pa.DataType) -> str:
    """Return a label without its type.

    Example:
        >>> plain_name("total:sum|double", pa.float64())
        'total:sum'
    """
    return label.removesuffix(f"{_AS}{kind}")


def alike(columns: Sequence[TypedColumns], slots: Slots) -> list[Slots]:
    """Positions in `slots`, grouped so that each group has one type in every column."""
    return alike_in([(typed, slots) for typed in columns], len(slots))


def alike_in(columns: Sequence[tuple[TypedColumns, Slots]], rows: int) -> list[Slots]:
    """Like `alike`, for rows that have a slot of their own in each column."""
    mixed = [(typed, slots) for typed, slots in columns if len(typed.all) > 1]
    if not mixed:
        return [np.arange(rows)]
    codes = np.zeros(rows, np.int64)
    for typed, slots in mixed:
        codes = codes * len(typed.all) + typed.types_of(slots)
        codes = np.unique(codes, return_inverse=True)[1]
    return [np.flatnonzero(codes == code) for code in range(int(codes.max(initial=-1)) + 1)]


def _is_of_values(kind: pa.DataType) -> bool:
    return bool(
        kind in _OF_VALUES
        or kinds.is_timestamp(kind)
        or kinds.is_duration(kind)
        or kinds.is_decimal(kind)
        or kinds.is_list(kind)
        or kinds.is_struct(kind)
    )


def _equal_values(own: GrowingColumn, slots: Slots, column: pa.Array) -> NDArray[np.bool_]:
    """Compare values of any two types; none of them is null."""
    if kinds.is_floating(own.kind) and kinds.is_floating(column.type):
        mine, theirs = own.values[slots], column.to_numpy(zero_copy_only=False)
        return np.asarray((mine == theirs) | ((mine != mine) & (theirs != theirs)))
    if kinds.is_integer(own.kind) and kinds.is_integer(column.type):
        return np.asarray(own.values[slots] == column.to_numpy(zero_copy_only=False))
    pairs = zip(_comparable(own.take(slots)), _comparable(column), strict=True)
    return np.array([one == another for one, another in pairs], np.bool_)


def _comparable(column: pa.Array) -> list[Any]:
    """Return values that Python compares by meaning: timestamps with a zone compare by their instant."""
    kind = column.type
    if kinds.is_timestamp(kind) and kind.tz is not None:
        step = _NANOSECONDS[kind.unit]
        return [("moment", None if v is None else v * step) for v in column.view(pa.int64()).to_pylist()]
    values: list[Any] = column.to_pylist()
    return values
