"""The rows of keyed state in RocksDB: layout of their keys and values.

A row's key is

    key group (2 bytes, big-endian)   table   key   second part (of a nested table)

*Key group first*: rows of a range of key groups are contiguous. So a rescaled subtask removes foreign rows
with two range deletions, and copies its own rows with one scan.

*Table*: a byte for nested or flat, the length of the name, and the name. A number instead of the name could
differ between subtasks.

*Key and second part*: canonical bytes (`state/key_bytes.py`).

A row's value is one byte, then the encoded value. The byte is 1 when the key or the part can't be read from
the row's key. Then four bytes of length and the encoded key and part precede the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from penstock.runtime.errors import CodecError, CorruptSnapshotError, KeyTypeError
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.key_bytes import key_bytes, key_of
from penstock.runtime.state.key_groups import LASTING_KEYS, changed_key, key_group_array
from penstock.runtime.state.stable_hash import stable_hash, types_of_keys

#: Bytes of the key group at the beginning of each row's key.
GROUP_BYTES: Final = 2
_FLAT, _NESTED = 0, 1
_NATURAL: Final = b"\x00"
_WITH_KEY: Final = b"\x01"


def group_bytes(key_group: int) -> bytes:
    return key_group.to_bytes(GROUP_BYTES)


def end_of(prefix: bytes) -> bytes | None:
    r"""Return the first row after all rows with a prefix; `None` when no such row can exist.

    Example:
        >>> end_of(b"ab"), end_of(b"a\xff"), end_of(b"\xff")
        (b'ac', b'b', None)
    """
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def table_prefix(name: str, *, nested: bool) -> bytes:
    r"""Return the bytes after the key group in all rows of a table: `b'\x00\x00\x05count'`."""
    text = name.encode("utf-8", "surrogatepass")
    return bytes([_NESTED if nested else _FLAT]) + len(text).to_bytes(2) + text


def table_of(row: bytes) -> tuple[bytes, str, bool]:
    """Return prefix, name and nesting of a row's table."""
    start = GROUP_BYTES + 3
    end = start + int.from_bytes(row[start - 2 : start])
    return row[GROUP_BYTES:end], row[start:end].decode("utf-8", "surrogatepass"), row[GROUP_BYTES] == _NESTED


