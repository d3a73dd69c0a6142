"""`RocksDBTable`: a table of keyed state in RocksDB, and the clean-up of its expired entries."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

from penstock.runtime.io.rocksdb.cached_entries import CachedEntries, CachedParts, OperatorChanges
from penstock.runtime.io.rocksdb.database import Database
from penstock.runtime.io.rocksdb.rows import TableRows
from penstock.runtime.state.dirty_entries import DirtyKeys
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.state.time_to_live import Lifetime, Stamped


class RocksDBTable(StateTable):
    """The state of one name; see `StateTable` for what it offers."""

    __slots__ = ("cached",)

    def __init__(self, rows: TableRows, database: Database, key_groups: range, *, is_bound: bool) -> None:
        kind = CachedParts if rows.nested else CachedEntries
        self.cached = kind(rows, database, key_groups)
        self.cached.is_bound = is_bound
        if not is_bound:
            self.cached.changed = OperatorChanges(self.cached)
        super().__init__(rows.name, nested=rows.nested, changed=lambda _: DirtyKeys(self.cached.changed))
        self.entries = self.cached

    def mark_all_changed(self) -> None:
        """Do nothing: a snapshot has RocksDB's files, and so all entries."""

    def _replace_all(self, replace: Callable[[Any], Any]) -> None:
        for key, held in self.entries.items():
            if self.nested:
                for part, value in held.items():
                    held[part] = replace(value)
                    self.changed.add((key, part))
            else:
                self.entries[key] = replace(held)
                self.changed.add(key)


class ScannedLifetime(Lifetime):
    """A TTL that finds expired entries by scanning the table, once per TTL.

    On the heap each entry waits in a bucket in memory until it may have expired. State in RocksDB may be
    larger than memory, and so would be the buckets. So the sweep scans the rows, some at a time. After a full
    pass it rests for a TTL. An entry is deleted within two TTLs after its last use.
    """

    _at: bytes | None = b""
    _next_at = 0

    def watch(self, entry: Any, stamp: int | None) -> None: ...

    def watch_all(self, entries: Iterable[tuple[Any, int | None]]) -> None: ...

    @property
    def due_in(self) -> float | None:
        """Return the seconds until the next pass; 0 within one, `None` when only a watermark can begin it."""
        now = self._swept_to()
        if now is None:
            return None
        missing = 0 if self._at is not None else self._next_at - now
        if self.ttl.time == "event":
            return 0.0 if missing <= 0 else None
        return missing / 1_000_000

    def sweep(self, table: Stamped, most: int) -> int:
        assert isinstance(table, RocksDBTable), "another table has another lifetime"
        now = self._swept_to()
        if now is None or (self._at is None and self._next_at > now):
            return 0
        table.cached.write_back()
        seen = self._look_through(table.cached, table, self._at or b"", now, most)
        if seen < most:
            self._at, self._next_at = None, now + self.microseconds
        return seen

    def sweep_all(self, table: Stamped) -> None: ...

    def expired_before(self) -> int | None:
        """Return the latest expired stamp; `None` when event time is not known."""
        now = self._swept_to()
        return None if now is None else now - self.microseconds

    def _look_through(
        self, cached: CachedEntries, table: RocksDBTable, at: bytes, now: int, most: int
    ) -> int:
        """Check rows from `at` on; return their number."""
        seen, rows = 0, cached.rows
        written: list[tuple[bytes, bytes]] = []
        deleted: list[bytes] = []
        for group in cached.key_groups:
            prefix = rows.begin(group)
            if at[: len(prefix)] > prefix:
                continue
            for row, data in islice(cached.database.scan(prefix, at), most - seen):
                seen += 1
                self._at = row + b"\x00"
                stamp, value = rows.value(data)
                if stamp is not None and stamp + self.microseconds > now:
                    continue
                key, part = rows.key_and_part(row, data)
                entry = (key, part) if rows.nested else key
                if dict.__contains__(cached, key):
                    self._in_memory(table, entry, now)
                elif stamp is None:
                    written.append(rows.encode(key, part, (now, value)))
                else:
                    deleted.append(row)
            if seen >= most:
                break
        cached.database.write(written, deleted)
        return seen

    def _in_memory(self, table: RocksDBTable, entry: Any, now: int) -> None:
        is_there, stamp = table.stamp_of(entry)
        if not is_there:
            return
        if stamp is None:
            table.set_stamp(entry, now)
        elif stamp + self.microseconds <= now:
            table.delete(entry)
