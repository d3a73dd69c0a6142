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

from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, Final

import msgpack
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from penstock.runtime.errors import CodecError, ConfigurationError, CorruptSnapshotError
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import FileHandle, KeyGroupRange, StateHandle
from penstock.runtime.state.columns.column_blocks import (
    ColumnBlock,
    decode_columns,
    encode_columns,
    key_list,
)
from penstock.runtime.state.key_groups import key_group_array
from penstock.runtime.state.keyed_blocks import Block, DecodedBlock

_MAGIC: Final = b"PSKS\x01"
_HEADER: Final = len(_MAGIC) + 8


def write_chunk(
    blocks: Sequence[Block], max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
) -> bytes:
    """The bytes of a chunk.

    Args:
        blocks: What goes in, in order.
        key_groups: The range that the writer owns.
        codec: Encodes the keys.

    Raises:
        ValueError: A table has a key that is not the subtask's own: no restore would ever find it.
        KeyTypeError: A table has something as a key that can't be one.
    """
    packed: list[Any] = []
    for block in blocks:
        if isinstance(block, ColumnBlock):
            _check_own(block.table, block.keys, block.key_groups, key_groups)
            packed.append(_packed_columns(block))
            continue
        keys, counts, parts = _unnested(block.keys) if block.nested else (list(block.keys), [], [])
        groups = key_group_array(keys, max_parallelism)
        _check_own(block.table, keys, groups, key_groups)
        of_keys = groups.astype("<u2").tobytes(), codec.dumps(keys)
        of_parts = (None, np.array(counts, "<u4").tobytes(), codec.dumps(parts)) if block.nested else ()
        packed.append((block.table, len(block.keys), *of_keys, block.values, *of_parts))
    return _pack(max_parallelism, packed)


def _unnested(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[int], list[Any]]:
    """Keys, how many entries follow each other of each, and the second parts of all entries.

    Example:
        >>> _unnested([("ann", "/"), ("ann", "/cart"), ("bob", "/")])
        (['ann', 'bob'], [2, 1], ['/', '/cart', '/'])
    """
    runs = [(key, len(list(run))) for key, run in groupby(pairs, itemgetter(0))]
    return [key for key, _ in runs], [count for _, count in runs], [part for _, part in pairs]


def _packed_columns(block: ColumnBlock) -> tuple[Any, ...]:
    groups = block.key_groups.astype("<u2").tobytes()
    values = None if block.values is None else encode_columns(block.values)
    return block.table, len(block), groups, encode_columns(block.keys), values, block.extra


def _pack(max_parallelism: int, packed: Sequence[Any]) -> bytes:
    body = msgpack.packb((max_parallelism, packed))
    return b"".join((_MAGIC, xxh3_64_digest(body), body))


def without_table(data: bytes, handle: StateHandle, table: str) -> tuple[bytes | None, int]:
    """A chunk without one of its tables; nothing in it is decoded.

    Args:
        data: The chunk's bytes.
        handle: Where they come from, for messages.
        table: The table that is left out.

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
    return (_pack(max_parallelism, rest) if rest else None), left_out


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
        raise ValueError(msg)


def read_chunk(
    data: bytes, handle: StateHandle, max_parallelism: int, codec: ValueCodec, table: str | None = None
) -> list[DecodedBlock | ColumnBlock]:
    """The blocks of a chunk, decoded, in order.

    Args:
        data: The chunk's bytes.
        handle: Where they come from, for messages.
        max_parallelism: Number of key groups now.
        codec: Decodes keys and values.
        table: The only table that is wanted; the others are not decoded. `None` for all.

    Raises:
        CorruptSnapshotError: The bytes are damaged, or a value in them can't be decoded; names the file.
        ConfigurationError: The chunk was written with another number of key groups.
    """
    where = _place(handle)
    written_with, packed = _unpack(data, where)
    try:
        blocks = [_decode_block(codec, *block) for block in packed if table is None or block[0] == table]
    except (ValueError, TypeError, CodecError) as error:
        msg = f"the keyed state in {where} can't be decoded: {error}"
        raise CorruptSnapshotError(msg) from error
    if written_with != max_parallelism:
        msg = (
            f"the keyed state in {where} was written with max_parallelism={written_with} and can't be "
            f"read with {max_parallelism}; set max_parallelism back"
        )
        raise ConfigurationError(msg)
    return blocks


def unusable_key(handle: StateHandle, error: TypeError) -> CorruptSnapshotError:
    """The error for a chunk that decodes to a key which no dictionary takes."""
    return CorruptSnapshotError(f"the keyed state in {_place(handle)} has a key that is none: {error}")


def read_keys(data: bytes, handle: StateHandle, codec: ValueCodec) -> Iterator[tuple[str, list[Any], bool]]:
    """The entries of a chunk without their values: table, keys, and whether they were deleted; in order.

    The keys of a nested table are pairs.

    Args:
        data: The chunk's bytes.
        handle: Where they come from, for messages.
        codec: Decodes keys.

    Raises:
        CorruptSnapshotError: The bytes are damaged; names the file.
        CodecError: A key can't be decoded here.
    """
    _, packed = _unpack(data, _place(handle))
    for table, _, _, keys, values, *more in packed:
        if not more:
            found = one_nan(codec.loads(keys))
        elif more[0] is None:
            found = _nested_keys(codec, keys, more[1], more[2])[0]
        else:
            found = key_list(decode_columns(keys))
        yield table, found, values is None


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
    except (ValueError, TypeError) as error:
        msg = f"the keyed state in {where} can't be decoded: {error}"
        raise CorruptSnapshotError(msg) from error
    return written_with, packed


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
) -> DecodedBlock | ColumnBlock:
    if extra is not None:
        return _decode_columns(table, count, groups, keys, values, extra)
    try:
        of_keys = np.frombuffer(groups, dtype="<u2")
        if counts is None or parts is None:
            decoded_keys = one_nan(codec.loads(keys))
        else:
            decoded_keys, numbers = _nested_keys(codec, keys, counts, parts)
            of_keys = np.repeat(of_keys, numbers)
        decoded = DecodedBlock(
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


def _nested_keys(
    codec: ValueCodec, keys: bytes, counts: bytes, parts: bytes
) -> tuple[list[tuple[Any, Any]], NDArray[np.uint32]]:
    """The pairs of a nested table, and how many of them each key has."""
    numbers = np.frombuffer(counts, dtype="<u4")
    every = [
        key
        for key, number in zip(one_nan(codec.loads(keys)), numbers.tolist(), strict=True)
        for key in repeat(key, number)
    ]
    return list(zip(every, one_nan(codec.loads(parts)), strict=True)), numbers


def _decode_columns(
    table: str, count: int, groups: bytes, keys: bytes, values: bytes | None, extra: int
) -> ColumnBlock:
    try:
        decoded = ColumnBlock(
            table,
            decode_columns(keys),
            np.frombuffer(groups, dtype="<u2"),
            None if values is None else decode_columns(values),
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
