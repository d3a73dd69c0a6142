"""The file format of keyed state: a chunk of written and deleted keys, table by table.

A chunk is a magic word, a version, a checksum (xxh3-64 of the rest) and a msgpack body `[max_parallelism,
[block, ...]]`. A block is `[table, count, key groups, keys, values]`. It stores the key group of each key, as
a 16-bit little-endian number. So a reader that owns only some key groups need not hash keys. Keys and values
are lists. Each list is encoded as one value, so the value codec can put it into columns. A block without
values lists deleted keys. Blocks apply in order; later blocks win.

A block of a nested table has eight members. It has each key and its key group once, however many entries the
key has; `count` is the number of entries. The sixth member is nil. The seventh has the number of entries of
each key, as 32-bit little-endian numbers. The eighth has the second parts of all entries as one encoded list.

A block of columns has a sixth member: the number of trailing parts of the key that are not used to compute
its key group. The keys and the values are Arrow IPC streams of one record batch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, repeat
from typing import Any, Final, TypeAlias

import msgpack
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64, xxh3_64_digest

from penstock.runtime.errors import (
    CodecError,
    ConfigurationError,
    CorruptSnapshotError,
    KeyGroupError,
    StateMismatchError,
)
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    StateHandle,
    place_of,
)
from penstock.runtime.state.chunk_body import unpack_body
from penstock.runtime.state.immutable_values import DELETED
from penstock.runtime.state.key_groups import key_group_array
from penstock.runtime.trust.data import BatchStream, filled, read_batch

#: Table, number of entries, key groups, keys, values; nested tables and columns have more. The keys and the
#: values of columns are `BatchStream`s until they are written.
PackedBlock: TypeAlias = tuple[Any, ...]

_MAGIC: Final = b"PSKS\x01"

_HEADER: Final = len(_MAGIC) + 8

#: MessagePack's first byte of a value of bytes whose length has 32 bits.
_BYTES_OF_32_BITS: Final = b"\xc6"

#: Lengths of values that are joined to a chunk without being packed first.
_LARGE: Final = range(1 << 16, 1 << 32)


@dataclass(frozen=True, slots=True)
class ColumnBlock:
    """Changed keys of a table in columns.

    Attributes:
        keys: Columns of the key's parts; each key occurs once.
        values: Columns of the values; empty if the table has only keys, `None` for deleted keys.
        extra: Number of trailing parts of the key that are not used to compute its key group.
    """

    table: str
    keys: pa.RecordBatch
    key_groups: NDArray[np.uint16]
    values: pa.RecordBatch | None
    extra: int = 0

    def __len__(self) -> int:
        return int(self.keys.num_rows)

    @property
    def weight(self) -> int:
        values = 0 if self.values is None else self.values.nbytes
        return int(self.keys.nbytes) + int(values)

    def chosen(self, rows: NDArray[np.bool_]) -> ColumnBlock:
        if rows.all():
            return self
        mask = pa.array(rows)
        values = self.values
        if values is not None and values.num_columns:
            values = values.filter(mask)
        return ColumnBlock(self.table, self.keys.filter(mask), self.key_groups[rows], values, self.extra)


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Entries of a table of rows as they are read.

    Attributes:
        keys: Keys; in a nested table, pairs of key and second part.
        values: Values of the keys; `None` for deleted entries.
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


def key_list(keys: pa.RecordBatch) -> list[Any]:
    columns = [column.to_pylist() for column in keys.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))


def pack_rows(
    table: str,
    keys: Sequence[Any],
    values: bytes | None,
    max_parallelism: int,
    key_groups: KeyGroupRange,
    codec: ValueCodec,
    *,
    nested: bool,
) -> PackedBlock:
    """Encode the keys of a block of rows.

    Args:
        keys: Keys; in a nested table pairs, with the pairs of a key adjacent.
        values: The encoded list of values; `None` for deleted entries.
    """
    count = len(keys)
    of_parts: tuple[Any, ...] = ()
    if nested:
        firsts, parts = [key for key, _ in keys], [part for _, part in keys]
        counts = np.ones(count, "<u4")
        if len(set(firsts)) < count:
            runs = [(key, len(list(run))) for key, run in groupby(firsts)]
            firsts, counts = [key for key, _ in runs], np.array([length for _, length in runs], "<u4")
        of_parts = (None, counts.tobytes(), codec.dumps(parts))
        keys = firsts
    groups = key_group_array(keys, max_parallelism)
    _check_own(table, keys, groups, key_groups)
    return (table, count, groups.astype("<u2").tobytes(), codec.dumps(list(keys)), values, *of_parts)


def pack_columns(block: ColumnBlock, key_groups: KeyGroupRange, *, any_type: bool) -> PackedBlock:
    _check_own(block.table, block.keys, block.key_groups, key_groups)
    groups = block.key_groups.astype("<u2").tobytes()
    values = None if block.values is None else BatchStream(block.values, any_type=any_type)
    return block.table, len(block), groups, BatchStream(block.keys, any_type=any_type), values, block.extra


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


def unpack_block(packed: PackedBlock, codec: ValueCodec) -> RowBlock | ColumnBlock:
    """Decode a block; raises `ValueError` when its parts don't fit together."""
    table, count, groups, keys, values, *more = packed
    try:
        if more and more[0] is not None:
            return _unpack_columns(codec, table, count, groups, keys, values, *more)
        return _unpack_rows(codec, table, count, groups, keys, values, *more[1:])
    except CodecError as error:
        msg = f"state {table!r}: {error}"
        raise CodecError(msg) from error


