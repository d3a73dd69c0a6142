"""Reads one state of one operator from a snapshot, without the job.

Only the requested state is decoded: the operator's other states may have classes that only the job knows.
Keyed state is read by key groups, so several readers can share a large one. List state is read by the
subtasks that wrote it. State of finished subtasks is read like the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.restore import saved_states
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    RedistributionMode,
    SavedState,
    StateHandle,
)
from penstock.runtime.snapshot.metadata import decode_atoms
from penstock.runtime.state.column_table import ColumnChanges
from penstock.runtime.state.keyed_chunk import ColumnBlock, RowBlock, need_canonical, read_chunk, tables_of

Read = Callable[[StateHandle], bytes]


@dataclass(frozen=True, slots=True)
class KeyedEntries:
    """Entries of one table; all sequences have one length.

    Attributes:
        parts: The map key of each entry, or the position of an element in its list; `None` for one value per
            key.
        stamps: Time of last use of each entry, in microseconds since the epoch; `None` without a TTL.
    """

    key_groups: Sequence[int]
    keys: Sequence[Any]
    values: Sequence[Any]
    parts: Sequence[Any] | None = None
    stamps: Sequence[int | None] | None = None


@dataclass(frozen=True, slots=True)
class ListedValues:
    subtasks: Sequence[int]
    values: Sequence[Any]


def operator_state(checkpoint: CompletedCheckpoint, operator: str) -> OperatorState:
    """The state of one operator.

    Raises:
        ConfigurationError: The snapshot has no such operator; the message lists its operators.
    """
    state = checkpoint.operators.get(operator)
    if state is None:
        known = ", ".join(map(repr, sorted(checkpoint.operators))) or "none"
        msg = f"the snapshot has no state of operator {operator!r}; it has state of: {known}"
        raise ConfigurationError(msg)
    return state


def list_mode(state: OperatorState, name: str) -> RedistributionMode | None:
    """The redistribution mode of a list state; `None` when there is no such state."""
    subtasks = state.subtasks.values()
    return next((handle.mode for s in subtasks for handle in s.operator if handle.name == name), None)


def known_states(state: OperatorState, read: Read) -> tuple[str, ...]:
    """The names of an operator's keyed and list states, sorted; reads all files of keyed state."""
    names = {handle.name for subtask in state.subtasks.values() for handle in subtask.operator}
    for handle in _keyed_handles(state):
        for file in handle.files:
            names.update(tables_of(read(file), file))
    return tuple(sorted(names))


def no_such_state(state: OperatorState, name: str, known: Sequence[str]) -> ConfigurationError:
    names = ", ".join(map(repr, known)) or "none"
    msg = (
        f"operator {state.operator_id!r} has no state {name!r} in this snapshot; it has: {names}. That of "
        "reduce(...) is called 'reduce', others as they are declared, or as in value_state(name)"
    )
    return ConfigurationError(msg)


def read_keyed(
    state: OperatorState, table: str, key_groups: KeyGroupRange, read: Read, codec: ValueCodec
) -> KeyedEntries | None:
    """The entries of a table whose key groups are in a range; `None` when no file holds the table.

    Raises:
        CorruptSnapshotError: A file is damaged, or a key or value can't be decoded; names the file.
    """
    groups: list[int] = []
    keys: list[Any] = []
    values: list[Any] = []
    is_known = is_nested = False
    for handle in _keyed_handles(state):
        if not len(handle.key_groups.intersection(key_groups)):
            continue
        entries: dict[Any, tuple[int, Any]] = {}
        for file in handle.files:
            for found in read_chunk(read(file), file, state.max_parallelism, codec, table):
                is_known = True
                block = RowBlock.of_columns(found) if isinstance(found, ColumnBlock) else found
                is_nested = block.nested
                if block.values is None:
                    for key in block.keys:
                        entries.pop(key, None)
                else:
                    pairs = zip(block.key_groups.tolist(), block.values, strict=True)
                    entries.update(zip(block.keys, pairs, strict=True))
        mine = [(key, g, value) for key, (g, value) in entries.items() if g in key_groups]
        keys += [key for key, _, _ in mine]
        groups += [group for _, group, _ in mine]
        values += [value for _, _, value in mine]
    if not is_known:
        return None
    saved = saved_states(state).get(table)
    return _entries(KeyedEntries(groups, keys, values), saved, is_nested=is_nested)


def _entries(found: KeyedEntries, saved: SavedState | None, *, is_nested: bool) -> KeyedEntries:
    """Separate entries into keys, parts, values and stamps; groups them by key, lists in order."""
    groups, keys, values = found.key_groups, found.keys, found.values
    parts: list[Any] | None = None
    if is_nested:
        rows = list(zip(keys, groups, values, strict=True))
        by_key: dict[Any, list[tuple[Any, int, Any]]] = {}
        for (key, part), group, value in rows:
            by_key.setdefault(key, []).append((part, group, value))
        if saved is not None and saved.kind == "list":
            by_key = {key: sorted(held, key=itemgetter(0)) for key, held in by_key.items()}
        keys = [key for key, held in by_key.items() for _ in held]
        parts = [part for held in by_key.values() for part, _, _ in held]
        groups = [group for held in by_key.values() for _, group, _ in held]
        values = [value for held in by_key.values() for _, _, value in held]
    if saved is None or not saved.has_stamps:
        return KeyedEntries(groups, keys, values, parts)
    return KeyedEntries(groups, keys, [v for _, v in values], parts, [stamp for stamp, _ in values])


def read_columns(state: OperatorState, table: str, read: Read, codec: ValueCodec) -> list[ColumnBlock] | None:
    """The live keys of a table in columns, with their values; `None` when no file holds the table.

    Raises:
        ConfigurationError: The table is one of rows.
        CorruptSnapshotError: A file is damaged; names it.
    """
    blocks: list[ColumnBlock] = []
    is_known = False
    for handle in _keyed_handles(state):
        changes = ColumnChanges(table)
        for file in handle.files:
            for block in read_chunk(read(file), file, state.max_parallelism, codec, table):
                is_known = True
                if not isinstance(block, ColumnBlock):
                    msg = f"state {table!r} of operator {state.operator_id!r} is not in columns"
                    raise ConfigurationError(msg)
                changes.apply(block)
        blocks += changes.blocks(with_deleted=False)
    return blocks if is_known else None


def read_listed(
    state: OperatorState, name: str, subtasks: Sequence[int], read: Read, codec: ValueCodec
) -> ListedValues:
    """The values of a list state in some subtasks; only one copy of a broadcast state."""
    holders: list[int] = []
    values: list[Any] = []
    first = min((i for i, s in state.subtasks.items() if any(h.name == name for h in s.operator)), default=-1)
    for index in subtasks:
        for handle in () if index not in state.subtasks else state.subtasks[index].operator:
            is_copy = handle.mode is RedistributionMode.BROADCAST and index != first
            if handle.name == name and not is_copy:
                atoms = decode_atoms(read(handle.state), _place(handle.state))
                holders += [index] * len(atoms)
                values += map(codec.loads, atoms)
    return ListedValues(holders, values)


def _keyed_handles(state: OperatorState) -> list[KeyedStateHandle]:
    handles = [handle for index in sorted(state.subtasks) for handle in state.subtasks[index].keyed]
    need_canonical(handles)
    return handles


def _place(handle: StateHandle) -> str:
    return handle.path if isinstance(handle, FileHandle) else "the snapshot's metadata"
