"""The files of a checkpoint: its metadata and its states.

A small state is stored inline. A larger one has a file of its own (`StateFiles`). Values of a list state are
encoded one by one, so that the list can be redistributed.

The metadata names every file with its size and checksum, so a read finds damage and names the damaged file.
Files in the same folder are named relative to the metadata. So a savepoint's folder can be moved, or opened
as a storage of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

import msgpack
import xxhash

from penstock.runtime.errors import CorruptSnapshotError, ObjectNotFoundError, StorageError
from penstock.runtime.ports import ReadsAhead, SnapshotStorage
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.checkpoint_record import CompletedCheckpointStatistics
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint
from penstock.runtime.snapshot.handles import (
    INLINE_LIMIT,
    ChannelStateHandle,
    FileHandle,
    InlineHandle,
    KeyedStateHandle,
    KeyGroupRange,
    MasterState,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RedistributionMode,
    SavedState,
    SavedTime,
    StateHandle,
)
from penstock.runtime.snapshot.ids import EdgeId
from penstock.runtime.snapshot.sealed_file import (
    binary,
    damaged,
    items,
    mapping,
    seal,
    seconds,
    text,
    unseal,
    whole,
)
from penstock.runtime.trust.paths import check_path

_MAGIC: Final = b"PENSTKCP"

_VERSION: Final = 1

_WHAT: Final = "the metadata of a checkpoint"

_BESIDE: Final = "./"
#: Maximum number of subtasks or key groups of an operator (`state/key_groups.py`).
MOST_SUBTASKS: Final = 1 << 15
#: The earliest moment of event time, in microseconds.
_EARLIEST: Final = -(1 << 63)

Types: TypeAlias = tuple[tuple[str, str], ...]


def write_state_file(storage: SnapshotStorage, path: str, data: bytes) -> FileHandle:
    storage.put(path, data)
    return _handle(path, data)


def read_state(storage: SnapshotStorage, handle: StateHandle) -> bytes:
    """The bytes of a handle; blocks for a file."""
    if isinstance(handle, InlineHandle):
        return handle.data
    return _checked(storage, handle, lambda: storage.get(handle.path))


def _checked(storage: SnapshotStorage, handle: FileHandle, get: Callable[[], bytes]) -> bytes:
    what = "a file of a snapshot"
    try:
        data = get()
    except ObjectNotFoundError as error:
        raise missing(storage, handle.path) from error
    where = f"{storage.url}/{handle.path}"
    if len(data) != handle.size:
        raise damaged(what, where, f"it has {len(data)} bytes instead of {handle.size}")
    if xxhash.xxh3_128_hexdigest(data) != handle.checksum:
        raise damaged(what, where, "its content does not match its checksum")
    return data


def missing(storage: SnapshotStorage, path: str) -> CorruptSnapshotError:
    msg = (
        f"{storage.url}/{path} is part of a snapshot but is not there; put the file back, and check that "
        "no lifecycle rule of the bucket and no cleaner of temporary files deletes Penstock's files"
    )
    return CorruptSnapshotError(msg)


def encode_metadata(checkpoint: CompletedCheckpoint, path: str = "") -> bytes:
    """Encode a checkpoint as the metadata file at `path`, without `metadata`, the file's own handle."""
    folder, operators = _folder(path), checkpoint.operators.values()

    def by_operator(part_of: Callable[[OperatorState], Any]) -> dict[str, Any]:
        return {state.operator_id: part for state in operators if (part := part_of(state))}

    body = {
        "id": checkpoint.checkpoint_id,
        "attempt": checkpoint.attempt,
        "kind": checkpoint.kind.value,
        "triggered_at": checkpoint.triggered_at,
        "completed_at": checkpoint.completed_at,
        "size": checkpoint.size,
        "location": checkpoint.location,
        "drained": checkpoint.drained,
        "operators": [_encode_operator(state, folder) for state in operators],
        "finished": by_operator(lambda state: sorted(state.finished)),
        "types": by_operator(_types),
        "states": by_operator(_saved_states),
        "lists": by_operator(_lists),
        "coordinators": {
            state.operator_id: _encode(state.coordinator, folder)
            for state in operators
            if state.coordinator is not None
        },
        "master_states": [[state.identifier, state.data] for state in checkpoint.master_states],
        "statistics": None if checkpoint.statistics is None else checkpoint.statistics.encode(),
    }
    return seal(_MAGIC, _VERSION, body)


