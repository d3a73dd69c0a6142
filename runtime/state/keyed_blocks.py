"""Blocks: some entries of one table, on their way into a snapshot and out of it (`keyed_snapshot.py`).

`CapturedRows` become bytes in another thread. A `RowBlock` is read from a file of state. A block in columns
is the same in both directions (`column_table.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, groupby, islice, repeat
from operator import itemgetter
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import CodecError, KeyGroupError
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.column_table import ColumnBlock, decode_columns, encode_columns, key_list
from penstock.runtime.state.fixed_values import DELETED, Deleted
from penstock.runtime.state.key_groups import key_group_array

#: Maximum entries of a block. Encoding one takes some calls into C of a few milliseconds, in which no other
#: thread runs.
BLOCK_ENTRIES: Final = 1 << 14
#: Estimated bytes of a key and a value that are not encoded yet.
_KEY_WEIGHT: Final = 16
_VALUE_WEIGHT: Final = 16
#: References that are released at a time.
_GIVEN_BACK: Final = 1_000

#: Table, number of entries, key groups, keys, values; nested tables and columns have more.
PackedBlock: TypeAlias = tuple[Any, ...]
#: Keys of a block, and their values encoded as one list; `None` for deleted entries.
_EncodedRows: TypeAlias = tuple[Sequence[Any], bytes | None]


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Entries of a table of rows as they are read.

    Attributes:
        keys: The keys; in a nested table pairs of key and second part.
        values: Their values; `None` for deleted entries.
    """

    table: str
    key_groups: NDArray[np.uint16]
    keys: list[Any]
    values: list[Any] | None
    nested: bool = False

    def __len__(self) -> int:
        return len(self.keys)

    def put_into(self, changes: dict[Any, Any]) -> None:
        values = repeat(DELETED, len(self.keys)) if self.values is None else self.values
        changes.update(zip(self.keys, values, strict=True))

    @staticmethod
    def of_columns(block: ColumnBlock) -> RowBlock:
        values = None if block.values is None else block.values.to_pylist()
        return RowBlock(block.table, block.key_groups, key_list(block.keys), values)


class CapturedRows:
    """Changed entries of one table of rows, which become bytes.

    Entries are packed beside the task; each block costs some calls into C of a few milliseconds. Packed
    entries stay packed, so a later checkpoint that writes them again does not encode them again. Packing also
    releases the references. A million of them are released here in small steps, and not in the task when the
    checkpoint is confirmed.

    Two checkpoints may want the same entries at the same time, in two threads. Neither waits for the other. A
    reader enters itself in `_readers` *before* it takes the dict. It replaces the dict by the packed blocks,
    leaves `_readers`, and *then* checks whether `_readers` is empty. Only then does it empty the dict. So a
    dict that a thread reads is never emptied.

    Args:
        rows: Values by entry, immutable or `DELETED`; no other reference to this dict exists. Or entries with
            their values encoded.
        nested: Whether the entries are pairs of key and second part.
        with_deleted: Whether the deleted entries are packed, too.
    """

    def __init__(
        self,
        table: str,
        rows: dict[Any, Any] | list[_EncodedRows],
        *,
        nested: bool = False,
        with_deleted: bool = True,
    ) -> None:
        self.table, self.nested = table, nested
        self._with_deleted = with_deleted
        self._rows: dict[Any, Any] | list[_EncodedRows] | None = rows
        if isinstance(rows, dict):
            self._count, self._weight = len(rows), len(rows) * (_KEY_WEIGHT + _VALUE_WEIGHT)
        else:
            self._count = sum(len(keys) for keys, _ in rows)
            self._weight = sum(len(keys) * _KEY_WEIGHT + len(values or b"") for keys, values in rows)
        self._packed: list[PackedBlock] | None = None
        self._readers: list[None] = []

    @classmethod
    def encoded(
        cls,
        table: str,
        keys: Sequence[Any],
        values: Sequence[Any],
        codec: ValueCodec,
        *,
        nested: bool = False,
    ) -> CapturedRows:
        """Capture entries and encode their values at once, because mutable values may change later.

        Args:
            keys: The keys; in a nested table pairs, with those of one key adjacent.
        """
        starts = range(0, len(keys) or 1, BLOCK_ENTRIES)  # an empty block stands for a table without entries
        parts = [slice(start, start + BLOCK_ENTRIES) for start in starts]
        return cls(table, [_encoded(table, keys[some], values[some], codec) for some in parts], nested=nested)

    def __len__(self) -> int:
        packed = self._packed
        return self._count if packed is None else sum(block[1] for block in packed)

    @property
    def weight(self) -> int:
        packed = self._packed
        return self._weight if packed is None else sum(map(bytes_of, packed))

    def packed(self, max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec) -> list[PackedBlock]:
        """Pack the entries block by block; any thread may call it."""
        self._readers.append(None)
        try:
            rows = self._rows
            if rows is not None:
                encoded = self._encode(rows, codec) if isinstance(rows, dict) else rows
                self._packed = [self._pack(*some, max_parallelism, key_groups, codec) for some in encoded]
                self._rows = None
        finally:
            self._readers.pop()
        if isinstance(rows, dict) and not self._readers:
            _give_back(rows)
        assert self._packed is not None, "entries leave when their bytes are there"
        return self._packed

    def put_into(self, changes: dict[Any, Any], codec: ValueCodec) -> None:
        """Add these entries to older ones; any thread may call it."""
        self._readers.append(None)
        try:
            rows = self._rows
            if rows is not None:
                for keys, values in _in_parts(rows) if isinstance(rows, dict) else _decoded(rows, codec):
                    changes.update(zip(keys, values, strict=True))
                return
        finally:
            self._readers.pop()
        assert self._packed is not None, "entries leave when their bytes are there"
        for packed in self._packed:
            block = unpack_block(packed, codec)
            assert isinstance(block, RowBlock), "entries of a table of rows"
            block.put_into(changes)

    def _encode(self, entries: dict[Any, Any], codec: ValueCodec) -> Iterator[_EncodedRows]:
        for keys, values in _in_parts(entries):
            gone: list[Any] = []
            if Deleted in set(map(type, values)):
                gone = [key for key, value in zip(keys, values, strict=True) if value is DELETED]
                keys = [key for key, value in zip(keys, values, strict=True) if value is not DELETED]
                values = [value for value in values if value is not DELETED]
            if self.nested:
                keys, values = _by_key(keys, values)
                gone, _ = _by_key(gone, gone)
            if keys:
                yield _encoded(self.table, keys, values, codec)
            if gone and self._with_deleted:
                yield gone, None

    def _pack(
        self,
        keys: Sequence[Any],
        values: bytes | None,
        max_parallelism: int,
        key_groups: KeyGroupRange,
        codec: ValueCodec,
    ) -> PackedBlock:
        of_entries = keys
        counts: list[int] = []
        parts: list[Any] = []
        if self.nested:
            keys, counts, parts = _unnested(keys)
        groups = key_group_array(keys, max_parallelism)
        _check_own(self.table, keys, groups, key_groups)
        of_keys = groups.astype("<u2").tobytes(), codec.dumps(list(keys))
        of_parts = (None, np.array(counts, "<u4").tobytes(), codec.dumps(parts)) if self.nested else ()
        return (self.table, len(of_entries), *of_keys, values, *of_parts)


