"""Describes the contents of a checkpoint or savepoint, without running the job.

Keys are counted. Positions of sources and the state of their coordinators are shown if this program can
decode them. Classes of the user may need modules that only the job has. Lists and raw state are counted from
the metadata. Keyed state of RocksDB, or with keys that this program can't decode, is marked as inexact.
Modules are imported and values unpickled only if the given codec allows it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from penstock.runtime.errors import CodecError
from penstock.runtime.operators.source_coordinator import unassigned_splits
from penstock.runtime.operators.source_operator import SPLITS
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.redaction import redacted
from penstock.runtime.snapshot.checkpoint_record import CheckpointMetrics, subtask_rows
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    FileHandle,
    KeyedStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    SavedState,
    StateHandle,
)
from penstock.runtime.snapshot.ids import SubtaskId
from penstock.runtime.snapshot.metadata import decode_atoms
from penstock.runtime.state.keyed_chunk import read_keys
from penstock.runtime.state.known_states import states_in

#: Maximum number of values of a list state that are shown, and of characters of each.
MOST_VALUES: Final = 100
_MOST_CHARACTERS: Final = 200

Read = Callable[[StateHandle], bytes]


@dataclass(frozen=True, slots=True)
class StateSummary:
    """One named state of an operator, over all its subtasks.

    Attributes:
        name: Name of a table of keyed state, or of a list state.
        kind: `keyed`, the redistribution mode of a list state, or `list` for raw operator state.
        entries: Number of keys, or of values of the list. For keyed lists and maps, the number of entries of
            all keys.
        is_exact: `False` when keys could not be decoded here: `entries` then counts every write of a key,
            over all files. `False` for RocksDB, too, which estimates all states of the operator together.
        values: The first 100 positions of a source as text; empty for all other states.
        of_type: The declared type of the values; empty without a declaration.
        holds: Kind of a function's keyed state: `value`, `list`, `map`, `reducing` or `aggregating`. Empty
            for other operators.
        is_declared: Whether the function's class declares it.
        has_ttl: Whether the entries expire.
    """

    name: str
    kind: str
    entries: int
    is_exact: bool = True
    values: tuple[str, ...] = ()
    of_type: str = ""
    holds: str = ""
    is_declared: bool = False
    has_ttl: bool = False


@dataclass(frozen=True, slots=True)
class CoordinatorSummary:
    """State of an operator's coordinator in a snapshot.

    Attributes:
        size: Bytes.
        unassigned: Number of splits that no reader has. `None` when the state can't be decoded here, or is
            not from an `OnRequest` that has listed its splits.
        values: The first 100 of these splits as text; if `unassigned` is `None`, one text that shows or
            describes the whole state.
    """

    size: int
    unassigned: int | None
    values: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MasterSummary:
    """State of a master hook in a snapshot.

    Attributes:
        size: Bytes.
    """

    identifier: str
    size: int


@dataclass(frozen=True, slots=True)
class OperatorSummary:
    """One operator in a snapshot.

    Attributes:
        parallelism: Parallelism in the job that took the snapshot.
        max_parallelism: Number of key groups; a job can restore keyed state only with the same number.
        size: Bytes of the operator's state, including its coordinator's.
        files: Number of files that hold the state; small state has none.
        finished: Number of subtasks whose data had ended.
        in_flight: Number of captured elements in the channels of the operator's chain.
        coordinator: State of the operator's coordinator; `None` without one.
    """

    operator_id: str
    parallelism: int
    max_parallelism: int
    size: int
    files: int
    finished: int
    in_flight: int
    states: tuple[StateSummary, ...]
    coordinator: CoordinatorSummary | None = None


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """A checkpoint or savepoint.

    Attributes:
        location: URL of the storage that holds the files.
        kind: `checkpoint`, `savepoint`, or `sync_savepoint` for one that stopped its job.
        checkpoint_id: Id; a job that starts from the snapshot assigns larger ids.
        attempt: The job's attempt that took the snapshot.
        triggered_at: Wall-clock seconds.
        completed_at: Wall-clock seconds.
        size: Bytes of all state, of operators and master hooks.
        files: Number of files, not counting the metadata.
        by_subtask: Metrics by subtask; empty when the state processor wrote the snapshot.
    """

    location: str
    kind: str
    checkpoint_id: int
    attempt: int
    triggered_at: float
    completed_at: float
    size: int
    files: int
    operators: tuple[OperatorSummary, ...]
    by_subtask: Mapping[SubtaskId, CheckpointMetrics] = field(default_factory=dict)
    masters: tuple[MasterSummary, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(replace(self, by_subtask={})), "by_subtask": subtask_rows(self.by_subtask)}


def inspect_snapshot(checkpoint: CompletedCheckpoint, read: Read, codec: ValueCodec) -> SnapshotSummary:
    """Describe a snapshot; blocks. Raises `CorruptSnapshotError` for a damaged file."""
    operators = tuple(_operator(state, read, codec) for state in checkpoint.operators.values())
    return SnapshotSummary(
        checkpoint.location or "",
        checkpoint.kind.value,
        checkpoint.checkpoint_id,
        checkpoint.attempt,
        checkpoint.triggered_at,
        checkpoint.completed_at,
        checkpoint.size,
        len({handle.path for state in checkpoint.operators.values() for handle in state.files()}),
        operators,
        {} if checkpoint.statistics is None else checkpoint.statistics.metrics(),
        tuple(MasterSummary(state.identifier, len(state.data)) for state in checkpoint.master_states),
    )


def _operator(state: OperatorState, read: Read, codec: ValueCodec) -> OperatorSummary:
    subtasks = [state.subtasks[index] for index in sorted(state.subtasks)]
    handles = list(state.handles())
    return OperatorSummary(
        state.operator_id,
        state.parallelism,
        state.max_parallelism,
        sum(handle.size for handle in handles),
        len({handle.path for handle in handles if isinstance(handle, FileHandle)}),
        len(state.finished),
        sum(subtask.channels.elements for subtask in subtasks if subtask.channels is not None),
        (*_keyed(subtasks, read, codec), *_lists(subtasks, read, codec), *_raw(subtasks)),
        None if state.coordinator is None else _coordinator(state.coordinator, read, codec),
    )


def _keyed(subtasks: Iterable[OperatorSubtaskState], read: Read, codec: ValueCodec) -> list[StateSummary]:
    handles = [handle for subtask in subtasks for handle in subtask.keyed]
    entries = sum(handle.entries for handle in handles)
    types = dict(pair for handle in handles for pair in handle.types)
    states = states_in(handles)
    counts = dict.fromkeys(states, 0)
    is_native = any(handle.is_native for handle in handles)
    if is_native:  # the names and the total number of entries are known
        counts = dict.fromkeys(states, entries)
        if not states:
            return [StateSummary("(in the files of RocksDB)", "keyed", entries, is_exact=False)]
    else:
        try:
            for handle in handles:
                for table, keys in _live_keys(handle, read, codec).items():
                    counts[table] = counts.get(table, 0) + len(keys)
        except CodecError:
            what = "(keys of a type that this program does not know)"
            return [StateSummary(what, "keyed", entries, is_exact=False)]
    return [
        _keyed_state(states.get(name) or SavedState(name, ""), number, types.get(name, ""), not is_native)
        for name, number in sorted(counts.items())
    ]


def _keyed_state(saved: SavedState, number: int, of_type: str, is_exact: bool) -> StateSummary:
    return StateSummary(
        saved.name,
        "keyed",
        number,
        is_exact,
        of_type=of_type,
        holds=saved.kind,
        is_declared=saved.is_declared,
        has_ttl=saved.has_stamps,
    )


def _live_keys(handle: KeyedStateHandle, read: Read, codec: ValueCodec) -> dict[str, set[Any]]:
    """Return the live keys of one subtask by table; in a nested table, pairs of key and second part."""
    tables: dict[str, set[Any]] = {}
    for file in handle.files:
        for table, keys, is_deleted in read_keys(read(file), file, codec):
            known = tables.setdefault(table, set())
            if is_deleted:
                known.difference_update(keys)
            else:
                known.update(keys)
    return tables


def _lists(subtasks: Iterable[OperatorSubtaskState], read: Read, codec: ValueCodec) -> Iterator[StateSummary]:
    by_name: dict[str, list[OperatorStateHandle]] = {}
    for subtask in subtasks:
        for handle in subtask.operator:
            by_name.setdefault(handle.name, []).append(handle)
    for name, handles in sorted(by_name.items()):
        values: list[str] = []
        if name == SPLITS:
            atoms = (atom for h in handles for atom in decode_atoms(read(h.state), "the snapshot"))
            values = [_as_text(atom, codec) for _, atom in zip(range(MOST_VALUES), atoms, strict=False)]
        entries = sum(handle.count for handle in handles)
        first = handles[0]
        yield StateSummary(
            name,
            first.mode.value,
            entries,
            values=tuple(values),
            of_type=first.of_type,
            is_declared=first.is_declared,
        )


def _raw(subtasks: Iterable[OperatorSubtaskState]) -> Iterator[StateSummary]:
    """Yield state that an operator has encoded itself; only its number of pieces is known."""
    keyed = [handle.entries for subtask in subtasks for handle in subtask.raw_keyed]
    pieces = [handle.count for subtask in subtasks for handle in subtask.raw_operator]
    if keyed:
        yield StateSummary("(raw)", "keyed", sum(keyed))
    if pieces:
        yield StateSummary("(raw)", "list", sum(pieces))


def _coordinator(handle: StateHandle, read: Read, codec: ValueCodec) -> CoordinatorSummary:
    data = read(handle)
    try:
        own, _ = codec.loads(data)
        state = codec.loads(own)
    except (CodecError, TypeError, ValueError):
        return CoordinatorSummary(handle.size, None, (_unknown(data),))
    splits = unassigned_splits(state)
    if splits is None:
        return CoordinatorSummary(handle.size, None, (_shortened(state),))
    return CoordinatorSummary(handle.size, len(splits), tuple(map(_shortened, splits[:MOST_VALUES])))


def _as_text(atom: bytes, codec: ValueCodec) -> str:
    try:
        return _shortened(codec.loads(atom))
    except CodecError:
        return _unknown(atom)


def _unknown(data: bytes) -> str:
    return f"{len(data)} bytes of a type that this program does not know"


def _shortened(value: Any) -> str:
    text = redacted(repr(value))
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}..."