def decode_metadata(data: bytes, path: str) -> CompletedCheckpoint:
    """Decode a metadata file.

    Raises:
        CorruptSnapshotError: The file is damaged.
        StorageError: A newer version wrote the file.
    """
    unsealed = unseal(_MAGIC, _VERSION, data, _WHAT, path)
    folder = _folder(path)
    try:
        body = mapping(unsealed)
        finished, declared = mapping(body["finished"]), mapping(body["types"])
        types = {operator: _decode_types(names) for operator, names in declared.items()}
        saved = {o: _decode_saved_states(item) for o, item in mapping(body["states"]).items()}
        lists = {o: _decode_list_types(item) for o, item in mapping(body["lists"]).items()}
        operators = [
            _with_list_types(_decode_operator(item, folder, finished, types, saved), lists)
            for item in items(body["operators"])
        ]
        coordinators = {o: _decode(item, folder) for o, item in mapping(body["coordinators"]).items()}
        location = body["location"]
        return CompletedCheckpoint(
            whole(body["id"]),
            whole(body["attempt"]),
            SnapshotKind(body["kind"]),
            {s.operator_id: replace(s, coordinator=coordinators.get(s.operator_id)) for s in operators},
            seconds(body["triggered_at"]),
            seconds(body["completed_at"]),
            _handle(path, data),
            whole(body["size"]),
            None if location is None else text(location),
            tuple(_decode_master_state(state) for state in items(body["master_states"])),
            statistics=CompletedCheckpointStatistics.decode(body["statistics"]),
            drained=body["drained"] is True,
        )
    except (KeyError, IndexError, TypeError, ValueError, StorageError) as error:
        raise damaged(_WHAT, path, f"a part is missing or wrong ({error})") from error


def read_metadata(storage: SnapshotStorage, metadata: FileHandle | str) -> CompletedCheckpoint:
    """Read a checkpoint by the handle of its metadata file, or by the path that a user names; blocks."""
    if isinstance(metadata, FileHandle):
        return decode_metadata(read_state(storage, metadata), metadata.path)
    return decode_metadata(storage.get(metadata), metadata)


def _handle(path: str, data: bytes) -> FileHandle:
    return FileHandle(path, len(data), xxhash.xxh3_128_hexdigest(data))


def _folder(path: str) -> str:
    return path[: path.rfind("/") + 1]


def _types(state: OperatorState) -> dict[str, str]:
    return dict(pair for part in state.subtasks.values() for keyed in part.keyed for pair in keyed.types)


def _saved_states(state: OperatorState) -> dict[str, list[Any]]:
    every = (s for part in state.subtasks.values() for keyed in part.keyed for s in keyed.states)
    return _encode_states(every)


def _encode_states(states: Iterable[SavedState]) -> dict[str, list[Any]]:
    return {saved.name: [saved.kind, saved.is_declared, saved.has_stamps, saved.time] for saved in states}


def _lists(state: OperatorState) -> dict[str, list[Any]]:
    every = (handle for part in state.subtasks.values() for handle in part.operator)
    return {h.name: [h.of_type, h.is_declared] for h in every if h.of_type or h.is_declared}


def _decode_list_types(lists: object) -> dict[str, tuple[str, bool]]:
    # Later versions may add fields to the entry of a list state.
    every = ((text(name), items(said)) for name, said in mapping(lists).items())
    return {name: (text(said[0]), bool(said[1])) for name, said in every}


def _with_list_types(
    state: OperatorState, lists: Mapping[str, Mapping[str, tuple[str, bool]]]
) -> OperatorState:
    known = lists.get(state.operator_id)
    if not known:
        return state

    def named(handle: OperatorStateHandle) -> OperatorStateHandle:
        of_type, is_declared = known.get(handle.name, ("", False))
        return replace(handle, of_type=of_type, is_declared=is_declared)

    subtasks = {
        index: replace(part, operator=tuple(map(named, part.operator)))
        for index, part in state.subtasks.items()
    }
    return replace(state, subtasks=subtasks)


def _encode_operator(state: OperatorState, folder: str) -> list[Any]:
    common = _types(state), _saved_states(state)
    subtasks = [
        [
            index,
            _encode_keyed(subtask.keyed, folder, *common),
            _encode_lists(subtask.operator, folder),
            subtask.channels and _encode_channels(subtask.channels, folder),
            _encode_keyed(subtask.raw_keyed, folder, {}, {}),
            _encode_lists(subtask.raw_operator, folder),
        ]
        for index, subtask in state.subtasks.items()
    ]
    return [state.operator_id, state.parallelism, state.max_parallelism, subtasks]


