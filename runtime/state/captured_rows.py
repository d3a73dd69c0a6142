"""`CapturedRows`: entries of one table of rows on their way into a snapshot (`keyed_snapshot.py`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, islice, repeat
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.errors import CodecError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.immutable_values import DELETED, Deleted
from penstock.runtime.state.keyed_chunk import (
    ColumnBlock,
    PackedBlock,
    RowBlock,
    bytes_of,
    chunk_of,
    pack_columns,
    pack_rows,
    unpack_block,
)

#: Maximum entries of a block. Encoding a block takes calls into C of a few milliseconds, in which no other
#: thread runs.
BLOCK_ENTRIES: Final = 1 << 14
#: Estimated bytes of a key and a value that are not encoded yet.
_KEY_WEIGHT: Final = 16
_VALUE_WEIGHT: Final = 16
#: Number of references that are released at a time.
_RELEASED: Final = 1_000

#: Keys of a block, and their values encoded as one list; `None` for deleted entries.
_EncodedRows: TypeAlias = tuple[Sequence[Any], bytes | None]


class LoggedRows:
    """Rows of a `RowLog`, as references that become entries of a nested table when they are encoded.

    Args:
        times: Event times in microseconds.
        flags: Whether each row is flagged.
        records: `None` for deleted rows.
    """

    def __init__(
        self,
        keys: NDArray[Any],
        numbers: NDArray[np.int64],
        times: NDArray[np.int64] | None = None,
        flags: NDArray[np.bool_] | None = None,
        records: NDArray[Any] | None = None,
    ) -> None:
        self._columns = (keys, numbers, times, flags, records)

    def __len__(self) -> int:
        return len(self._columns[0])

    def in_parts(self) -> Iterator[tuple[list[Any], list[Any]]]:
        """Yield entries and values of some rows at a time."""
        keys, numbers, times, flags, records = self._columns
        for start in range(0, len(keys), BLOCK_ENTRIES):
            some = slice(start, start + BLOCK_ENTRIES)
            entries = list(zip(keys[some], numbers[some].tolist(), strict=True))
            if times is None or flags is None or records is None:
                yield entries, [DELETED] * len(entries)
            else:
                yield (
                    entries,
                    list(zip(times[some].tolist(), flags[some].tolist(), records[some], strict=True)),
                )

    def release(self) -> None:
        """Drop the references in small steps."""
        keys, *_, records = self._columns
        for start in range(0, len(keys), _RELEASED):
            keys[start : start + _RELEASED] = None
            if records is not None:
                records[start : start + _RELEASED] = None


class CapturedRows:
    """Changed entries of one table of rows; immutable values are encoded outside the task's thread.

    Packed entries stay packed, so a later checkpoint that writes them again does not encode them again.
    Packing also releases the references, in small steps. Otherwise the task would release all of them at once
    when the checkpoint is confirmed, perhaps a million.

    Two checkpoints may need the same entries at the same time, in two threads that don't wait for each other.
    `packed` and `put_into` add an entry to `_readers` *before* they take the dict, and remove it when they no
    longer read. Before that, `packed` replaces the dict by the packed blocks. It empties the dict only if
    `_readers` is empty *afterwards*. So a dict that a thread reads is never emptied.

    Args:
        rows: Values by entry, immutable or `DELETED`, in a dict without another reference; or rows of a log;
            or entries with encoded values.
        nested: Whether the entries are pairs of key and second part.
        with_deleted: Whether the deleted entries are packed, too.
    """

    def __init__(
        self,
        table: str,
        rows: dict[Any, Any] | LoggedRows | list[_EncodedRows],
        *,
        nested: bool = False,
        with_deleted: bool = True,
    ) -> None:
        self.table, self.nested = table, nested
        self._with_deleted = with_deleted
        self._rows: dict[Any, Any] | LoggedRows | list[_EncodedRows] | None = rows
        if isinstance(rows, list):
            self._count = sum(len(keys) for keys, _ in rows)
            self._weight = sum(len(keys) * _KEY_WEIGHT + len(values or b"") for keys, values in rows)
        else:
            self._count, self._weight = len(rows), len(rows) * (_KEY_WEIGHT + _VALUE_WEIGHT)
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
        """Encode the values at once; in a nested table `keys` are pairs, with the pairs of a key adjacent."""
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
        """Return the packed entries; callable from any thread."""
        self._readers.append(None)
        try:
            rows = self._rows
            if rows is not None:
                encoded = rows if isinstance(rows, list) else self._encode(rows, codec)
                self._packed = [
                    pack_rows(self.table, *some, max_parallelism, key_groups, codec, nested=self.nested)
                    for some in encoded
                ]
                self._rows = None
        finally:
            self._readers.pop()
        if rows is not None and not isinstance(rows, list) and not self._readers:
            _release(rows)
        assert self._packed is not None, "entries are released after they are packed"
        return self._packed

    def put_into(self, changes: dict[Any, Any], codec: ValueCodec) -> None:
        """Write these entries over older `changes`; callable from any thread."""
        self._readers.append(None)
        try:
            rows = self._rows
            if rows is not None:
                for keys, values in _decoded(rows, codec) if isinstance(rows, list) else _in_parts(rows):
                    changes.update(zip(keys, values, strict=True))
                return
        finally:
            self._readers.pop()
        assert self._packed is not None, "entries are released after they are packed"
        for packed in self._packed:
            block = unpack_block(packed, codec)
            assert isinstance(block, RowBlock), "entries of a table of rows"
            block.put_into(changes)

    def _encode(self, entries: dict[Any, Any] | LoggedRows, codec: ValueCodec) -> Iterator[_EncodedRows]:
        for keys, values in _in_parts(entries):
            deleted: list[Any] = []
            if Deleted in set(map(type, values)):
                deleted = [key for key, value in zip(keys, values, strict=True) if value is DELETED]
                keys = [key for key, value in zip(keys, values, strict=True) if value is not DELETED]
                values = [value for value in values if value is not DELETED]
            if self.nested:
                keys, values = _by_key(keys, values)
                deleted, _ = _by_key(deleted, deleted)
            if keys:
                yield _encoded(self.table, keys, values, codec)
            if deleted and self._with_deleted:
                yield deleted, None


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


def _in_parts(entries: dict[Any, Any] | LoggedRows) -> Iterator[tuple[list[Any], list[Any]]]:
    """Yield keys and values of some entries at a time; pairs would keep the cycle collector busy."""
    if isinstance(entries, LoggedRows):
        yield from entries.in_parts()
        return
    keys, values = iter(entries), iter(entries.values())
    while some := list(islice(keys, BLOCK_ENTRIES)):
        yield some, list(islice(values, BLOCK_ENTRIES))


def _by_key(entries: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
    """Group the entries of a nested table by key, so that each key is written once."""
    if len({key for key, _ in entries}) == len(entries):
        return entries, values
    places: dict[Any, list[int]] = {}
    for place, entry in enumerate(entries):
        places.setdefault(entry[0], []).append(place)
    order = list(chain.from_iterable(places.values()))
    return [entries[place] for place in order], [values[place] for place in order]


def _release(entries: dict[Any, Any] | LoggedRows) -> None:
    """Drop the references in small steps; another thread may do so at the same time."""
    if isinstance(entries, LoggedRows):
        entries.release()
        return
    with suppress(KeyError):
        while entries:
            for _ in range(_RELEASED):
                entries.popitem()


def pack_blocks(
    blocks: Sequence[Block], max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
) -> list[PackedBlock]:
    """Encode blocks; refuse keys of other subtasks. The result may be empty."""
    packed: list[PackedBlock] = []
    for block in blocks:
        if isinstance(block, ColumnBlock):
            packed.append(pack_columns(block, key_groups, any_type=codec.allows_pickle))
        else:
            packed += block.packed(max_parallelism, key_groups, codec)
    return packed


def write_chunk(
    blocks: Sequence[Block], max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
) -> bytes:
    """Encode these blocks, in order, as a chunk."""
    return chunk_of(pack_blocks(blocks, max_parallelism, key_groups, codec), max_parallelism)
