"""The file format of keyed state: a chunk of written and deleted keys, table by table.

A chunk is a magic word, a version, a checksum (xxh3-64 of what follows) and a msgpack body `[max_parallelism,
[block, ...]]`; a block is `[table, count, key groups, keys, values]`. Key groups are 16-bit little-endian
numbers, so that a reader that owns only some of them need not hash. Keys and values are lists, each encoded
as one value, which lets the value codec put them into columns. A block without values lists deleted keys.
Blocks apply in order, later ones win.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgpack
import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64_digest

from penstock.runtime.errors import CodecError, ConfigurationError, CorruptSnapshotError
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import FileHandle, KeyGroupRange, StateHandle
from penstock.runtime.state.key_groups import key_group_array
from penstock.runtime.state.keyed_blocks import DecodedBlock, KeyedBlock

_MAGIC: Final = b"PSKS\x01"
_HEADER: Final = len(_MAGIC) + 8


def write_chunk(
    blocks: Sequence[KeyedBlock], max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
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
    packed = []
    for block in blocks:
        groups = key_group_array(block.keys, max_parallelism)
        _check_own(block, groups, key_groups)
        keys = codec.dumps(list(block.keys))
        packed.append((block.table, len(block.keys), groups.astype("<u2").tobytes(), keys, block.values))
    return _pack(max_parallelism, packed)


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


def _check_own(block: KeyedBlock, groups: NDArray[np.uint16], own: KeyGroupRange) -> None:
    foreign = np.flatnonzero((groups < own.first) | (groups > own.last))
    if len(foreign):
        at = int(foreign[0])
        msg = (
            f"state table {block.table!r} has an entry of {block.keys[at]!r:.100}, whose key group "
            f"{groups[at]} is outside of this subtask's {own.first} to {own.last}; "
            "entries must be keyed by the stream's own key"
        )
        raise ValueError(msg)


def read_chunk(
    data: bytes, handle: StateHandle, max_parallelism: int, codec: ValueCodec, table: str | None = None
) -> list[DecodedBlock]:
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


def read_keys(data: bytes, handle: StateHandle, codec: ValueCodec) -> Iterator[tuple[str, list[Any], bool]]:
    """The keys of a chunk without their values: table, keys, and whether they were deleted; in order.

    Args:
        data: The chunk's bytes.
        handle: Where they come from, for messages.
        codec: Decodes keys.

    Raises:
        CorruptSnapshotError: The bytes are damaged; names the file.
        CodecError: A key can't be decoded here.
    """
    _, packed = _unpack(data, _place(handle))
    for table, _, _, keys, values in packed:
        yield table, one_nan(codec.loads(keys)), values is None


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
    except (ValueError, TypeError) as error:
        msg = f"the keyed state in {where} can't be decoded: {error}"
        raise CorruptSnapshotError(msg) from error
    return written_with, packed


def _decode_block(
    codec: ValueCodec, table: str, count: int, groups: bytes, keys: bytes, values: bytes | None
) -> DecodedBlock:
    try:
        decoded = DecodedBlock(
            table,
            np.frombuffer(groups, dtype="<u2"),
            one_nan(codec.loads(keys)),
            None if values is None else codec.loads(values),
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
