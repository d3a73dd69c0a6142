"""`SqlCommitter`: applies the staged tables of all writers, once for each checkpoint."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.sql.database import SqlDatabase, Stage, TableInfo, attempt_of
from penstock.runtime.io.connectors.sql.staging import check_writable
from penstock.runtime.operators.last_commit import LastCommit
from penstock.runtime.record.elements import Batch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import CommitPermit

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.sql.sink import SqlSink

logger = logging.getLogger(__name__)

#: Names that a snapshot may give to a staged table.
_STAGED_NAME: Final = re.compile(r"_penstock_[0-9a-f]{16}_[0-9]+_[0-9]+_[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class SqlCommit:
    """The staged tables of one checkpoint.

    Attributes:
        lineage: Name of the committer that pre-committed them.
        number: Number of its checkpoint, from 1.
        table: Name of the table that takes the rows.
    """

    lineage: str
    number: int
    table: str
    stages: tuple[Stage, ...]


class SqlCommitter:
    """Commits what all writers have staged, in the order of checkpoints.

    Args:
        prefix: Beginning of the names of all staged tables of this sink.
        lineage: Job, operator and attempt of this committer; a random id is appended.
    """

    def __init__(
        self, sink: SqlSink, connect: Callable[[], SqlDatabase], prefix: str, lineage: str, attempt: int
    ) -> None:
        self._sink = sink
        self._connect = connect
        self._database: SqlDatabase | None = None
        self._prefix = prefix
        self._attempt = attempt
        self._lineage = f"{lineage}/{uuid4()}"
        self._number = 0
        self._staged: list[Stage] = []
        self._last_commit: LastCommit | None = None

    def write(self, batch: Batch) -> None:
        assert isinstance(batch, RowBatch), "writers send rows"
        self._staged += batch.rows

    def prepare_commit(self) -> Sequence[SqlCommit]:
        if not self._staged:
            return ()
        _, table = self._opened()  # fail before the checkpoint is complete
        self._number += 1
        staged, self._staged = tuple(self._staged), []
        return [SqlCommit(self._lineage, self._number, table.label, staged)]

    def commit(self, committables: Sequence[SqlCommit], permit: CommitPermit) -> None:
        database, table = self._opened()
        for commit in committables:
            check_commit(commit, table, database.where)
        total = 0
        for lineage, commits in groupby(committables, key=lambda commit: commit.lineage):
            numbered = [(commit.number, commit.stages) for commit in commits]
            rows = database.commit(table, lineage, numbered)
            logger.debug("table %s: committed %d rows", table.label, rows)
            total += rows
        self._last_commit = LastCommit(rows=total) if total else None

    def last_commit(self) -> LastCommit | None:
        return self._last_commit

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Drop staged tables of earlier attempts, which no checkpoint covers."""
        database, table = self._opened()
        database.fence(self._prefix, self._attempt)
        remove_staged(database, table, self._prefix, self._is_older)

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def _opened(self) -> tuple[SqlDatabase, TableInfo]:
        """Connect in the first call that needs the database.

        A failure while the committer is made would end the job if it happens in the first attempt.
        """
        if self._database is None:
            self._database = self._connect()
            self._database.fence(self._prefix, self._attempt)
            self._table = checked_table(self._database, self._sink)
            self._database.make_ledger(self._table)
        return self._database, self._table

    def _is_older(self, name: str) -> bool:
        attempt = attempt_of(name, self._prefix)
        return attempt is not None and attempt < self._attempt


def checked_table(database: SqlDatabase, sink: SqlSink) -> TableInfo:
    """Look up the table of a sink, and the index of its key.

    Raises:
        ConnectorError: There is no such table, or it does not fit the sink.
    """
    table = database.describe(sink.table)
    check_writable(database.where, table, sink.key)
    if sink.key:
        database.check_key(table, sink.key)
    return table


def check_commit(commit: SqlCommit, table: TableInfo, where: str) -> None:
    """Check a commit, which may come from a restored state.

    Raises:
        ConnectorError: Its rows are of another table, a column is gone, or a name is not of a staged table.
    """
    if commit.table != table.label:
        msg = (
            f"{where}: the restored state has rows for the table {commit.table}, but the sink writes "
            f"{table.label}: give the sink the old table, or a new id"
        )
        raise ConnectorError(msg)
    for stage in commit.stages:
        unknown = [name for name in (*stage.columns, *stage.key) if name not in table.columns]
        if unknown:
            msg = (
                f"{where}: table {commit.table} has lost the column {unknown[0]!r}, which rows of a "
                "completed checkpoint have: add it again"
            )
            raise ConnectorError(msg)
        if not _STAGED_NAME.fullmatch(stage.name):
            msg = f"the restored state is damaged: it names {stage.name!r:.80}, which is not a staged table"
            raise ConnectorError(msg)


def remove_staged(
    database: SqlDatabase, table: TableInfo, prefix: str, is_left_over: Callable[[str], bool]
) -> None:
    """Drop the staged tables for which `is_left_over` is true; warn of those that other processes hold."""
    for name in database.staged(table, prefix):
        if is_left_over(name) and not database.drop(table, name):
            logger.warning("%s: the staged table %s is in use, and stays", database.where, name)
