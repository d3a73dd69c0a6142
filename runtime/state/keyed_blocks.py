"""Changed entries of keyed state on their way into a snapshot and out of it.

An entry of a flat table is known by its key. One of a nested table is known by a pair: the key and a second
part (`state_table.py`). Whatever merges changes treats both alike: a pair is a key of a dict, too. So of a
map with a million entries, those that changed are written, and a deleted one hides just itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from penstock.runtime.errors import CodecError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.columns.column_blocks import ColumnBlock, key_list
from penstock.runtime.state.fixed_values import DELETED

#: Entries of a block at most. Encoding them is some calls into C of a few milliseconds, in which no other
#: thread runs.
BLOCK_ENTRIES: Final = 1 << 14
#: What a key is taken to weigh while it is not encoded, bytes.
KEY_WEIGHT: Final = 16


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

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def weight(self) -> int:
        """About how many bytes this is."""
        return len(self.keys) * KEY_WEIGHT + len(self.values or b"")

    def put_into(self, changes: dict[Any, Any], codec: ValueCodec) -> None:
        """Add these entries to older ones."""
        values = repeat(DELETED, len(self.keys)) if self.values is None else codec.loads(self.values)
        changes.update(zip(self.keys, values, strict=True))


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

    def __len__(self) -> int:
        return len(self.keys)

    def put_into(self, changes: dict[Any, Any]) -> None:
        """Add these entries to older ones."""
        values = repeat(DELETED, len(self.keys)) if self.values is None else self.values
        changes.update(zip(self.keys, values, strict=True))

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
    for start in range(0, len(keys), BLOCK_ENTRIES):
        some, end = keys[start : start + BLOCK_ENTRIES], start + BLOCK_ENTRIES
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
    for start in range(0, len(keys), BLOCK_ENTRIES):
        yield KeyedBlock(table, keys[start : start + BLOCK_ENTRIES], None, nested)
