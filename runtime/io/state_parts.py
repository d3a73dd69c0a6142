"""The work of `read_state` and `write_state` on parts of a state, in a program or a Spark task.

Each part opens the storages by itself. It receives a small description, and returns a table or the handles of
written files. `SavepointDraft` joins the parts in a savepoint, and cleans up after an error.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa

from penstock.runtime.checkpoint.recovery import OpenedSnapshot, open_snapshot
from penstock.runtime.config.checks import Location
from penstock.runtime.errors import ConfigurationError, ObjectExistsError, StorageError
from penstock.runtime.graph.stream_graph import problem_with_id
from penstock.runtime.io.storage import absolute_location, open_location
from penstock.runtime.names import checked_name, normal_name
from penstock.runtime.ports import SnapshotStorage
from penstock.runtime.record.arrow_values import from_arrow, to_arrow
from penstock.runtime.record.column_key import one_nan
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.restore import saved_states
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.snapshot.handles import (
    KeyGroupRange,
    OperatorSubtaskState,
    RedistributionMode,
    StateHandle,
)
from penstock.runtime.snapshot.metadata import StateFiles, encode_metadata
from penstock.runtime.snapshot.metadata import read_state as read_bytes
from penstock.runtime.snapshot.paths import METADATA, escape_name
from penstock.runtime.state.key_groups import key_group_range
from penstock.runtime.state.keyed_chunk import ColumnBlock
from penstock.runtime.state_processor.states import (
    StatePlace,
    copy_operators,
    known_states,
    list_mode,
    no_such_state,
    operator_state,
    place_in,
    read_columns,
    read_keyed,
    read_listed,
    with_state,
)

Convert = Callable[[Any], Any]

#: Columns for the keys of maps, the positions in lists, and the time of the last use of state with a TTL.
MAP_KEY: Final = "map_key"

POSITION: Final = "position"

LAST_USED: Final = "last_used"

_EPOCH: Final = datetime.fromtimestamp(0, UTC)

_MICROSECOND: Final = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Conversion:
    """Converts a state's keys and values to those of a table's columns, and back.

    Attributes:
        encoded: Whether the column holds each value as bytes of the value codec.
        classes: Classes of the state's values that can't be found through their modules.
    """

    key: Convert | None = None
    value: Convert | None = None
    encoded: bool = False
    classes: tuple[type, ...] = ()
    allow_pickle: bool = False

    def __post_init__(self) -> None:
        if self.encoded and self.value is not None:
            msg = "encoded=True and value=... are mutually exclusive: encoded values are bytes"
            raise ConfigurationError(msg)

    def codec(self) -> ValueCodec:
        return ValueCodec(self.allow_pickle, self.classes)

    def keys(self, keys: Sequence[Any]) -> Sequence[Any]:
        """Return converted keys; every NaN is replaced by the one object `NAN`."""
        return one_nan(list(keys) if self.key is None else list(map(self.key, keys)))

    def encode(self, values: Sequence[Any], codec: ValueCodec) -> Sequence[Any]:
        convert = codec.dumps if self.encoded else self.value
        return values if convert is None else list(map(convert, values))

    def decode(self, values: Sequence[Any], codec: ValueCodec) -> Sequence[Any]:
        convert = codec.loads if self.encoded else self.value
        return values if convert is None else list(map(convert, values))


@dataclass(frozen=True, slots=True)
class StateQuery:
    snapshot: str
    operator: str
    state: str
    conversion: Conversion

    def open(self) -> OpenState:
        """Read the snapshot's metadata; blocks."""
        query = replace(self, state=normal_name(self.state))
        return OpenState(query, open_snapshot(self.snapshot, open_location))