def _unpack_rows(
    codec: ValueCodec,
    table: str,
    count: int,
    groups: bytes,
    keys: bytes,
    values: bytes | None,
    counts: bytes | None = None,
    parts: bytes = b"",
) -> RowBlock:
    key_groups, every = np.frombuffer(groups, dtype="<u2"), one_nan(codec.loads(keys))
    if counts is not None:
        numbers, seconds = np.frombuffer(counts, dtype="<u4"), one_nan(codec.loads(parts))
        total = int(numbers.sum(dtype=np.uint64))
        if total != len(seconds):  # checked first, because a damaged count may repeat a key billions of times
            msg = f"the keys of a nested table should have {len(seconds)} entries, but have {total}"
            raise ValueError(msg)
        pairs = zip(every, numbers.tolist(), strict=True)
        firsts = chain.from_iterable(repeat(first, number) for first, number in pairs)
        every = list(zip(firsts, seconds, strict=True))
        key_groups = np.repeat(key_groups, numbers)
    decoded = None if values is None else codec.loads(values)
    lengths = {len(key_groups), len(every), count if decoded is None else len(decoded)}
    if lengths != {count}:
        msg = f"a block of table {table!r} should have {count} keys, but its parts have {sorted(lengths)}"
        raise ValueError(msg)
    return RowBlock(table, key_groups, every, decoded, counts is not None)


def _unpack_columns(
    codec: ValueCodec, table: str, count: int, groups: bytes, keys: bytes, values: bytes | None, extra: int
) -> ColumnBlock:
    any_type = codec.allows_pickle
    block = ColumnBlock(
        table,
        # Arrow's columns are views; copies of the parts let the rest of the file leave memory.
        read_batch(bytes(keys), any_type=any_type),
        np.frombuffer(bytes(groups), dtype="<u2"),
        None if values is None else read_batch(bytes(values), any_type=any_type),
        extra,
    )
    lengths = {len(block), len(block.key_groups), count}
    if block.values is not None and block.values.num_columns:
        lengths.add(block.values.num_rows)
    if lengths != {count} or not 0 <= extra < block.keys.num_columns:
        msg = f"a block of table {table!r} should have {count} keys, but its parts have {sorted(lengths)}"
        raise ValueError(msg)
    return block


def bytes_of(packed: PackedBlock) -> int:
    return sum(len(part) for part in packed if isinstance(part, bytes | BatchStream))


def chunk_of(packed: Sequence[PackedBlock], max_parallelism: int) -> bytes:
    """Join packed blocks into a chunk, in pieces: a single call would block every other thread.

    Columns are written only here, at their places in the chunk: fresh memory for a copy costs more than the
    copy.
    """
    packer = msgpack.Packer()
    pieces = [
        packer.pack_array_header(2) + packer.pack(max_parallelism) + packer.pack_array_header(len(packed)),
        *(piece for block in packed for piece in _pieces(packer, block)),
    ]

    def fill(memory: memoryview) -> None:
        checksum, start = xxh3_64(), _HEADER
        for piece in pieces:
            place = memory[start : start + len(piece)]
            if isinstance(piece, BatchStream):
                piece.write_to(place)
            else:
                place[:] = piece
            checksum.update(place)
            start += len(piece)
        memory[:_HEADER] = _MAGIC + checksum.digest()

    return filled(_HEADER + sum(map(len, pieces)), fill)


