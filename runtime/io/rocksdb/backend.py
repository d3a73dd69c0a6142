"""Keyed state in RocksDB, larger than memory (Flink: `EmbeddedRocksDBStateBackend`).

Tables are dicts of decoded values in front of a database (`cached_entries.py`). Views, types and the rules of
declared states are as in the heap backend: only the storage of entries differs. A snapshot begins with a
write-back and RocksDB's own checkpoint, which flushes and then links files. Only these steps block the task.
All other steps work on the linked files, which never change (`snapshots.py`).

The thread that writes the snapshot must never touch the live database. Every reported change must be written
back when a snapshot begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Final

from penstock.runtime.config.job_config import HeapState, StateBackend
from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.rocksdb.cached_entries import CachedEntries, CachedParts, OperatorKeys
from penstock.runtime.io.rocksdb.database import Database
from penstock.runtime.io.rocksdb.row_log import RocksDBRowLog
from penstock.runtime.io.rocksdb.rows import TableRows
from penstock.runtime.io.rocksdb.snapshots import (
    CanonicalSnapshot,
    ExpiredRows,
    NativeSnapshot,
    cut_off_foreign,
    damage_as_corruption,
    download,
    expired_rows,
    is_expired,
    largest_part,
    sorted_files,
    take_over,
)
from penstock.runtime.io.rocksdb.timer_table import RocksDBTimers
from penstock.runtime.io.scratch import ScratchFolder
from penstock.runtime.snapshot.handles import KeyedStateHandle, SavedTime
from penstock.runtime.state.column_log import ColumnLog
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.dirty_entries import DirtyKeys
from penstock.runtime.state.heap_backend import HeapKeyedStateBackend
from penstock.runtime.state.keyed_snapshot import ConfirmableSnapshots, StateFileReader
from penstock.runtime.state.row_log import RowLog
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend, other_form
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.state.time_to_live import HasCells, Lifetime, StateTtl


class RocksDBTable(StateTable):
    __slots__ = ("cached",)

    def __init__(self, rows: TableRows, database: Database, key_groups: range, *, is_bound: bool) -> None:
        kind = CachedParts if rows.nested else CachedEntries
        self.cached = kind(rows, database, key_groups)
        self.cached.is_bound = is_bound
        if not is_bound:
            self.cached.changed = OperatorKeys(self.cached)
        super().__init__(rows.name, nested=rows.nested, changed=lambda _: DirtyKeys(self.cached.changed))
        self.entries = self.cached


class ScannedLifetime(Lifetime):
    """A TTL that finds expired entries by scanning the table, once per TTL.

    The heap backend keeps each entry in a bucket in memory until it may have expired. For state in RocksDB,
    the buckets could exceed memory. So the sweep scans the rows, a batch at a time. After a full pass it
    rests for a TTL. An entry is deleted at most about two TTLs after its last use.
    """

    _at: bytes | None = b""
    _next_at = 0

    def watch(self, entry: Any, stamp: int | None) -> None: ...

    def watch_all(self, entries: Iterable[tuple[Any, int | None]]) -> None: ...

    def sweep(self, table: HasCells, most: int) -> int:
        assert isinstance(table, RocksDBTable), "only tables in RocksDB have this lifetime"
        now = self._sweep_time()
        if now is None or (self._at is None and self._next_at > now):
            return 0
        table.cached.write_back()
        seen = self._sweep_rows(table.cached, table, self._at or b"", now, most)
        if seen < most:
            self._at, self._next_at = None, now + self.microseconds
        return seen

    def sweep_all(self, table: HasCells) -> None: ...

    def _due_at(self, now: int) -> int:
        return now if self._at is not None else self._next_at

    def expired_before(self) -> int | None:
        """Return the latest expired stamp; `None` while event time is unknown."""
        now = self._sweep_time()
        return None if now is None else now - self.microseconds

    def _sweep_rows(self, cached: CachedEntries, table: RocksDBTable, at: bytes, now: int, most: int) -> int:
        """Check up to `most` rows, the first one at `at`; return the number checked."""
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
                    self._sweep_cached(table, entry, now)
                elif stamp is None:
                    written.append(rows.encode(key, part, (now, value)))
                else:
                    deleted.append(row)
            if seen >= most:
                break
        cached.database.write(written, deleted)
        return seen

    def _sweep_cached(self, table: RocksDBTable, entry: Any, now: int) -> None:
        cell = table.cell_of(entry)
        if cell is None:
            return
        if cell[0] is None:
            table.put(entry, (now, cell[1]))
        elif cell[0] + self.microseconds <= now:
            table.delete(entry)


#: Rows of a scan that are handled together.
_BATCH: Final = 4096


class RocksDBKeyedStateBackend(KeyedStateBackend):
    """Keyed state in its own database; owns a scratch folder until `close`.

    Args:
        memory: Bytes for all databases of this process.
        folder: Parent of the scratch folder; `None` for the temporary folder of the node.
    """

    lifetime_class: ClassVar[type[Lifetime]] = ScannedLifetime

    def __init__(self, setup: BackendSetup, memory: int, folder: Path | None = None) -> None:
        super().__init__(setup, ConfirmableSnapshots())
        self._own = range(setup.key_groups.first, setup.key_groups.last + 1)
        self._memory = memory
        self._row_logs: dict[str, RocksDBRowLog] = {}
        self._timers: dict[str, RocksDBTimers] = {}
        self._expired_rows: dict[str, list[ExpiredRows]] = {}
        self._scratch = ScratchFolder(folder)
        try:
            self._database = Database(self._scratch.path / "db", memory)
        except BaseException:
            self._scratch.remove()
            raise

    # -- tables and views ---------------------------------------------------------------------------------

    def _new_table(self, name: str, *, nested: bool, is_bound: bool) -> StateTable:
        if self._has_rows(self._rows_of(name, nested=not nested)):
            raise other_form(name, was_nested=not nested)
        self._database.memory.tables += 1
        return RocksDBTable(self._rows_of(name, nested=nested), self._database, self._own, is_bound=is_bound)

    def _rows_of(self, name: str, *, nested: bool) -> TableRows:
        return TableRows(name, nested, self.max_parallelism, self._codec)

    def _cached(self) -> list[CachedEntries]:
        return [table.cached for table in self._tables.values() if isinstance(table, RocksDBTable)]

    def _has_rows(self, rows: TableRows) -> bool:
        scans = (self._database.scan(rows.begin(group)) for group in self._own)
        return any(next(scan, None) is not None for scan in scans)

    def column_table(self, name: str) -> ColumnTable:
        raise self._no_columns(name)

    def column_log(self, name: str) -> ColumnLog:
        raise self._no_columns(name)

    def row_log(self, name: str) -> RowLog:
        log = self._row_logs.get(name)
        if log is None:
            log = self._row_logs[name] = RocksDBRowLog(self.table(name, nested=True))
        return log

    def timer_table(self, name: str) -> RocksDBTimers:
        timers = self._timers.get(name)
        if timers is None:
            if self._has_rows(self._rows_of(name, nested=False)):
                raise other_form(name, was_nested=False)
            rows = self._rows_of(name, nested=True)
            timers = self._timers[name] = RocksDBTimers(rows, self._database, self._own)
        return timers

    def _no_columns(self, name: str) -> ConfigurationError:
        msg = (
            f"operator {self._operator!r} keeps its state {name!r} in columns, which RocksDB can't hold: "
            "give the operator state_backend=HeapState()"
        )
        return ConfigurationError(msg)

    @property
    def table_names(self) -> tuple[str, ...]:
        self._write_back()
        names = (name for group in self._own for name, _ in self._database.tables(group))
        return tuple(dict.fromkeys(names))

    def _set_ttl(self, table: StateTable, ttl: StateTtl | None) -> None:
        if table.lifetime is None:
            self._delete_reappearing(table.name, ttl)
        super()._set_ttl(table, ttl)

    def _delete_reappearing(self, name: str, ttl: StateTtl | None) -> None:
        """Delete entries that had expired when saved, unless the current TTL also hides them."""
        now_expired = None
        if ttl is not None and not self._known.has_other_time(name, ttl):
            now_expired = ScannedLifetime(ttl, self.time).expired_before()
        if any(now_expired is None or rows.latest > now_expired for rows in self._expired_rows.get(name, ())):
            self._delete_expired(name)
        self._expired_rows.pop(name, None)

    def _delete_expired(self, name: str) -> None:
        rows = self._rows_of(name, nested=self._known.is_nested(name))
        for expired in self._expired_rows.pop(name, ()):
            for group in expired.key_groups:
                for some in _batches(self._database.scan(rows.begin(group))):
                    over = [row for row, data in some if is_expired(rows.value(data), expired.latest)]
                    self._database.write((), over)

    def _rename_table(self, before: str, name: str) -> None:
        if before in self._expired_rows:
            self._expired_rows[name] = self._expired_rows.pop(before)
        for nested in (False, True):
            old, new = self._rows_of(before, nested=nested), self._rows_of(name, nested=nested)
            for group in self._own:
                begin, moved = old.begin(group), new.begin(group)
                for some in _batches(self._database.scan(begin)):
                    rows = [(moved + row.removeprefix(begin), value) for row, value in some]
                    self._database.write(rows, [row for row, _ in some])
        if self._tables.pop(before, None) is not None:
            self._database.memory.tables -= 1

    # -- snapshots ----------------------------------------------------------------------------------------

    def snapshot(
        self, checkpoint_id: int, confirmed_id: int, *, self_contained: bool = False
    ) -> CanonicalSnapshot | NativeSnapshot:
        """Write back, flush, and link the current files; see `KeyedStateBackend.snapshot`."""
        self._check_follows(checkpoint_id)
        self._write_back()
        for name, parts in list(self._expired_rows.items()):
            if len({rows.latest for rows in parts}) > 1:  # a snapshot records one time per table
                self._delete_expired(name)
        linked = self._linked_files(checkpoint_id)
        self._database.checkpoint(linked)
        self._last_id = checkpoint_id
        is_known = self._snapshots.confirm(confirmed_id)
        described = self._described(self._saved_time())
        if self_contained:
            return CanonicalSnapshot(described, linked, self._memory, self.max_parallelism, self._codec)
        self._snapshots.begun(checkpoint_id)
        uploaded = sorted_files(self._snapshots.base if is_known else None)
        return NativeSnapshot(described, linked, uploaded, self._database.estimated_rows)

    def _write_back(self) -> None:
        for cached in self._cached():
            cached.write_back()
        for timers in self._timers.values():
            timers.write_back()

    def _linked_files(self, checkpoint_id: int) -> Path:
        return self._scratch.path / f"checkpoint-{checkpoint_id}"

    def _saved_time(self) -> SavedTime | None:
        """Return the time and each table's latest expired stamp; `None` without any TTL."""
        lifetimes = {name: table.lifetime for name, table in self._tables.items()}
        expired = {name: parts[0].latest for name, parts in self._expired_rows.items()}
        for name, lifetime in lifetimes.items():
            if isinstance(lifetime, ScannedLifetime) and (latest := lifetime.expired_before()) is not None:
                expired[name] = latest
        if not expired and all(lifetime is None for lifetime in lifetimes.values()):
            return None
        return self.time.saved(sorted(expired.items()))

    def forget(self, checkpoint_id: int) -> None:
        super().forget(checkpoint_id)
        shutil.rmtree(self._linked_files(checkpoint_id), ignore_errors=True)

    def close(self) -> None:
        self._database.memory.tables -= len(self._tables)
        self._tables.clear()
        self._database.destroy()
        self._scratch.remove()

    # -- restore ------------------------------------------------------------------------------------------

    def restore(
        self,
        handles: Sequence[KeyedStateHandle],
        files: StateFileReader,
        restored_checkpoint_id: int | None = None,
    ) -> None:
        for cached in self._cached():
            cached.forget()
        self._begin_restore(handles, restored_checkpoint_id)
        self._expired_rows = expired_rows(handles, self.key_groups)
        native = [handle for handle in handles if handle.is_native]
        if native:
            with damage_as_corruption(self._operator):
                self._open_parts(native, files, restored_checkpoint_id)
        elif self._database.rows_written:
            self._database.clear()
        for handle in handles:
            if not handle.is_native:
                self._put_entries_of(handle, files)
        for log in self._row_logs.values():
            log.load()
        for timers in self._timers.values():
            timers.load(self._database)

    def _open_parts(
        self, parts: Sequence[KeyedStateHandle], files: StateFileReader, restored_id: int | None
    ) -> None:
        first = largest_part(parts, self.key_groups)
        self._database.destroy()
        folder = self._database.folder
        download(first, files, folder)
        self._database = Database(folder, self._memory)
        for cached in self._cached():
            cached.database = self._database
        cut_off_foreign(self._database, first, self.key_groups)
        for number, part in enumerate(parts):
            if part is not first:
                scratch = self._scratch.path / f"part-{number}"
                take_over(self._database, part, files, self.key_groups, scratch)
        self._check_keys()
        for part in parts:
            self._add_missing_stamps(part)
        if restored_id is not None:
            self._snapshots.start_from(restored_id, first)

    def _add_missing_stamps(self, part: KeyedStateHandle) -> None:
        kept = part.key_groups.intersection(self.key_groups)
        for name, is_cell in self._known.without_stamps(part).items():
            self._delete_expired(name)
            rows = self._rows_of(name, nested=self._known.is_nested(name))
            for group in range(kept.first, kept.last + 1):
                for some in _batches(self._database.scan(rows.begin(group))):
                    entries = [rows.decode(row, data) for row, data in some]
                    self._database.write(
                        rows.encode(key, sub, (None, value[1] if is_cell else value))
                        for key, sub, value in entries
                    )

    def _check_keys(self) -> None:
        """Refuse keys whose class has changed; checks the first entries of each key group of each table."""
        for group in self._own:
            for name, nested in self._database.tables(group):
                rows = self._rows_of(name, nested=nested)
                for row, data in islice(self._database.scan(rows.begin(group)), _CHECKED_KEYS):
                    if not rows.check_key(row, data):
                        break

    def _put_rows(self, name: str, nested: bool, keys: Sequence[Any], values: Sequence[Any] | None) -> None:
        rows = self._rows_of(name, nested=nested)
        entries = keys if nested else ((key, None) for key in keys)
        if values is None:
            self._database.write((), (rows.row(key, part) for key, part in entries))
        else:
            pairs = zip(entries, values, strict=True)
            self._database.write(rows.encode(key, part, value) for (key, part), value in pairs)


#: Maximum number of entries per table and key group whose keys are checked on restore.
_CHECKED_KEYS: Final = 1000


def _batches(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    while some := list(islice(rows, _BATCH)):
        yield some


def open_state_backend(config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
    if isinstance(config, HeapState):
        return HeapKeyedStateBackend(setup)
    folder = None if config.folder is None else Path(config.folder)
    return RocksDBKeyedStateBackend(setup, config.memory, folder)