def _decode_operator(
    item: list[Any],
    folder: str,
    finished: Mapping[str, list[int]],
    types: Mapping[str, Types],
    saved: Mapping[str, tuple[SavedState, ...]],
) -> OperatorState:
    operator_id, parallelism, max_parallelism, subtasks = items(item, 4)
    declared, states = types.get(text(operator_id), ()), saved.get(operator_id, ())
    for number in (parallelism, max_parallelism):
        if whole(number, 1) > MOST_SUBTASKS:
            msg = (
                f"operator {operator_id!r:.80} with {number} subtasks or key groups; "
                f"the maximum is {MOST_SUBTASKS}"
            )
            raise ValueError(msg)
    indices = range(parallelism)
    decoded = {}
    for index, *parts in map(items, items(subtasks)):
        if whole(index) not in indices or index in decoded:
            msg = f"subtask {index} is named twice, or the parallelism {parallelism} has no such subtask"
            raise ValueError(msg)
        decoded[index] = _decode_subtask(parts, folder, declared, states)
    left = frozenset(map(whole, items(finished.get(operator_id, []))))
    if not left.issubset(indices):
        msg = f"subtasks {sorted(left)} have finished, but the parallelism is only {parallelism}"
        raise ValueError(msg)
    return OperatorState(operator_id, parallelism, max_parallelism, decoded, left)


def _decode_types(names: object) -> Types:
    return tuple(sorted((text(state), text(name)) for state, name in mapping(names).items()))


def _decode_saved_states(states: object) -> tuple[SavedState, ...]:
    # Later versions may add fields to a state's entry. Entries of older snapshots lack the last ones.
    every = sorted((text(name), items(saved)) for name, saved in mapping(states).items())
    return tuple(_decode_saved_state(name, *saved[:4]) for name, saved in every)


def _decode_saved_state(
    name: str, kind: object, is_declared: object = False, has_stamps: object = False, time: object = ""
) -> SavedState:
    return SavedState(name, text(kind), bool(is_declared), bool(has_stamps), text(time))


def _decode_master_state(item: object) -> MasterState:
    identifier, state = items(item, 2)
    return MasterState(text(identifier), binary(state))


def _encode_keyed(
    handles: Iterable[KeyedStateHandle],
    folder: str,
    types: Mapping[str, str],
    states: Mapping[str, list[Any]],
) -> list[Any]:
    """Encode handles; each names its types and states only if they differ from the operator's."""
    encoded = []
    for k in handles:
        own = dict(k.types), _encode_states(k.states)
        encoded.append(
            [
                *(k.key_groups.first, k.key_groups.last, k.entries, [_encode(f, folder) for f in k.files]),
                list(k.names),
                k.time and [k.time.event, k.time.processing, dict(k.time.expired)],
                None if own == (types, states) else own,
            ]
        )
    return encoded


def _encode_lists(handles: Iterable[OperatorStateHandle], folder: str) -> list[Any]:
    return [[o.name, o.mode.value, o.count, _encode(o.state, folder)] for o in handles]


def _decode_subtask(
    parts: list[Any], folder: str, types: Types, states: tuple[SavedState, ...]
) -> OperatorSubtaskState:
    keyed, lists, channels, raw_keyed, raw_lists = items(parts, 5)
    return OperatorSubtaskState(
        _decode_keyed(keyed, folder, types, states),
        _decode_lists(lists, folder),
        None if channels is None else _decode_channels(channels, folder),
        _decode_keyed(raw_keyed, folder),
        _decode_lists(raw_lists, folder),
    )


def _decode_keyed(
    handles: object, folder: str, types: Types = (), states: tuple[SavedState, ...] = ()
) -> tuple[KeyedStateHandle, ...]:
    decoded = []
    # Newer versions add items to the end of a list. Older snapshots, as in tests/compatibility, lack them.
    for first, last, entries, files, *more in map(items, items(handles)):
        if whole(first) > MOST_SUBTASKS or whole(last, -1) >= MOST_SUBTASKS:
            msg = f"key groups {first} to {last}; the maximum number of key groups is {MOST_SUBTASKS}"
            raise ValueError(msg)
        groups = KeyGroupRange(first, last)
        parts = tuple(_decode(file, folder) for file in items(files))
        named = items(more[0], len(parts)) if more and more[0] else []
        time = items(more[1], 3) if len(more) > 1 and more[1] is not None else None
        names, saved = tuple(map(text, named)), None if time is None else _decode_time(time)
        own_types, own_states = types, states
        if len(more) > 2 and more[2] is not None:
            differing = items(more[2], 2)
            own_types, own_states = _decode_types(differing[0]), _decode_saved_states(differing[1])
        decoded.append(KeyedStateHandle(groups, parts, whole(entries), own_types, own_states, names, saved))
    return tuple(decoded)


