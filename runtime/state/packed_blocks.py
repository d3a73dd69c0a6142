"""A block of keyed state as bytes, as it stands in a chunk (`keyed_chunk.py`), and back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, repeat
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from penstock.runtime.errors import CodecError, KeyGroupError
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.columns.column_blocks import ColumnBlock, decode_columns, encode_columns
from penstock.runtime.state.key_groups import key_group_array
from penstock.runtime.state.keyed_blocks import DecodedBlock, KeyedBlock

#: Table, number of entries, key groups, keys, values, and more for nested tables and columns.
PackedBlock: TypeAlias = tuple[Any, ...]


def bytes_of(packed: PackedBlock) -> int:
    """How many bytes its keys and values are."""
    return sum(len(part) for part in packed if isinstance(part, bytes))


def pack_rows(
    block: KeyedBlock, max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec
) -> PackedBlock:
    """A block of rows as bytes.

    Args:
        key_groups: The range that the writer owns.
        codec: Encodes the keys.

    Raises:
        KeyGroupError: A key is not the subtask's own: no restore would ever find it.
        KeyTypeError: Something can't be a key.
    """
    keys, counts, parts = _unnested(block.keys) if block.nested else (list(block.keys), [], [])
    groups = key_group_array(keys, max_parallelism)
    _check_own(block.table, keys, groups, key_groups)
    of_keys = groups.astype("<u2").tobytes(), codec.dumps(keys)
    of_parts = (None, np.array(counts, "<u4").tobytes(), codec.dumps(parts)) if block.nested else ()
    return (block.table, len(block.keys), *of_keys, block.values, *of_parts)


def pack_columns(block: ColumnBlock, key_groups: KeyGroupRange, *, any_type: bool = True) -> PackedBlock:
    """A block of columns as bytes.

    Args:
        key_groups: The range that the writer owns.
        any_type: Also columns of extension types that may run code where they are read.

    Raises:
        KeyGroupError: A key is not the subtask's own.
        CodecError: A column has such a type.
    """
    _check_own(block.table, block.keys, block.key_groups, key_groups)
    groups = block.key_groups.astype("<u2").tobytes()
    values = None if block.values is None else encode_columns(block.values, any_type=any_type)
    return block.table, len(block), groups, encode_columns(block.keys, any_type=any_type), values, block.extra


def unpack_block(packed: PackedBlock, codec: ValueCodec) -> DecodedBlock | ColumnBlock:
    """A block out of its bytes.

    Raises:
        ValueError: Its parts don't fit together.
        CodecError: A value can't be decoded.
    """
    return _decode_block(codec, *packed)


def _unnested(pairs: Sequence[tuple[Any, Any]]) -> tuple[list[Any], list[int], list[Any]]:
    """Keys, how many entries follow each other of each, and the second parts of all entries.

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
) -> DecodedBlock | ColumnBlock:
    if extra is not None:
        return _decode_columns(codec, table, count, groups, keys, values, extra)
    try:
        of_keys = np.frombuffer(groups, dtype="<u2")
        if counts is None or parts is None:
            decoded_keys = one_nan(codec.loads(keys))
        else:
            decoded_keys, numbers = nested_keys(codec, keys, counts, parts)
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


def nested_keys(
    codec: ValueCodec, keys: bytes, counts: bytes, parts: bytes
) -> tuple[list[tuple[Any, Any]], NDArray[np.uint32]]:
    """The pairs of a nested table, and how many of them each key has.

    Raises:
        ValueError: The counts don't fit the keys and the second parts.
        CodecError: A key can't be decoded.
    """
    numbers = np.frombuffer(counts, dtype="<u4")
    seconds = one_nan(codec.loads(parts))
    total = int(numbers.sum(dtype=np.uint64))
    if total != len(seconds):  # before anything is repeated: four bytes may say four billions
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