#: Changed entries of one table in a snapshot, in rows or in columns.
Block: TypeAlias = CapturedRows | ColumnBlock


def _encoded(table: str, keys: Sequence[Any], values: Sequence[Any], codec: ValueCodec) -> _EncodedRows:
    try:
        return keys, codec.dumps(values)
    except CodecError:
        for key, value in zip(keys, values, strict=True):
            try:
                codec.dumps(value)
            except CodecError as error:
                msg = f"state {table!r} of key {key!r:.100} can't be put into a checkpoint: {error}"
                raise CodecError(msg) from error
        raise


def _decoded(
    rows: Iterable[_EncodedRows], codec: ValueCodec
) -> Iterator[tuple[Sequence[Any], Iterable[Any]]]:
    for keys, values in rows:
        yield keys, repeat(DELETED, len(keys)) if values is None else codec.loads(values)


def _in_parts(entries: dict[Any, Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield keys and values of some entries at a time; pairs would keep the cycle collector busy."""
    keys, values = iter(entries), iter(entries.values())
    while some := list(islice(keys, BLOCK_ENTRIES)):
        yield some, list(islice(values, BLOCK_ENTRIES))


def _by_key(entries: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
    """Group the entries of a nested table by key, so that each key is written once."""
    places: dict[Any, list[int]] = {}
    for place, entry in enumerate(entries):
        places.setdefault(entry[0], []).append(place)
    if len(places) == len(entries):
        return entries, values
    order = list(chain.from_iterable(places.values()))
    return [entries[place] for place in order], [values[place] for place in order]


def _give_back(entries: dict[Any, Any]) -> None:
    """Empty a dict in small steps; another thread may do so at the same time."""
    with suppress(KeyError):
        while entries:
            for _ in range(_GIVEN_BACK):
                entries.popitem()


def bytes_of(packed: PackedBlock) -> int:
    return sum(len(part) for part in packed if isinstance(part, bytes))


def pack_blocks(
    blocks: Sequence[Block], max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
) -> list[PackedBlock]:
    """Encode blocks; the result is empty when no entries are left.

    Raises:
        KeyGroupError: A key belongs to another subtask, so no restore would find it.
        KeyTypeError: A table has a key of a type that can't be a key.
        CodecError: A value can't be encoded; the message names table and key.
    """
    packed: list[PackedBlock] = []
    for block in blocks:
        if isinstance(block, ColumnBlock):
            packed.append(_pack_columns(block, key_groups, any_type=codec.allows_pickle))
        else:
            packed += block.packed(max_parallelism, key_groups, codec)
    return packed


def _pack_columns(block: ColumnBlock, key_groups: KeyGroupRange, *, any_type: bool) -> PackedBlock:
    _check_own(block.table, block.keys, block.key_groups, key_groups)
    groups = block.key_groups.astype("<u2").tobytes()
    values = None if block.values is None else encode_columns(block.values, any_type=any_type)
    return block.table, len(block), groups, encode_columns(block.keys, any_type=any_type), values, block.extra


def unpack_block(packed: PackedBlock, codec: ValueCodec) -> RowBlock | ColumnBlock:
    """Decode a block.

    Raises:
        ValueError: The block's parts don't fit together.
        CodecError: A value can't be decoded.
    """
    return _decode_block(codec, *packed)


def _unnested(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[int], list[Any]]:
    """Return the keys, the number of adjacent entries of each, and all second parts.

    Example:
        >>> _unnested([("ann", "/"), ("ann", "/cart"), ("bob", "/")])
        (['ann', 'bob'], [2, 1], ['/', '/cart', '/'])
    """
    runs = [(key, len(list(run))) for key, run in groupby(pairs, itemgetter(0))]
    return [key for key, _ in runs], [count for _, count in runs], [part for _, part in pairs]


def _check_own(
    table: str, keys: Sequence[Any] | pa.RecordBatch, groups: NDArray[np.uint16], own: KeyGroupRange
) -> None:
    foreign = np.flatnonzero((groups < own.first) | (groups > own.last))
    if len(foreign):
        at = int(foreign[0])
        key = keys.slice(at, 1).to_pylist()[0] if isinstance(keys, pa.RecordBatch) else keys[at]
        msg = (
            f"state table {table!r} has an entry of {key!r:.100}, whose key group "
            f"{groups[at]} is outside of this subtask's {own.first} to {own.last}; "
            "entries must be keyed by the stream's own key"
        )
        raise KeyGroupError(msg)


def _decode_block(
    codec: ValueCodec,
    table: str,
    count: int,
    groups: bytes,
    keys: bytes,
    values: bytes | None,
    extra: int | None = None,
    counts: bytes | None = None,
    parts: bytes | None = None,
) -> RowBlock | ColumnBlock:
    if extra is not None:
        return _decode_columns(codec, table, count, groups, keys, values, extra)
    try:
        of_keys = np.frombuffer(groups, dtype="<u2")
        if counts is None or parts is None:
            decoded_keys = one_nan(codec.loads(keys))
        else:
            decoded_keys, numbers = nested_keys(codec, keys, counts, parts)
            of_keys = np.repeat(of_keys, numbers)
        decoded = RowBlock(
            table,
            of_keys,
            decoded_keys,
            None if values is None else codec.loads(values),
            counts is not None,
        )
    except CodecError as error:
        msg = f"state {table!r}: {error}"
        raise CodecError(msg) from error
    lengths = {
        len(decoded.key_groups),
        len(decoded.keys),
        count if values is None else len(decoded.values or ()),
    }
    if lengths != {count}:
        msg = f"a block of table {table!r} should have {count} keys and has {sorted(lengths)}"
        raise ValueError(msg)
    return decoded


def nested_keys(
    codec: ValueCodec, keys: bytes, counts: bytes, parts: bytes
) -> tuple[list[tuple[Any, Any]], NDArray[np.uint32]]:
    numbers = np.frombuffer(counts, dtype="<u4")
    seconds = one_nan(codec.loads(parts))
    total = int(numbers.sum(dtype=np.uint64))
    if total != len(seconds):  # checked before keys are repeated: four bytes can stand for four billion
        msg = f"the keys of a nested table should have {len(seconds)} entries and have {total}"
        raise ValueError(msg)
    firsts = zip(one_nan(codec.loads(keys)), numbers.tolist(), strict=True)
    every = [key for first, number in firsts for key in repeat(first, number)]
    return list(zip(every, seconds, strict=True)), numbers


def _decode_columns(
    codec: ValueCodec, table: str, count: int, groups: bytes, keys: bytes, values: bytes | None, extra: int
) -> ColumnBlock:
    any_type = codec.allows_pickle
    try:
        decoded = ColumnBlock(
            table,
            decode_columns(keys, any_type=any_type),
            np.frombuffer(groups, dtype="<u2"),
            None if values is None else decode_columns(values, any_type=any_type),
            extra,
        )
    except CodecError as error:
        msg = f"state {table!r}: {error}"
        raise CodecError(msg) from error
    lengths = {len(decoded), len(decoded.key_groups), count}
    if decoded.values is not None and decoded.values.num_columns:
        lengths.add(decoded.values.num_rows)
    if lengths != {count} or not 0 <= extra < decoded.keys.num_columns:
        msg = f"a block of table {table!r} should have {count} keys and has {sorted(lengths)}"
        raise ValueError(msg)
    return decoded
