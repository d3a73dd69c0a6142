"""Writes a savepoint without a job: from rows, or from another snapshot with one state replaced.

Copied state is copied as bytes. Only chunks of keyed state that hold the replaced table are split by table,
and nothing in them is decoded. The new entries become separate handles beside the old ones, which a restore
accepts. So an operator's other states may have classes that are unknown here.

All files are in the savepoint's own folder and are named relative to it. The metadata is written last and
never over another: a folder without it is no snapshot. Key groups are computed from the keys with the
operator's `max_parallelism`, and each subtask's file holds only those of its range.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    KeyedStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SavedState,
    StateHandle,
)
from penstock.runtime.snapshot.metadata import StateFiles, encode_atoms
from penstock.runtime.state.captured_rows import CapturedRows, write_chunk
from penstock.runtime.state.key_groups import (
    check_parallelism,
    default_max_parallelism,
    key_group_array,
    key_group_range,
)
from penstock.runtime.state.keyed_chunk import ColumnBlock, need_canonical
from penstock.runtime.state.keyed_chunk import without_table as chunk_without_table

#: Returns the writer of files for one subtask of one operator.
FilesOf = Callable[[str, int], StateFiles]


@dataclass(frozen=True, slots=True)
class StatePlace:
    """A state to write, and its layout.

    Attributes:
        parallelism: Number of subtasks that share it; a job may start with another one.
        max_parallelism: Number of key groups; a job that starts from it must have the same number.
    """

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
    """The layout of a new state: the layout of the operator in the base, else the requested one.

    Args:
        base: The snapshot that is copied; `None` for none.
        parallelism: The requested one; `None` takes the base's, or 1.
        max_parallelism: The requested one; `None` takes the base's, or the default.

    Raises:
        ConfigurationError: The base has another layout than requested, or the operator had finished there.
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
                f"{what}={asked} is not possible: operator {operator!r} has {there} in the base; leave it out"
            )
            raise ConfigurationError(msg)
    if known.finished:
        msg = (
            f"operator {operator!r} had come to the end of its data in the base, so a job that starts from "
            "it does not run it again, and the new state would have no effect. Take a base from a running job"
        )
        raise ConfigurationError(msg)
    return StatePlace(operator, state, known.parallelism, known.max_parallelism)


def by_subtask(keys: Sequence[Any], place: StatePlace) -> dict[int, list[int]]:
    """Positions in `keys`, by owning subtask.

    Raises:
        KeyTypeError: A value can't be a key.

    Example:
        >>> by_subtask(["word", "line"], StatePlace("count", "reduce", 2, 128))
        {0: [1], 1: [0]}
    """
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
        keys: The keys; pairs of key and second part for a list or a map, grouped by key.
        saved: The description of the state; `None` for a plain value per key.

    Raises:
        CodecError: A key or value can't be encoded.
    """
    own = key_group_range(subtask, place.parallelism, place.max_parallelism)
    nested = saved is not None and saved.kind in ("list", "map")
    rows = CapturedRows.encoded(place.state, keys, values, codec, nested=nested)
    file = files.write(write_chunk([rows], place.max_parallelism, own, codec))
    return KeyedStateHandle(own, (file,), len(keys), states=() if saved is None else (saved,))


def write_columns(
    files: StateFiles, place: StatePlace, subtask: int, block: ColumnBlock, codec: ValueCodec
) -> KeyedStateHandle:
    """Write a block of columns of one subtask as one file; blocks."""
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
    """The list of each subtask: a copy of a broadcast state, a part of any other.

    Example:
        >>> listed_by_subtask("abc", RedistributionMode.UNION, 2)
        [['a', 'b'], ['c']]
    """
    if mode is RedistributionMode.BROADCAST:
        return [list(values) for _ in range(parallelism)]
    size, more = divmod(len(values), parallelism)
    ends = [size * n + min(n, more) for n in range(parallelism + 1)]
    return [list(values[start:end]) for start, end in pairwise(ends)]


def copy_operators(
    base: CompletedCheckpoint,
    read: Callable[[StateHandle], bytes],
    files_of: FilesOf,
    left_out: StatePlace,
) -> dict[str, OperatorState]:
    """Copy the operators of a snapshot with all their files, without one state; blocks.

    Raises:
        CorruptSnapshotError: A file is damaged.
    """
    copied: dict[StateHandle, StateHandle] = {}

    def copy(files: StateFiles, handle: StateHandle) -> StateHandle:
        # Checkpoints name a file in several places.
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
        # A coordinator is no subtask; its file is numbered among those of the first.
        coordinator = None if state.coordinator is None else copy(files_of(operator, 0), state.coordinator)
        operators[operator] = replace(state, subtasks=subtasks, coordinator=coordinator)
    return operators


def with_state(
    operators: Mapping[str, OperatorState], place: StatePlace, parts: Mapping[int, OperatorSubtaskState]
) -> dict[str, OperatorState]:
    """Add a new state to the operators, which are not changed."""
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
            others = tuple(saved for saved in handle.states if saved.name != state)
            keyed.append(replace(handle, files=tuple(kept), entries=max(0, entries), states=others))
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