def _decode_time(time: list[Any]) -> SavedTime:
    event, processing, expired = time
    stamps = tuple((text(table), whole(stamp, _EARLIEST)) for table, stamp in mapping(expired).items())
    return SavedTime(None if event is None else whole(event, _EARLIEST), whole(processing), stamps)


def _decode_lists(handles: object, folder: str) -> tuple[OperatorStateHandle, ...]:
    return tuple(
        OperatorStateHandle(text(name), RedistributionMode(mode), _decode(state, folder), whole(count))
        for name, mode, count, state in (items(handle, 4) for handle in items(handles))
    )


def _encode_channels(channels: ChannelStateHandle, folder: str) -> list[Any]:
    edges = [edge.encode() for edge in channels.edges]
    return [channels.elements, edges, _encode(channels.state, folder)]


def _decode_channels(item: list[Any], folder: str) -> ChannelStateHandle:
    elements, edges, state = items(item, 3)
    return ChannelStateHandle(
        _decode(state, folder), whole(elements), tuple(map(EdgeId.decode, items(edges)))
    )


def _encode(handle: StateHandle, folder: str) -> bytes | list[Any]:
    if isinstance(handle, InlineHandle):
        return handle.data
    path = handle.path
    if folder and path.startswith(folder):
        path = _BESIDE + path.removeprefix(folder)
    return [path, handle.size, handle.checksum]


def _decode(item: bytes | list[Any], folder: str) -> StateHandle:
    if isinstance(item, bytes):
        return InlineHandle(item)
    path, size, checksum = items(item, 3)
    if text(path).startswith(_BESIDE):
        path = folder + path.removeprefix(_BESIDE)
    return FileHandle(check_path(path), whole(size), text(checksum))


class StateFiles:
    """Writes and reads the state of one operator in one subtask for one checkpoint; every call blocks.

    Small pieces become part of the checkpoint's metadata. `written` has only files; `written_bytes` counts
    both.
    """

    def __init__(
        self,
        storage: SnapshotStorage,
        next_path: Callable[[], str],
        read_from: SnapshotStorage | None = None,
        inline_limit: int | None = None,
    ) -> None:
        self._storage = storage
        self._read_from = read_from or storage
        self._next_path = next_path
        self._inline_limit = INLINE_LIMIT if inline_limit is None else inline_limit
        self._tried: list[str] = []
        self.written: list[FileHandle] = []
        self.written_bytes = 0

    def write(self, data: bytes) -> StateHandle:
        self.written_bytes += len(data)
        if len(data) <= self._inline_limit:
            return InlineHandle(data)
        path = self._next_path()
        self._tried.append(path)
        handle = write_state_file(self._storage, path, data)
        self.written.append(handle)
        return handle

    def read(self, handle: StateHandle) -> bytes:
        return read_state(self._read_from, handle)

    def start_read(self, handle: StateHandle) -> Callable[[], bytes]:
        """Start to read a handle, if the storage can; the returned function waits for its bytes."""
        storage = self._read_from
        if isinstance(handle, InlineHandle) or not isinstance(storage, ReadsAhead):
            return lambda: read_state(storage, handle)
        get = storage.start_get(handle.path)
        return lambda: _checked(storage, handle, get)

    def remove_written(self) -> None:
        """Delete all files of an aborted checkpoint, including files whose writes seemed to fail."""
        self._storage.delete(self._tried)
        self._tried.clear()
        self.written.clear()
        self.written_bytes = 0


#: Name of raw operator state among the handles of an operator.
RAW: Final = "raw"


def encode_atoms(atoms: Sequence[bytes]) -> bytes:
    """Pack encoded values into one piece of state that a restore can redistribute value by value."""
    packed: bytes = msgpack.packb(list(atoms))
    return packed


def decode_atoms(data: bytes, where: str) -> list[bytes]:
    try:
        atoms = msgpack.unpackb(data)
    except (ValueError, TypeError) as error:  # TypeError: a list as a key
        msg = f"the list state in {where} is damaged: {error}"
        raise CorruptSnapshotError(msg) from error
    if not isinstance(atoms, list) or not all(isinstance(a, bytes) for a in atoms):
        msg = f"the list state in {where} is damaged: not a list of encoded values"
        raise CorruptSnapshotError(msg)
    return atoms
