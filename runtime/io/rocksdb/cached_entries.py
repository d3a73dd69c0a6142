"""Entries of a table in RocksDB that behave as a dict: decoded values in memory, the rest on disk.

A look at a value in RocksDB costs microseconds: the key has to be hashed and encoded, the row found, the
value decoded. Most functions read a value, change it, and see the same key again soon. So a value stays in
memory, decoded, after the first look. It is written back, in a batch, in front of a snapshot or when room is
needed. `dict` itself is the memory: the class derives from it, so a look at a key that is there runs in C.
Only misses (`__missing__`) reach this code.

**The truth.** At any moment an entry is: what the dict has; else nothing, if its key is in `gone`; else what
RocksDB has. An entry whose key is in the table's `changed` may differ from RocksDB's. Every other entry
in the dict equals RocksDB's, unless it was changed in place without an announcement. `write_back` writes all
announced changes. A deleted key stays in `gone` until then, or the next look would find its old row.

**What must not be dropped.** An operator may change a value in place and announce the change later, at the
end of a batch (`state_backend.py`). Dropping the entry meanwhile would lose the change. So room is made at
two places only. One is where an operator announces its changes. The other is a read through a view of `bind`,
because a view announces each change at once.

A `CachedEntries` holds one table, and one thread uses it.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, ValuesView
from itertools import islice
from typing import Any, Final

from penstock.runtime.io.rocksdb.database import Database
from penstock.runtime.io.rocksdb.rows import TableRows

#: Bytes of memory that an entry takes beside its encoded size; measured for small values, rounded up.
_OVERHEAD: Final = 250
_LEAST_KEYS: Final = 64
#: Rows that are written in one batch.
_BATCH: Final = 4096
#: Maximum number of a table's changes that wait in memory, and that a snapshot may have to write.
_MOST_TOLD: Final = 1 << 17


class _Absent:
    pass


_ABSENT: Final = _Absent()


class CachedEntries(dict[Any, Any]):
    """The entries of a flat table.

    Args:
        changed: Keys that were written or deleted since the last `write_back`.

    Attributes:
        is_bound: Whether only views use the table; views announce each change at once.
    """

    __slots__ = (
        "_bytes",
        "_limit",
        "_seen",
        "changed",
        "database",
        "gone",
        "is_bound",
        "key_groups",
        "most_told",
        "rows",
    )

    def __init__(self, rows: TableRows, database: Database, key_groups: range) -> None:
        super().__init__()
        self.rows = rows
        self.database = database
        self.key_groups = key_groups
        self.changed: set[Any] = ToldChanges(self)
        self.gone: set[Any] = set()
        self.is_bound = False
        self._bytes = self._seen = 0
        self._limit = self.most_told = _LEAST_KEYS

    # -- single entries -----------------------------------------------------------------------------------

    def __missing__(self, key: Any) -> Any:
        if key in self.gone:
            raise KeyError(key)
        if self.is_bound:
            self.make_room_if_full()
        value = self._load(key)
        if value is _ABSENT:
            raise KeyError(key)
        self[key] = value
        return value

    def get(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default

    def __contains__(self, key: object) -> bool:
        if dict.__contains__(self, key):
            return True
        try:
            self.__missing__(key)
        except KeyError:
            return False
        return True

    def __delitem__(self, key: Any) -> None:
        if key not in self:
            raise KeyError(key)
        dict.__delitem__(self, key)
        self.gone.add(key)

    def pop(self, key: Any, *default: Any) -> Any:
        try:
            value = self[key]
        except KeyError:
            if default:
                return default[0]
            raise
        del self[key]
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            self[key] = default
            return default

    # -- all entries --------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._pairs())

    def __len__(self) -> int:
        return sum(1 for _ in self._pairs())

    def __bool__(self) -> bool:
        return next(self._pairs(), None) is not None

    def __eq__(self, other: object) -> bool:
        return dict(self._pairs()) == other

    __hash__ = None

    def __repr__(self) -> str:
        return repr(dict(self._pairs()))

    def keys(self) -> KeysView[Any]:  # type: ignore[override]
        return _Keys(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """All values, as they are now; not to be changed in place."""
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        """All entries, each read when the iteration reaches it; only views may change a value in place."""
        return _Items(self)

    def clear(self) -> None:
        self.forget()
        for group in self.key_groups:
            begin = self.rows.begin(group)
            self.database.delete_range(begin, begin + b"\xff")

    def forget(self) -> None:
        """Drop everything in memory, including changes that were not written back."""
        dict.clear(self)
        self.changed.clear()
        self.gone.clear()

    def _pairs(self, *, is_kept: bool = False) -> Iterator[tuple[Any, Any]]:
        """Entries in memory, then those on disk; each once, even if entries change meanwhile.

        Args:
            is_kept: Whether a value that is read stays in memory, so that it can be changed in place.
        """
        in_memory, written = dict.fromkeys(dict.__iter__(self)), self.database.rows_written
        for key in in_memory:
            if key in self:
                yield key, self[key]
        for key, on_disk in self._on_disk():
            if key in in_memory or key in self.gone:
                continue
            value = dict.get(self, key, _ABSENT)
            if value is _ABSENT:
                # The scan shows the rows as of its start; rows written back since are read again.
                value = on_disk if self.database.rows_written == written else self._load(key)
                if value is _ABSENT:
                    continue
                if is_kept:
                    self.make_room_if_full()
                    self[key] = value
            yield key, value

    # -- memory and disk ----------------------------------------------------------------------------------

    def write_back(self) -> None:
        """Write all announced changes to RocksDB; entries stay in memory.

        Raises:
            CodecError: A value can't be encoded; names the table and the key. Nothing is forgotten.
            StorageError: The disk is full, or fails; nothing is forgotten.
        """
        told = iter(self.changed)
        while some := list(islice(told, _BATCH)):
            written, deleted = self._rows_of(some)
            self.database.write(written, deleted)
            self._weigh(written)
        self._forget_written()

    def make_room(self) -> None:
        self.write_back()
        self._limit = self._most_keys()
        self.most_told = min(_MOST_TOLD, self._limit)
        if dict.__len__(self) >= self._limit:
            for key in list(islice(dict.__iter__(self), dict.__len__(self) - self._limit // 2)):
                dict.__delitem__(self, key)

    def make_room_if_full(self) -> None:
        if dict.__len__(self) >= self._limit:
            self.make_room()

    def told_many(self) -> None:
        """Write the changes back, because many were announced."""
        if self.is_bound and self.rows.nested:
            self.write_back()  # a view may be half through the parts of a key
        else:
            self.make_room()

    def _most_keys(self) -> int:
        of_one = _OVERHEAD + (self._bytes // self._seen if self._seen else 0)
        return max(_LEAST_KEYS, self.database.memory.decoded_per_table // of_one)

    def _weigh(self, written: list[tuple[bytes, bytes]]) -> None:
        self._bytes += sum(len(row) + len(value) for row, value in written)
        self._seen += len(written)

    # -- what a nested table does otherwise ----------------------------------------------------------------

    def _load(self, key: Any) -> Any:
        row = self.rows.of_key(key)
        data = self.database.get(row)
        if data is None:
            return _ABSENT
        self._bytes += len(row) + len(data)
        self._seen += 1
        return self.rows.value(data)

    def _on_disk(self) -> Iterator[tuple[Any, Any]]:
        for group in self.key_groups:
            for row, data in self.database.scan(self.rows.begin(group)):
                key, _, value = self.rows.decode(row, data)
                yield key, value

    def _rows_of(self, told: list[Any]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        values = [dict.get(self, key, _ABSENT) for key in told]
        deleted: list[bytes] = []
        if any(value is _ABSENT for value in values):
            pairs = list(zip(told, values, strict=True))
            absent = [key for key, value in pairs if value is _ABSENT]
            deleted = [self.rows.of_key(key) for key in absent if key in self.gone]
            pairs = [pair for pair in pairs if pair[1] is not _ABSENT]
            told, values = [key for key, _ in pairs], [value for _, value in pairs]
        return self.rows.encode_all(told, values), deleted

    def _forget_written(self) -> None:
        self.gone -= self.changed
        self.changed.clear()


class CachedParts(CachedEntries):
    """The entries of a nested table: the first access reads all parts of a key; each is written alone.

    A key whose parts are all deleted leaves the dict, as in a table on the heap.
    """

    __slots__ = ()

    def _most_keys(self) -> int:
        parts = sum(map(len, dict.values(self)))
        of_one = _OVERHEAD + (self._bytes // self._seen if self._seen else 0)
        most_parts = max(_LEAST_KEYS, self.database.memory.decoded_per_table // of_one)
        keys = dict.__len__(self)
        return max(_LEAST_KEYS, most_parts * keys // max(1, parts) if keys else most_parts)

    def _load(self, key: Any) -> Any:
        parts = dict(self._parts_of(self.rows.of_key(key)))
        return parts or _ABSENT

    def _parts_of(self, of_key: bytes) -> Iterator[tuple[Any, Any]]:
        for row, data in self.database.scan(of_key):
            self._bytes += len(row) + len(data)
            self._seen += 1
            _, part, value = self.rows.decode(row, data)
            yield part, value

    def _on_disk(self) -> Iterator[tuple[Any, Any]]:
        key, parts = _ABSENT, dict[Any, Any]()
        for group in self.key_groups:
            for row, data in self.database.scan(self.rows.begin(group)):
                found, part, value = self.rows.decode(row, data)
                if found is not key and found != key and parts:
                    yield key, parts
                    parts = {}
                key = found
                parts[part] = value
        if parts:
            yield key, parts

    def _rows_of(self, told: list[Any]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        written, deleted = [], []
        for key, part in told:
            held = dict.get(self, key)
            if held is not None and part in held:
                written.append(self.rows.encode(key, part, held[part]))
            elif held is not None or key in self.gone:
                deleted.append(self.rows.row(key, part))
        return written, deleted

    def _forget_written(self) -> None:
        self.gone -= {key for key, _ in self.changed}
        self.changed.clear()


class _Keys(KeysView[Any]):
    _mapping: CachedEntries

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._mapping._pairs())


class _Items(ItemsView[Any, Any]):
    """Entries; in a table with views, entries that were read stay in memory: views may change them."""

    _mapping: CachedEntries

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping._pairs(is_kept=self._mapping.is_bound)


class _Values(ValuesView[Any]):
    _mapping: CachedEntries

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping._pairs())


class ToldChanges(set[Any]):
    """The changed keys of a table; a large set is written back, so that no snapshot has much to write."""

    def __init__(self, entries: CachedEntries) -> None:
        super().__init__()
        self._entries = entries

    def add(self, entry: Any, /) -> None:
        super().add(entry)
        if len(self) >= self._entries.most_told:
            self._entries.told_many()

    def update(self, *entries: Iterable[Any]) -> None:
        super().update(*entries)
        if len(self) >= self._entries.most_told:
            self._entries.told_many()


class OperatorChanges(ToldChanges):
    """The changed keys of a table without views; announcing changes makes room."""

    def add(self, entry: Any, /) -> None:
        super().add(entry)
        self._entries.make_room_if_full()

    def update(self, *entries: Iterable[Any]) -> None:
        super().update(*entries)
        self._entries.make_room_if_full()
