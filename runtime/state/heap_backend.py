"""Keyed state on the heap, with incremental asynchronous snapshots.

Tables are plain dictionaries (Flink: `HeapKeyedStateBackend`). A snapshot takes the entries that changed
since the last one (`changes.py`): references to values that can't change, and others encoded. Only that stops
the task. Another thread encodes the rest and writes it as one file (`KeyedSnapshot.finish`).
A checkpoint's state is a chain of files, a base and changes, most of them shared with the checkpoint before.
`keyed_snapshot` decides which ones may be shared.

It must never let the other thread see a live table, or lose a changed key when encoding fails half-way. A
snapshot must not cost as much as the whole state when little has changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import compress, pairwise, repeat
from typing import Any, Final

from penstock.runtime.errors import StateMismatchError
from penstock.runtime.ports import Clock
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.handles import KeyedStateHandle, KeyGroupRange
from penstock.runtime.state.changes import Changes, UntrackedChanges
from penstock.runtime.state.columns.column_table import ColumnBlock, ColumnTable
from penstock.runtime.state.fixed_values import FixedValues
from penstock.runtime.state.heap_states import VIEWS
from penstock.runtime.state.key_groups import check_restored_keys
from penstock.runtime.state.keyed_blocks import CapturedEntries, DecodedBlock, KeyedBlock, encode_written
from penstock.runtime.state.keyed_chunk import Block, need_canonical, read_chunk, unusable_key
from penstock.runtime.state.keyed_snapshot import (
    CompactionPolicy,
    Delta,
    Increments,
    KeyedSnapshot,
    StateFileReader,
)
from penstock.runtime.state.keyed_states import KeyedState
from penstock.runtime.state.known_states import KnownStates
from penstock.runtime.state.state_backend import BackendSetup
from penstock.runtime.state.state_table import NO_KEY, StateTable
from penstock.runtime.state.time_to_live import Lifetime, StateTime, StateTtl
from penstock.runtime.state.ttl_states import VIEWS_WITH_TTL

_DEFAULT_POLICY: Final = CompactionPolicy()


class HeapKeyedStateBackend:
    """The keyed state of one operator in one subtask.

    Everything but `KeyedSnapshot.finish` runs in the task's thread.

    Args:
        key_groups: The range that this subtask owns.
        codec: Encodes keys and values.
        policy: When files of a chain are merged.
        takes_snapshots: Whether `snapshot` will ever be called; otherwise nobody keeps which keys changed.
        clock: Tells the time for state with a TTL; may be left out where there is none.
        isolates: Whether views copy what they take and give, unless it can't change.

    Attributes:
        current_key: The key whose record is processed; set it before using a state.
        time: What time it is for state with a TTL.

    Example:
        >>> from penstock.runtime.state.keyed_states import ValueState
        >>> backend = HeapKeyedStateBackend(128, KeyGroupRange(0, 127), ValueCodec())
        >>> count = backend.bind(ValueState(int, default=0, name="count"))
        >>> backend.set_current_key("word")
        >>> count.update(count.value() + 1)
        >>> backend.table("count").entries
        {'word': 1}
    """

    def __init__(
        self,
        max_parallelism: int,
        key_groups: KeyGroupRange,
        codec: ValueCodec,
        policy: CompactionPolicy = _DEFAULT_POLICY,
        *,
        takes_snapshots: bool = True,
        clock: Clock | None = None,
        isolates: bool = True,
    ) -> None:
        self.isolates = isolates
        self.max_parallelism = max_parallelism
        self.key_groups = key_groups
        self.current_key: Any = NO_KEY
        self._codec = codec
        self._policy = policy
        self._takes_snapshots = takes_snapshots
        self._tables: dict[str, StateTable] = {}
        self._column_tables: dict[str, ColumnTable] = {}
        self._known = KnownStates()
        self.time = StateTime(clock)
        self._increments = Increments(codec)
        self._fixed = FixedValues(codec)
        self._last_id = -1

    def table(self, name: str, *, nested: bool = False) -> StateTable:
        """The table of this name; always the same object.

        Raises:
            StateMismatchError: It was restored as a table of the other form.
        """
        table = self._tables.get(name)
        if table is None:
            table = self._tables[name] = StateTable(name, nested=nested, changed=self._changes(nested))
        elif table.nested != nested:
            before, now = ("several entries", "one") if table.nested else ("one entry", "several")
            msg = (
                f"state {name!r} was saved with {before} a key and is now used with {now}: it was another "
                "kind of state. Give the new one another name"
            )
            raise StateMismatchError(msg)
        return table

    def _changes(self, nested: bool) -> Callable[[dict[Any, Any]], Changes]:
        if self._takes_snapshots:
            return lambda entries: Changes(entries, self._fixed, nested=nested)
        return lambda entries: UntrackedChanges(self._fixed)

    def column_table(self, name: str) -> ColumnTable:
        """The table in columns of this name; always the same object."""
        table = self._column_tables.get(name)
        if table is None:
            table = ColumnTable(name, self.max_parallelism, tracks_changes=self._takes_snapshots)
            self._column_tables[name] = table
        return table

    @property
    def table_names(self) -> tuple[str, ...]:
        """Names of the tables that hold anything, in rows or in columns."""
        rows = (name for name, table in self._tables.items() if table.entries)
        return (*rows, *(name for name, table in self._column_tables.items() if len(table)))

    def bind(self, declaration: KeyedState, *, is_declared: bool = False) -> KeyedState:
        """A view of a state for the current key.

        Args:
            is_declared: Whether a function's class declares it; the snapshot says so.

        Raises:
            ConfigurationError: A state of this name has another type.
            StateMismatchError: What was restored is of another kind or type, and can't be migrated.
        """
        name = declaration.name
        self._known.check_kind(declaration)
        table = self.table(name, nested=declaration.nested)
        self._set_ttl(table, declaration.ttl)
        self._known.declare(declaration, table, is_declared=is_declared)
        view: Any = (VIEWS if table.lifetime is None else VIEWS_WITH_TTL)[declaration.kind]
        made: KeyedState = view(declaration, table, self)
        return made

    def _set_ttl(self, table: StateTable, ttl: StateTtl | None) -> None:
        """Give a table the TTL that is declared now, whatever it had when it was saved."""
        has_stamps = self._known.has_stamps(table.name)
        if ttl is None:
            if has_stamps and table.lifetime is None:
                table.take_stamps_away()
        elif table.lifetime is None:
            table.give_stamps(Lifetime(ttl, self.time), has_stamps=has_stamps)

    @property
    def sweep_in(self) -> float | None:
        """Seconds until there is work for `sweep`; not above 0 when there is, `None` for never."""
        due = (table.lifetime.due_in for table in self._tables.values() if table.lifetime is not None)
        return min((seconds for seconds in due if seconds is not None), default=None)

    def sweep(self, most: int) -> None:
        """Delete what has expired, this many entries at most."""
        for table in self._tables.values():
            if table.lifetime is not None and most > 0:
                most -= table.lifetime.sweep(table, most)

    @property
    def is_examination_due(self) -> bool:
        """Whether `examine_changes` should be called before the next batch."""
        return any(table.changed.is_examination_due for table in self._tables.values())

    def examine_changes(self) -> None:
        """Work between two batches: find out which values of the next snapshot can't change."""
        for table in self._tables.values():
            if table.changed.is_examination_due:
                table.changed.examine()

    def contents(self, name: str) -> dict[Any, Any]:
        """A copy of what a state holds that has not expired: by key a value, a list or a map."""
        table = self._tables.get(name)
        live = {} if table is None else table.live()
        return {key: list(held.values()) for key, held in live.items()} if name in self._known.lists else live

    def rename(self, declaration: KeyedState) -> None:
        """Give a restored state its new name, if it still has that of `renamed_from`; before any `bind`."""
        before, name = declaration.renamed_from, declaration.name
        if before is None or not self._known.rename(before, name) or before not in self._tables:
            return
        old = self._tables[before]
        table = self.table(name, nested=old.nested)
        table.entries.update(old.entries)
        table.mark_all_changed()
        old.changed.remove_all()
        old.entries.clear()

    def keys(self, name: str) -> list[Any]:
        """The keys of this subtask that have something in a table."""
        table = self._tables.get(name)
        if table is None:
            return []
        return list(table.entries if table.lifetime is None else table.live())

    def set_current_key(self, key: Any) -> None:
        """Say whose record or timer is processed from now on."""
        self.current_key = key

    def snapshot(
        self, checkpoint_id: int, confirmed_id: int, *, self_contained: bool = False
    ) -> KeyedSnapshot:
        """Take a snapshot: the synchronous half.

        Costs as much as values changed that may change in place; what else changed costs next to nothing.

        Args:
            checkpoint_id: Greater than that of every snapshot before.
            confirmed_id: The newest completed checkpoint when this one was triggered; -1 for none.
            self_contained: Name no older file (a savepoint): `finish` merges everything into a new one, and
                no later snapshot builds on it.

        Raises:
            ValueError: The id is not greater.
            RuntimeError: This backend takes no snapshots.
            CodecError: A value can't be encoded; no change is lost.
        """
        if not self._takes_snapshots:
            msg = "this backend was made without snapshots, so it does not know what changed"
            raise RuntimeError(msg)
        if checkpoint_id <= self._last_id:
            msg = f"checkpoint {checkpoint_id} can't follow {self._last_id}: ids grow"
            raise ValueError(msg)
        for table in self._tables.values():
            if table.lifetime is not None:
                table.lifetime.sweep_all(table)
        increments = self._increments
        if not increments.confirm(confirmed_id):
            self._mark_all_changed()
        increments.add(Delta.of(checkpoint_id, self._take_changes()))
        self._last_id = checkpoint_id
        if not self_contained:
            increments.begun(checkpoint_id)
        return KeyedSnapshot(
            checkpoint_id,
            self.key_groups,
            self.max_parallelism,
            increments.base,
            tuple(increments.deltas),
            self._codec,
            self._policy,
            self_contained,
            self._known.types(),
            self._known.states(),
            self.time.saved() if any(t.lifetime is not None for t in self._tables.values()) else None,
        )

    def snapshot_finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """A snapshot's files are written; in the task's thread, before the checkpoint is acknowledged.

        When it is never called for a snapshot (the upload failed), nothing is ever built on that one. The
        handle of a self-contained snapshot is ignored: its files are not ours to share.
        """
        self._increments.finished(checkpoint_id, handle)

    def confirm(self, checkpoint_id: int) -> None:
        """A checkpoint is complete. Nothing changes here: the next barrier says what to build on."""

    def forget(self, checkpoint_id: int) -> None:
        """The job gave a checkpoint up: nothing is built on its snapshot, its changes are written again."""
        self._increments.forget(checkpoint_id)

    def start_anew(self) -> None:
        """A file that was to be merged is damaged: the next snapshot builds on none, and holds all state."""
        self._increments.clear()
        self._mark_all_changed()

    def restore(
        self,
        handles: Sequence[KeyedStateHandle],
        files: StateFileReader,
        restored_checkpoint_id: int | None = None,
    ) -> None:
        """Replace all state by what these handles hold for this subtask's key groups; blocks.

        Args:
            handles: State of old subtasks, of any parallelism. Each handle has keys of its own.
            files: Reads the files of the handles.
            restored_checkpoint_id: The checkpoint of the handles, if its files may be built on. With a single
                handle of exactly this subtask's range, the next snapshots then hold only changes. Leave it
                out for a savepoint.

        Raises:
            CorruptSnapshotError: A file is damaged; names it.
            ConfigurationError: The state was written with another number of key groups.
        """
        need_canonical(handles)
        self._increments.clear()
        self._last_id = -1 if restored_checkpoint_id is None else restored_checkpoint_id
        for table in self._tables.values():
            table.entries.clear()
            table.changed.clear()
        for columns in self._column_tables.values():
            columns.clear()
        self._known.restore(handles)
        self.time.restore(handle.time for handle in handles)
        for handle in handles:
            for file in handle.files:
                blocks = read_chunk(files.read(file), file, self.max_parallelism, self._codec)
                try:
                    self._apply(blocks)
                except TypeError as error:
                    raise unusable_key(file, error) from error
        for name in self._known.lists:
            self._put_in_order(name)
        shareable = len(handles) == 1 and handles[0].key_groups == self.key_groups
        if restored_checkpoint_id is not None and shareable:
            self._increments.start_from(restored_checkpoint_id, handles[0])
        else:
            self._mark_all_changed()

    def close(self) -> None:
        """Nothing: all of it is in memory."""

    def _mark_all_changed(self) -> None:
        for table in self._tables.values():
            table.mark_all_changed()
        for columns in self._column_tables.values():
            columns.mark_all_changed()

    def _take_changes(self) -> list[Block]:
        encoded: list[tuple[StateTable, dict[Any, Any], list[KeyedBlock]]] = []
        for name, table in self._tables.items():
            loose = table.changed.loose()
            blocks = encode_written(name, list(loose), list(loose.values()), self._codec, nested=table.nested)
            encoded.append((table, loose, list(blocks)))
        # Nothing can go wrong from here on: what has changed is forgotten.
        taken: list[Block] = []
        for table, loose, written in encoded:
            for entries in table.changed.take(loose):
                taken.append(CapturedEntries(table.name, entries, nested=table.nested))
            taken += written
        for columns in self._column_tables.values():
            taken += columns.take_changes()
        return taken

    def _apply(self, blocks: Iterable[DecodedBlock | ColumnBlock]) -> None:
        """Take over what belongs to this subtask."""
        own = self.key_groups
        for block in blocks:
            mine = (block.key_groups >= own.first) & (block.key_groups <= own.last)
            if isinstance(block, ColumnBlock):
                self.column_table(block.table).apply(block.chosen(mine))
                continue
            keys: Sequence[Any] = block.keys
            values: Sequence[Any] | None = block.values
            if not mine.all():
                chosen = mine.tolist()
                keys = list(compress(keys, chosen))
                values = None if values is None else list(compress(values, chosen))
            of_keys = [key for key, _ in keys] if block.nested else keys
            check_restored_keys(block.table, of_keys, block.key_groups[mine], self.max_parallelism)
            table = self.table(block.table, nested=block.nested)
            (_apply_nested if block.nested else _apply_flat)(table.entries, keys, values)

    def _put_in_order(self, name: str) -> None:
        """Sort the elements of restored lists by their numbers: changes may have come in any order."""
        entries = self._tables[name].entries if name in self._tables else {}
        for key, held in entries.items():
            if any(number > following for number, following in pairwise(held)):
                entries[key] = dict(sorted(held.items()))


def heap_backend(setup: BackendSetup) -> HeapKeyedStateBackend:
    """A new, empty backend on the heap."""
    return HeapKeyedStateBackend(
        setup.max_parallelism,
        setup.key_groups,
        setup.codec,
        takes_snapshots=setup.takes_snapshots,
        clock=setup.clock,
        isolates=setup.isolates,
    )


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
