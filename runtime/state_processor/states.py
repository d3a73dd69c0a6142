"""Reads one state of one operator from a snapshot, and writes one into a savepoint, without running the job.

Only the requested state is decoded, because the classes of other states may exist only in the job. Keyed
state is read by key groups, so several readers can share a large state. List state is read by subtask.

A savepoint is made from rows, or from another snapshot with one state replaced. Other state is copied as
bytes: chunks with the replaced table are split by table and not decoded. The new entries become separate
handles, which a restore accepts. All files are in the savepoint's own folder, and named relative to it. The
metadata is written last and never overwrites other metadata. A folder without metadata is not a snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.restore import saved_states
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    KeyGroupRange,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SavedState,
    StateHandle,
    place_of,
)
from penstock.runtime.snapshot.metadata import StateFiles, decode_atoms, encode_atoms
from penstock.runtime.state.captured_rows import Block, CapturedRows, write_chunk
from penstock.runtime.state.column_table import ColumnChanges
from penstock.runtime.state.key_groups import (
    check_parallelism,
    default_max_parallelism,
    key_group_array,
    key_group_range,
    split_evenly,
)
from penstock.runtime.state.keyed_chunk import (
    ColumnBlock,
    RowBlock,
    need_canonical,
    read_chunk,
    tables_of,
)
from penstock.runtime.state.keyed_chunk import without_table as chunk_without_table

Read = Callable[[StateHandle], bytes]


@dataclass(frozen=True, slots=True)
class KeyedEntries:
    """Entries of one table; all sequences have the same length.

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


def operator_state(checkpoint: CompletedCheckpoint, operator: str) -> OperatorState:
    """Return the state of one operator; a `ConfigurationError` lists the known operators."""
    state = checkpoint.operators.get(operator)
    if state is None:
        known = ", ".join(map(repr, sorted(checkpoint.operators))) or "none"
        msg = f"the snapshot has no state of operator {operator!r}; it has state of: {known}"
        raise ConfigurationError(msg)
    return state


def list_mode(state: OperatorState, name: str) -> RedistributionMode | None:
    """Return the redistribution mode of a list state; `None` when there is no such state."""
    subtasks = state.subtasks.values()
    return next((handle.mode for s in subtasks for handle in s.operator if handle.name == name), None)


def known_states(state: OperatorState, read: Read) -> tuple[str, ...]:
    """Return the names of an operator's keyed and list states, sorted; reads all files of keyed state."""
    names = {handle.name for subtask in state.subtasks.values() for handle in subtask.operator}
    for handle in _keyed_handles(state):
        for file in handle.files:
            names.update(tables_of(read(file), file))
    return tuple(sorted(names))


def no_such_state(state: OperatorState, name: str, known: Sequence[str]) -> ConfigurationError:
    names = ", ".join(map(repr, known)) or "none"
    msg = (
        f"operator {state.operator_id!r} has no state {name!r} in this snapshot; it has: {names}. The state "
        "of reduce(...) is called 'reduce', and a declared state has the name of its declaration"
    )
    return ConfigurationError(msg)


def read_keyed(
    state: OperatorState, table: str, key_groups: KeyGroupRange, read: Read, codec: ValueCodec
) -> KeyedEntries | None:
    """Return the entries of a table in a range of key groups; `None` when no file holds the table."""
    rows: list[tuple[Any, int, Any]] = []
    is_known = is_nested = False
    saved = saved_states(state).get(table)
    has_stamps = saved is not None and saved.has_stamps
    for handle in _keyed_handles(state):
        if not len(handle.key_groups.intersection(key_groups)):
            continue
        entries: dict[Any, tuple[int, Any]] = {}
        lacks_stamps = has_stamps and not any(s.name == table and s.has_stamps for s in handle.states)
        for file in handle.files:
            for found in read_chunk(read(file), file, state.max_parallelism, codec, table):
                is_known = True
                block = RowBlock.of_columns(found) if isinstance(found, ColumnBlock) else found
                is_nested = block.nested
                if block.values is None:
                    for key in block.keys:
                        entries.pop(key, None)
                else:
                    found_values = [(None, v) for v in block.values] if lacks_stamps else block.values
                    pairs = zip(block.key_groups.tolist(), found_values, strict=True)
                    entries.update(zip(block.keys, pairs, strict=True))
        rows += [(key, group, value) for key, (group, value) in entries.items() if group in key_groups]
    if not is_known:
        return None
    if is_nested:
        order = dict(zip(dict.fromkeys(key for (key, _), _, _ in rows), count(), strict=False))
        is_list = saved is not None and saved.kind == "list"
        rows.sort(key=lambda row: (order[row[0][0]], row[0][1] if is_list else 0))
    return KeyedEntries(
        [group for _, group, _ in rows],
        [key[0] if is_nested else key for key, _, _ in rows],
        [value[1] if has_stamps else value for _, _, value in rows],
        [part for (_, part), _, _ in rows] if is_nested else None,
        [stamp for _, _, (stamp, _) in rows] if has_stamps else None,
    )


