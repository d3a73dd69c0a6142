"""Keyed state on the heap, with incremental asynchronous snapshots (Flink: `HeapKeyedStateBackend`).

Tables are plain dictionaries. A checkpoint's state is a chain of files, a base and changes, most of them
shared with the checkpoint before. `keyed_snapshot.py` describes the chain and why it is correct.
"""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise, repeat
from math import inf
from typing import Any, Final

from penstock.runtime.cycle_collector import without_collections
from penstock.runtime.snapshot.handles import KeyedStateHandle
from penstock.runtime.state.captured_rows import Block, CapturedRows
from penstock.runtime.state.column_log import ColumnLog
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.dirty_entries import DirtyEntries, untracked
from penstock.runtime.state.immutable_values import ImmutableValues
from penstock.runtime.state.keyed_chunk import need_canonical
from penstock.runtime.state.keyed_snapshot import (
    CompactionPolicy,
    Delta,
    Increments,
    KeyedSnapshot,
    StateFileReader,
)
from penstock.runtime.state.log_files import LogFiles
from penstock.runtime.state.row_log import RowLog
from penstock.runtime.state.state_backend import BackendSetup, KeyedStateBackend, Sweepable
from penstock.runtime.state.state_table import StateTable
from penstock.runtime.state.timer_table import TimerTable

_DEFAULT_POLICY: Final = CompactionPolicy()

#: Files of logs die without a merge, when all their rows have been deleted. So they are merged only if there
#: are many.
_OF_LOGS: Final = CompactionPolicy(max_files=32, growth=inf)

#: Maximum number of entries per live row in the files of logs; with more, the files are merged as for other
#: state. With equal lifetimes there are about three entries per row, because a deletion is an entry, too.
_MOST_ENTRIES_OF_A_ROW: Final = 6