def _pieces(packer: msgpack.Packer, packed: PackedBlock) -> Iterator[bytes | BatchStream]:
    """A packed block in MessagePack, without copies of large parts."""
    yield packer.pack_array_header(len(packed))
    for part in packed:
        if isinstance(part, bytes | BatchStream) and len(part) in _LARGE:
            yield _BYTES_OF_32_BITS + len(part).to_bytes(4, "big")
            yield part
        else:
            yield packer.pack(part.to_bytes() if isinstance(part, BatchStream) else part)


def without_table(data: bytes, handle: StateHandle, table: str) -> tuple[bytes | None, int]:
    """Remove a table without decoding; return the rest (`None` if empty) and the count of removed entries."""
    max_parallelism, packed = _unpack(data, place_of(handle))
    rest = [block for block in packed if block[0] != table]
    left_out = sum(block[1] for block in packed) - sum(block[1] for block in rest)
    if len(rest) == len(packed):
        return data, 0
    return (chunk_of(rest, max_parallelism) if rest else None), left_out


def read_chunk(
    data: bytes, handle: StateHandle, max_parallelism: int, codec: ValueCodec, table: str | None = None
) -> Iterator[RowBlock | ColumnBlock]:
    """Decode the blocks of a chunk, or of one table, in order.

    Raises:
        CorruptSnapshotError: The bytes are damaged, or a value can't be decoded; names the file.
        ConfigurationError: The chunk was written with another number of key groups.
    """
    where = place_of(handle)
    written_with, packed = _unpack(data, where)
    if written_with != max_parallelism:
        msg = (
            f"the keyed state in {where} was written with max_parallelism={written_with} and can't be "
            f"read with {max_parallelism}; set max_parallelism back to {written_with}"
        )
        raise ConfigurationError(msg)
    for block in packed:
        if table is None or block[0] == table:
            try:
                decoded = unpack_block(block, codec)
            except (ValueError, TypeError, CodecError) as error:
                raise _undecodable(where, error) from error
            yield decoded


def read_keys(data: bytes, handle: StateHandle, codec: ValueCodec) -> Iterator[tuple[str, list[Any], bool]]:
    """Read the keys of a chunk's blocks, in order: table, keys, and whether they were deleted.

    Raises:
        CorruptSnapshotError: The bytes are damaged; names the file.
        CodecError: This program can't decode a key.
    """
    where = place_of(handle)
    for packed in _unpack(data, where)[1]:
        try:
            table, count, groups, keys, values, *more = packed
            block = unpack_block((table, count, groups, keys, None, *more), codec)
        except (ValueError, TypeError) as error:
            raise _undecodable(where, error) from error
        yield table, key_list(block.keys) if isinstance(block, ColumnBlock) else block.keys, values is None


def _undecodable(where: str, error: Exception) -> CorruptSnapshotError:
    return CorruptSnapshotError(f"the keyed state in {where} can't be decoded: {error}")


def unusable_key(handle: StateHandle, error: TypeError) -> CorruptSnapshotError:
    return CorruptSnapshotError(f"the keyed state in {place_of(handle)} has an invalid key: {error}")


def tables_of(data: bytes, handle: StateHandle) -> dict[str, int]:
    """The tables in a chunk, with the number of entries written or deleted."""
    counts: dict[str, int] = {}
    for table, count, *_ in _unpack(data, place_of(handle))[1]:
        counts[table] = counts.get(table, 0) + count
    return counts


def _unpack(data: bytes, where: str) -> tuple[int, list[Any]]:
    body = memoryview(data)[_HEADER:]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : _HEADER] != xxh3_64_digest(body):
        msg = f"the keyed state in {where} is damaged: {len(data)} bytes with a wrong header or checksum"
        raise CorruptSnapshotError(msg)
    try:
        written_with, packed = unpack_body(body)
        for table, count, *_ in packed:
            if not isinstance(table, str) or not isinstance(count, int):
                msg = f"a block has the table {table!r:.100} and {count!r:.100} keys"
                raise ValueError(msg)
    except (ValueError, TypeError, RecursionError) as error:  # RecursionError: `repr` of a deep value
        raise _undecodable(where, error) from error
    return written_with, packed


def need_canonical(handles: Iterable[KeyedStateHandle]) -> None:
    """Refuse state in RocksDB's own files, which are the format of its checkpoints."""
    if any(handle.is_native for handle in handles):
        msg = (
            "this checkpoint holds keyed state in the files of RocksDB, which only an operator with "
            "state_backend=RocksDB() can start from. Take a savepoint instead: every backend can read it"
        )
        raise StateMismatchError(msg)