def read_columns(state: OperatorState, table: str, read: Read, codec: ValueCodec) -> list[ColumnBlock] | None:
    """Return live keys and values of a table in columns; `None` when no file holds the table."""
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
) -> tuple[list[int], list[Any]]:
    """Return the values of a list state in some subtasks, and the subtask of each.

    Reads only one copy of a broadcast state.
    """
    holders: list[int] = []
    values: list[Any] = []
    first = min((i for i, s in state.subtasks.items() if any(h.name == name for h in s.operator)), default=-1)
    for index in subtasks:
        for handle in () if index not in state.subtasks else state.subtasks[index].operator:
            is_copy = handle.mode is RedistributionMode.BROADCAST and index != first
            if handle.name == name and not is_copy:
                atoms = decode_atoms(read(handle.state), place_of(handle.state))
                holders += [index] * len(atoms)
                values += map(codec.loads, atoms)
    return holders, values


def _keyed_handles(state: OperatorState) -> list[KeyedStateHandle]:
    handles = [handle for index in sorted(state.subtasks) for handle in state.subtasks[index].keyed]
    need_canonical(handles)
    return handles


#: Returns the writer of files for one subtask of one operator.
FilesOf = Callable[[str, int], StateFiles]


@dataclass(frozen=True, slots=True)
class StatePlace:
    """A state to write, and its layout: the parallelism of its operator, and the number of key groups."""

    operator: str
    state: str
    parallelism: int
    max_parallelism: int

    def __post_init__(self) -> None:
        check_parallelism(self.parallelism, self.max_parallelism)


def place_in(
    base: CompletedCheckpoint | None,
    operator: str,
    state: str,
    parallelism: int | None,
    max_parallelism: int | None,
) -> StatePlace:
    """Return the layout of a new state: the operator's layout in the base, else the requested one.

    Raises:
        ConfigurationError: The operator has a different layout in the base, or had finished there.
    """
    known = None if base is None else base.operators.get(operator)
    if known is None:
        number = 1 if parallelism is None else parallelism
        groups = default_max_parallelism(number) if max_parallelism is None else max_parallelism
        return StatePlace(operator, state, number, groups)
    for what, asked, there in (
        ("parallelism", parallelism, known.parallelism),
        ("max_parallelism", max_parallelism, known.max_parallelism),
    ):
        if asked is not None and asked != there:
            msg = (
                f"{what}={asked} is not possible: operator {operator!r} has {there} in the base; leave "
                f"{what} out"
            )
            raise ConfigurationError(msg)
    if known.finished:
        msg = (
            f"operator {operator!r} had reached the end of its data in the base. A job that starts from the "
            "savepoint does not run it again, so the new state would have no effect. Use a base from a job "
            "whose operator still runs"
        )
        raise ConfigurationError(msg)
    return StatePlace(operator, state, known.parallelism, known.max_parallelism)


