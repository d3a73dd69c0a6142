"""`Catalog`: queries the database for the tables, the publication and the slot of a CDC source.

All calls block, and each has a timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from psycopg import sql

from penstock.runtime.errors import ConnectorError, LostInputError
from penstock.runtime.io.connectors.sql.cdc.pgoutput import TableColumn, lsn_of, lsn_text
from penstock.runtime.io.connectors.sql.cdc.split import CdcTable
from penstock.runtime.io.connectors.sql.postgres import Postgres

#: Seconds between two checks whether transactions still run.
_AGAIN: Final = 0.1

_TABLE: Final = """
SELECT c.oid, n.nspname || '.' || c.relname, c.relkind, c.relreplident,
    ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a
        ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey)
        WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY array_position(i.indkey::int2[], a.attnum))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_COLUMNS: Final = """
SELECT attname::text, atttypid::int8, atttypmod, attgenerated <> '', attstorage IN ('x', 'e')
FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_PUBLISHED: Final = """
SELECT n.nspname || '.' || c.relname, to_jsonb(t) FROM pg_publication_tables t
JOIN pg_namespace n ON n.nspname = t.schemaname
JOIN pg_class c ON c.relname = t.tablename AND c.relnamespace = n.oid WHERE t.pubname = %s
"""
_LOOK: Final = """
SELECT w.oid::int8, n.nspname || '.' || c.relname, to_regclass(w.name)::oid::int8, p.pubname IS NOT NULL
FROM unnest(%s::int8[], %s::text[]) AS w(oid, name)
LEFT JOIN pg_class c ON c.oid = w.oid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_publication_tables p ON p.schemaname = n.nspname AND p.tablename = c.relname AND p.pubname = %s
"""
_BASE_TYPES: Final = """
WITH RECURSIVE base AS (
    SELECT oid AS domain, typbasetype AS type, typtypmod AS modifier FROM pg_type
    WHERE oid = ANY(%s::oid[]) AND typtype = 'd'
    UNION ALL SELECT base.domain, t.typbasetype, greatest(base.modifier, t.typtypmod)
    FROM base JOIN pg_type t ON t.oid = base.type WHERE t.typtype = 'd'
) SELECT domain::int8, base.type::int8, modifier FROM base JOIN pg_type t ON t.oid = base.type
WHERE t.typtype <> 'd'
"""


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as it is now.

    Attributes:
        is_full: Whether a change has all values of the old row (REPLICA IDENTITY FULL).
        may_be_apart: Columns whose large values are stored apart from the row (TOAST).
    """

    table: CdcTable
    is_full: bool
    may_be_apart: tuple[str, ...]


