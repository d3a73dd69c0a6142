"""Entries of a table in RocksDB that behave like a dict: some values decoded in memory, the rest on disk.

Reading a value from RocksDB costs microseconds: the key is hashed and encoded, the row found, the value
decoded. Most functions see the same key again soon. So a value stays in memory, decoded, after the first
read. Changed values are written back in batches: before a snapshot, when room is needed, or when there are
many. The class derives from `dict`, so `entries[key]` runs in C for a cached key; a miss calls `__missing__`.

**Invariant.** The dict has the current value of each key that it holds. Any other key is deleted if it is in
`deleted`; otherwise RocksDB has its value, if there is one. An entry in the dict differs from RocksDB's only
if it is in `changed`, or if its change has not been reported yet. `write_back` writes all reported changes. A
deleted key stays in `deleted` until then; otherwise the next read would find its old row.

**Eviction.** An operator may change a value in place and report the change later, at the end of a batch
(`state_backend.py`). Evicting the entry meanwhile would lose the change. So entries are evicted only when
changes are reported, or when a view reads. A view reports each change at once.

Only one thread may use a `CachedEntries`.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterable, Iterator, KeysView, Mapping, MutableMapping, ValuesView
from itertools import islice
from typing import Any, Final

from penstock.runtime.io.rocksdb.database import Database
from penstock.runtime.io.rocksdb.rows import TableRows

#: Bytes of memory that an entry takes on top of its encoded size; measured for small values, rounded up.
_OVERHEAD: Final = 250
_LEAST_KEYS: Final = 64
#: Rows that are written in one batch.
_BATCH: Final = 4096
#: Maximum number of a table's changes that wait in memory, and that a snapshot may have to write.
_MAX_CHANGES: Final = 1 << 17


_ABSENT: Final = object()


class CachedEntries(dict[Any, Any]):
    """The entries of a flat table.

    Attributes:
        changed: Keys that were written or deleted since the last `write_back`.
        is_bound: Whether only views use the table; views report each change at once.
    """

    __slots__ = (
        "_bytes",
        "_limit",
        "_seen",
        "changed",
        "database",
        "deleted",
        "is_bound",
        "key_groups",
        "max_changes",
        "rows",
    )

    def __init__(self, rows: TableRows, database: Database, key_groups: range) -> None:
        super().__init__()
        self.rows = rows
        self.database = database
        self.key_groups = key_groups
        self.changed: set[Any] = ReportedKeys(self)
        self.deleted: set[Any] = set()
        self.is_bound = False
        self._bytes = self._seen = 0
        self._limit = self.max_changes = _LEAST_KEYS

    # -- single entries -----------------------------------------------------------------------------------

    def __missing__(self, key: Any) -> Any:
        if key in self.deleted:
            raise KeyError(key)
        if self.is_bound:
            self.make_room_if_full()
        value = self._load(key)
        if value is _ABSENT:
            raise KeyError(key)
        self[key] = value
        return value

    # These methods of `dict` don't call `__missing__`.
    get = Mapping.get  # type: ignore[assignment]
    setdefault = MutableMapping.setdefault

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
        self.deleted.add(key)

    def pop(self, key: Any, *default: Any) -> Any:
        try:
            value = self[key]
        except KeyError:
            if default:
                return default[0]
            raise
        del self[key]
        return value

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
        return KeysView(self)

    def values(self) -> ValuesView[Any]:  # type: ignore[override]
        """All values, which must not be changed in place."""
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:  # type: ignore[override]
        """All entries; only views may change a value in place."""
        return _Items(self)

    def clear(self) -> None:
        self.forget()
        for group in self.key_groups:
            begin = self.rows.begin(group)
            self.database.delete_range(begin, begin + b"\xff")

    def forget(self) -> None:
        """Drop all entries in memory, including changes that were not written back."""
        dict.clear(self)
        self.changed.clear()
        self.deleted.clear()

    def _pairs(self, *, is_kept: bool = False) -> Iterator[tuple[Any, Any]]:
        """Yield entries in memory, then those on disk, each once even if entries change meanwhile.

        With `is_kept`, values stay in memory, so that callers can change them in place.
        """
        in_memory, written = dict.fromkeys(dict.__iter__(self)), self.database.rows_written
        for key in in_memory:
            if key in self:
                yield key, self[key]
        for key, on_disk in self._on_disk():
            if key in in_memory or key in self.deleted:
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
        """Write all reported changes to RocksDB; entries stay in memory. An error loses no change."""
        changed = iter(self.changed)
        while some := list(islice(changed, _BATCH)):
            written, deleted = self._rows_of(some)
            self.database.write(written, deleted)
            self._weigh(written)
        self._forget_written()

    def make_room(self) -> None:
        self.write_back()
        self._limit = self._most_keys()
        self.max_changes = min(_MAX_CHANGES, self._limit)
        if dict.__len__(self) >= self._limit:
            for key in list(islice(dict.__iter__(self), dict.__len__(self) - self._limit // 2)):
                dict.__delitem__(self, key)

    def make_room_if_full(self) -> None:
        if dict.__len__(self) >= self._limit:
            self.make_room()

    def write_back_many(self) -> None:
        """Write back a large set of changes; also make room, unless a view may be iterating."""
        if self.is_bound and self.rows.nested:
            self.write_back()  # a view may be iterating over the parts of a key
        else:
            self.make_room()

    def _most_keys(self) -> int:
        of_one = _OVERHEAD + (self._bytes // self._seen if self._seen else 0)
        return max(_LEAST_KEYS, self.database.memory.decoded_per_table // of_one)

    def _weigh(self, written: list[tuple[bytes, bytes]]) -> None:
        self._bytes += sum(len(row) + len(value) for row, value in written)
        self._seen += len(written)

    # -- overridden in a nested table ----------------------------------------------------------------------

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

    def _rows_of(self, changed: list[Any]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        values = [dict.get(self, key, _ABSENT) for key in changed]
        deleted: list[bytes] = []
        if any(value is _ABSENT for value in values):
            pairs = list(zip(changed, values, strict=True))
            absent = [key for key, value in pairs if value is _ABSENT]
            deleted = [self.rows.of_key(key) for key in absent if key in self.deleted]
            pairs = [pair for pair in pairs if pair[1] is not _ABSENT]
            changed, values = [key for key, _ in pairs], [value for _, value in pairs]
        return self.rows.encode_all(changed, values), deleted

    def _forget_written(self) -> None:
        self.deleted -= self.changed
        self.changed.clear()


class CachedParts(CachedEntries):
    """The entries of a nested table: the first access reads all parts of a key; writes are by part."""

    __slots__ = ()

    def _most_keys(self) -> int:
        parts = sum(map(len, dict.values(self)))
        most_parts = super()._most_keys()
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

    def _rows_of(self, changed: list[Any]) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        written, deleted = [], []
        for key, part in changed:
            held = dict.get(self, key)
            if held is not None and part in held:
                written.append(self.rows.encode(key, part, held[part]))
            elif held is not None or key in self.deleted:
                deleted.append(self.rows.row(key, part))
        return written, deleted

    def _forget_written(self) -> None:
        self.deleted -= {key for key, _ in self.changed}
        self.changed.clear()


class _Items(ItemsView[Any, Any]):
    _mapping: CachedEntries

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self._mapping._pairs(is_kept=self._mapping.is_bound)


class _Values(ValuesView[Any]):
    _mapping: CachedEntries

    def __iter__(self) -> Iterator[Any]:
        return (value for _, value in self._mapping._pairs())


class ReportedKeys(set[Any]):
    """The changed keys of a table; a large set is written back, so that snapshots are short."""

    def __init__(self, entries: CachedEntries) -> None:
        super().__init__()
        self._entries = entries

    def add(self, entry: Any, /) -> None:
        super().add(entry)
        if len(self) >= self._entries.max_changes:
            self._entries.write_back_many()

    def update(self, *entries: Iterable[Any]) -> None:
        super().update(*entries)
        if len(self) >= self._entries.max_changes:
            self._entries.write_back_many()


class OperatorKeys(ReportedKeys):
    """The changed keys of a table without views; a report may evict entries."""

    def add(self, entry: Any, /) -> None:
        super().add(entry)
        self._entries.make_room_if_full()

    def update(self, *entries: Iterable[Any]) -> None:
        super().update(*entries)
        self._entries.make_room_if_full()
