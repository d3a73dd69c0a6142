"""`PostgresCdcSource`: the rows of tables in PostgreSQL, and then each change of them, exactly once.

**Nothing is missing.** The slot is created first, and has all changes since. Then the source waits until all
transactions that run at this time have ended. So a snapshot that is taken afterwards sees everything that the
slot lacks. The snapshot is read first, and then the stream from the slot's beginning.

**Nothing comes twice.** A snapshot lists the transactions that it sees. A streamed change is left out if its
transaction is in this list (`split.py`). The position of the stream counts changes in a transaction, and
PostgreSQL repeats transactions in the same order. So a restored job drops exactly what it has read.

**What the server may remove.** PostgreSQL keeps its log from the slot's *confirmed* LSN on. The source
confirms an LSN when a completed checkpoint covers it, and never earlier. Keepalive messages of the server
move the position while no change comes. So the log of a database with quiet tables is removed, too.

**Two attempts.** PostgreSQL lets only one process at a time read a slot. A new attempt ends the connections
of earlier ones, which it knows by their names. A process that still runs can confirm only what a completed
checkpoint covers.

**What must never happen.** The source never confirms an LSN that no completed checkpoint covers. It never
drops the slot, and moves it only by confirming. If the slot begins after the position, changes are lost, and
the job fails.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

from penstock.runtime.config.job_config import JobConfig
from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.io.connectors.messages.fetcher import MessageFetcher, Receiver
from penstock.runtime.io.connectors.messages.reader import AcknowledgingReader
from penstock.runtime.io.connectors.messages.settings import (
    check_declared_split,
    check_takes_checkpoints,
    checked_names,
)
from penstock.runtime.io.connectors.sql.cdc.split import CdcSplit
from penstock.runtime.io.connectors.sql.connections import check_url
from penstock.runtime.io.connectors.sql.database import staged_prefix
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.change_kinds import CHANGE_TYPE
from penstock.runtime.operators.lag import SourceLag, SplitLag
from penstock.runtime.operators.source import ConnectorContext, SplitsWithWarnings
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.sql.cdc.stream import ReplicationStream
    from penstock.runtime.io.connectors.sql.postgres import Postgres

#: Names that PostgreSQL allows for a slot.
_SLOT: Final = re.compile(r"[a-z0-9_]{1,63}")
_TABLE: Final = re.compile(r"[^.\x00]+(\.[^.\x00]+)?")


@without_secrets
@dataclass(frozen=True)
class PostgresCdcSource(metaclass=NearestNames):
    """Reads the rows of tables, and then each change as it is committed: dicts, or Arrow batches.

    The server needs `wal_level=logical`, and the user the attribute `REPLICATION`. One subtask reads. A
    record has the columns of its table, and `_change_type`: `"insert"`, `"update_preimage"`,
    `"update_postimage"` or `"delete"`. Rows of the snapshot are inserts.

    An update has a preimage, and a delete has all columns, if the table has `REPLICA IDENTITY FULL`. With the
    primary key as identity, a delete has only the key. An update then has a preimage only if it changes the
    key, and this preimage has only the key.

    Attributes:
        url: `postgresql://user:password@host/database`. No message or log shows its password.
        tables: Names of the tables, or `schema.table`, exactly as the database has them.
        slot: Name of the replication slot, which only this job uses. It is created if it does not exist.
            Drop it when the job is no longer needed: until then the server keeps its log.
        publication: Name of the publication, which must have the tables.
        snapshot: Whether the rows of the tables are read first; the tables need primary keys. Otherwise the
            job reads changes only: all that an existing slot has, or those after the start of the job.
        metadata: Fields that are added to records: `"_table"` (`schema.table`), `"_commit_lsn"`,
            `"_commit_timestamp"` (microseconds). With several tables, records always have `_table`.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches of one table with `REPLICA IDENTITY FULL`.
        bounded: Whether the source ends with the changes that were committed when the job began.
        on_unchanged: What happens to an update without a large value (TOAST) that did not change, if the
            table has no full identity. `"error"` fails the job, and `"omit"` leaves the field out.
        on_truncate: What happens when a table is emptied by `TRUNCATE`: `"error"` or `"skip"`.
        on_schema_change: What happens when columns are dropped, renamed or get another type. `"error"` fails
            the job, and `"follow"` continues with the new columns. A new column is always followed.
        page_rows: Maximum rows of the snapshot that are read at a time.
        timeout: Maximum time of a call, and maximum time without a message from the server.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or psycopg is not installed.

    Example:
        >>> url = "postgresql://me:secret@localhost/shop"
        >>> source = PostgresCdcSource(url, "orders", slot="orders_job", publication="shop")
        >>> source.change_kind
        '_change_type'
    """

    only_reads: ClassVar[bool] = True

    url: str = field(repr=False)
    tables: str | Sequence[str]
    _: KW_ONLY
    slot: str
    publication: str
    snapshot: bool = True
    metadata: Sequence[Literal["_table", "_commit_lsn", "_commit_timestamp"]] = ()
    batch_format: BatchFormat = "rows"
    bounded: bool = False
    on_unchanged: Literal["error", "omit"] = "error"
    on_truncate: Literal["error", "skip"] = "error"
    on_schema_change: Literal["error", "follow"] = "error"
    page_rows: int = 16_384
    timeout: Duration = 60.0

    def __post_init__(self) -> None:
        check_url(self.url)
        if self.url.startswith("sqlite"):
            msg = "PostgresCdcSource reads PostgreSQL: give url=postgresql://user:password@host/database"
            raise ConfigurationError(msg)
        object.__setattr__(self, "tables", checked_names("tables", self.tables))
        for name in self.tables:
            if not _TABLE.fullmatch(name):
                msg = f"tables={list(self.tables)} is not allowed: give names of tables, or schema.table"
                raise ConfigurationError(msg)
        if not isinstance(self.slot, str) or not _SLOT.fullmatch(self.slot):
            msg = f"slot={self.slot!r} is not allowed: give lower-case letters, digits and _, at most 63"
            raise ConfigurationError(msg)
        checked_names("publication", self.publication)
        for name in self.metadata:
            checked_setting("metadata", name, ("_table", "_commit_lsn", "_commit_timestamp"))
        checked_setting("batch_format", self.batch_format, ("rows", "arrow"))
        checked_setting("on_unchanged", self.on_unchanged, ("error", "omit"))
        checked_setting("on_truncate", self.on_truncate, ("error", "skip"))
        checked_setting("on_schema_change", self.on_schema_change, ("error", "follow"))
        if self.batch_format == "arrow" and len(self.tables) > 1:
            msg = 'batch_format="arrow" takes one table: give each table a source with a slot of its own'
            raise ConfigurationError(msg)
        if self.page_rows < 1:
            msg = f"page_rows={self.page_rows} is not allowed: give at least 1"
            raise ConfigurationError(msg)
        object.__setattr__(self, "timeout", seconds_in("timeout", self.timeout, above=0.0))

    @property
    def change_kind(self) -> str:
        """Column with the kind of each change."""
        return CHANGE_TYPE

    @property
    def fields(self) -> tuple[str, ...]:
        """Fields of records that are neither columns nor the kind."""
        is_needed = len(self.tables) > 1 and "_table" not in self.metadata
        return (*(("_table",) if is_needed else ()), *self.metadata)

    def check_job_config(self, config: JobConfig) -> None:
        """Refuse a job without checkpoints: the server would keep its log for ever."""
        check_takes_checkpoints(config)

    def splits(self, parallelism: int) -> Sequence[CdcSplit]:
        """Check the database, and create the slot.

        Raises:
            ConnectorError: The database gives no answer, or lacks something that the source needs.
        """
        from penstock.runtime.io.connectors.sql.cdc.catalog import Catalog
        from penstock.runtime.io.connectors.sql.cdc.pgoutput import lsn_of

        seconds = as_seconds(self.timeout)
        catalog = Catalog(self.connect("penstock"), self.publication, self.slot)
        try:
            catalog.check_settings()
            found, publication = catalog.tables(self.tables)
            for each in found:
                self._check_table(each, publication)
            stream = self.connect_stream("penstock")
            try:
                system = stream.system()
            finally:
                stream.close()
            slot = catalog.slot()
            lsn = catalog.create_slot() if slot is None else lsn_of(slot["confirmed_flush_lsn"])
            if self.snapshot:
                catalog.wait_for_running(seconds)
            split = CdcSplit(
                self.slot,
                system,
                lsn,
                tuple(each.table for each in found),
                reading=0 if self.snapshot else None,
                settled=catalog.written(),
                stop=catalog.end_now() if self.bounded else None,
            )
        finally:
            catalog.close()
        return SplitsWithWarnings([split], self._warnings(found, publication))

    def reader(self, context: ConnectorContext, splits: Sequence[CdcSplit]) -> CdcReader:
        """Make the reader of one subtask, with connections and a thread of its own."""
        from penstock.runtime.io.connectors.sql.cdc.receiver import CdcReceiver

        for split in splits:
            check_declared_split("slot", split.slot, (self.slot,))
        names = staged_prefix(context.job_id, context.operator_id), context.attempt
        receivers: dict[Hashable, Receiver] = {
            split.name: CdcReceiver(self, split, f"slot {self.slot}", names) for split in splits
        }
        fetcher = MessageFetcher(receivers, as_seconds(self.timeout))
        return CdcReader(splits, fetcher, is_arrow=self.batch_format == "arrow")

    def connect(self, name: str) -> Postgres:
        """Open a connection with a name; called only by the source's own classes."""
        from penstock.runtime.io.connectors.sql.postgres import Postgres

        return Postgres(self.url, as_seconds(self.timeout), name)

    def connect_stream(self, name: str) -> ReplicationStream:
        """Open a connection that can stream; called only by the source's own classes."""
        from penstock.runtime.io.connectors.sql.cdc.stream import ReplicationStream

        return ReplicationStream(self.url, as_seconds(self.timeout), name)

    def _check_table(self, found: Any, publication: dict[str, Any]) -> None:
        table = found.table
        if self.snapshot and not table.key:
            msg = (
                f"table {table.name} has no primary key, in whose order its rows are read: add one, or set "
                "snapshot=False to read changes only"
            )
            raise ConnectorError(msg)
        names = {name for name, _, _ in table.columns}
        if self.snapshot and not names.issuperset(table.key):
            msg = (
                f"the publication {self.publication!r} leaves out columns of the primary key of {table.name}"
            )
            raise ConnectorError(msg)
        taken = sorted(names.intersection((CHANGE_TYPE, *self.fields)))
        if taken:
            msg = f"table {table.name} has a column {taken[0]!r}, which is a field of each record: rename it"
            raise ConnectorError(msg)
        changes = publication["pubupdate"] or publication["pubdelete"]
        if self.batch_format == "arrow" and changes and not found.is_full:
            msg = (
                f'batch_format="arrow" needs all columns of each change: ALTER TABLE {table.name} REPLICA '
                "IDENTITY FULL, or read rows"
            )
            raise ConnectorError(msg)

    def _warnings(self, found: Sequence[Any], publication: dict[str, Any]) -> list[str]:
        kinds = ("insert", "update", "delete", "truncate")
        left_out = [kind for kind in kinds if not publication[f"pub{kind}"]]
        warnings = []
        if left_out:
            warnings.append(f"the publication {self.publication!r} leaves out {', '.join(left_out)}")
        if publication["pubupdate"]:
            warnings += [
                f"table {each.table.name} has no REPLICA IDENTITY FULL, so an update lacks large values of "
                f"{', '.join(each.may_be_apart)} that did not change (on_unchanged={self.on_unchanged!r})"
                for each in found
                if each.may_be_apart and not each.is_full
            ]
        return warnings


class CdcReader(AcknowledgingReader[Any]):
    """Reads the changes of a slot, and confirms them when a completed checkpoint covers them."""

    def lag(self) -> SourceLag | None:
        """The bytes of the log from the position to its end; `None` until the snapshot is read."""
        left = []
        for name, split in self._splits.copy().items():
            assert isinstance(split, CdcSplit), "it reads no others"
            end = self._fetcher.end(name)
            if end is None or split.reading is not None:
                return None
            if split.stop is not None:
                end = min(end, split.stop)
            left.append(SplitLag(str(name), bytes=max(0, end - split.lsn), position=split.lsn, end=end))
        return SourceLag.of(left)
