"""Reads the rows of tables in one transaction, in the order of their primary keys.

Python can compare keys in the same order. So the key of a row determines its chunk.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from psycopg import sql

from penstock.runtime.io.connectors.sql.cdc.catalog import table_identifier
from penstock.runtime.io.connectors.sql.cdc.pgoutput import Value
from penstock.runtime.io.connectors.sql.cdc.split import INTEGERS, CdcTable
from penstock.runtime.io.connectors.sql.postgres import Postgres
from penstock.runtime.io.connectors.sql.postgres_statements import literals, statement

#: Id of the type uuid, whose order is that of its text.
_UUID: Final = 2950
#: Ids of the types text and varchar.
_TEXTS: Final = frozenset([25, 1043])


def begin_snapshot(database: Postgres) -> tuple[str, int, int]:
    """Begin a transaction for all tables; return its snapshot, and the current LSN and time."""
    for setting in ("idle_in_transaction_session_timeout", "transaction_timeout"):
        database.query(
            "prepare the connection",
            "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = %s",
            (setting,),
        )
    database.query("begin", "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    ((snapshot, lsn, timestamp),) = database.query(
        "begin",
        "SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn() - '0/0'::pg_lsn, "
        "(extract(epoch FROM now()) * 1000000)::int8",
    )
    return snapshot, int(lsn), timestamp


def open_cursor(database: Postgres, table: CdcTable) -> None:
    columns = [sql.Identifier(name) for name, _, _ in table.columns]
    kinds = {name: kind for name, kind, _ in table.columns}
    order = statement(", ").join(_ordered(name, kinds[name]) for name in table.key)
    after = table.chunks[-1].up_to if table.chunks else None
    where: sql.Composable = sql.SQL("")
    if after is not None:
        where = statement(" WHERE ({}) > ({})").format(order, literals(after))
    text = statement("DECLARE rows NO SCROLL CURSOR FOR SELECT {} FROM {}{} ORDER BY {}").format(
        statement(", ").join(columns), table_identifier(table.name), where, order
    )
    database.query(f"read table {table.name}", text)


def _ordered(name: str, kind: int) -> sql.Composable:
    """A key column for `ORDER BY`, with a collation whose order Python can reproduce."""
    column = sql.Identifier(name)
    if kind in INTEGERS or kind == _UUID:
        return column
    if kind in _TEXTS:
        return statement('{} COLLATE "C"').format(column)
    return statement('({}::text) COLLATE "C"').format(column)


def fetch(database: Postgres, limit: int, width: int) -> Sequence[Sequence[Value]]:
    return database.raw("read", f"FETCH {limit} FROM rows", width)
