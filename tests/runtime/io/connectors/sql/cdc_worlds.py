"""Tables of a real PostgreSQL whose changes are read, and sources whose calls go wrong as a test wants."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import psycopg
from serving.postgres import PASSWORD, PostgresServer
from sql_worlds import FlakyCalls, FlakyDatabase

from penstock.operators import ArrowBatch, Batch, RowBatch
from penstock.runtime.io.connectors.sql.cdc.pgoutput import lsn_of
from penstock.sql import PostgresCdcSource

_SLOTS: Final = count()
_END_OF_LOG: Final = "SELECT pg_current_wal_flush_lsn()::text"

#: Seconds after which a test no longer waits for records.
_PATIENCE: Final = 120.0


@dataclass(frozen=True)
class FlakyCdcSource(PostgresCdcSource):
    """A source that connects through a world."""

    world: Any = field(default=None, repr=False, kw_only=True)

    def connect(self, name: str) -> Any:
        call = self.world.call
        return FlakyDatabase(call(lambda: PostgresCdcSource.connect(self, name)), call)

    def connect_stream(self, name: str) -> Any:
        return self.world.call(lambda: PostgresCdcSource.connect_stream(self, name))


class ChangedDatabase(FlakyCalls):
    """A database of its own with a publication of all its tables, and a slot that is dropped at the end.

    Attributes:
        settings: Settings of all sources.
    """

    secret = PASSWORD

    def __init__(self, server: PostgresServer, **settings: Any) -> None:
        self.server, self.settings = server, settings
        self.url = server.new_database()
        self.slot = f"slot_{next(_SLOTS)}"
        self._connection: psycopg.Connection[Any] | None = None
        self.run("CREATE PUBLICATION shop FOR ALL TABLES")

    def run(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements in a connection that stays open; return the rows of the last one."""
        try:
            return self._run(statements)
        except psycopg.OperationalError:
            if self._connection is not None and not self._connection.broken:
                raise
            return self._run(statements)  # the server has restarted since the last call

    def _run(self, statements: Sequence[str]) -> list[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            self._connection = psycopg.connect(self.url, autocommit=True)
        for statement in statements:
            cursor = self._connection.execute(statement)  # type: ignore[call-overload]
        return cursor.fetchall() if cursor.description else []

    def make_slot(self) -> None:
        self.run(f"SELECT pg_create_logical_replication_slot('{self.slot}', 'pgoutput')")

    def confirmed(self) -> int:
        """The place up to which the server may forget changes."""
        ((lsn,),) = self.run(
            f"SELECT confirmed_flush_lsn::text FROM pg_replication_slots WHERE slot_name = '{self.slot}'"
        )
        return lsn_of(lsn)

    def written(self) -> int:
        """The end of the log."""
        ((lsn,),) = self.run(_END_OF_LOG)
        return lsn_of(lsn)

    def reported(self) -> int:
        """The place up to which the reader has received everything."""
        ((lsn,),) = self.run(
            "SELECT coalesce(write_lsn, '0/0')::text FROM pg_stat_replication JOIN pg_replication_slots "
            f"ON pid = active_pid WHERE slot_name = '{self.slot}'"
        )
        return lsn_of(lsn)

    def cdc(self, *tables: str, **settings: Any) -> PostgresCdcSource:
        given = {"slot": self.slot, "publication": "shop", **self.settings, **settings}
        return FlakyCdcSource(self.url, tables or ("orders",), world=self, **given)

    def drop_slot(self, slot: str) -> None:
        """Drop a slot if it exists; the server may not know yet that its last reader has ended."""
        self.run(
            "SELECT pg_terminate_backend(active_pid, 5000) FROM pg_replication_slots "
            f"WHERE slot_name = '{slot}' AND active",
            f"SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            f"WHERE slot_name = '{slot}'",
        )

    def cleanup(self) -> None:
        self.drop_slot(self.slot)
        if self._connection is not None:
            self._connection.close()


class ChangedTable(ChangedDatabase):
    """A world of the kit: each record is a row, and is inserted in a transaction of its own."""

    def __init__(self, server: PostgresServer, **settings: Any) -> None:
        super().__init__(server, **settings)
        self.run("CREATE TABLE orders (number bigint PRIMARY KEY)")
        self._written: list[tuple[Any, int]] = []

    def source(self) -> PostgresCdcSource:
        return self.cdc()

    def write(self, records: Sequence[Any]) -> None:
        for record in records:
            ((lsn,),) = self.run(f"INSERT INTO orders VALUES ({record['number']})", _END_OF_LOG)
            self._written.append((record, lsn_of(lsn)))


class StreamedTable(ChangedTable):
    """A world whose slot is older than its records, so that all of them come as changes."""

    def __init__(self, server: PostgresServer, **settings: Any) -> None:
        super().__init__(server, snapshot=False, **settings)
        self.make_slot()

    def acknowledged(self) -> list[Any]:
        confirmed = self.confirmed()
        return [record for record, lsn in self._written if lsn <= confirmed]


def rows_in(batch: Batch | None) -> list[Any]:
    if batch is None:
        return []
    return list(batch.rows) if isinstance(batch, RowBatch) else _rows(batch)


def _rows(batch: ArrowBatch) -> list[Any]:
    rows: list[Any] = batch.batch.to_pylist()
    return rows


class CdcJob:
    """A job with a source of changes alone; a test decides about its checkpoints and its death.

    Args:
        context: Makes contexts of readers.
        splits: Those of a checkpoint; by default the job starts without one.
    """

    def __init__(
        self,
        source: PostgresCdcSource,
        context: Callable[..., Any],
        splits: Sequence[Any] | None = None,
        *,
        attempt: int = 1,
        poll_rows: int = 1000,
    ) -> None:
        self.splits = source.splits(1) if splits is None else splits
        self.reader = source.reader(context(attempt=attempt), self.splits)
        self._poll_rows = poll_rows
        self._checkpoints = count(1)

    def read(self, least: int) -> list[Any]:
        """Read until at least so many records have come, or the source has ended."""
        return [row for batch in self.batches(least) for row in rows_in(batch)]

    def batches(self, least: int) -> list[Batch]:
        """Read until the batches have at least so many records, or the source has ended."""
        found: list[Batch] = []
        give_up_at = time.monotonic() + _PATIENCE
        while sum(map(len, found)) < least:
            polled = self.reader.poll(self._poll_rows)
            found += [] if polled.batch is None else [polled.batch]
            if polled.finished:
                break
            assert time.monotonic() < give_up_at, f"{least} records never come, but only {found}"
        return found

    def poll_until(self, is_so: Callable[[], object]) -> None:
        """Complete checkpoints until a condition holds; no record comes."""
        give_up_at = time.monotonic() + _PATIENCE
        while not is_so():
            assert self.reader.poll(self._poll_rows).batch is None
            self.checkpoint()
            assert time.monotonic() < give_up_at, "the condition never holds"

    def snapshot(self) -> Sequence[Any]:
        """Take a checkpoint that is never completed."""
        return self.reader.snapshot()

    def checkpoint(self) -> Sequence[Any]:
        """Complete a checkpoint."""
        taken, number = self.reader.snapshot(), next(self._checkpoints)
        self.reader.snapshot_taken(number)
        self.reader.notify_checkpoint_complete(number)
        return taken

    def close(self) -> None:
        self.reader.close()
