"""Changed entries of keyed state on their way into a snapshot, and merged again.

An entry of a flat table is known by its key. One of a nested table is known by a pair: the key and a second
part (`state_table.py`). Whatever merges changes here treats both alike: a pair is a key of a dict, too. So of
a map with a million entries, those that changed are written, and a deleted one hides just itself.

Only the part that must not wait is done when a block is made: values may change the next moment and are
encoded at once. Keys can't change; they are encoded, and their key groups computed, when the chunk is
written (`keyed_chunk.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.errors import CodecError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.columns.column_blocks import ColumnBlock, key_list
from penstock.runtime.state.columns.column_changes import ColumnChanges

_BLOCK_KEYS: Final = 1 << 15
#: What a key is taken to weigh while it is not encoded, bytes.
_KEY_WEIGHT: Final = 16


class _Deleted:
    """Stands for "this key was deleted" where changes are merged."""


DELETED: Final = _Deleted()


class NestedChanges(dict[Any, Any]):
    """Merged changes of a nested table: by pair of key and second part a value or `DELETED`."""


#: Merged changes by table: by key a value or `DELETED`, or columns.
Changes: TypeAlias = dict[str, dict[Any, Any] | ColumnChanges]


@dataclass(frozen=True, slots=True)
class KeyedBlock:
    """Some changed entries of one table, with their values encoded.

    Attributes:
        keys: The keys, of a nested table pairs; never changed in place.
        values: Their values, encoded as one list; `None` when the entries were deleted.
        nested: Whether the table is nested; entries of one key then stand together.
    """

    table: str
    keys: Sequence[Any]
    values: bytes | None
    nested: bool = False

    @property
    def weight(self) -> int:
        """About how many bytes this is."""
        return len(self.keys) * _KEY_WEIGHT + len(self.values or b"")


@dataclass(frozen=True, slots=True)
class DecodedBlock:
    """A block as it is read.

    Attributes:
        key_groups: The key group of each entry.
        keys: The keys, of a nested table pairs of key and second part.
        values: Their values; `None` when the entries were deleted.
    """

    table: str
    key_groups: NDArray[np.uint16]
    keys: list[Any]
    values: list[Any] | None
    nested: bool = False

    @staticmethod
    def of_columns(block: ColumnBlock) -> DecodedBlock:
        """The same in rows: keys of several parts are tuples, values are dicts."""
        values = None if block.values is None else block.values.to_pylist()
        return DecodedBlock(block.table, block.key_groups, key_list(block.keys), values)


def encode_written(
    table: str, keys: Sequence[Any], values: Sequence[Any], codec: ValueCodec, *, nested: bool = False
) -> Iterator[KeyedBlock]:
    """Blocks of written entries; the values are encoded now.

    Raises:
        CodecError: A value can't be encoded; the message names table and key.
    """
    for start in range(0, len(keys), _BLOCK_KEYS):
        some, end = keys[start : start + _BLOCK_KEYS], start + _BLOCK_KEYS
        try:
            encoded = codec.dumps(values[start:end])
        except CodecError:
            _name_the_culprit(table, some, values[start:end], codec)
            raise
        yield KeyedBlock(table, some, encoded, nested)


def _name_the_culprit(table: str, keys: Sequence[Any], values: Sequence[Any], codec: ValueCodec) -> None:
    for key, value in zip(keys, values, strict=True):
        try:
            codec.dumps(value)
        except CodecError as error:
            msg = f"state {table!r} of key {key!r:.100} can't be put into a checkpoint: {error}"
            raise CodecError(msg) from error


def encode_deleted(table: str, keys: Sequence[Any], *, nested: bool = False) -> Iterator[KeyedBlock]:
    """Blocks of deleted entries."""
    for start in range(0, len(keys), _BLOCK_KEYS):
        yield KeyedBlock(table, keys[start : start + _BLOCK_KEYS], None, nested)


#: Some changed keys of one table, in rows or in columns.
Block: TypeAlias = KeyedBlock | ColumnBlock


def encode_changes(changes: Changes, codec: ValueCodec, *, with_deleted: bool = True) -> list[Block]:
    """Blocks of merged changes.

    Args:
        with_deleted: Whether something older is left that a deletion would have to hide.

    Raises:
        CodecError: A value can't be encoded; the message names table and key.
    """
    blocks: list[Block] = []
    for table, entries in changes.items():
        if isinstance(entries, ColumnChanges):
            blocks += entries.blocks(with_deleted=with_deleted)
            continue
        nested = isinstance(entries, NestedChanges)
        if nested:  # entries of one key stand together
            order = _by_key(entries)
            entries = {pair: entries[pair] for pair in order}
        deleted = [key for key, value in entries.items() if value is DELETED]
        written = {k: v for k, v in entries.items() if v is not DELETED} if deleted else entries
        blocks += encode_written(table, list(written), list(written.values()), codec, nested=nested)
        if with_deleted:
            blocks += encode_deleted(table, deleted, nested=nested)
    return blocks


def _by_key(pairs: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Pairs with those of one key together."""
    grouped: dict[Any, list[tuple[Any, Any]]] = {}
    for pair in pairs:
        grouped.setdefault(pair[0], []).append(pair)
    return [pair for group in grouped.values() for pair in group]


def apply_blocks(changes: Changes, blocks: Iterable[Block | DecodedBlock], codec: ValueCodec) -> None:
    """Merge blocks into changes; later ones win, deletions are remembered as `DELETED`.

    Args:
        changes: What is added to.
        blocks: In order.
        codec: Decodes values that are encoded.
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
        if block.values is None:
            table.update(zip(block.keys, repeat(DELETED)))
        else:
            values = codec.loads(block.values) if isinstance(block.values, bytes) else block.values
            table.update(zip(block.keys, values, strict=True))
