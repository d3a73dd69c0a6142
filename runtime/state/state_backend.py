"""`KeyedStateBackend`: base of the stores for the keyed state of one operator in one subtask.

Table, key and, in a nested table, a second part identify an entry of keyed state (`state_table.py`).
The heap (`heap_backend.py`) and RocksDB (`runtime/io/rocksdb/backend.py`) differ in where they keep entries
and in what their snapshots contain. This module has the common part: tables and their names, declared states
and their views, TTL, the ids of snapshots, and a restore's bookkeeping. Savepoints of all backends have
one format (`keyed_chunk.py`), so each backend restores savepoints of the others.

Rules for operators and backends:

* `entries` of a table behave like a dict. A value may be changed in place, if its key is then put into
  `changed`. A value from an iteration must not be changed in place.
* An operator reports a change after making it. It must report a change in place before, or together with, any
  other change of the table. At each report, a backend that stores bytes may write reported values back and
  drop any value from memory. A change in place that is not reported by then is lost.
* `snapshot` blocks the task for a short time. Another thread finishes the snapshot.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, ClassVar, Protocol, TypeAlias

from penstock.runtime.config.job_config import StateBackend
from penstock.runtime.errors import StateMismatchError
from penstock.runtime.ports import Clock
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange, SavedTime
from penstock.runtime.state.column_log import ColumnLog
from penstock.runtime.state.column_table import ColumnTable
from penstock.runtime.state.key_groups import check_restored_keys
from penstock.runtime.state.keyed_chunk import ColumnBlock, RowBlock, read_chunk, unusable_key
from penstock.runtime.state.keyed_snapshot import (
    ConfirmableSnapshots,
    StateFileReader,
    StateFileWriter,
    read_in_turn,
)
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.known_states import KnownStates
from penstock.runtime.state.row_log import RowLog
from penstock.runtime.state.state_table import NO_KEY, StateTable
from penstock.runtime.state.state_views import VIEWS
from penstock.runtime.state.time_to_live import Lifetime, StateTime, StateTtl
from penstock.runtime.state.timer_table import TimerTable


class UnfinishedSnapshot(Protocol):
    """Keyed state of one operator in one subtask after the synchronous part of a snapshot."""

    def finish(self, files: StateFileWriter) -> KeyedStateHandle:
        """Write the snapshot; runs in another thread and blocks.

        Raises:
            CorruptSnapshotError: A file to be merged is damaged.
            KeyGroupError: A table has a key of another subtask.
            CodecError: A value can't be encoded; the message names table and key.
        """
        ...


class Sweepable(Protocol):
    """The TTL of a table, in rows or in columns."""

    @property
    def due_in(self) -> float | None: ...

    def sweep(self, table: Any, most: int) -> int: ...

    def sweep_all(self, table: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class BackendSetup:
    """The operator and the keys of a backend.

    Attributes:
        takes_snapshots: Whether `snapshot` will be called; otherwise changes are not recorded.
        clock: Needed for state with a TTL in processing time.
        isolates: Whether views copy the mutable values that they take and return.
    """

    operator: str
    max_parallelism: int
    key_groups: KeyGroupRange
    codec: ValueCodec
    takes_snapshots: bool = True
    clock: Clock | None = None
    isolates: bool = True


class KeyedStateBackend(ABC):
    """The keyed state of one operator in one subtask; used by the task's thread.

    Attributes:
        current_key: The key of the current record or timer; set before a view is used.
        time: The time for state with a TTL; operators set its watermark and its record.
    """

    lifetime_class: ClassVar[type[Lifetime]] = Lifetime

    def __init__(self, setup: BackendSetup, snapshots: ConfirmableSnapshots) -> None:
        self.max_parallelism = setup.max_parallelism
        self.key_groups = setup.key_groups
        self.current_key: Any = NO_KEY
        self.isolates = setup.isolates
        self.time = StateTime(setup.clock)
        self._operator = setup.operator
        self._codec = setup.codec
        self._tables: dict[str, StateTable] = {}
        self._known = KnownStates()
        self._snapshots = snapshots
        self._last_id = -1

    def set_current_key(self, key: Any) -> None:
        self.current_key = key

    # -- tables and views ---------------------------------------------------------------------------------

    def table(self, name: str, *, nested: bool = False) -> StateTable:
        """Return the table of this name, for use without a view; always the same object."""
        return self._table(name, nested=nested, is_bound=False)

    def _table(self, name: str, *, nested: bool, is_bound: bool) -> StateTable:
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = self._new_table(name, nested=nested, is_bound=is_bound)
        elif table.nested != nested:
            raise other_form(name, was_nested=table.nested)
        return table

    @abstractmethod
    def _new_table(self, name: str, *, nested: bool, is_bound: bool) -> StateTable:
        """Make a table, which shows restored entries; `is_bound` if only views use it."""

    @abstractmethod
    def column_table(self, name: str) -> ColumnTable:
        """Return the column table of this name; always the same object."""

    @abstractmethod
    def column_log(self, name: str) -> ColumnLog:
        """Return the log in columns of this name, with its restored rows; always the same object."""

    @abstractmethod
    def row_log(self, name: str) -> RowLog:
        """Return the log of records of this name, with its restored rows; always the same object."""

    @abstractmethod
    def timer_table(self, name: str) -> TimerTable:
        """Return the timers of this name, with the restored ones; the name has no other table."""

    @property
    @abstractmethod
    def table_names(self) -> tuple[str, ...]:
        """Names of the tables and logs that are not empty."""

    def bind(self, declaration: KeyedState, *, is_declared: bool = False) -> KeyedState:
        """Make a view of a state for the current key; snapshots record whether a class declares it.

        Raises:
            ConfigurationError: A state of this name has another type.
            StateMismatchError: The restored state has another kind or type and can't be migrated.
        """
        self._known.check_kind(declaration)
        table = self._table(declaration.name, nested=declaration.nested, is_bound=True)
        self._set_ttl(table, declaration.ttl)
        self._known.declare(declaration, table, is_declared=is_declared)
        return VIEWS[declaration.kind](declaration, table, self)

    def _set_ttl(self, table: StateTable, ttl: StateTtl | None) -> None:
        if table.lifetime is not None:
            return
        has_stamps = self._known.has_stamps(table.name)
        if has_stamps and (ttl is None or self._known.has_other_time(table.name, ttl)):
            table.remove_stamps()
            has_stamps = False
        if ttl is not None:
            table.add_stamps(self.lifetime_class(ttl, self.time), has_stamps=has_stamps)

    def rename(self, declaration: KeyedState) -> None:
        """Rename a restored state that still has the name `renamed_from`; call before any `bind`."""
        before = declaration.renamed_from
        if before is not None and self._known.rename(before, declaration.name):
            self._rename_table(before, declaration.name)

    @abstractmethod
    def _rename_table(self, before: str, name: str) -> None: ...

    def contents(self, name: str) -> dict[Any, Any]:
        """Return a copy of a state's entries that have not expired: a value, a list or a map by key."""
        table = self._tables.get(name)
        live = {} if table is None else table.live()
        return {key: list(held.values()) for key, held in live.items()} if name in self._known.lists else live

    def keys(self, name: str) -> list[Any]:
        table = self._tables.get(name)
        return [] if table is None else table.live_keys()

    # -- between two batches ------------------------------------------------------------------------------

    @property
    def sweep_in(self) -> float | None:
        """Seconds until `sweep` has work; at most 0 when it has work now.

        `None` if it has work only after the watermark advances, or never.
        """
        due = (lifetime.due_in for lifetime, _ in self._lifetimes())
        return min((seconds for seconds in due if seconds is not None), default=None)

    def sweep(self, most: int) -> None:
        """Check at most `most` entries, and delete expired ones."""
        for lifetime, table in self._lifetimes():
            if most > 0:
                most -= lifetime.sweep(table, most)

    def _lifetimes(self) -> Iterator[tuple[Sweepable, object]]:
        """The TTLs of tables, in rows or in columns, each with its table."""
        return ((table.lifetime, table) for table in self._tables.values() if table.lifetime is not None)

    @property
    def is_examination_due(self) -> bool:
        """Whether there are enough changes for a call of `examine_changes` before the next batch."""
        return any(table.changed.is_examination_due for table in self._tables.values())

    def examine_changes(self) -> None:
        """Find the immutable values of the next snapshot; takes some milliseconds."""
        for table in self._tables.values():
            if table.changed.is_examination_due:
                table.changed.examine()

    # -- snapshots ----------------------------------------------------------------------------------------

    @abstractmethod
    def snapshot(
        self, checkpoint_id: int, confirmed_id: int, *, self_contained: bool = False
    ) -> UnfinishedSnapshot:
        """Take a snapshot: the synchronous part.

        Args:
            checkpoint_id: Id greater than the id of every earlier snapshot.
            confirmed_id: The newest completed checkpoint at the time of the trigger; -1 for none.
            self_contained: Whether to refer to no older file and use the format shared by all backends, as in
                a savepoint. No later snapshot builds on it.

        Raises:
            CodecError: A value can't be encoded; no change is lost.
        """

    def _described(self, time: SavedTime | None) -> KeyedStateHandle:
        """Return the handle of a snapshot, without files and entries."""
        types, states = self._known.types(), self._known.states()
        return KeyedStateHandle(self.key_groups, (), types=types, states=states, time=time)

    def _check_follows(self, checkpoint_id: int) -> None:
        if checkpoint_id <= self._last_id:
            msg = f"checkpoint {checkpoint_id} can't follow {self._last_id}: ids must increase"
            raise ValueError(msg)

    def snapshot_finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """Note the files of a snapshot: later snapshots may build on it, unless it is self-contained."""
        self._snapshots.finished(checkpoint_id, handle)

    def confirm(self, checkpoint_id: int) -> None:  # noqa: B027 (as in Flink, a backend may have nothing to do)
        """Learn that a checkpoint is complete. Backends ignore it: barriers name the checkpoint to build on.

        One of Flink's conformance cases checks this call (`completion_notice_reaches_the_state_manager`).
        """

    def forget(self, checkpoint_id: int) -> None:
        """Forget an aborted checkpoint: no snapshot builds on it, and its changes are written again."""
        self._snapshots.forget(checkpoint_id)

    def start_anew(self) -> None:
        """Let the next snapshot hold all state, because a file of older snapshots is damaged."""
        self._snapshots.clear()

    # -- restore ------------------------------------------------------------------------------------------

    @abstractmethod
    def restore(
        self,
        handles: Sequence[KeyedStateHandle],
        files: StateFileReader,
        restored_checkpoint_id: int | None = None,
    ) -> None:
        """Replace all state with the handles' entries of this subtask's key groups; blocks.

        Args:
            handles: State of old subtasks, of any parallelism, with distinct keys.
            restored_checkpoint_id: The checkpoint of the handles, if later snapshots may refer to its files.
                `None` for a savepoint.

        Raises:
            CorruptSnapshotError: A file is damaged; the message names it.
            ConfigurationError: The state has another number of key groups, or the backend can't hold it.
            StateMismatchError: Only another backend can read the files, or the class of a key has changed.
        """

    def _begin_restore(self, handles: Sequence[KeyedStateHandle], restored_checkpoint_id: int | None) -> None:
        self._snapshots.clear()
        self._last_id = -1 if restored_checkpoint_id is None else restored_checkpoint_id
        self._known.restore(handles)
        self.time.restore(handle.time for handle in handles)

    def _put_entries_of(self, handle: KeyedStateHandle, files: StateFileReader) -> None:
        without_stamps = self._known.without_stamps(handle)
        for file, data in read_in_turn(handle.files, files):
            blocks = read_chunk(data, file, self.max_parallelism, self._codec)
            try:
                for block in blocks:
                    if block.table in without_stamps and isinstance(block, RowBlock) and block.values:
                        is_cell = without_stamps[block.table]
                        block.values[:] = [(None, value[1] if is_cell else value) for value in block.values]
                    self._put_block(block)
            except TypeError as error:
                raise unusable_key(file, error) from error

    def _put_block(self, block: RowBlock | ColumnBlock) -> None:
        own = self.key_groups
        mine = (block.key_groups >= own.first) & (block.key_groups <= own.last)
        if isinstance(block, ColumnBlock):
            self.column_table(block.table).apply(block.chosen(mine))
            return
        keys: Sequence[Any] = block.keys
        values: Sequence[Any] | None = block.values
        if not mine.all():
            chosen = mine.tolist()
            keys = list(compress(keys, chosen))
            values = None if values is None else list(compress(values, chosen))
        of_keys = [key for key, _ in keys] if block.nested else keys
        check_restored_keys(block.table, of_keys, block.key_groups[mine], self.max_parallelism)
        self._put_rows(block.table, block.nested, keys, values)

    @abstractmethod
    def _put_rows(self, name: str, nested: bool, keys: Sequence[Any], values: Sequence[Any] | None) -> None:
        """Put restored entries of this subtask into a table; `values` is `None` for deleted entries."""

    @abstractmethod
    def close(self) -> None:
        """Release files and memory outside of Python."""


#: Makes an empty backend.
StateBackendOpener: TypeAlias = Callable[[StateBackend, BackendSetup], KeyedStateBackend]


def other_form(name: str, *, was_nested: bool) -> StateMismatchError:
    before, now = ("several entries", "one") if was_nested else ("one entry", "several")
    return StateMismatchError(
        f"state {name!r} was saved with {before} per key and is now used with {now}: it was another "
        "kind of state. Give the new state another name"
    )
