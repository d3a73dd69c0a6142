"""Keyed state in RocksDB, larger than memory (Flink: `EmbeddedRocksDBStateBackend`).

Tables are dicts of decoded values in front of a database (`cached_entries.py`). Views, types and the rules of
declared states are those of the heap backend: only where entries lie differs. A snapshot begins with
a write-back and RocksDB's own checkpoint, which flushes and then links files. Only that stops the task. The
rest works on the linked files, which never change (`snapshots.py`).

It must never let the other thread touch the live database, or leave a told change in memory when a snapshot
begins.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from penstock.runtime.config.job_config import HeapState, StateBackend
from penstock.runtime.errors import ConfigurationError, StateMismatchError
from penstock.runtime.io.rocksdb.database import Database
from penstock.runtime.io.rocksdb.rows import TableRows, is_nested
from penstock.runtime.io.rocksdb.snapshots import (
    CanonicalSnapshot,
    ExpiredRows,
    NativeSnapshot,
    UploadedFiles,
    cut_off_foreign,
    download,
    expired_rows,
    is_expired,
    largest_part,
    opened_as_written,
    take_over,
)
from penstock.runtime.io.rocksdb.table import RocksDBTable, ScannedLifetime
from penstock.runtime.io.scratch import ScratchFolder
from penstock.runtime.snapshot.handles import KeyedStateHandle, SavedTime
from penstock.runtime.state.columns.column_table import ColumnBlock, ColumnTable
from penstock.runtime.state.heap_backend import heap_backend
from penstock.runtime.state.heap_states import VIEWS
from penstock.runtime.state.key_groups import check_restored_keys
from penstock.runtime.state.keyed_blocks import DecodedBlock
from penstock.runtime.state.keyed_chunk import read_chunk, unusable_key
from penstock.runtime.state.keyed_snapshot import StateFileReader
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.known_states import KnownStates
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend
from penstock.runtime.state.state_table import NO_KEY
from penstock.runtime.state.time_to_live import StateTime, StateTtl
from penstock.runtime.state.ttl_states import VIEWS_WITH_TTL

#: Rows that are moved in one batch.
_BATCH: Final = 4096


class RocksDBKeyedStateBackend:
    """The keyed state of one operator in one subtask.

    Everything but the `finish` of its snapshots runs in the task's thread. It owns a folder of scratch space
    until `close`.

    Args:
        memory: Bytes for all databases of this process.
        folder: Where scratch space is made; `None` for the temporary folder of the node.

    Raises:
        ConfigurationError: The package of RocksDB is not installed.
        StorageError: There is no scratch space.

    Example:
        >>> from penstock.runtime.record.value_codec import ValueCodec
        >>> from penstock.runtime.snapshot.handles import KeyGroupRange
        >>> from penstock.runtime.state.keyed_states import ValueState
        >>> from penstock.runtime.snapshot.handles import KeyGroupRange
        >>> setup = BackendSetup("count", 128, KeyGroupRange(0, 127), ValueCodec())
        >>> backend = RocksDBKeyedStateBackend(setup, 8 * 1024 * 1024)
        >>> count = backend.bind(ValueState(int, default=0, name="count"))
        >>> backend.set_current_key("word")
        >>> count.update(count.value() + 1)
        >>> backend.table("count").entries
        {'word': 1}
        >>> backend.close()
    """

    def __init__(self, setup: BackendSetup, memory: int, folder: Path | None = None) -> None:
        self.max_parallelism = setup.max_parallelism
        self.key_groups = setup.key_groups
        self.current_key: Any = NO_KEY
        self.isolates = setup.isolates
        self.time = StateTime(setup.clock)
        self._operator = setup.operator
        self._codec = setup.codec
        self._own = range(setup.key_groups.first, setup.key_groups.last + 1)
        self._memory = memory
        self._tables: dict[str, RocksDBTable] = {}
        self._known = KnownStates()
        self._expired_rows: dict[str, list[ExpiredRows]] = {}
        self._last_id = -1
        self._uploaded = UploadedFiles()
        self._scratch = ScratchFolder(folder)
        try:
            self._database = Database(self._scratch.path / "db", memory)
        except BaseException:
            self._scratch.remove()
            raise

    # -- tables and views ---------------------------------------------------------------------------------

    def table(self, name: str, *, nested: bool = False) -> RocksDBTable:
        """The table of this name; always the same object.

        Raises:
            StateMismatchError: It was restored as a table of the other form.
        """
        return self._table(name, nested=nested, is_bound=False)

    def _table(self, name: str, *, nested: bool, is_bound: bool) -> RocksDBTable:
        table = self._tables.get(name)
        if table is None:
            self._refuse_other_form(name, nested=nested)
            rows = TableRows(name, nested, self.max_parallelism, self._codec)
            table = RocksDBTable(rows, self._database, self._own, is_bound=is_bound)
            self._tables[name] = table
            self._database.memory.tables += 1
        elif table.nested != nested:
            raise _other_form(name, was_nested=table.nested)
        return table

    def _refuse_other_form(self, name: str, *, nested: bool) -> None:
        other = TableRows(name, not nested, self.max_parallelism, self._codec)
        if self._has_rows(other):
            raise _other_form(name, was_nested=not nested)

    def _has_rows(self, rows: TableRows) -> bool:
        scans = (self._database.scan(rows.begin(group)) for group in self._own)
        return any(next(scan, None) is not None for scan in scans)

    def column_table(self, name: str) -> ColumnTable:
        """Refused: columns are kept on the heap.

        Raises:
            ConfigurationError: Always.
        """
        msg = (
            f"operator {self._operator!r} keeps its state {name!r} in columns, which RocksDB can't hold: "
            "give it state_backend=HeapState()"
        )
        raise ConfigurationError(msg)

    @property
    def table_names(self) -> tuple[str, ...]:
        for table in self._tables.values():
            table.cached.write_back()
        names: dict[str, None] = {}
        for group in self._own:
            first = b""
            while (found := self._database.next_table(group, first)) is not None:
                prefix, name = found
                names[name] = None
                first = prefix + b"\xff"
        return tuple(names)

    def bind(self, declaration: KeyedState, *, is_declared: bool = False) -> KeyedState:
        """A view of a state for the current key; see `HeapKeyedStateBackend.bind`.

        Raises:
            ConfigurationError: A state of this name has another type.
            StateMismatchError: What was restored is of another kind or type, and can't be migrated.
        """
        name = declaration.name
        self._known.check_kind(declaration)
        table = self._table(name, nested=declaration.nested, is_bound=True)
        self._set_ttl(table, declaration.ttl)
        self._known.declare(declaration, table, is_declared=is_declared)
        view: Any = (VIEWS if table.lifetime is None else VIEWS_WITH_TTL)[declaration.kind]
        made: KeyedState = view(declaration, table, self)
        return made

    def _set_ttl(self, table: RocksDBTable, ttl: StateTtl | None) -> None:
        has_stamps = self._known.has_stamps(table.name)
        if ttl is None:
            self._delete_expired(table.name)
            if has_stamps and table.lifetime is None:
                table.take_stamps_away()
        elif table.lifetime is None:
            lifetime = ScannedLifetime(ttl, self.time)
            now_expired = lifetime.expired_before()
            for rows in self._expired_rows.get(table.name, ()):
                if now_expired is None or rows.latest > now_expired:
                    self._delete_expired(table.name)
                    break
            self._expired_rows.pop(table.name, None)
            table.give_stamps(lifetime, has_stamps=has_stamps)

    def _delete_expired(self, name: str) -> None:
        rows = TableRows(name, self._known.is_nested(name), self.max_parallelism, self._codec)
        for expired in self._expired_rows.pop(name, ()):
            for group in expired.key_groups:
                for some in _batches(self._database.scan(rows.begin(group))):
                    over = [row for row, data in some if is_expired(rows.value(data), expired.latest)]
                    self._database.write((), over)

    @property
    def sweep_in(self) -> float | None:
        """Seconds until something may have expired; not above 0 when it has, `None` for never."""
        due = (table.lifetime.due_in for table in self._tables.values() if table.lifetime is not None)
        return min((seconds for seconds in due if seconds is not None), default=None)

    def sweep(self, most: int) -> None:
        """Delete what has expired; looks at this many entries at most."""
        for table in self._tables.values():
            if table.lifetime is not None and most > 0:
                most -= table.lifetime.sweep(table, most)

    @property
    def is_examination_due(self) -> bool:
        """Never: rows are encoded when they are written."""
        return False

    def examine_changes(self) -> None:
        """There is nothing to prepare."""

    def contents(self, name: str) -> dict[Any, Any]:
        """A copy of what a state holds that has not expired: by key a value, a list or a map."""
        table = self._tables.get(name)
        live = {} if table is None else table.live()
        return {key: list(held.values()) for key, held in live.items()} if name in self._known.lists else live

    def rename(self, declaration: KeyedState) -> None:
        """Give a restored state its new name, if it still has that of `renamed_from`; before any `bind`."""
        before, name = declaration.renamed_from, declaration.name
        if before is None or not self._known.rename(before, name):
            return
        if before in self._expired_rows:
            self._expired_rows[name] = self._expired_rows.pop(before)
        for nested in (False, True):
            old = TableRows(before, nested, self.max_parallelism, self._codec)
            new = TableRows(name, nested, self.max_parallelism, self._codec)
            for group in self._own:
                begin, moved = old.begin(group), new.begin(group)
                for some in _batches(self._database.scan(begin)):
                    rows = [(moved + row.removeprefix(begin), value) for row, value in some]
                    self._database.write(rows, [row for row, _ in some])
        self._tables.pop(before, None)

    def keys(self, name: str) -> list[Any]:
        table = self._tables.get(name)
        if table is None:
            return []
        lifetime = table.lifetime
        if lifetime is None:
            return list(table.entries)
        if not table.nested:
            return [key for key, cell in table.cached.items() if lifetime.live({key: cell})]
        return [key for key, held in table.cached.items() if lifetime.live(held)]

    def set_current_key(self, key: Any) -> None:
        self.current_key = key

    # -- snapshots ----------------------------------------------------------------------------------------

    def snapshot(
        self, checkpoint_id: int, confirmed_id: int, *, self_contained: bool = False
    ) -> CanonicalSnapshot | NativeSnapshot:
        """The synchronous half of a snapshot: write back, flush, and link the files of this moment.

        Args:
            checkpoint_id: Greater than that of every snapshot before.
            confirmed_id: The newest completed checkpoint when this one was triggered; -1 for none. Its files
                are not uploaded again.
            self_contained: Name no older file, and write what every backend can read (a savepoint).

        Raises:
            ValueError: The id is not greater than that of the snapshot before.
            CodecError: A value can't be encoded; no change is lost.
            StorageError: The disk is full, or fails.
        """
        if checkpoint_id <= self._last_id:
            msg = f"checkpoint {checkpoint_id} can't follow {self._last_id}: ids grow"
            raise ValueError(msg)
        for table in self._tables.values():
            table.cached.write_back()
        for name, parts in list(self._expired_rows.items()):
            if len({rows.latest for rows in parts}) > 1:  # a snapshot has one time for each table
                self._delete_expired(name)
        linked = self._linked_files(checkpoint_id)
        self._database.checkpoint(linked)
        self._last_id = checkpoint_id
        uploaded = self._uploaded.of(confirmed_id)
        types, states, time = self._known.types(), self._known.states(), self._saved_time()
        if not self_contained:
            self._uploaded.begun(checkpoint_id)
            rows = self._database.estimated_rows
            return NativeSnapshot(linked, self.key_groups, uploaded, rows, types, states, time)
        return CanonicalSnapshot(
            linked,
            self._memory,
            self.key_groups,
            self.max_parallelism,
            self._codec,
            types,
            states,
            time,
        )

    def _linked_files(self, checkpoint_id: int) -> Path:
        return self._scratch.path / f"checkpoint-{checkpoint_id}"

    def _saved_time(self) -> SavedTime | None:
        """The time, and by table the latest stamp of what has expired; `None` without any TTL."""
        lifetimes = {name: table.lifetime for name, table in self._tables.items()}
        expired = {name: parts[0].latest for name, parts in self._expired_rows.items()}
        for name, lifetime in lifetimes.items():
            if isinstance(lifetime, ScannedLifetime) and (latest := lifetime.expired_before()) is not None:
                expired[name] = latest
        if not expired and all(lifetime is None for lifetime in lifetimes.values()):
            return None
        return self.time.saved(sorted(expired.items()))

    def snapshot_finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """A snapshot's files are written; in the task's thread, before the checkpoint is acknowledged."""
        self._uploaded.finished(checkpoint_id, handle)

    def confirm(self, checkpoint_id: int) -> None:
        """A checkpoint is complete. Nothing changes here: the next barrier says what to build on."""

    def forget(self, checkpoint_id: int) -> None:
        """The job gave a checkpoint up: its files are not named again."""
        self._uploaded.forget(checkpoint_id)
        shutil.rmtree(self._linked_files(checkpoint_id), ignore_errors=True)

    def start_anew(self) -> None:
        self._uploaded.clear()

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
        """Replace all state by what these handles hold for this subtask's key groups; blocks.

        Raises:
            CorruptSnapshotError: A file is damaged; names it.
            ConfigurationError: The state was written with another number of key groups, or is in columns.
            StorageError: The disk is full, or fails.
        """
        for table in self._tables.values():
            table.cached.forget()
        self._last_id = -1 if restored_checkpoint_id is None else restored_checkpoint_id
        self._known.restore(handles)
        self.time.restore(handle.time for handle in handles)
        self._expired_rows = expired_rows(handles, self.key_groups)
        self._uploaded.clear()
        native = [handle for handle in handles if handle.is_native]
        if native:
            with opened_as_written(self._operator):
                self._open_parts(native, files, restored_checkpoint_id)
        elif self._database.rows_written:
            self._database.clear()
        for handle in handles:
            if not handle.is_native:
                self._put_all(handle, files)

    def _open_parts(
        self, parts: Sequence[KeyedStateHandle], files: StateFileReader, restored_id: int | None
    ) -> None:
        first = largest_part(parts, self.key_groups)
        self._database.destroy()
        folder = self._database.folder
        download(first, files, folder)
        self._database = Database(folder, self._memory)
        for table in self._tables.values():
            table.cached.database = self._database
        cut_off_foreign(self._database, first, self.key_groups)
        for number, part in enumerate(parts):
            if part is not first:
                scratch = self._scratch.path / f"part-{number}"
                take_over(self._database, part, files, self.key_groups, scratch)
        self._check_keys()
        if restored_id is not None:
            self._uploaded.start_from(restored_id, first)

    def _check_keys(self) -> None:
        """Refuse keys whose class has changed; looks at the first entries of each key group of each table."""
        for group in self._own:
            after = b""
            while (found := self._database.next_table(group, after)) is not None:
                prefix, name = found
                after = prefix + b"\xff"
                rows = TableRows(name, is_nested(prefix), self.max_parallelism, self._codec)
                for row, data in islice(self._database.scan(rows.begin(group)), _CHECKED_KEYS):
                    if not rows.check_key(row, data):
                        break

    def _put_all(self, handle: KeyedStateHandle, files: StateFileReader) -> None:
        for file in handle.files:
            blocks = read_chunk(files.read(file), file, self.max_parallelism, self._codec)
            try:
                for block in blocks:
                    self._put(block)
            except TypeError as error:
                raise unusable_key(file, error) from error

    def _put(self, block: DecodedBlock | ColumnBlock) -> None:
        if isinstance(block, ColumnBlock):
            self.column_table(block.table)
            return
        rows = TableRows(block.table, block.nested, self.max_parallelism, self._codec)
        own = self.key_groups
        mine = [at for at, group in enumerate(block.key_groups.tolist()) if group in own]
        of_keys = [block.keys[at][0] if block.nested else block.keys[at] for at in mine]
        check_restored_keys(block.table, of_keys, block.key_groups[mine], self.max_parallelism)
        entries = (block.keys[at] if block.nested else (block.keys[at], None) for at in mine)
        if block.values is None:
            self._database.write((), (rows.row(key, part) for key, part in entries))
            return
        values = (block.values[at] for at in mine)
        self._database.write(
            rows.encode(key, part, value) for (key, part), value in zip(entries, values, strict=True)
        )


#: Of how many entries of a key group the keys are looked at when state is restored.
_CHECKED_KEYS: Final = 1000


def _batches(rows: Iterator[tuple[bytes, bytes]]) -> Iterator[list[tuple[bytes, bytes]]]:
    while some := list(islice(rows, _BATCH)):
        yield some


def _other_form(name: str, *, was_nested: bool) -> StateMismatchError:
    before, now = ("several entries", "one") if was_nested else ("one entry", "several")
    return StateMismatchError(
        f"state {name!r} was saved with {before} a key and is now used with {now}: it was another "
        "kind of state. Give the new one another name"
    )


def open_state_backend(config: StateBackend, setup: BackendSetup) -> KeyedStateBackend:
    """A new, empty backend of the kind that is configured.

    Raises:
        ConfigurationError: The package of RocksDB is not installed.
        StorageError: There is no room for it.
    """
    if isinstance(config, HeapState):
        return heap_backend(setup)
    folder = None if config.folder is None else Path(config.folder)
    return RocksDBKeyedStateBackend(setup, config.memory, folder)
