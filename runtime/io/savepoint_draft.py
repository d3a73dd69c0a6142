"""A savepoint in the making: its files, its metadata, and its clean-up after an error."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal, TypeAlias

from penstock.runtime.checkpoint.store.opened_snapshot import OpenedSnapshot, open_snapshot
from penstock.runtime.errors import ConfigurationError, ObjectExistsError, StorageError
from penstock.runtime.graph.stream_graph import problem_with_id
from penstock.runtime.io.state_parts import (
    PartFiles,
    storage_of,
)
from penstock.runtime.io.storage import absolute_location, open_location
from penstock.runtime.names import checked_name
from penstock.runtime.record.elements import SnapshotKind
from penstock.runtime.snapshot.completed_checkpoint import CompletedCheckpoint, state_size
from penstock.runtime.snapshot.handles import OperatorSubtaskState, RedistributionMode
from penstock.runtime.snapshot.metadata import encode_metadata
from penstock.runtime.snapshot.metadata import read_state as read_bytes
from penstock.runtime.snapshot.paths import METADATA
from penstock.runtime.state_processor.state_writing import (
    StatePlace,
    copy_operators,
    place_in,
    with_state,
)

#: Keyed state: one value per key, a list, a map, or columns. Or the redistribution of an operator's list
#: state when a job starts.
StateKind: TypeAlias = Literal["keyed", "list", "map", "columns", "split_distribute", "union", "broadcast"]

#: Kinds of state by key.
_BY_KEY: Final = ("keyed", "list", "map", "columns")


class SavepointDraft:
    """A savepoint in the making; see `write_state` for the arguments.

    Args:
        kind: `"keyed"`, `"list"`, `"map"` or `"columns"`, or how a list state is redistributed.
        parallelism: Subtasks of the operator; by default the base's, or 1.
        max_parallelism: Number of key groups; by default the base's, or the usual default.

    Raises:
        ConfigurationError: The folder holds a snapshot already, an argument does not fit the base, or a name
            is invalid.
        RestoreError: The base does not exist.
    """

    def __init__(
        self,
        folder: str | Path,
        operator: str,
        state: str,
        kind: StateKind,
        base: str | Path | None,
        parallelism: int | None,
        max_parallelism: int | None,
    ) -> None:
        if problem := problem_with_id(operator):
            raise ConfigurationError(problem)
        state = checked_name("the name of the state", state)
        self.folder = absolute_location(folder)
        self.kind: StateKind = kind
        self.mode = None if kind in _BY_KEY else _mode(kind)
        self._base: OpenedSnapshot | None = None
        self._began = time.time()
        self.token = secrets.token_hex(4)
        if base is not None:
            self._base = open_snapshot(absolute_location(base), open_location)
        checkpoint = None if self._base is None else self._base.checkpoint
        self.place: StatePlace = place_in(checkpoint, operator, state, parallelism, max_parallelism)
        if METADATA in open_location(self.folder, create=True).list(""):
            raise _taken(self.folder)

    def write(self, make: Callable[[PartFiles], Mapping[int, OperatorSubtaskState]]) -> str:
        """Write the new state, copy the base, and write the metadata; return the folder.

        A failure deletes all files of this draft, whichever process wrote them.

        Args:
            make: Writes the new state into files of the folder, and returns it by subtask.

        Raises:
            ConfigurationError: Another program has made a savepoint here in the meantime.
            StorageError: A file could not be read or written.
        """
        source = None if self._base is None else storage_of(self._base)
        files = PartFiles(self.folder, self.token, source)
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


def _mode(kind: str) -> RedistributionMode:
    try:
        return RedistributionMode(kind)
    except ValueError:
        known = ", ".join(map(repr, [*_BY_KEY, *(mode.value for mode in RedistributionMode)]))
        msg = f"kind={kind!r} is not allowed; kinds are {known}"
        raise ConfigurationError(msg) from None


def _taken(folder: str) -> ConfigurationError:
    return ConfigurationError(f"{folder} holds a snapshot already; give the new one a folder of its own")
