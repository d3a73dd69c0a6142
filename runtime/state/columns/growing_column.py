"""`GrowingColumn`: values of one Arrow type by slot, which can be changed in place.

Arrow arrays can't be changed, so the values are in numpy arrays. Numbers, booleans and times have an array of
their own kind and a mask of which slots hold a value. Everything else (text, bytes, decimals, lists) is an
array of Python objects, where `None` is null.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.errors import StateMismatchError

#: Numbers of the slots that something is about.
Slots = NDArray[np.int64]

_BY_BYTES: Final = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


class GrowingColumn:
    """Values of one type; a slot that was never written is null.

    Args:
        name: Of the column, for messages.
        kind: Its Arrow type. A column of type null takes the type of the first values that have another.

    Attributes:
        values: The values by slot; undefined where `valid` is false. Operators may change them in place.
        valid: Which slots hold a value.

    Example:
        >>> column = GrowingColumn("n", pa.int64())
        >>> column.reserve(3)
        >>> column.put(np.array([2, 0]), pa.array([5, None]))
        >>> column.take(np.array([0, 1, 2])).to_pylist()
        [None, None, 5]
    """

    def __init__(self, name: str, kind: pa.DataType) -> None:
        self.name = name
        self.kind = kind
        self.values: NDArray[Any] = np.empty(0, _dtype_of(kind))
        self.valid: NDArray[np.bool_] = np.zeros(0, np.bool_)

    @property
    def is_object(self) -> bool:
        """Whether the values are Python objects."""
        return self.values.dtype == np.object_

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays, without what Python objects in them occupy."""
        return self.values.nbytes + self.valid.nbytes

    def reserve(self, capacity: int) -> None:
        """Have room for this many slots; new ones are null."""
        old = len(self.valid)
        if capacity <= old:
            return
        self.values, self.valid = _longer(self.values, capacity), _longer(self.valid, capacity)
        self.valid[old:] = False

    def put(self, slots: Slots, column: pa.Array) -> None:
        """Set the values of slots, each of which occurs once.

        Raises:
            StateMismatchError: The values are of another type.
        """
        self.adopt(column.type)
        if kinds.is_null(column.type):
            self.clear(slots)
            return
        self.values[slots], self.valid[slots] = self.arrays_of(column)

    def clear(self, slots: Slots) -> None:
        """Make slots null."""
        self.valid[slots] = False
        if self.is_object:
            self.values[slots] = None

    def take(self, slots: Slots) -> pa.Array:
        """The values of slots, in their order, as an Arrow array."""
        values, valid = self.values[slots], self.valid[slots]
        if kinds.is_null(self.kind):
            return pa.nulls(len(slots))
        if self.is_object:
            return pa.array(values, self.kind, from_pandas=False)
        storage = pa.array(values, mask=None if valid.all() else ~valid)
        return storage if storage.type.equals(self.kind) else storage.view(self.kind)

    def equals(self, slots: Slots, column: pa.Array) -> NDArray[np.bool_]:
        """Whether each slot holds the value at the same place of a column; nulls are equal.

        Raises:
            StateMismatchError: The column is of another type.
        """
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
        """Make sure that values of a type can be put here.

        Raises:
            StateMismatchError: They can't.
        """
        if kind.equals(self.kind) or kinds.is_null(kind):
            return
        if not kinds.is_null(self.kind):
            msg = (
                f"column {self.name!r} is of type {kind} here and of type {self.kind} in the state: a column "
                "keeps its type; cast it in front of this operator"
            )
            raise StateMismatchError(msg)
        self.kind = kind
        self.values = np.empty(len(self.valid), _dtype_of(kind))

    def arrays_of(self, column: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Values and mask of an Arrow array of this column's type, as this column holds them."""
        if self.is_object:
            values = np.empty(len(column), np.object_)
            values[:] = column.to_pylist()
            return values, _valid_of(column)
        valid = _valid_of(column)
        storage = column if kinds.is_boolean(self.kind) else column.view(_storage_of(self.kind))
        if column.null_count:
            storage = storage.fill_null(False if kinds.is_boolean(self.kind) else 0)
        return storage.to_numpy(zero_copy_only=False), valid


def is_fixed(kind: pa.DataType) -> bool:
    """Whether values of a type are kept as numbers and not as Python objects.

    Example:
        >>> is_fixed(pa.timestamp("us")), is_fixed(pa.string()), is_fixed(pa.decimal128(5, 2))
        (True, False, False)
    """
    return bool(kinds.is_primitive(kind)) and not kinds.is_interval(kind) and not kinds.is_decimal(kind)


def _dtype_of(kind: pa.DataType) -> np.dtype[Any]:
    if kinds.is_null(kind) or not is_fixed(kind):
        return np.dtype(np.object_)
    return np.dtype(np.bool_) if kinds.is_boolean(kind) else np.dtype(_storage_of(kind).to_pandas_dtype())


def _storage_of(kind: pa.DataType) -> pa.DataType:
    """The plain number that a value of a fixed type is stored as."""
    if kinds.is_integer(kind) or kinds.is_floating(kind):
        return kind
    return pa.from_numpy_dtype(_BY_BYTES[kind.bit_width // 8])


def _valid_of(column: pa.Array) -> NDArray[np.bool_]:
    if column.null_count == 0:
        return np.ones(len(column), np.bool_)
    valid: NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _longer(array: NDArray[Any], capacity: int) -> NDArray[Any]:
    longer = np.empty(capacity, array.dtype)
    longer[: len(array)] = array
    return longer
