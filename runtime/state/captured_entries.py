"""`CapturedEntries`: changed entries of one table that a snapshot has taken by reference.

They are packed beside the task, in blocks. Each costs some calls into C of a few milliseconds, and between
two calls the task may run. Packed entries stay packed. A later checkpoint that has to write them again does
not encode them again. The references are gone then. A million of them are given back here in small steps, and
not in the task when the checkpoint is confirmed.

Two checkpoints may want the same entries at the same time, in two threads. Nobody waits for the other. A
reader enters itself in `_readers` *before* it takes the dict. It puts the packed blocks in the place of the
dict, leaves `_readers`, and *then* looks whether anybody is left there. Only if not, it empties the dict. So
no dict is emptied that somebody reads.

It must never change or empty a dict that a table still writes to: it is given dicts that nobody else has.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice
from typing import Any, Final

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyGroupRange
from penstock.runtime.state.fixed_values import DELETED, Deleted
from penstock.runtime.state.keyed_blocks import (
    BLOCK_ENTRIES,
    KEY_WEIGHT,
    DecodedBlock,
    KeyedBlock,
    encode_deleted,
    encode_written,
)
from penstock.runtime.state.packed_blocks import PackedBlock, bytes_of, pack_rows, unpack_block

#: What a value is taken to weigh while it is not encoded, bytes.
_VALUE_WEIGHT: Final = 16
#: References that are given back in one go.
_GIVEN_BACK: Final = 1_000


class CapturedEntries:
    """Changed entries of one table, not encoded yet.

    Args:
        table: Its name.
        entries: By entry a value that can't change, or `DELETED`; nobody else has this dict.
        nested: Whether the entries are pairs of key and second part.
        with_deleted: Whether something older is left that a deletion would have to hide.

    Example:
        >>> from penstock.runtime.record.value_codec import ValueCodec
        >>> captured = CapturedEntries("counts", {"ann": 1, "bob": DELETED})
        >>> packed = captured.packed(128, KeyGroupRange(0, 127), ValueCodec())
        >>> [(block[0], block[1], block[4] is None) for block in packed]
        [('counts', 1, False), ('counts', 1, True)]
    """

    def __init__(
        self, table: str, entries: dict[Any, Any], *, nested: bool = False, with_deleted: bool = True
    ) -> None:
        self.table, self.nested = table, nested
        self._with_deleted = with_deleted
        self._count = len(entries)
        self._entries: dict[Any, Any] | None = entries
        self._packed: list[PackedBlock] | None = None
        self._readers: list[None] = []

    def __len__(self) -> int:
        packed = self._packed
        return self._count if packed is None else sum(block[1] for block in packed)

    @property
    def weight(self) -> int:
        """About how many bytes this is."""
        packed = self._packed
        if packed is None:
            return self._count * (KEY_WEIGHT + _VALUE_WEIGHT)
        return sum(map(bytes_of, packed))

    def packed(self, max_parallelism: int, key_groups: KeyGroupRange, codec: ValueCodec) -> list[PackedBlock]:
        """These entries as bytes, block by block; in any thread.

        Raises:
            KeyGroupError: A key is not the subtask's own.
            KeyTypeError: Something can't be a key.
            CodecError: A value can't be encoded; names table and key.
        """
        self._readers.append(None)
        try:
            entries = self._entries
            if entries is not None:
                blocks = self._blocks(entries, codec)
                self._packed = [pack_rows(block, max_parallelism, key_groups, codec) for block in blocks]
                self._entries = None
        finally:
            self._readers.pop()
        if entries is not None and not self._readers:
            _give_back(entries)
        assert self._packed is not None, "entries leave when their bytes are there"
        return self._packed

    def put_into(self, changes: dict[Any, Any], codec: ValueCodec) -> None:
        """Add these entries to older ones; in any thread."""
        self._readers.append(None)
        try:
            entries = self._entries
            if entries is not None:
                for keys, values in _in_parts(entries):
                    changes.update(zip(keys, values, strict=True))
                return
        finally:
            self._readers.pop()
        assert self._packed is not None, "entries leave when their bytes are there"
        for packed in self._packed:
            block = unpack_block(packed, codec)
            assert isinstance(block, DecodedBlock), "entries of a table of rows"
            block.put_into(changes)

    def _blocks(self, entries: dict[Any, Any], codec: ValueCodec) -> Iterator[KeyedBlock]:
        for keys, values in _in_parts(entries):
            gone: list[Any] = []
            if Deleted in set(map(type, values)):
                gone = [key for key, value in zip(keys, values, strict=True) if value is DELETED]
                keys = [key for key, value in zip(keys, values, strict=True) if value is not DELETED]
                values = [value for value in values if value is not DELETED]
            if self.nested:
                keys, values = _by_key(keys, values)
                gone, _ = _by_key(gone, gone)
            yield from encode_written(self.table, keys, values, codec, nested=self.nested)
            if self._with_deleted:
                yield from encode_deleted(self.table, gone, nested=self.nested)


def _in_parts(entries: dict[Any, Any]) -> Iterator[tuple[list[Any], list[Any]]]:
    """Keys and values of some entries at a time; no pairs, which would keep the cycle collector busy."""
    keys, values = iter(entries), iter(entries.values())
    while some := list(islice(keys, BLOCK_ENTRIES)):
        yield some, list(islice(values, BLOCK_ENTRIES))


def _by_key(entries: list[Any], values: list[Any]) -> tuple[list[Any], list[Any]]:
    """Entries of a nested table with those of one key together: the key then stands once."""
    places: dict[Any, list[int]] = {}
    for place, entry in enumerate(entries):
        places.setdefault(entry[0], []).append(place)
    if len(places) == len(entries):
        return entries, values
    order = list(chain.from_iterable(places.values()))
    return [entries[place] for place in order], [values[place] for place in order]


def _give_back(entries: dict[Any, Any]) -> None:
    """Empty a dict in small steps; another thread may do the same."""
    with suppress(KeyError):
        while entries:
            for _ in range(_GIVEN_BACK):
                entries.popitem()