class OpenState:
    """A state of an opened snapshot; all methods but `parts` and `whole` block."""

    def __init__(self, query: StateQuery, opened: OpenedSnapshot) -> None:
        self._query = query
        self._storage = storage_of(opened)
        self._state = operator_state(opened.checkpoint, query.operator)
        self.is_keyed = list_mode(self._state, query.state) is None

    def parts(self) -> list[tuple[int, int]]:
        state = self._state
        if not self.is_keyed:
            return [(index, index) for index in range(state.parallelism)]
        ranges = [
            key_group_range(i, state.parallelism, state.max_parallelism) for i in range(state.parallelism)
        ]
        return [(groups.first, groups.last) for groups in ranges]

    def whole(self) -> tuple[int, int]:
        return 0, (self._state.max_parallelism if self.is_keyed else self._state.parallelism) - 1

    def check(self) -> None:
        """Refuse a state that the operator lacks; name the existing ones."""
        known = known_states(self._state, self._read)
        if self._query.state not in known:
            raise no_such_state(self._state, self._query.state, known)

    def columns(self, part: tuple[int, int]) -> dict[str, Sequence[Any]] | None:
        """Return the columns of a part as Python values; `None` when the part lacks the state."""
        query, codec = self._query, self._query.conversion.codec()
        if not self.is_keyed:
            subtasks = range(part[0], part[1] + 1)
            holders, values = read_listed(self._state, query.state, subtasks, self._read, codec)
            return {"subtask": holders, "value": query.conversion.encode(values, codec)}
        entries = read_keyed(self._state, query.state, KeyGroupRange(*part), self._read, codec)
        if entries is None:
            return None
        columns = {"key_group": entries.key_groups, "key": query.conversion.keys(entries.keys)}
        if entries.parts is not None:
            saved = saved_states(self._state).get(query.state)
            is_list = saved is not None and saved.kind == "list"
            columns[POSITION if is_list else MAP_KEY] = entries.parts
        columns["value"] = query.conversion.encode(entries.values, codec)
        if entries.stamps is not None:
            columns[LAST_USED] = [None if at is None else _EPOCH + at * _MICROSECOND for at in entries.stamps]
        return columns

    def blocks(self) -> list[ColumnBlock] | None:
        """Return all blocks of a columnar state; `None` when no part has the state."""
        return read_columns(self._state, self._query.state, self._read, self._query.conversion.codec())

    def _read(self, handle: StateHandle) -> bytes:
        return read_bytes(self._storage, handle)


def table_of(columns: dict[str, Sequence[Any]], schema: pa.Schema | None = None) -> pa.Table:
    arrays = []
    for name, values in columns.items():
        kind = pa.int32() if name in ("key_group", "subtask") else None
        arrays.append(to_arrow(values, name, kind if schema is None else schema.field(name).type))
    return pa.table(arrays, list(columns) if schema is None else schema)


def stamps_of(table: pa.Table) -> list[int | None] | None:
    """Return each row's last use in microseconds since the epoch; `None` without such a column."""
    if LAST_USED not in table.schema.names:
        return None
    column = table[LAST_USED]
    if not pa.types.is_timestamp(column.type) and len(column):
        msg = f"the column {LAST_USED!r} has the type {column.type}; make it a column of timestamps"
        raise ConfigurationError(msg)
    stamps: list[int | None] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
    return stamps


def rows_of(table: pa.Table, *, keyed: bool) -> tuple[list[Any], list[Any]]:
    """Return the keys (none for list state) and values of a table."""
    wanted = ("key", "value") if keyed else ("value",)
    missing = [name for name in wanted if name not in table.schema.names]
    if missing:
        msg = (
            f"the table lacks {' and '.join(map(repr, missing))}; it has {table.schema.names}: rename "
            "its columns, and put the parts of a key or value into one column of structs"
        )
        raise ConfigurationError(msg)
    return from_arrow(table["key"]) if keyed else [], from_arrow(table["value"])


class PartFiles:
    """Makes the `StateFiles` of each subtask in a savepoint's folder; blocks. File names contain `token`."""

    def __init__(self, folder: str, token: str, read_from: SnapshotStorage | None = None) -> None:
        self.storage = open_location(folder, create=True)
        self._token = token
        self._read_from = read_from
        self._numbers = count()
        self._made: dict[tuple[str, int], StateFiles] = {}

    def of(self, operator: str, subtask: int) -> StateFiles:
        key = (operator, subtask)
        if key not in self._made:
            path = partial(self._path, f"{escape_name(operator)}-{subtask}-{self._token}")
            self._made[key] = StateFiles(self.storage, path, self._read_from)
        return self._made[key]

    def read(self, handle: StateHandle) -> bytes:
        return read_bytes(self._read_from or self.storage, handle)

    def remove(self) -> None:
        for files in self._made.values():
            files.remove_written()

    def paths(self) -> Iterator[str]:
        for files in self._made.values():
            yield from (handle.path for handle in files.written)

    def _path(self, begin: str) -> str:
        return f"{begin}-{next(self._numbers)}"


