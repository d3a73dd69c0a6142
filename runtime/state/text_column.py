"""`TextColumn`: strings or bytes by slot, stored as in Arrow and not as Python objects.

`values` has positions in a growing Arrow array of all strings. A written string is appended, so a slot that
is written again or deleted leaves a string that no slot has. Before the array grows, such strings are dropped
if they are at least half of all. So a string is copied a constant number of times on average.

Operators must not change `values`, except for moving positions between slots of the same column.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.state.typed_columns import GrowingColumn, Slots, valid_of

#: Number of strings, and of their bytes, for which a new column has room.
_FEWEST: Final = 1 << 10


def new_column(name: str, kind: pa.DataType) -> GrowingColumn:
    """A column for values that operators write and read, but never change in place.

    Example:
        >>> column = new_column("city", pa.string())
        >>> column.reserve(4)
        >>> column.put(np.array([2, 0]), pa.array(["Rome", None]))
        >>> column.take(np.array([0, 1, 2, 2])).to_pylist()
        [None, None, 'Rome', 'Rome']
    """
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
    is_text = is_text or kinds.is_binary(kind) or kinds.is_large_binary(kind)
    return TextColumn(name, kind) if is_text else GrowingColumn(name, kind)


class TextColumn(GrowingColumn):
    """Strings by slot; `values` has positions in all strings."""

    def __init__(self, name: str, kind: pa.DataType) -> None:
        super().__init__(name, kind)
        self.values = np.empty(0, np.int64)
        is_string = kinds.is_string(kind) or kinds.is_large_string(kind)
        self._large = pa.large_string() if is_string else pa.large_binary()
        self._count = 0
        self._offsets = np.zeros(_FEWEST + 1, np.int64)
        self._bytes = np.empty(_FEWEST, np.uint8)

    @property
    def texts(self) -> int:
        """Number of strings in memory, including those that no slot has."""
        return self._count

    def equals(self, slots: Slots, column: pa.Array) -> NDArray[np.bool_]:
        self.adopt(column.type)
        mine, valid = self.valid.take(slots), valid_of(column)
        if kinds.is_null(column.type):
            return ~mine
        import pyarrow.compute as pc  # late: most subtasks have no such state

        same = pc.equal(self.take(slots), column).fill_null(False).to_numpy(zero_copy_only=False)
        equal: NDArray[np.bool_] = same | ~(mine | valid)
        return equal

    def arrays_of(self, column: pa.Array) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        """Append the strings of a column; returns their positions and the mask."""
        offsets, texts = _parts(column.cast(self._large))
        self._make_room(len(column), len(texts))
        first, start = self._count, self._offsets[self._count]
        self._bytes[start : start + len(texts)] = texts
        self._offsets[first + 1 : first + 1 + len(column)] = offsets[1:] - offsets[0] + start
        self._count += len(column)
        return np.arange(first, self._count), valid_of(column)

    def array_of(self, values: NDArray[Any], valid: NDArray[np.bool_]) -> pa.Array:
        positions = pa.array(values, mask=None if valid.all() else ~valid)
        return self._all().take(positions).cast(self.kind)

    def _all(self) -> pa.Array:
        offsets, end = self._offsets[: self._count + 1], self._offsets[self._count]
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(self._bytes[:end])]
        return pa.Array.from_buffers(self._large, self._count, buffers)

    def _make_room(self, texts: int, size: int) -> None:
        """Make room for further strings with `size` bytes."""
        if self._fits(texts, size):
            return
        live = self.values[self.valid]
        if 2 * len(live) <= self._count:
            offsets, kept = _parts(self._all().take(pa.array(live)))
            self._bytes[: len(kept)] = kept
            self._offsets[: len(offsets)] = offsets
            self.values[self.valid] = np.arange(len(live))
            self._count = len(live)
        if not self._fits(texts, size):
            end = int(self._offsets[self._count])
            self._offsets = _longer(self._offsets, self._count + 1, self._count + 1 + texts)
            self._bytes = _longer(self._bytes, end, end + size)

    def _fits(self, texts: int, size: int) -> bool:
        has_offsets = self._count + texts < len(self._offsets)
        return has_offsets and self._offsets[self._count] + size <= len(self._bytes)


def _parts(column: pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The offsets of an array of large strings, and the bytes; the first offset belongs to the first byte."""
    if not len(column):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, offsets, data = column.buffers()
    own = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    if data is None:
        return own, np.empty(0, np.uint8)
    return own, np.frombuffer(data, np.uint8)[own[0] : own[-1]]


def _longer(array: NDArray[Any], used: int, needed: int) -> NDArray[Any]:
    longer = np.empty(max(needed, 2 * len(array)), array.dtype)
    longer[:used] = array[:used]
    return longer
