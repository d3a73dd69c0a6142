"""The file format of keyed state: a chunk of written and deleted keys, table by table.

A chunk is a magic word, a version, a checksum (xxh3-64 of what follows) and a msgpack body `[max_parallelism,
[block, ...]]`; a block is `[table, count, key groups, keys, values]`. Key groups are 16-bit little-endian
numbers, so that a reader that owns only some of them need not hash. Keys and values are lists, each encoded
as one value, which lets the value codec put them into columns. A block without values lists deleted keys.
Blocks apply in order, later ones win.

A block of a nested table has eight members. Its keys and their key groups stand once, however many entries
they have; `count` is the number of entries. The sixth member is nil. The seventh has the number of entries of
each key, as 32-bit little-endian numbers. The eighth has the second parts of all entries as one encoded list.

A block of columns has a sixth member: how many of the key's last parts do not decide its key group. Its keys
and values are Arrow IPC streams of one record batch each.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import msgpack
from xxhash import xxh3_64, xxh3_64_digest

from penstock.runtime.errors import CodecError, ConfigurationError, CorruptSnapshotError, StateMismatchError
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import FileHandle, KeyedStateHandle, KeyGroupRange, StateHandle
from penstock.runtime.state.columns.column_changes import ColumnChanges
from penstock.runtime.state.columns.column_table import ColumnBlock, decode_columns, key_list
from penstock.runtime.state.keyed_blocks import (
    CapturedEntries,
    DecodedBlock,
    KeyedBlock,
    PackedBlock,
    nested_keys,
    pack_columns,
    pack_rows,
    unpack_block,
)


class NestedChanges(dict[Any, Any]):
    """Merged changes of a nested table: by pair of key and second part a value or `DELETED`."""


#: Merged changes by table: by key a value or `DELETED`, or columns.
Changes: TypeAlias = dict[str, dict[Any, Any] | ColumnChanges]

#: Some changed entries of one table: rows that are encoded or not yet, or columns.
Block: TypeAlias = KeyedBlock | CapturedEntries | ColumnBlock


def encode_changes(changes: Changes, *, with_deleted: bool = True) -> list[Block]:
    """Blocks of merged changes, which are used up; they are encoded when they are packed."""
    blocks: list[Block] = []
    for table, entries in changes.items():
        if isinstance(entries, ColumnChanges):
            blocks += entries.blocks(with_deleted=with_deleted)
        else:
            nested = isinstance(entries, NestedChanges)
            blocks.append(CapturedEntries(table, entries, nested=nested, with_deleted=with_deleted))
    return blocks


def apply_blocks(changes: Changes, blocks: Iterable[Block | DecodedBlock], codec: ValueCodec) -> None:
    """Merge blocks into changes; later ones win, deletions are remembered as `DELETED`.

    Args:
        blocks: In order.
    """
    for block in blocks:
        if isinstance(block, ColumnBlock):
            columns = changes.setdefault(block.table, ColumnChanges(block.table))
            assert isinstance(columns, ColumnChanges), f"table {block.table!r} holds rows and columns"
            columns.apply(block)
            continue
        table = changes.setdefault(block.table, NestedChanges() if block.nested else {})
        assert isinstance(table, dict), f"table {block.table!r} holds rows and columns"
        assert isinstance(table, NestedChanges) == block.nested, f"table {block.table!r} is flat and nested"
        if isinstance(block, CapturedEntries):
            block.put_into(table, codec)
        elif isinstance(block, DecodedBlock):
            block.put_into(table)
        else:
            block.put_into(table, codec)


_MAGIC: Final = b"PSKS\x01"

_HEADER: Final = len(_MAGIC) + 8


def write_chunk(
    blocks: Sequence[Block], max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
) -> bytes:
    """The bytes of a chunk.

    Args:
        blocks: What goes in, in order.
        key_groups: The range that the writer owns.
        codec: Encodes the keys, and values that are not encoded yet.

    Raises:
        KeyGroupError: A table has a key that is not the subtask's own: no restore would ever find it.
        KeyTypeError: A table has something as a key that can't be one.
        CodecError: A value can't be encoded; the message names table and key.
    """
    return chunk_of(pack_blocks(blocks, max_parallelism, key_groups, codec), max_parallelism)


def pack_blocks(
    blocks: Sequence[Block], max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
) -> list[PackedBlock]:
    """The parts of a chunk; see `write_chunk`. None when nothing is left of the blocks."""
    packed: list[PackedBlock] = []
    for block in blocks:
        if isinstance(block, ColumnBlock):
            packed.append(pack_columns(block, key_groups, any_type=codec.allows_pickle))
        elif isinstance(block, CapturedEntries):
            packed += block.packed(max_parallelism, key_groups, codec)
        else:
            packed.append(pack_rows(block, max_parallelism, key_groups, codec))
    return packed


def chunk_of(packed: Sequence[PackedBlock], max_parallelism: int) -> bytes:
    """A chunk of these blocks, put together in pieces: one call over all would stop every other thread."""
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
    """A chunk without one of its tables; nothing in it is decoded.

    Args:
        data: The chunk's bytes.

    Returns:
        The rest, `None` when nothing is left, and how many keys were left out.

    Raises:
        CorruptSnapshotError: The bytes are damaged; names the file.
    """
    max_parallelism, packed = _unpack(data, _place(handle))
    rest = [block for block in packed if block[0] != table]
    left_out = sum(block[1] for block in packed) - sum(block[1] for block in rest)
    if len(rest) == len(packed):
        return data, 0
    return (chunk_of(rest, max_parallelism) if rest else None), left_out


def read_chunk(
    data: bytes, handle: StateHandle, max_parallelism: int, codec: ValueCodec, table: str | None = None
) -> list[DecodedBlock | ColumnBlock]:
    """The blocks of a chunk, decoded, in order.

    Args:
        data: The chunk's bytes.
        table: The only table that is wanted; the others are not decoded. `None` for all.

    Raises:
        CorruptSnapshotError: The bytes are damaged, or a value in them can't be decoded; names the file.
        ConfigurationError: The chunk was written with another number of key groups.
    """
    return list(iter_blocks(data, handle, max_parallelism, codec, table))


def iter_blocks(
    data: bytes, handle: StateHandle, max_parallelism: int, codec: ValueCodec, table: str | None = None
) -> Iterator[DecodedBlock | ColumnBlock]:
    """`read_chunk` block by block: so each can be given back before the next one is decoded."""
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
    """The error for a chunk that decodes to a key which no dictionary takes."""
    return CorruptSnapshotError(f"the keyed state in {_place(handle)} has a key that is none: {error}")


def read_keys(data: bytes, handle: StateHandle, codec: ValueCodec) -> Iterator[tuple[str, list[Any], bool]]:
    """The entries of a chunk without their values: table, keys, and whether they were deleted; in order.

    The keys of a nested table are pairs.

    Args:
        data: The chunk's bytes.

    Raises:
        CorruptSnapshotError: The bytes are damaged; names the file.
        CodecError: A key can't be decoded here.
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
    """The tables that a chunk has blocks of, with the number of keys written or deleted.

    Raises:
        CorruptSnapshotError: The bytes are damaged; names the file.
    """
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
    except (ValueError, TypeError, RecursionError) as error:  # the last of showing what is too deep
        msg = f"the keyed state in {where} can't be decoded: {error}"
        raise CorruptSnapshotError(msg) from error
    return written_with, packed


def need_canonical(handles: Iterable[KeyedStateHandle]) -> None:
    """See that every backend and every tool can read this state.

    Raises:
        StateMismatchError: It is in the files of RocksDB, as its checkpoints are.

    Example:
        >>> from penstock.runtime.snapshot.handles import InlineHandle, KeyGroupRange
        >>> file = InlineHandle(b"...")
        >>> need_canonical([KeyedStateHandle(KeyGroupRange(0, 9), (file,), names=("000008.sst",))])
        Traceback (most recent call last):
        ...
        penstock.runtime.errors.StateMismatchError: this checkpoint holds keyed state in the files of \
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