def storage_of(opened: OpenedSnapshot) -> SnapshotStorage:
    location = opened.checkpoint.location
    if location is None or location == opened.storage.url:
        return opened.storage
    return open_location(location)


def url_of(opened: OpenedSnapshot) -> str:
    """The URL of a snapshot itself, even if it was found as the newest one of a job."""
    assert opened.checkpoint.metadata is not None, "it was read"
    return (
        f"{opened.storage.url.rstrip('/')}/{opened.checkpoint.metadata.path.removesuffix(METADATA)}".rstrip(
            "/"
        )
    )


#: Kinds of keyed state, and the redistribution modes of an operator's list state.
StateKind: TypeAlias = Literal["keyed", "list", "map", "columns", "split_distribute", "union", "broadcast"]

#: Kinds of keyed state.
_BY_KEY: Final = ("keyed", "list", "map", "columns")


class SavepointDraft:
    """A savepoint that is being written; see `write_state` for the arguments.

    Raises:
        ConfigurationError: The folder already holds a snapshot, an argument does not fit the base, or a name
            is invalid.
        RestoreError: The base does not exist.
    """

    def __init__(
        self,
        folder: Location,
        operator: str,
        state: str,
        kind: StateKind,
        base: Location | None,
        parallelism: int | None,
        max_parallelism: int | None,
    ) -> None:
        if problem := problem_with_id(operator):
            raise ConfigurationError(problem)
        state = checked_name("the name of the state", state)
        self.folder = absolute_location("savepoint", folder)
        self.kind: StateKind = kind
        self.mode = None if kind in _BY_KEY else _mode(kind)
        self._base: CompletedCheckpoint | None = None
        self._base_files: SnapshotStorage | None = None
        self._began = time.time()
        self.token = secrets.token_hex(4)
        if base is not None:
            opened = open_snapshot(absolute_location("base", base), open_location)
            self._base, self._base_files = opened.checkpoint, storage_of(opened)
        self.place: StatePlace = place_in(self._base, operator, state, parallelism, max_parallelism)
        if METADATA in open_location(self.folder, create=True).list(""):
            raise _taken(self.folder)

    def write(self, make: Callable[[PartFiles], Mapping[int, OperatorSubtaskState]]) -> str:
        """Write the new state, copy the base, and write the metadata; return the folder.

        A failure deletes all files of this draft, whichever process wrote them.

        Args:
            make: Writes the new state into files of the folder, and returns it by subtask.
        """
        files = PartFiles(self.folder, self.token, self._base_files)
        try:
            return self._finish(make(files), files)
        except BaseException:
            with suppress(StorageError):  # report the first error
                self._remove(frozenset())
            raise

    def remove_unused(self) -> None:
        checkpoint = open_snapshot(self.folder, open_location).checkpoint
        self._remove(frozenset(file.path for file in checkpoint.files()))

    def _remove(self, used: frozenset[str]) -> None:
        storage = open_location(self.folder)
        mine = [path for path in storage.list("") if f"-{self.token}-" in path]
        storage.delete([path for path in mine if path not in used])

    def _finish(self, parts: Mapping[int, OperatorSubtaskState], files: PartFiles) -> str:
        base, copied = self._base, {}
        if base is not None:
            copied = copy_operators(base, files.read, files.of, self.place)
        operators = with_state(copied, self.place, parts)
        masters = () if base is None else base.master_states
        savepoint = CompletedCheckpoint(
            1 if base is None else base.checkpoint_id,
            1 if base is None else base.attempt,
            SnapshotKind.SAVEPOINT,
            operators,
            self._began,
            time.time(),
            size=state_size(operators, masters),
            master_states=masters,
        )
        try:
            files.storage.put(METADATA, encode_metadata(savepoint, METADATA), create=True)
        except ObjectExistsError as error:
            raise _taken(self.folder) from error
        return self.folder


def _mode(kind: str) -> RedistributionMode:
    try:
        return RedistributionMode(kind)
    except ValueError:
        known = ", ".join(map(repr, [*_BY_KEY, *(mode.value for mode in RedistributionMode)]))
        msg = f"kind={kind!r} is not allowed; kinds are {known}"
        raise ConfigurationError(msg) from None


def _taken(folder: str) -> ConfigurationError:
    return ConfigurationError(f"{folder} already holds a snapshot; give the new one a folder of its own")