def by_subtask(keys: Sequence[Any], place: StatePlace) -> dict[int, list[int]]:
    """Return the positions in `keys`, by owning subtask."""
    groups = key_group_array(keys, place.max_parallelism).astype(int)
    positions: dict[int, list[int]] = {}
    for position, subtask in enumerate((groups * place.parallelism // place.max_parallelism).tolist()):
        positions.setdefault(subtask, []).append(position)
    return dict(sorted(positions.items()))


def write_keyed(
    files: StateFiles,
    place: StatePlace,
    subtask: int,
    keys: Sequence[Any],
    values: Sequence[Any],
    codec: ValueCodec,
    saved: SavedState | None = None,
) -> KeyedStateHandle:
    """Write entries of one subtask as one file; blocks.

    Args:
        keys: Pairs of key and second part for a list or a map, grouped by key.
        saved: `None` for a plain value per key.
    """
    nested = saved is not None and saved.kind in ("list", "map")
    rows = CapturedRows.encoded(place.state, keys, values, codec, nested=nested)
    handle = write_block(files, place, subtask, rows, codec)
    return handle if saved is None else replace(handle, states=(saved,))


def write_block(
    files: StateFiles, place: StatePlace, subtask: int, block: Block, codec: ValueCodec
) -> KeyedStateHandle:
    """Write a block of one subtask's rows or columns as one file; blocks."""
    own = key_group_range(subtask, place.parallelism, place.max_parallelism)
    data = write_chunk([block], place.max_parallelism, own, codec)
    return KeyedStateHandle(own, (files.write(data),), len(block))


def write_listed(
    files: StateFiles, name: str, mode: RedistributionMode, values: Iterable[Any], codec: ValueCodec
) -> OperatorStateHandle:
    """Write the list state of one subtask; blocks."""
    atoms = [codec.dumps(value) for value in values]
    return OperatorStateHandle(name, mode, files.write(encode_atoms(atoms)), len(atoms))


def listed_by_subtask(values: Sequence[Any], mode: RedistributionMode, parallelism: int) -> list[list[Any]]:
    """Return the list of each subtask: a copy of a broadcast state, or a part of any other state."""
    if mode is RedistributionMode.BROADCAST:
        return [list(values) for _ in range(parallelism)]
    return split_evenly(values, parallelism)


def copy_operators(
    base: CompletedCheckpoint,
    read: Callable[[StateHandle], bytes],
    files_of: FilesOf,
    left_out: StatePlace,
) -> dict[str, OperatorState]:
    """Copy the operators of a snapshot with all their files, except for one state; blocks."""
    copied: dict[StateHandle, StateHandle] = {}

    def copy(files: StateFiles, handle: StateHandle) -> StateHandle:
        # A checkpoint may name a file in several places.
        if handle not in copied:
            copied[handle] = files.write(read(handle))
        return copied[handle]

    operators: dict[str, OperatorState] = {}
    for operator, state in base.operators.items():
        subtasks: dict[int, OperatorSubtaskState] = {}
        for index, subtask in state.subtasks.items():
            files = files_of(operator, index)
            if operator == left_out.operator:
                subtask = _without(subtask, left_out.state, read, files)
                copied.update((new, new) for new in files.written)
            subtasks[index] = _copied(subtask, partial(copy, files))
        # A coordinator is not a subtask; its file is numbered among the files of the first subtask.
        coordinator = None if state.coordinator is None else copy(files_of(operator, 0), state.coordinator)
        operators[operator] = replace(state, subtasks=subtasks, coordinator=coordinator)
    return operators


def with_state(
    operators: Mapping[str, OperatorState], place: StatePlace, parts: Mapping[int, OperatorSubtaskState]
) -> dict[str, OperatorState]:
    """Return the operators with a new state; `operators` itself is not changed."""
    known = operators.get(place.operator) or OperatorState(
        place.operator, place.parallelism, place.max_parallelism
    )
    subtasks = dict(known.subtasks)
    for index, part in parts.items():
        had = subtasks.get(index, OperatorSubtaskState())
        subtasks[index] = replace(
            had, keyed=(*had.keyed, *part.keyed), operator=(*had.operator, *part.operator)
        )
    return {**operators, place.operator: replace(known, subtasks=dict(sorted(subtasks.items())))}


def _without(
    subtask: OperatorSubtaskState,
    state: str,
    read: Callable[[StateHandle], bytes],
    files: StateFiles,
) -> OperatorSubtaskState:
    keyed: list[KeyedStateHandle] = []
    need_canonical(subtask.keyed)
    for handle in subtask.keyed:
        kept: list[StateHandle] = []
        entries = handle.entries
        for file in handle.files:
            data = read(file)
            rest, left_out = chunk_without_table(data, file, state)
            entries -= left_out
            if rest is not None:
                kept.append(file if rest is data else files.write(rest))
        if kept:
            types = tuple(pair for pair in handle.types if pair[0] != state)
            states = tuple(saved for saved in handle.states if saved.name != state)
            entries = max(0, entries)
            keyed.append(replace(handle, files=tuple(kept), entries=entries, types=types, states=states))
    lists = tuple(handle for handle in subtask.operator if handle.name != state)
    return replace(subtask, keyed=tuple(keyed), operator=lists)


def _copied(
    subtask: OperatorSubtaskState, copy: Callable[[StateHandle], StateHandle]
) -> OperatorSubtaskState:
    def keyed(handles: Iterable[KeyedStateHandle]) -> tuple[KeyedStateHandle, ...]:
        return tuple(replace(handle, files=tuple(map(copy, handle.files))) for handle in handles)

    def lists(handles: Iterable[OperatorStateHandle]) -> tuple[OperatorStateHandle, ...]:
        return tuple(replace(handle, state=copy(handle.state)) for handle in handles)

    channels = subtask.channels and replace(subtask.channels, state=copy(subtask.channels.state))
    return OperatorSubtaskState(
        keyed(subtask.keyed),
        lists(subtask.operator),
        channels,
        keyed(subtask.raw_keyed),
        lists(subtask.raw_operator),
    )
