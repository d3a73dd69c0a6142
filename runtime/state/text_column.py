"""`TextColumn`: strings or bytes by slot, stored as in Arrow and not as Python objects.

`values` has a *view* of each string, as in Arrow's type `string_view`: the string's length, and its place in
a block of bytes. The view of a string of up to 12 bytes has the string itself. A read copies views of 16
bytes, and then each string once, into the result.

Blocks are in a `TextPool`, and never grow or move. The bytes of a large Arrow array become a block without
being copied, if the array was made by Arrow and owns its memory. A part of a message would keep all of the
message in memory. So other strings are copied into a block with room for more.

A slot that is written again or deleted leaves a string that no slot has. The pool copies the other strings
into new blocks when at least half of its bytes belong to such strings. It looks for them each time that its
size has doubled. So a string is copied a constant number of times on average.

Operators must not change `values`, except for moving views between slots of columns with one pool.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakSet

import numpy as np
import pyarrow as pa
import pyarrow.types as kinds
from numpy.typing import NDArray

from penstock.runtime.state.typed_columns import GrowingColumn, Slots, valid_of

#: Fields of a view, as columns of `int32`; `_BLOCK` and `_PLACE` only count for strings over `_INLINE` bytes.
_LENGTH, _, _BLOCK, _PLACE = range(4)

#: Maximum number of bytes of a string that its view holds.
_INLINE: Final = 12

#: Type of `values`: numpy copies items of 16 bytes quickly.
_VIEW: Final = np.dtype("V16")

#: Minimum number of bytes of a block, and of an array that becomes a block.
_LEAST_BLOCK: Final = 1 << 16
_LEAST_ARRAY: Final = 1 << 14

#: Blocks get larger with the pool, so that it has about this many at most.
_MOST_BLOCKS: Final = 1 << 9

#: Maximum number of bytes of a block, because places are of 32 bits.
_MOST_BYTES: Final = 1 << 30

_Views = NDArray[np.int32]


class TextPool:
    """The bytes of the long strings of columns.

    Attributes:
        blocks: The blocks, as views number them.
        size: Number of bytes, including those that no slot has.
    """

    def __init__(self) -> None:
        self.blocks: list[pa.Buffer] = []
        self.size = 0
        self._columns: WeakSet[TextColumn] = WeakSet()
        self._clear()

    def _clear(self) -> None:
        self.blocks, self.size = [], 0
        #: The block with room for more, its number, and the number of used bytes.
        self._open, self._open_number, self._used = np.empty(0, np.uint8), -1, 0
        #: Size at which the pool looks for strings that no slot has.
        self._check_at = 4 * _LEAST_BLOCK

    def join(self, column: TextColumn) -> None:
        self._columns.add(column)

    def views_of(self, column: pa.Array) -> _Views:
        """Add the strings of an array, and return their views."""
        if column.nbytes > _MOST_BYTES and len(column) > 1:
            half = len(column) // 2
            return np.concatenate((self.views_of(column[:half]), self.views_of(column[half:])))
        viewed = column.cast(pa.string_view() if _is_string(column.type) else pa.binary_view())
        _, data, *blocks = viewed.buffers()
        views: _Views = np.frombuffer(data, np.int32).reshape(-1, 4)
        views = views[viewed.offset : viewed.offset + len(viewed)].copy()
        if column.null_count:
            views[~valid_of(column)] = 0
        is_long = np.flatnonzero(views[:, _LENGTH] > _INLINE)
        if len(is_long):
            (block,) = blocks
            self._add(views, is_long, block)
        return views

    def _add(self, views: _Views, is_long: Slots, block: pa.Buffer) -> None:
        places, lengths = views[is_long, _PLACE], views[is_long, _LENGTH]
        total = int(lengths.sum(dtype=np.int64))
        least = max(_LEAST_ARRAY, self.size // _MOST_BLOCKS)
        if block.is_mutable and block.parent is None and least <= total and block.size <= 2 * total:
            views[is_long, _BLOCK] = len(self.blocks)
            self.blocks.append(block)
            self.size += block.size
            return
        first = int(places.min())
        part = np.frombuffer(block, np.uint8)[first : int((places + lengths).max())]
        if self._used + len(part) > len(self._open):
            room = min(max(_LEAST_BLOCK, self.size // _MOST_BLOCKS), _MOST_BYTES)
            self._open, self._used = np.empty(max(room, len(part)), np.uint8), 0
            self._open_number = len(self.blocks)
            self.blocks.append(pa.py_buffer(self._open))
            self.size += len(self._open)
        self._open[self._used : self._used + len(part)] = part
        views[is_long, _BLOCK] = self._open_number
        views[is_long, _PLACE] += np.int32(self._used - first)
        self._used += len(part)

    def drop_unused(self) -> None:
        """Drop strings that no slot has if the pool has doubled; views outside the columns become invalid."""
        if self.size < self._check_at:
            return
        columns = list(self._columns)
        long = [column.long_slots() for column in columns]
        live = sum(
            int(_as_views(column.values)[slots, _LENGTH].sum(dtype=np.int64))
            for column, slots in zip(columns, long, strict=True)
        )
        if 2 * live <= self.size:
            old = self.blocks
            self._clear()
            for column, slots in zip(columns, long, strict=True):
                for some in _parts(slots, _as_views(column.values)[slots, _LENGTH]):
                    kept = _large(column.values[some], old, column.kind)
                    column.values[some] = self.views_of(kept).view(_VIEW).ravel()
        self._check_at = max(self._check_at, 2 * self.size)


def _parts(slots: Slots, lengths: NDArray[np.int32]) -> list[Slots]:
    """Divide slots so that the strings of each part fit into a block."""
    sizes = np.cumsum(lengths, dtype=np.int64)
    if not len(slots):
        return []
    ends = np.searchsorted(sizes, np.arange(_MOST_BYTES // 2, int(sizes[-1]), _MOST_BYTES // 2))
    return [part for part in np.split(slots, ends) if len(part)]


def _as_views(values: NDArray[Any]) -> _Views:
    return values.view(np.int32).reshape(-1, 4)


def _is_string(kind: pa.DataType) -> bool:
    return bool(kinds.is_string(kind) or kinds.is_large_string(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(_is_string(kind) or kinds.is_binary(kind) or kinds.is_large_binary(kind))


def _large(values: NDArray[Any], blocks: list[pa.Buffer], kind: pa.DataType) -> pa.Array:
    """Strings without nulls as an array of 64-bit offsets, which any number of bytes fits into."""
    viewed = _viewed(values, None, blocks, kind)
    return viewed.cast(pa.large_string() if _is_string(kind) else pa.large_binary())


def _viewed(
    values: NDArray[Any], valid: pa.Buffer | None, blocks: list[pa.Buffer], kind: pa.DataType
) -> pa.Array:
    view = pa.string_view() if _is_string(kind) else pa.binary_view()
    buffers = [valid, pa.py_buffer(np.ascontiguousarray(values).view(np.uint8)), *blocks]
    return pa.Array.from_buffers(view, len(values), buffers)


def new_column(name: str, kind: pa.DataType) -> GrowingColumn:
    """A column for values that operators write and read, but never change in place.

    Example:
        >>> column = new_column("city", pa.string())
        >>> column.reserve(4)
        >>> column.put(np.array([2, 0]), pa.array(["Rome", None]))
        >>> column.take(np.array([0, 1, 2, 2])).to_pylist()
        [None, None, 'Rome', 'Rome']
    """
    return TextColumn(name, kind) if is_text(kind) else GrowingColumn(name, kind)


class TextColumn(GrowingColumn):
    """Strings by slot.

    Args:
        pool: Pool of the strings; by default the column has its own.

    Attributes:
        values: Views of strings in the pool.
    """

    def __init__(self, name: str, kind: pa.DataType, pool: TextPool | None = None) -> None:
        super().__init__(name, kind)
        self.values = np.empty(0, _VIEW)
        self.pool = TextPool() if pool is None else pool
        self.pool.join(self)

    def long_slots(self) -> Slots:
        """The slots with strings whose bytes are in the pool."""
        return np.flatnonzero(self.valid & (_as_views(self.values)[:, _LENGTH] > _INLINE))

    def put(self, slots: Slots | slice, column: pa.Array) -> None:
        super().put(slots, column)
        self.pool.drop_unused()

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
        """Add the strings of a column to the pool; returns their views and the mask."""
        return self.pool.views_of(column).view(_VIEW).ravel(), valid_of(column)

    def array_of(self, values: NDArray[Any], valid: NDArray[np.bool_]) -> pa.Array:
        mask = None
        if not valid.all():
            values = values.copy()
            values[~valid] = np.zeros((), _VIEW)
            mask = pa.py_buffer(np.packbits(valid, bitorder="little"))
        return _viewed(values, mask, self.pool.blocks, self.kind).cast(self.kind)