class Catalog:
    def __init__(self, database: Postgres, publication: str, slot: str) -> None:
        self.database = database
        self._publication = publication
        self._slot = slot
        self.where = database.where

    # -- before the start ---------------------------------------------------------------------------------

    def check_settings(self) -> None:
        """Refuse a server whose log is not written for logical replication.

        Raises:
            ConnectorError: The server's `wal_level` is not `logical`.
        """
        ((level,),) = self._query("look at its settings", "SELECT current_setting('wal_level')")
        if level != "logical":
            msg = (
                f"{self.where} has wal_level={level}, and changes need wal_level=logical: ALTER SYSTEM SET "
                "wal_level = logical, and restart the server"
            )
            raise ConnectorError(msg)

    def tables(self, names: Sequence[str]) -> tuple[list[FoundTable], dict[str, Any]]:
        """Look up tables, and the publication.

        Raises:
            ConnectorError: The publication or a table does not exist, or the publication lacks a table or
                filters its rows.
        """
        found = self._query(
            "look up the publication",
            "SELECT to_jsonb(p) FROM pg_publication p WHERE pubname = %s",
            (self._publication,),
        )
        if not found:
            listed = ", ".join(names)
            name = _identifier(self._publication)
            msg = (
                f"{self.where} has no publication {self._publication!r}: CREATE PUBLICATION {name} FOR "
                f"TABLE {listed}"
            )
            raise ConnectorError(msg)
        published = dict(self._query("look up the publication", _PUBLISHED, (self._publication,)))
        return [self._table(name, published) for name in names], found[0][0]

    def _table(self, given: str, published: Mapping[str, Mapping[str, Any]]) -> FoundTable:
        quoted = ".".join(map(_identifier, given.split(".")))
        rows = self._query(f"look up table {given}", _TABLE, (quoted,))
        if not rows:
            msg = f"{self.where} has no table {given}: create it, or give its schema as in schema.table"
            raise ConnectorError(msg)
        ((oid, name, kind, identity, key),) = rows
        entry = published.get(name)
        if entry is None:
            publication = _identifier(self._publication)
            advice = f"ALTER PUBLICATION {publication} ADD TABLE {name}"
            if kind == "p":
                advice = f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true)"
            msg = f"{self.where}: the publication {self._publication!r} lacks the table {name}: {advice}"
            raise ConnectorError(msg)
        if entry.get("rowfilter"):
            msg = (
                f"{self.where}: the publication {self._publication!r} has a row filter for {name}, which "
                "PostgresCdcSource does not support: remove it, and filter the records"
            )
            raise ConnectorError(msg)
        columns: list[TableColumn] = []
        apart = []
        listed = entry.get("attnames")
        for column, type_id, modifier, is_generated, is_apart in self._query(
            f"look up table {name}", _COLUMNS, (oid,)
        ):
            if is_generated if listed is None else column not in listed:
                continue
            columns.append((column, type_id, modifier))
            apart += [column] if is_apart else []
        table = CdcTable(name, oid, tuple(columns), tuple(key))
        return FoundTable(table, identity == "f", tuple(apart))

    def create_slot(self) -> int:
        """Create the slot, and return the LSN from which it has all changes.

        The server first waits for the end of all running transactions.
        """
        ((lsn,),) = self._query(
            f"create the slot {self._slot}, which waits for the end of all running transactions",
            "SELECT lsn::text FROM pg_create_logical_replication_slot(%s, 'pgoutput')",
            (self._slot,),
        )
        return lsn_of(lsn)

    def wait_for_running(self, seconds: float) -> None:
        """Wait until all transactions that run now have ended.

        Afterwards each snapshot sees all transactions that the slot will not stream.

        Raises:
            ConnectorError: A transaction takes longer than `seconds`.
        """
        # This assigns a new id. The end of a snapshot (its xmax) may be the id of a running transaction.
        ((until,),) = self._query("look for running transactions", "SELECT pg_current_xact_id()::text::int8")
        give_up_at = time.monotonic() + seconds
        while True:
            ((below,),) = self._query(
                "look for running transactions", "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::int8"
            )
            if below >= until:
                return
            if time.monotonic() > give_up_at:
                msg = (
                    f"{self.where}: a transaction older than the snapshot still runs after {seconds:g} "
                    "s. Look for it in pg_stat_activity and pg_prepared_xacts, end it, or raise timeout="
                )
                raise ConnectorError(msg)
            threading.Event().wait(_AGAIN)

    def end_now(self) -> int:
        """Write a record to the log, and return the LSN after it, which the stream will surely reach."""
        ((lsn,),) = self._query(
            "write to its log", "SELECT pg_logical_emit_message(true, 'penstock', 'end')::text"
        )
        return lsn_of(lsn)

    def written(self) -> int:
        """The LSN of the end of the log."""
        ((lsn,),) = self._query("look at its log", "SELECT pg_current_wal_insert_lsn()::text")
        return lsn_of(lsn)

    # -- the slot -----------------------------------------------------------------------------------------

    def slot(self) -> Mapping[str, Any] | None:
        """The slot's row of `pg_replication_slots`; `None` if there is no slot.

        Raises:
            ConnectorError: The slot belongs to another plugin or database.
            LostInputError: The server has invalidated the slot.
        """
        rows = self._query(
            f"look up the slot {self._slot}",
            "SELECT to_jsonb(s), current_database() FROM pg_replication_slots s WHERE slot_name = %s",
            (self._slot,),
        )
        if not rows:
            return None
        ((slot, database),) = rows
        if slot["plugin"] != "pgoutput" or slot["database"] != database:
            kind = f"a slot of {slot['plugin'] or 'physical replication'} in {slot['database']}"
            msg = f"{self.where}: {self._slot} is {kind}: choose another name"
            raise ConnectorError(msg)
        if slot.get("wal_status") == "lost" or slot.get("invalidation_reason"):
            msg = (
                f"{self.where} has invalidated the slot {self._slot} "
                f"({slot.get('invalidation_reason') or 'its log is removed'}), so changes are lost. Drop it "
                f"with SELECT pg_drop_replication_slot('{self._slot}'), and start the job without a "
                "snapshot. Raise max_slot_wal_keep_size if the job was down for long"
            )
            raise LostInputError(msg)
        return dict(slot)

    def check_nothing_lost(self, lsn: int) -> None:
        """Refuse a slot that no longer has all changes after an LSN.

        Raises:
            LostInputError: The slot is gone or begins later, or the log ends before the LSN.
        """
        slot = self.slot()
        restart = "start the job without this snapshot, which reads the tables again"
        if slot is None:
            msg = (
                f"{self.where} has no slot {self._slot}, so all changes since {lsn_text(lsn)} are lost to "
                f"this job. Was it dropped, or is this another database? To continue, {restart}"
            )
            raise LostInputError(msg)
        confirmed = lsn_of(slot["confirmed_flush_lsn"])
        if confirmed > lsn:
            msg = (
                f"{self.where}: the job must continue at {lsn_text(lsn)}, but the slot {self._slot} begins "
                f"at {lsn_text(confirmed)}. Changes in {confirmed - lsn} bytes of the log are lost: a later "
                "checkpoint than the restored one has released them, or the slot was created again. "
                f"Restore the newest checkpoint, or {restart}"
            )
            raise LostInputError(msg)
        if (end := self.written()) < lsn:
            msg = (
                f"{self.where}: the job must continue at {lsn_text(lsn)}, but the log ends at "
                f"{lsn_text(end)}. Was an old backup restored? To continue, {restart}"
            )
            raise LostInputError(msg)

    # -- while the job runs -------------------------------------------------------------------------------

    def look(self, tables: Sequence[CdcTable]) -> tuple[int, str | None]:
        """Return the LSN of the end of the log, and why the changes of a table no longer come, or `None`."""
        oids, names = [table.oid for table in tables], [_quoted(table.name) for table in tables]
        found = self._query("look at its tables", _LOOK, (oids, names, self._publication))
        by_oid = {oid: (name, other, is_published) for oid, name, other, is_published in found}
        happened = next(
            (text for table in tables if (text := self._happened(table, *by_oid[table.oid]))), None
        )
        ((end,),) = self._query("look at its log", "SELECT pg_current_wal_flush_lsn()::text")
        return lsn_of(end), happened

    def _happened(
        self, table: CdcTable, name: str | None, other: int | None, is_published: bool
    ) -> str | None:
        if name is None:
            again = " and created again" if other is not None else ""
            return (
                f"{self.where}: the table {table.name} was dropped{again}. Take it out of tables= to "
                "continue without it. For a table that was created again, start a job without this snapshot"
            )
        if name != table.name:
            return (
                f"{self.where}: the table {table.name} was renamed to {name}. Give tables= the new name, and "
                "restore the last checkpoint"
            )
        if not is_published:
            return (
                f"{self.where}: the publication {self._publication!r} no longer has the table {table.name}, "
                "so its changes are lost. Add the table again, and start a job without this snapshot"
            )
        return None

    def base_types(self, types: Sequence[int]) -> dict[int, tuple[int, int]]:
        """The base types of domains with their modifiers, by the ids of the domains."""
        found = self._query("look up types", _BASE_TYPES, (list(types),))
        return {domain: (base, modifier) for domain, base, modifier in found}

    def close(self) -> None:
        self.database.close()

    def _query(self, what: str, command: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self.database.query(what, command, parameters)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _quoted(name: str) -> str:
    return ".".join(map(_identifier, name.split(".", 1)))


def table_identifier(name: str) -> sql.Identifier:
    """Make an identifier of a name in the form `schema.name`."""
    return sql.Identifier(*name.split(".", 1))
