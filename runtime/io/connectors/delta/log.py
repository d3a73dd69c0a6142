"""Reads the log of a Delta table: the files of a version, and those that one commit adds, removes or changes.

The log has a file of JSON lines for each commit, `_delta_log/00000000000000000007.json`. The library
deltalake reads versions, but has no call for the actions of one commit. So these are read here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.filesystem import FileSystem
from penstock.runtime.io.connectors.tables.types import table_schema

if TYPE_CHECKING:
    from deltalake import DeltaTable

#: Features of tables whose files can't be read as plain Parquet files.
_UNREADABLE: Final = frozenset({"deletionVectors", "columnMapping", "typeWidening", "typeWidening-preview"})


@dataclass(frozen=True, slots=True)
class LoggedFile:
    """A Parquet file of a table.

    Attributes:
        path: Path in the table's folder.
        partition: Value of each partition column as text; `None` for null.
        rows: Number of rows; `None` if the log does not say it.
        change: Change type of all its rows; empty for a file that has a column of change types.
    """

    path: str
    partition: Mapping[str, str | None]
    rows: int | None
    change: str = "insert"


@dataclass(frozen=True, slots=True)
class Commit:
    """The actions of one commit.

    Attributes:
        added: Files with new rows.
        removed: Files whose rows were removed.
        changed: Files of the change data feed; empty if the commit has none.
        schema: The table's schema if the commit has changed it.
        table: Id of the table if the commit has changed the schema or other metadata.
        committed_at: Time of the commit, in seconds since the epoch; `None` if the log does not say it.
    """

    added: tuple[LoggedFile, ...]
    removed: tuple[LoggedFile, ...]
    changed: tuple[LoggedFile, ...]
    schema: pa.Schema | None
    committed_at: float | None = None
    table: str | None = None


def commit_path(path: str, version: int) -> str:
    return f"{path}/_delta_log/{version:020d}.json"


def read_commit(system: FileSystem, path: str, version: int) -> Commit | None:
    """Read a commit; `None` if it does not exist yet, or not any more."""
    actions = _actions(system, path, version)
    if actions is None:
        return None
    added, removed, changed = [], [], []
    schema = committed_at = table = None
    for action in actions:
        match action:
            case {"add": about} if about.get("dataChange", True):
                added.append(_file(about, "insert", path, version))
            case {"remove": about} if about.get("dataChange", True):
                removed.append(_file(about, "delete", path, version))
            case {"cdc": about}:
                changed.append(_file(about, "", path, version))
            case {"metaData": about}:
                _check_mapping(path, about.get("configuration") or {})
                schema = _schema(about["schemaString"])
                table = str(about["id"])
            case {"protocol": about}:
                _check_features(path, about.get("readerFeatures") or ())
            case {"commitInfo": {"timestamp": int(milliseconds)}}:
                committed_at = milliseconds / 1_000
    return Commit(tuple(added), tuple(removed), tuple(changed), schema, committed_at, table)


def version_of(system: FileSystem, path: str, transaction: str, after: int) -> int | None:
    """The first version later than `after` that has an application transaction of this name."""
    for version in count(after + 1):
        actions = _actions(system, path, version)
        if actions is None:
            return None
        if any(action.get("txn", {}).get("appId") == transaction for action in actions):
            return version
    return None


def newest_version(system: FileSystem, path: str, known: int) -> int:
    """The newest version in a table's log; `known` must exist. The number of calls is logarithmic."""

    def is_there(version: int) -> bool:
        return system.size(commit_path(path, version)) is not None

    step = 1
    while is_there(known + step):
        known += step
        step *= 2
    while step > 1:
        step //= 2
        if is_there(known + step):
            known += step
    return known


def _actions(system: FileSystem, path: str, version: int) -> list[Any] | None:
    name = commit_path(path, version)
    try:
        size = system.size(name)
        if size is None:
            return None
        file = system.open_input(name)
        try:
            data = file.read(size)
        finally:
            file.close()
    except OSError as error:
        msg = f"table {path}: version {version} can't be read: {error}. Check the permissions"
        raise ConnectorError(msg) from error
    # Bytes are split: `str.splitlines` would also split at U+2028, which JSON strings may contain.
    return [json.loads(line) for line in data.split(b"\n") if line.strip()]


def files_of(table: DeltaTable) -> list[LoggedFile]:
    """The files of a table at its version, sorted by path."""
    actions = pa.table(table.get_add_actions())
    names = list(table.metadata().partition_columns)
    partition = actions.column("partition").combine_chunks() if names else None
    files = []
    for index, path in enumerate(actions.column("path").to_pylist()):
        values = {
            name: partition.field(name)[index].cast(pa.string()).as_py() if partition is not None else None
            for name in names
        }
        files.append(LoggedFile(unquote(path), values, actions.column("num_records")[index].as_py()))
    return sorted(files, key=lambda file: file.path)


def check_readable(path: str, table: DeltaTable) -> None:
    """Refuse a table whose files can't be read as they are.

    Raises:
        ConnectorError: The table has deletion vectors, mapped columns or widened types.
    """
    _check_features(path, table.protocol().reader_features or ())
    _check_mapping(path, table.metadata().configuration)


def _check_mapping(path: str, properties: Mapping[str, str]) -> None:
    # Tables of older protocols have no list of features.
    if properties.get("delta.columnMapping.mode", "none").lower() != "none":
        _check_features(path, ["columnMapping"])


def _check_features(path: str, features: Sequence[str]) -> None:
    found = sorted(_UNREADABLE.intersection(features))
    if found:
        msg = (
            f"table {path} has the features {', '.join(found)}, which this source can't read: rewrite the "
            "table without them, such as with REORG TABLE ... APPLY (PURGE) for deletion vectors"
        )
        raise ConnectorError(msg)


def _file(about: Mapping[str, Any], change: str, path: str, version: int) -> LoggedFile:
    if about.get("deletionVector"):
        _check_features(path, ["deletionVectors"])
    statistics = json.loads(about.get("stats") or "{}")
    name = unquote(about["path"])
    values = about.get("partitionValues")
    if values is None:
        msg = f"table {path}: version {version} removes {name} without its partition values"
        raise ConnectorError(msg)
    return LoggedFile(name, dict(values), statistics.get("numRecords"), change)


def _schema(text: str) -> pa.Schema:
    from deltalake import Schema

    return table_schema(pa.schema(Schema.from_json(text).to_arrow()))
