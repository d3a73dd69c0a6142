"""`SqlSink`: writes a table of PostgreSQL or SQLite, exactly once, with one transaction for each checkpoint.

**Stages.** Each subtask puts its rows into *staged tables* before the barrier (`staging.py`). A staged table
is created and filled in one transaction, and never changed. Its name has a random part, so no attempt ever
writes into a table of another one. It has the types and conditions of the sink's table. So a row that the
table would refuse is refused before its checkpoint is complete. Afterwards nothing could be done about it.

**The ledger.** One committer for all subtasks (`committer.py`) applies the staged tables when the checkpoint
is complete. In one transaction it reads the ledger, applies what the ledger lacks, drops the staged tables,
and records the commit in the ledger. So rows become visible at the same moment at which the ledger records
them. A repeated commit finds itself in the ledger. If two processes make the same commit, the second one
waits, because the first one locks the ledger's row. If a connection dies, its transaction is rolled back.

**Lineage.** The ledger has a row for each committer that ever pre-committed: job, operator, attempt and a
random number. The row has the number of the committer's last commit; each committer numbers its checkpoints.
A single row for the whole job would lose data. After the restore of an older savepoint, that row would
already cover the numbers of new checkpoints. Rows of the ledger are never deleted, because any savepoint may
be restored.

**What must never happen.** A staged table that a completed checkpoint covers is never dropped before its
commit. `remove_leftovers` drops only tables of earlier attempts, when all that the restored checkpoint covers
is committed. `remove_uncovered` drops what no snapshot covers, after the end of the job. A staged table that
is missing at its commit fails the commit; it never counts as empty. Snapshots may be hostile. So only names
of staged tables are taken from them, and the table itself is that of the sink.

**Two attempts.** When the committer starts, it ends the connections of earlier attempts, which PostgreSQL
permits to the same user. So a frozen process keeps no lock for long. Nothing else depends on it. An older
attempt stages under other names, and its commits are in the ledger or in no completed checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Any, ClassVar, Final

from penstock.runtime.errors import ConfigurationError
from penstock.runtime.io.connectors.sql.committer import SqlCommitter, checked_table, remove_staged
from penstock.runtime.io.connectors.sql.connections import check_url, open_database
from penstock.runtime.io.connectors.sql.database import SqlDatabase, attempt_of, column_names, staged_prefix
from penstock.runtime.io.connectors.sql.staging import SqlWriter
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.committed_sink import COMMITTER_SUFFIX
from penstock.runtime.operators.sinks import SinkContext
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in

#: Default number of rows that a writer collects in memory before it writes a staged table.
STAGE_ROWS: Final = 256 * 1024

_TABLE: Final = re.compile(r"[^.\x00]+(\.[^.\x00]+)?")


@without_secrets
@dataclass(frozen=True)
class SqlSink(metaclass=NearestNames):
    """Writes records to a table of PostgreSQL or SQLite: dicts or Arrow batches.

    The table must exist. Records may lack columns that have a default or may be null.

    Attributes:
        url: `postgresql://user:password@host/database`, or `sqlite://` and the absolute path of a file. No
            message or log shows its password.
        table: Name of the table, or `schema.table`, exactly as the database has it.
        key: Columns whose values identify a row. With a key a record replaces the row with the same key, and
            is added if there is none. The table needs a unique index on them. Without a key all records are
            added.
        columns: Columns that are null where a record lacks them. By default a record leaves other columns as
            they are, or at their defaults.
        change_kind: Column with the kind of each change, which is not written. `"insert"` and
            `"update_postimage"` replace or add the row of the key; `"delete"` and `"update_preimage"` delete
            it. Needs `key`.
        timeout: Maximum time of a call, such as the commit of a checkpoint.
        stage_rows: Rows that a subtask collects before it sends them to the database.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or psycopg is not installed.

    Example:
        >>> SqlSink("sqlite:///data/shop.db", "orders", key=["id"]).key
        ('id',)
    """

    only_reads: ClassVar[bool] = True

    url: str = field(repr=False)
    table: str
    _: KW_ONLY
    key: Sequence[str] = ()
    columns: Sequence[str] = ()
    change_kind: str | None = None
    timeout: Duration = 300.0
    stage_rows: int = STAGE_ROWS

    def __post_init__(self) -> None:
        check_url(self.url)
        if not isinstance(self.table, str) or not _TABLE.fullmatch(self.table):
            msg = f"table={self.table!r} is not allowed: give the name of a table, or schema.table"
            raise ConfigurationError(msg)
        for name in ("key", "columns"):
            object.__setattr__(self, name, column_names(name, getattr(self, name)))
        if self.change_kind is not None and (not self.key or self.change_kind in self.key):
            msg = (
                f"change_kind={self.change_kind!r} needs key=, which must not contain this column: a change "
                "applies to the row of a key"
            )
            raise ConfigurationError(msg)
        if self.stage_rows < 1:
            msg = f"stage_rows={self.stage_rows} is not allowed: give at least 1"
            raise ConfigurationError(msg)
        object.__setattr__(self, "timeout", seconds_in("timeout", self.timeout, above=0.0))

    def writer(self, context: SinkContext) -> SqlWriter:
        """Make the writer of one subtask."""
        name = f"{staged_prefix(context.job_id, context.operator_id)}{context.attempt}"
        return SqlWriter(self, partial(self._open, name), f"{name}_{context.subtask}")

    def committer(self, context: SinkContext) -> SqlCommitter:
        """Make the committer."""
        operator = context.operator_id.removesuffix(COMMITTER_SUFFIX)
        prefix = staged_prefix(context.job_id, operator)
        lineage = f"{context.job_id}/{operator}/{context.attempt}"
        connect = partial(self._open, f"{prefix}{context.attempt}")
        return SqlCommitter(self, connect, prefix, lineage, context.attempt)

    def prepare_destination(self, job_id: str) -> None:
        """Look for the table, and for the index of the key.

        Raises:
            ConnectorError: The database gives no answer, or the table does not fit the sink.
        """
        database = self._open("penstock")
        try:
            checked_table(database, self)
        finally:
            database.close()

    def remove_uncovered(self, job_id: str, operator_id: str, covered: Sequence[Any]) -> None:
        """Drop the staged tables of a job that has ended, except those that a snapshot covers."""
        database = self._open("penstock")
        try:
            kept = {stage.name for commit in covered for stage in commit.stages}
            prefix = staged_prefix(job_id, operator_id)
            remove_staged(
                database,
                database.describe(self.table),
                prefix,
                lambda name: attempt_of(name, prefix) is not None and name not in kept,
            )
        finally:
            database.close()

    def _open(self, name: str) -> SqlDatabase:
        return open_database(self.url, as_seconds(self.timeout), name)
