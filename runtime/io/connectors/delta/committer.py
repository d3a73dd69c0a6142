"""`DeltaCommitter`: names the staged files of all subtasks in the log of a table.

A commit first looks for its application transaction in the table. If it is there, the commit was made before,
by this process or another one. Otherwise all files must exist, and one entry of the log names them. If
another process commits the same transaction at that moment, Delta refuses one of the two commits. The process
whose commit was refused looks again. Additions of other writers never conflict with additions. A merge, or a
change of the table's columns, may conflict with other commits, and is then tried again.

Transactions of several checkpoints become one commit if a notification was lost or a checkpoint was aborted.
So each version of the table shows a completed checkpoint.

It must never commit files that were written for a table with another id. A table that replaces another one
has the same folder, and so also the old table's files that wait for their commit.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import pyarrow as pa

from penstock.runtime.errors import ConnectorError, LostOutputError
from penstock.runtime.io.connectors.daemon_threads import first_missing
from penstock.runtime.io.connectors.delta.log import version_of
from penstock.runtime.io.connectors.delta.staging import STAGING, StagedFile, attempt_of, staged_prefix
from penstock.runtime.io.connectors.delta.tables import arrow_schema_of, calls_to, find_table, make_table
from penstock.runtime.io.connectors.delta.upsert import merge, staged_rows
from penstock.runtime.io.connectors.delta.writable import check_columns, check_writable, merged_schema
from penstock.runtime.io.connectors.filesystem import FileSystem
from penstock.runtime.operators.committed_sink import COMMITTER_SUFFIX
from penstock.runtime.operators.last_commit import LastCommit
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit
from penstock.runtime.trust.data import read_schema
from penstock.runtime.trust.paths import check_declared

if TYPE_CHECKING:
    from deltalake import CommitProperties, DeltaTable

    from penstock.runtime.io.connectors.delta.sink import DeltaSink

logger = logging.getLogger(__name__)

#: Maximum number of tries of a commit, which may conflict with other writers.
_MOST_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """The files of one checkpoint.

    Attributes:
        lineage: Id of the application in Delta's transaction; each committer writes under an id of its own.
        number: Version of the transaction: counts the committer's checkpoints with files, from 1.
        table: Id of the table.
        key: The key by which the rows are merged; empty if the files become part of the table.
    """

    lineage: str
    number: int
    files: tuple[StagedFile, ...]
    table: str
    key: tuple[str, ...]


class DeltaCommitter:
    """Commits the files of all writers, in the order of checkpoints."""

    def __init__(self, sink: DeltaSink, system: FileSystem, context: SinkContext) -> None:
        self._sink = sink
        self._path = str(sink.path)
        self._system = system
        self._job = context.job_id
        self._attempt = context.attempt
        self._prefix = staged_prefix(context.job_id, context.operator_id.removesuffix(COMMITTER_SUFFIX))
        self._small = 0
        self._lineage = f"penstock-{context.job_id}-{context.operator_id}-{context.attempt}-{uuid4()}"
        self._number = 0
        self._staged: list[StagedFile] = []
        self._last_commit: LastCommit | None = None
        #: Id of the table that this attempt writes.
        self._table_id: str | None = None
        table = find_table(self._path, sink.storage_options)
        if table is None and sink.schema is not None:
            table = self._make(sink.schema)
        #: Columns of all staged files.
        self._columns = pa.schema([])
        if table is not None:
            self._check(table, () if sink.schema is None else [sink.schema], sink.key)
            self._table_id = str(table.metadata().id)

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch), "writers send rows"
        self._staged += batch.rows

    def prepare_commit(self) -> Sequence[DeltaCommit]:
        if not self._staged:
            return ()
        # Fail before the checkpoint is complete: files that don't fit the table could never be committed.
        schemas = list(_schemas(self._staged))
        self._columns = merged_schema([self._columns, *schemas], self._path)
        table = find_table(self._path, self._sink.storage_options)
        if table is None:
            # Later records may have nulls in columns that have none in the first records.
            table = self._make(pa.schema([field.with_nullable(True) for field in self._columns]))
        self._check_same(table)
        self._check(table, schemas, self._sink.key)
        merged_schema([arrow_schema_of(table), self._columns], self._path)
        self._number += 1
        staged, self._staged = self._staged, []
        key = tuple(self._sink.key)
        return [DeltaCommit(self._lineage, self._number, tuple(staged), str(table.metadata().id), key)]

    def commit(self, committables: Sequence[DeltaCommit], permit: CommitPermit) -> None:
        self._last_commit = None
        for lineage, commits in groupby(committables, key=lambda commit: commit.lineage):
            self._commit(lineage, list(commits), permit)

    def last_commit(self) -> LastCommit | None:
        return self._last_commit

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Remove files of keyed rows that earlier attempts have staged and no checkpoint covers."""
        folder = f"{self._path}/{STAGING}"
        names = self._system.names(folder, f"part-{self._prefix}")
        self._system.delete(folder, [name for name in names if self._is_older(name)])

    def close(self) -> None:
        """Do nothing: the committer holds no resources."""

    def _is_older(self, name: str) -> bool:
        attempt = attempt_of(name, self._prefix)
        return attempt is not None and attempt < self._attempt

    def _commit(self, lineage: str, commits: Sequence[DeltaCommit], permit: CommitPermit) -> None:
        from deltalake.exceptions import CommitFailedError

        error: Exception | None = None
        key = commits[0].key  # the same in all commits of one lineage, but perhaps not this sink's key
        for _ in range(_MOST_TRIES):
            table = self._table(commits)
            table_version = table.version()
            committed = table.transaction_version(lineage) or 0
            left = [commit for commit in commits if commit.number > committed]
            files = [file for commit in left for file in commit.files]
            if not files:
                return
            self._check_table_of(left, table)
            missing = self._missing(files)
            if missing is not None:
                # Another committer removes staged rows after its commit of the same transaction.
                if (self._table(commits).transaction_version(lineage) or 0) > committed:
                    continue
                raise self._lost(missing, table, left)
            self._check(table, _schemas(files), key)
            try:
                self._add_columns(table, files)
                with calls_to(self._path, beside=(CommitFailedError, FileNotFoundError)):
                    properties = self._properties(lineage, left[-1].number, permit)
                    if key:
                        self._merge(table, files, key, properties)
                    else:
                        self._add(table, files, properties)
            except (CommitFailedError, FileNotFoundError) as failure:
                error = failure
            else:
                version = version_of(self._system, self._path, lineage, table_version)
                rows = sum(file.rows for file in files)
                self._last_commit = LastCommit(None if version is None else str(version), rows, len(files))
                self._compact(files, key)
                return
        msg = (
            f"table {self._path}: a commit of {len(commits)} checkpoints has failed {_MOST_TRIES} times "
            f"because of other writers: {error}. Let fewer jobs write this table at a time"
        )
        raise ConnectorError(msg) from error

    def _add(self, table: DeltaTable, files: Sequence[StagedFile], properties: CommitProperties) -> None:
        from deltalake.transaction import AddAction

        partition_by = list(table.metadata().partition_columns)
        odd = next((file for file in files if set(file.partition) != set(partition_by)), None)
        if odd is not None:
            msg = (
                f"table {self._path} has the partition columns {partition_by}, but the uncommitted file "
                f"{odd.path} was written for {list(odd.partition)}. Restore an older checkpoint"
            )
            raise ConnectorError(msg)
        actions: Any = [
            AddAction(file.path, file.size, dict(file.partition), file.written_at, True, file.statistics)
            for file in files
        ]
        table.create_write_transaction(
            actions,
            "append",
            table.schema(),
            partition_by,
            commit_properties=properties,
        )

    def _merge(
        self, table: DeltaTable, files: Sequence[StagedFile], key: Sequence[str], properties: CommitProperties
    ) -> None:
        rows = staged_rows(self._system, self._path, files, arrow_schema_of(table), key)
        merge(table, rows, key, properties)
        names = [file.path.removeprefix(f"{STAGING}/") for file in files]
        self._system.delete(f"{self._path}/{STAGING}", names)

    def _compact(self, files: Sequence[StagedFile], key: Sequence[str]) -> None:
        """Join small files once enough of them were written; a conflict with another writer postpones it."""
        from deltalake.exceptions import CommitFailedError

        sink = self._sink
        if sink.compact_below is None:
            return
        # A merge rewrites files, whose sizes only the table knows.
        self._small += 1 if key else sum(file.size < sink.compact_below for file in files)
        table = find_table(self._path, sink.storage_options) if self._small >= sink.compact_at else None
        if table is None:
            return
        try:
            with calls_to(self._path, beside=CommitFailedError):
                table.optimize.compact(target_size=sink.target_file_size)
        except CommitFailedError:
            logger.info(
                "table %s: a compaction gave way to another writer; the next one repeats it", self._path
            )
        else:
            self._small = 0

    def _properties(self, lineage: str, number: int, permit: CommitPermit) -> CommitProperties:
        from deltalake import CommitProperties, Transaction

        about = {"penstock.job": self._job, "penstock.checkpoint": str(permit.checkpoint_id)}
        return CommitProperties(about, app_transactions=[Transaction(lineage, number)])

    def _table(self, commits: Sequence[DeltaCommit]) -> DeltaTable:
        table = find_table(self._path, self._sink.storage_options)
        if table is None:
            raise self._lost(commits[0].files[0], None, commits)
        return table

    def _check_same(self, table: DeltaTable) -> None:
        """Fail before the checkpoint if the table was created again: its folder may lack the staged files."""
        found = str(table.metadata().id)
        if self._table_id not in (None, found):
            msg = (
                f"table {self._path} was created again while rows were written to it: its id was "
                f"{self._table_id}, and is now {found}. The next attempt writes to the new table"
            )
            raise ConnectorError(msg)
        self._table_id = found

    def _check_table_of(self, commits: Sequence[DeltaCommit], table: DeltaTable) -> None:
        """Refuse files of another table, even if they are still in the folder."""
        found = str(table.metadata().id)
        other = next((commit for commit in commits if commit.table != found), None)
        if other is not None:
            raise self._lost(other.files[0], table, [other])

    def _check(self, table: DeltaTable, schemas: Iterable[pa.Schema], key: Sequence[str]) -> None:
        check_table(self._sink, table, schemas, key)

    def _make(self, schema: pa.Schema) -> DeltaTable:
        sink = self._sink
        partition_by = tuple(sink.partition_by)
        return make_table(self._path, sink.storage_options, schema, partition_by, sink.properties)

    def _add_columns(self, table: DeltaTable, files: Sequence[StagedFile]) -> None:
        """Add the columns of the files that the table lacks; another writer may add them, too."""
        from deltalake import Schema
        from deltalake.exceptions import CommitFailedError

        known = arrow_schema_of(table)
        merged = merged_schema([known, *_schemas(files)], self._path)
        new = [field.with_nullable(True) for field in merged if field.name not in known.names]
        if new:
            with calls_to(self._path, beside=CommitFailedError):
                table.alter.add_columns(list(Schema.from_arrow(pa.schema(new)).fields))

    def _missing(self, files: Sequence[StagedFile]) -> StagedFile | None:
        def exists(file: StagedFile) -> bool:
            path = check_declared(f"{self._path}/{file.path}", [self._path])
            return self._system.size(path) is not None

        return first_missing(exists, files)

    def _lost(
        self, file: StagedFile, table: DeltaTable | None, commits: Sequence[DeltaCommit]
    ) -> LostOutputError:
        msg = (
            f"table {self._path}: committed data is missing. A completed checkpoint covers the file "
            f"{file.path}, which is not in the table's log. "
        )
        if table is not None and str(table.metadata().id) == commits[0].table:
            msg += (
                "It is not in the table's folder either. VACUUM removes uncommitted files after its "
                "retention time. Restore an older checkpoint"
            )
        else:
            found = "there is no table" if table is None else f"the table has the id {table.metadata().id}"
            msg += (
                f"The file belongs to the table with the id {commits[0].table}, and {found} here. So the "
                "path has changed, or the table was created again. Restore with the old path. Or give the "
                "sink a new id and restore with allow_non_restored_state=True: rows that were not yet "
                "committed are then left out"
            )
        return LostOutputError(msg)


def check_table(sink: DeltaSink, table: DeltaTable, schemas: Iterable[pa.Schema], key: Sequence[str]) -> None:
    """Refuse a table that can't take rows with these schemas.

    Raises:
        ConnectorError: The table has rules that the sink does not respect, or other columns.
    """
    path = str(sink.path)
    check_writable(path, table, sink.partition_by, merges=bool(key))
    columns = arrow_schema_of(table)
    for schema in schemas:
        check_columns(path, columns, schema, adds_columns=sink.adds_columns)


def _schemas(files: Sequence[StagedFile]) -> Iterator[pa.Schema]:
    return (read_schema(data) for data in dict.fromkeys(file.schema for file in files))
