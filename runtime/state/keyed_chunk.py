"""The file format of keyed state: a chunk of written and deleted keys, table by table.

A chunk is a magic word, a version, a checksum (xxh3-64 of what follows) and a msgpack body `[max_parallelism,
[block, ...]]`; a block is `[table, count, key groups, keys, values]`. Key groups are 16-bit little-endian
numbers, so that a reader that owns only some of them need not hash. Keys and values are lists, each encoded
as one value, which lets the value codec put them into columns. A block without values lists deleted keys.
Blocks apply in order; later ones win.

A block of a nested table has eight members. It has each key and its key group once, however many entries the
key has; `count` is the number of entries. The sixth member is nil. The seventh has the number of entries of
each key, as 32-bit little-endian numbers. The eighth has the second parts of all entries as one encoded list.

A block of columns has a sixth member: the number of last parts of the key that don't decide its key group.
Its keys and values are Arrow IPC streams of one record batch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgpack
from xxhash import xxh3_64, xxh3_64_digest

from penstock.runtime.errors import CodecError, ConfigurationError, CorruptSnapshotError, StateMismatchError
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import FileHandle, KeyedStateHandle, KeyGroupRange, StateHandle
from penstock.runtime.state.column_table import ColumnBlock, decode_columns, key_list
from penstock.runtime.state.keyed_blocks import (
    Block,
    PackedBlock,
    RowBlock,
    nested_keys,
    pack_blocks,
    unpack_block,
)

_MAGIC: Final = b"PSKS\x01"

_HEADER: Final = len(_MAGIC) + 8


def write_chunk(
    blocks: Sequence[Block], max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
) -> bytes:
    """Encode these blocks, in order, as a chunk; for the errors see `pack_blocks`."""
    return chunk_of(pack_blocks(blocks, max_parallelism, key_groups, codec), max_parallelism)


def chunk_of(packed: Sequence[PackedBlock], max_parallelism: int) -> bytes:
    """Join packed blocks into a chunk, in pieces: a single call would stop every other thread."""
    packer = msgpack.Packer()
    pieces = [
        packer.pack_array_header(2) + packer.pack(max_parallelism) + packer.pack_array_header(len(packed)),
        *map(packer.pack, packed),
    ]
    checksum = xxh3_64()
    for piece in pieces:
        checksum.update(piece)
    return b"".join((_MAGIC, checksum.digest(), *pieces))


def without_table(data: bytes, handle: StateHandle, table: str) -> tuple[bytes | None, int]:
    """Remove a table from a chunk without decoding any block.

    Returns:
        The remaining chunk (`None` if it is empty), and the number of removed keys.
    """
    max_parallelism, packed = _unpack(data, _place(handle))
    rest = [block for block in packed if block[0] != table]
    left_out = sum(block[1] for block in packed) - sum(block[1] for block in rest)
    if len(rest) == len(packed):
        return data, 0
    return (chunk_of(rest, max_parallelism) if rest else None), left_out


def read_chunk(
    data: bytes, handle: StateHandle, max_parallelism: int, codec: ValueCodec, table: str | None = None
) -> list[RowBlock | ColumnBlock]:
    """Decode the blocks of a chunk, in order.

    Args:
        data: The chunk's bytes.
        table: The only table to decode; `None` for all.

    Raises:
        CorruptSnapshotError: The bytes are damaged, or a value can't be decoded; names the file.
        ConfigurationError: The chunk was written with another number of key groups.
    """
    return list(iter_blocks(data, handle, max_parallelism, codec, table))


def iter_blocks(
    data: bytes, handle: StateHandle, max_parallelism: int, codec: ValueCodec, table: str | None = None
) -> Iterator[RowBlock | ColumnBlock]:
    """Like `read_chunk`, but each block can be released before the next one is decoded."""
    where = _place(handle)
    written_with, packed = _unpack(data, where)
    if written_with != max_parallelism:
        msg = (
            f"the keyed state in {where} was written with max_parallelism={written_with} and can't be "
            f"read with {max_parallelism}; set max_parallelism back"
        )
        raise ConfigurationError(msg)
    for block in packed:
        if table is None or block[0] == table:
            try:
                decoded = unpack_block(block, codec)
            except (ValueError, TypeError, CodecError) as error:
                msg = f"the keyed state in {where} can't be decoded: {error}"
                raise CorruptSnapshotError(msg) from error
            yield decoded


def unusable_key(handle: StateHandle, error: TypeError) -> CorruptSnapshotError:
    return CorruptSnapshotError(f"the keyed state in {_place(handle)} has a key that is none: {error}")


def read_keys(data: bytes, handle: StateHandle, codec: ValueCodec) -> Iterator[tuple[str, list[Any], bool]]:
    """Read the entries of a chunk without values: table, keys, and whether they were deleted; in order.

    The keys of a nested table are pairs.
    """
    where = _place(handle)
    _, packed = _unpack(data, where)
    for table, _, *parts in packed:
        try:
            found, values = _keys_of(codec, *parts)
        except (ValueError, TypeError) as error:
            msg = f"the keyed state in {where} can't be decoded: {error}"
            raise CorruptSnapshotError(msg) from error
        yield table, found, values is None


def _keys_of(
    codec: ValueCodec, groups: bytes, keys: bytes, values: bytes | None, *more: Any
) -> tuple[list[Any], bytes | None]:
    if not more:
        return one_nan(codec.loads(keys)), values
    extra, *nested = more
    if extra is None:
        counts, parts = nested
        return nested_keys(codec, keys, counts, parts)[0], values
    return key_list(decode_columns(keys, any_type=codec.allows_pickle)), values


def tables_of(data: bytes, handle: StateHandle) -> dict[str, int]:
    """The tables in a chunk, with the number of keys written or deleted."""
    counts: dict[str, int] = {}
    for table, count, *_ in _unpack(data, _place(handle))[1]:
        counts[table] = counts.get(table, 0) + count
    return counts


def _place(handle: StateHandle) -> str:
    return handle.path if isinstance(handle, FileHandle) else "the checkpoint's metadata"


def _unpack(data: bytes, where: str) -> tuple[int, list[Any]]:
    body = data[_HEADER:]
    if data[: len(_MAGIC)] != _MAGIC or data[len(_MAGIC) : _HEADER] != xxh3_64_digest(body):
        msg = f"the keyed state in {where} is damaged: {len(data)} bytes with a wrong header or checksum"
        raise CorruptSnapshotError(msg)
    try:
        written_with, packed = msgpack.unpackb(body, strict_map_key=False)
        for table, count, *_ in packed:
            if not isinstance(table, str) or not isinstance(count, int):
                msg = f"a block has the table {table!r:.100} and {count!r:.100} keys"
                raise ValueError(msg)
    except (ValueError, TypeError, RecursionError) as error:  # from showing a deeply nested value
        msg = f"the keyed state in {where} can't be decoded: {error}"
        raise CorruptSnapshotError(msg) from error
    return written_with, packed


def need_canonical(handles: Iterable[KeyedStateHandle]) -> None:
    """Check that every backend and every tool can read this state.

    Raises:
        StateMismatchError: The state is in files of RocksDB, as in its checkpoints.

    RocksDB, which only an operator with state_backend=RocksDB() can start from. Take a savepoint: every \
    backend reads that
    """
    if any(handle.is_native for handle in handles):
        msg = (
            "this checkpoint holds keyed state in the files of RocksDB, which only an operator with "
            "state_backend=RocksDB() can start from. Take a savepoint: every backend "
            "reads that"
        )
        raise StateMismatchError(msg)