class HeapKeyedStateBackend(KeyedStateBackend):
    def __init__(self, setup: BackendSetup, policy: CompactionPolicy = _DEFAULT_POLICY) -> None:
        self._increments = Increments(setup.codec)
        super().__init__(setup, self._increments)
        self._policy = policy
        self._takes_snapshots = setup.takes_snapshots
        self._column_tables: dict[str, ColumnTable] = {}
        self._column_logs: dict[str, ColumnLog] = {}
        self._row_logs: dict[str, RowLog] = {}
        self._log_files = LogFiles()
        self._immutable = ImmutableValues(setup.codec)

    def _new_table(self, name: str, *, nested: bool, is_bound: bool) -> StateTable:
        return StateTable(name, nested=nested, changed=self._dirty_entries(nested))

    def _dirty_entries(self, nested: bool) -> Callable[[dict[Any, Any]], DirtyEntries]:
        if self._takes_snapshots:
            return lambda entries: DirtyEntries(entries, self._immutable, nested=nested)
        return lambda entries: untracked()

    def column_table(self, name: str) -> ColumnTable:
        table = self._column_tables.get(name)
        if table is None:
            table = ColumnTable(name, self.max_parallelism, tracks_changes=self._takes_snapshots)
            self._column_tables[name] = table
        return table

    def _lifetimes(self) -> Iterator[tuple[Sweepable, object]]:
        yield from super()._lifetimes()
        for table in self._column_tables.values():
            if table.lifetime is not None:
                yield table.lifetime, table

    def column_log(self, name: str) -> ColumnLog:
        log = self._column_logs.get(name)
        if log is None:
            log = ColumnLog(name, self.max_parallelism, tracks_changes=self._takes_snapshots)
            self._column_logs[name] = log
            self._fill_columns(log)
        return log

    def _fill_columns(self, log: ColumnLog) -> None:
        restored = self._column_tables.pop(log.name, None)
        log.clear()
        if restored is not None:
            log.fill(restored)

    def row_log(self, name: str) -> RowLog:
        log = self._row_logs.get(name)
        if log is None:
            log = self._row_logs[name] = RowLog(name, tracks_changes=self._takes_snapshots)
            self._fill_rows(log)
        return log

    def _fill_rows(self, log: RowLog) -> None:
        table = self.table(log.name, nested=True)
        del self._tables[log.name]
        log.fill(table.entries, set(table.changed))

    def timer_table(self, name: str) -> TimerTable:
        return TimerTable(self.table(name, nested=True))

    @property
    def table_names(self) -> tuple[str, ...]:
        rows = (name for name, table in self._tables.items() if table.entries)
        return (*rows, *(store.name for store in self._stores() if len(store)))

    def _stores(self) -> list[ColumnTable | ColumnLog | RowLog]:
        """The state that is in no table of rows."""
        return [*self._column_tables.values(), *self._logs()]

    def _rename_table(self, before: str, name: str) -> None:
        if before not in self._tables:
            return
        old = self._tables[before]
        table = self.table(name, nested=old.nested)
        table.entries.update(old.entries)
        table.changed.put_all()
        old.changed.remove_all()
        old.entries.clear()

    def snapshot(
        self, checkpoint_id: int, confirmed_id: int, *, self_contained: bool = False
    ) -> KeyedSnapshot:
        """See `KeyedStateBackend.snapshot`; the cost grows with the number of changed mutable values."""
        if not self._takes_snapshots:
            msg = "this backend was made without snapshots, so it does not know what changed"
            raise RuntimeError(msg)
        self._check_follows(checkpoint_id)
        lifetimes = list(self._lifetimes())
        for lifetime, table in lifetimes:
            lifetime.sweep_all(table)
        increments = self._increments
        if not increments.confirm(confirmed_id):
            self._mark_all_changed()
        increments.add(Delta(checkpoint_id, tuple(self._take_changes())))
        self._last_id = checkpoint_id
        base, policy = self._base_and_policy()
        if not self_contained:
            increments.begun(checkpoint_id)
            self._log_files.begun(checkpoint_id, self._next_numbers())
        return KeyedSnapshot(
            self._described(self.time.saved() if lifetimes else None),
            self.max_parallelism,
            base,
            tuple(increments.deltas),
            self._codec,
            policy,
            self_contained,
        )

    def _base_and_policy(self) -> tuple[KeyedStateHandle | None, CompactionPolicy]:
        """The state to build on, and how to merge its files; omits dead files if all state is in logs."""
        base, logs = self._increments.base, self._logs()
        others = any(table.entries for table in self._tables.values()) or any(self._column_tables.values())
        if base is None or not logs or others:
            return base, self._policy
        first_numbers = {log.name: log.first_number for log in logs}
        files, entries = self._log_files.live(
            base, self._increments.base_id, first_numbers, self._next_numbers()
        )
        is_compact = entries <= _MOST_ENTRIES_OF_A_ROW * sum(map(len, logs))
        return replace(base, files=tuple(files), entries=entries), _OF_LOGS if is_compact else self._policy

    def _logs(self) -> list[ColumnLog | RowLog]:
        return [*self._column_logs.values(), *self._row_logs.values()]

    def _next_numbers(self) -> dict[str, int]:
        return {log.name: log.next_number for log in self._logs()}

    def snapshot_finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        super().snapshot_finished(checkpoint_id, handle)
        self._log_files.finished(checkpoint_id, handle)

    def forget(self, checkpoint_id: int) -> None:
        super().forget(checkpoint_id)
        self._log_files.forget(checkpoint_id)

    def _take_changes(self) -> list[Block]:
        mutable = {name: table.changed.mutable() for name, table in self._tables.items()}
        encoded = {
            name: CapturedRows.encoded(
                name, list(held), list(held.values()), self._codec, nested=self._tables[name].nested
            )
            for name, held in mutable.items()
            if held
        }
        # No step after this can fail, so the changes are forgotten here.
        taken: list[Block] = []
        for name, table in self._tables.items():
            taken += (
                CapturedRows(name, rows, nested=table.nested) for rows in table.changed.take(mutable[name])
            )
            if name in encoded:
                taken.append(encoded[name])
        for store in self._stores():
            taken += store.take_changes()
        return taken

    def start_anew(self) -> None:
        super().start_anew()
        self._log_files.clear()
        self._mark_all_changed()

    def _mark_all_changed(self) -> None:
        for table in self._tables.values():
            table.changed.put_all()
        for store in self._stores():
            store.mark_all_changed()

    def restore(
        self,
        handles: Sequence[KeyedStateHandle],
        files: StateFileReader,
        restored_checkpoint_id: int | None = None,
    ) -> None:
        """Replace all state; see `KeyedStateBackend.restore`.

        With a `restored_checkpoint_id` and a single handle of exactly this subtask's range, the next
        snapshots hold only changes.
        """
        need_canonical(handles)
        self._begin_restore(handles, restored_checkpoint_id)
        self._log_files.clear()
        for table in self._tables.values():
            table.entries.clear()
            table.changed.clear()
        for columns in self._column_tables.values():
            columns.clear()
        # Restored values have no cycles. One collection makes them old; others would traverse them when they
        # are young, and again later.
        with without_collections():
            for handle in handles:
                self._put_entries_of(handle, files)
            for name in self._known.lists:
                self._sort_list(name)
        if gc.isenabled():
            gc.collect(1)
        for log in self._column_logs.values():
            self._fill_columns(log)
        for rows in self._row_logs.values():
            self._fill_rows(rows)
        shareable = len(handles) == 1 and handles[0].key_groups == self.key_groups
        if restored_checkpoint_id is not None and shareable:
            self._increments.start_from(restored_checkpoint_id, handles[0])
        else:
            self._mark_all_changed()

    def _put_rows(self, name: str, nested: bool, keys: Sequence[Any], values: Sequence[Any] | None) -> None:
        entries = self.table(name, nested=nested).entries
        (_apply_nested if nested else _apply_flat)(entries, keys, values)

    def _sort_list(self, name: str) -> None:
        """Sort the elements of restored lists by their numbers: the entries of a file may be in any order."""
        entries = self._tables[name].entries if name in self._tables else {}
        for key, held in entries.items():
            if any(number > following for number, following in pairwise(held)):
                entries[key] = dict(sorted(held.items()))

    def close(self) -> None: ...


def _apply_flat(entries: dict[Any, Any], keys: Sequence[Any], values: Sequence[Any] | None) -> None:
    if values is None:
        deque(map(entries.pop, keys, repeat(None)), maxlen=0)
    else:
        entries.update(zip(keys, values, strict=True))


def _apply_nested(
    entries: dict[Any, dict[Any, Any]], pairs: Sequence[tuple[Any, Any]], values: Sequence[Any] | None
) -> None:
    if values is not None:
        for (key, part), value in zip(pairs, values, strict=True):
            entries.setdefault(key, {})[part] = value
        return
    for key, part in pairs:
        held = entries.get(key)
        if held is not None:
            held.pop(part, None)
            if not held:
                del entries[key]
