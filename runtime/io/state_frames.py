"""`read_state` and `write_state`: state of a snapshot as an Arrow table, and a savepoint made of one.

    totals = read_state("/data/savepoint-orders-7-1", "total")
    write_state(table, "/data/start", "total", max_parallelism=128)
    env.run(restore_from="/data/start")

The DataFrame versions are in `penstock.bridge`.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias

import pyarrow as pa

from penstock.runtime.checkpoint.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.checkpoint.metadata import encode_metadata
from penstock.runtime.checkpoint.metadata import read_state as read_bytes
from penstock.runtime.checkpoint.opened_snapshot import OpenedSnapshot, open_snapshot
from penstock.runtime.checkpoint.paths import METADATA
from penstock.runtime.checkpoint.snapshot import OperatorSubtaskState, RedistributionMode
from penstock.runtime.checkpoint.state_writing import (
    StatePlace,
    by_subtask,
    copy_operators,
    listed_by_subtask,
    place_in,
    with_state,
    write_keyed,
    write_listed,
)
from penstock.runtime.errors import ConfigurationError, ObjectExistsError, StorageError
from penstock.runtime.io.state_parts import (
    Conversion,
    Convert,
    PartFiles,
    StateQuery,
    rows_of,
    storage_of,
    table_of,
)
from penstock.runtime.io.storage import absolute_location, open_location
from penstock.runtime.operators.keyed_reduce import REDUCE_STATE
from penstock.runtime.record.elements import SnapshotKind


class PandasFrame(Protocol):
    """A `pandas.DataFrame`, which is not needed otherwise."""

    @property
    def columns(self) -> Any:
        """Its columns."""
        ...

    @property
    def index(self) -> Any:
        """Its index."""
        ...


#: Keyed state, or how a list state is shared out when a job starts.
StateKind: TypeAlias = Literal["keyed", "split_distribute", "union", "broadcast"]


def read_state(
    snapshot: str | Path,
    operator: str,
    state: str = REDUCE_STATE,
    *,
    key: Convert | None = None,
    value: Convert | None = None,
    encoded: bool = False,
    classes: Sequence[type] = (),
    allow_pickle: bool = False,
) -> pa.Table:
    """One state of one operator as a table; no job runs.

    Keyed state has the columns `key_group`, `key` and `value`, list state `subtask` and `value`. See
    `penstock.runtime.record.arrow_values` for the types.

    Args:
        snapshot: Path or URL: a savepoint, a checkpoint, or a job's folder for its newest one.
        operator: The operator's id.
        state: `"reduce"` for that of `reduce(...)`, else the name that `value_state` was given.
        key: Makes of each key what the table is to hold.
        value: Makes of each value what the table is to hold, for example `dataclasses.asdict`.
        encoded: Leave values in the bytes of the value codec: for those that no Arrow type carries.
        classes: Classes of values that can't be found through a module that is imported here.
        allow_pickle: Unpickle values and import modules that the snapshot names: only for one you trust.

    Raises:
        RestoreError: There is no such snapshot, or it is not whole.
        ConfigurationError: It has no such operator or state; names those that it has.
        NoArrowTypeError: No Arrow type carries the keys or values; names one.
        CorruptSnapshotError: A file is damaged, or a value can't be decoded here.
    """
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    opened = StateQuery(absolute_location(snapshot), operator, state, conversion).open()
    columns = opened.columns(opened.whole())
    if columns is None:
        opened.check()
        columns = {"key_group": [], "key": [], "value": []}
    return table_of(columns)


def write_state(
    table: pa.Table | pa.RecordBatch | PandasFrame,
    target: str | Path,
    operator: str,
    state: str = REDUCE_STATE,
    *,
    kind: StateKind = "keyed",
    base: str | Path | None = None,
    parallelism: int | None = None,
    max_parallelism: int | None = None,
    key: Convert | None = None,
    value: Convert | None = None,
    encoded: bool = False,
    classes: Sequence[type] = (),
    allow_pickle: bool = False,
) -> str:
    """Make a savepoint whose state is the rows of a table.

    Without `base` it holds this one state. With it, it holds everything that the base holds, and this state
    in the place of the one of the same name; so several states are written one after the other.

    Args:
        table: Has the columns `key` and `value` (list state: `value`); others are not looked at.
        target: Folder of the new savepoint: a path or URL. It must hold none.
        operator: Id of the operator that is to have the state.
        state: `"reduce"` for that of `reduce(...)`, else the name that `value_state` is given.
        kind: `"keyed"`, or how a list state is shared out.
        base: A snapshot that the new one is made from; it stays as it is.
        parallelism: Over how many subtasks' files the state is split; 1, or that of the base. A job starts
            from it at any other.
        max_parallelism: Number of key groups, which the job must have too: that of the base, else 128 or
            more as in `StreamEnvironment`.
        key: Makes of each key of the table the key of the stream.
        value: Makes of each value of the table the value of the state, for example `lambda v: Account(**v)`.
        encoded: The values are bytes of the value codec, as `read_state(encoded=True)` gives them.
        classes: As in `read_state`.
        allow_pickle: Whether values that have no codec of their own may be pickled.

    Returns:
        The savepoint's URL, for `env.run(restore_from=...)`.

    Raises:
        ConfigurationError: A column is missing, a key comes twice, the target holds a snapshot already, or
            an argument does not fit the base.
        KeyTypeError: A key can't be one.
        CodecError: A value can't be encoded.
        StorageError: A file could not be written; nothing is left then.
    """
    conversion = Conversion(key, value, encoded, tuple(classes), allow_pickle)
    draft = SavepointDraft(target, operator, state, kind, base, parallelism, max_parallelism)
    files = draft.files()
    try:
        parts = parts_of_table(_as_table(table), draft, conversion, files)
        return draft.finish(parts, files)
    except BaseException:
        with suppress(StorageError):  # the first error is the one to tell
            files.remove()
        raise


class SavepointDraft:
    """A savepoint that is being made; see `write_state` for the arguments.

    Raises:
        ConfigurationError: The target holds a snapshot already, or an argument does not fit the base.
        RestoreError: There is no such base.
    """

    def __init__(
        self,
        target: str | Path,
        operator: str,
        state: str,
        kind: StateKind,
        base: str | Path | None,
        parallelism: int | None,
        max_parallelism: int | None,
    ) -> None:
        self.folder = absolute_location(target)
        self.mode = None if kind == "keyed" else _mode(kind)
        self._base: OpenedSnapshot | None = None
        self._began = time.time()
        self.token = secrets.token_hex(4)
        if base is not None:
            self._base = open_snapshot(absolute_location(base), open_location)
        checkpoint = None if self._base is None else self._base.checkpoint
        self.place: StatePlace = place_in(checkpoint, operator, state, parallelism, max_parallelism)
        if METADATA in open_location(self.folder, create=True).list(""):
            raise _taken(self.folder)

    def files(self) -> PartFiles:
        """Makes places for the files that this program writes."""
        source = None if self._base is None else storage_of(self._base)
        return PartFiles(self.folder, self.token, source)

    def remove_all(self) -> None:
        """Delete all files of this draft, whichever process wrote them.

        Raises:
            StorageError: They could not be listed or deleted.
        """
        self._remove(frozenset())

    def remove_unused(self) -> None:
        """Delete the files of this draft that the finished savepoint does not name.

        Raises:
            StorageError: They could not be listed or deleted.
        """
        checkpoint = open_snapshot(self.folder, open_location).checkpoint
        self._remove(frozenset(file.path for file in checkpoint.files()))

    def _remove(self, used: frozenset[str]) -> None:
        storage = open_location(self.folder)
        mine = [path for path in storage.list("") if f"-{self.token}-" in path]
        storage.delete([path for path in mine if path not in used])

    def finish(self, parts: Mapping[int, OperatorSubtaskState], files: PartFiles) -> str:
        """Copy the base, and write the metadata.

        Args:
            parts: The new state by subtask; its files are in the folder.
            files: Makes places for the base's.

        Returns:
            The savepoint's URL.

        Raises:
            ConfigurationError: Somebody else has made a savepoint here meanwhile.
            StorageError: A file could not be read or written.
        """
        base = None if self._base is None else self._base.checkpoint
        copied = {}
        if self._base is not None and base is not None:
            source = storage_of(self._base)
            copied = copy_operators(base, lambda h: read_bytes(source, h), files.of, self.place)
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


def parts_of_table(
    table: pa.Table, draft: SavepointDraft, conversion: Conversion, files: PartFiles
) -> dict[int, OperatorSubtaskState]:
    """Write the rows of a table as the state of a draft, by subtask.

    Raises:
        ConfigurationError: A column is missing, or a key comes twice.
        StorageError: A file could not be written.
    """
    codec, place = conversion.codec(), draft.place
    keys, columns = rows_of(table, keyed=draft.mode is None)
    values = conversion.decode(columns, codec)
    if draft.mode is not None:
        lists = listed_by_subtask(values, draft.mode, place.parallelism)
        return {
            index: OperatorSubtaskState(
                operator=(
                    write_listed(files.of(place.operator, index), place.state, draft.mode, some, codec),
                )
            )
            for index, some in enumerate(lists)
        }
    keys = list(conversion.keys(keys))
    positions = by_subtask(keys, place) or {0: []}
    refuse_doubles(keys)
    return {
        index: OperatorSubtaskState(
            (
                write_keyed(
                    files.of(place.operator, index),
                    place,
                    index,
                    [keys[i] for i in some],
                    [values[i] for i in some],
                    codec,
                ),
            )
        )
        for index, some in positions.items()
    }


def refuse_doubles(keys: Sequence[Any], before: AbstractSet[Any] = frozenset()) -> None:
    """See that every key comes once, and that none came before.

    Raises:
        ConfigurationError: One comes twice.
    """
    distinct = set(keys)
    if len(distinct) == len(keys) and distinct.isdisjoint(before):
        return
    seen = set(before)
    double = next(key for key in keys if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    msg = f"key {double!r:.100} comes in several rows, and a state has one value a key: aggregate them first"
    raise ConfigurationError(msg)


def _as_table(table: Any) -> pa.Table:
    if isinstance(table, pa.Table):
        return table
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if hasattr(table, "columns") and hasattr(table, "index"):
        return pa.Table.from_pandas(table, preserve_index=False)
    msg = f"{type(table).__name__} is no table: give a pyarrow.Table or a pandas.DataFrame"
    raise ConfigurationError(msg)


def _mode(kind: str) -> RedistributionMode:
    try:
        return RedistributionMode(kind)
    except ValueError:
        known = ", ".join(["'keyed'", *(repr(mode.value) for mode in RedistributionMode)])
        msg = f"kind={kind!r} is not allowed; kinds are {known}"
        raise ConfigurationError(msg) from None


def _taken(folder: str) -> ConfigurationError:
    return ConfigurationError(f"{folder} holds a snapshot already; give the new one a folder of its own")