class TableRows:
    """Makes and reads the rows of one table."""

    __slots__ = ("_begins", "_codec", "_max_parallelism", "_prefix", "name", "nested")

    def __init__(self, name: str, nested: bool, max_parallelism: int, codec: ValueCodec) -> None:
        self.name = name
        self.nested = nested
        self._prefix = table_prefix(name, nested=nested)
        self._begins = _Begins(self._prefix)
        self._max_parallelism = max_parallelism
        self._codec = codec

    def begin(self, key_group: int) -> bytes:
        return self._begins[key_group]

    def of_key(self, key: Any) -> bytes:
        """Return the row of a key, or the common prefix of its rows in a nested table."""
        return self._begins[stable_hash(key) % self._max_parallelism] + key_bytes(key)[0]

    def row(self, key: Any, part: Any = None) -> bytes:
        of_key = self.of_key(key)
        return of_key + key_bytes(part)[0] if self.nested else of_key

    def encode(self, key: Any, part: Any, value: Any) -> tuple[bytes, bytes]:
        """Return the key and the value of a row; a `CodecError` names the table and the key."""
        raw, is_natural = key_bytes(key)
        row = self._begins[stable_hash(key) % self._max_parallelism] + raw
        if self.nested:
            raw_part, is_natural_part = key_bytes(part)
            row += raw_part
            is_natural = is_natural and is_natural_part
        try:
            if is_natural:
                return row, _NATURAL + self._codec.dumps(value)
            own = self._codec.dumps((key, part) if self.nested else key)
            return row, b"".join((_WITH_KEY, len(own).to_bytes(4), own, self._codec.dumps(value)))
        except CodecError as error:
            msg = f"state {self.name!r} of key {key!r:.100} can't be stored in RocksDB: {error}"
            raise CodecError(msg) from error

    def encode_all(self, keys: Sequence[Any], values: Sequence[Any]) -> list[tuple[bytes, bytes]]:
        """Return the rows of many keys of a flat table; faster than `encode` for each."""
        groups, begins = key_group_array(keys, self._max_parallelism).tolist(), self._begins
        dumps, rows = self._codec.dumps, []
        try:
            for key, group, value in zip(keys, groups, values, strict=True):
                raw, is_natural = key_bytes(key)
                if is_natural:
                    rows.append((begins[group] + raw, _NATURAL + dumps(value)))
                else:
                    rows.append(self.encode(key, None, value))
        except CodecError:
            return [self.encode(key, None, value) for key, value in zip(keys, values, strict=True)]
        return rows

    def encode_parts(
        self, entries: Sequence[tuple[Any, Any]], values: Sequence[Any]
    ) -> list[tuple[bytes, bytes]]:
        """Return the rows of many entries of a nested table; faster than `encode` for each."""
        dumps, rows = self._codec.dumps, []
        try:
            for (key, part), (row, is_natural), value in zip(
                entries, self._of_parts(entries), values, strict=True
            ):
                if is_natural:
                    rows.append((row, _NATURAL + dumps(value)))
                else:
                    rows.append(self.encode(key, part, value))
        except CodecError:
            return [self.encode(key, part, value) for (key, part), value in zip(entries, values, strict=True)]
        return rows

    def of_parts(self, entries: Sequence[tuple[Any, Any]]) -> list[bytes]:
        """Return the keys of the rows of many entries of a nested table."""
        return [row for row, _ in self._of_parts(entries)]

    def _of_parts(self, entries: Sequence[tuple[Any, Any]]) -> Iterator[tuple[bytes, bool]]:
        """Yield the key of each entry's row, and whether both parts can be read from it."""
        begins = self._begins
        groups = key_group_array([key for key, _ in entries], self._max_parallelism).tolist()
        for (key, part), group in zip(entries, groups, strict=True):
            raw, is_natural = key_bytes(key)
            raw_part, is_natural_part = key_bytes(part)
            yield begins[group] + raw + raw_part, is_natural and is_natural_part

    def value(self, data: bytes) -> Any:
        at = 1 if data[:1] == _NATURAL else 5 + int.from_bytes(data[1:5])
        try:
            return self._codec.loads(data[at:])
        except CodecError as error:
            msg = f"a value of state {self.name!r} can't be read here: {error}"
            raise CodecError(msg) from error

    def key_and_part(self, row: bytes, data: bytes) -> tuple[Any, Any]:
        """Return the key and the second part of a row; the part is `None` in a flat table."""
        if data[:1] != _NATURAL:
            own = self._codec.loads(data[5 : 5 + int.from_bytes(data[1:5])])
            key, part = own if self.nested else (own, None)
            (key, part) = one_nan([key, part])
            return key, part
        try:
            key, end = key_of(row, GROUP_BYTES + len(self._prefix))
            return key, (key_of(row, end)[0] if self.nested else None)
        except (ValueError, IndexError) as error:
            msg = f"RocksDB has a row of state {self.name!r} that can't be read: {error}"
            raise CorruptSnapshotError(msg) from error

    def check_key(self, row: bytes, data: bytes) -> bool:
        """Refuse a restored row that this program would not find by its key.

        Returns whether a change to the program can change keys of this kind.
        """
        if data[:1] == _NATURAL:
            return False
        try:
            key, part = self.key_and_part(row, data)
        except CodecError as error:
            msg = f"state {self.name!r}: {error}"
            raise CorruptSnapshotError(msg) from error
        if types_of_keys([key, part]) <= LASTING_KEYS:
            return False
        try:
            is_found = self.row(key, part) == row
        except KeyTypeError as error:
            raise changed_key(self.name, (key, part) if self.nested else key) from error
        if not is_found:
            raise changed_key(self.name, (key, part) if self.nested else key)
        return True

    def decode(self, row: bytes, data: bytes) -> tuple[Any, Any, Any]:
        return *self.key_and_part(row, data), self.value(data)


class _Begins(dict[int, bytes]):
    def __init__(self, prefix: bytes) -> None:
        super().__init__()
        self._prefix = prefix

    def __missing__(self, key_group: int) -> bytes:
        begin = self[key_group] = group_bytes(key_group) + self._prefix
        return begin
