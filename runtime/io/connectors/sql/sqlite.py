"""`Sqlite`: a connection to a SQLite file by Python's own `sqlite3`.

One process at a time writes to the file; others wait up to `timeout`. A transaction begins with
`BEGIN IMMEDIATE`, so it waits before it reads anything, and never fails midway because of another writer.

A staged table can't repeat all types and constraints of its target: SQLite shows constraints only as text. So
each staged row is tried: it is inserted into the target within a savepoint, which is rolled back.
`OR REPLACE` leaves unique indexes out of the trial, because rows that conflict now may be gone at the commit.
"""

from __future__ import annotations

import json
import re
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.sql.database import (
    DELETES,
    LEDGER,
    ROW,
    STAGED,
    Column,
    Page,
    Rows,
    Stage,
    TableInfo,
    Values,
    lost,
    null_position,
)

#: Instructions of SQLite between two checks of the deadline.
_STEPS: Final = 20_000
#: Maximum number of values in a statement; older versions of SQLite take 999.
_MOST_VALUES: Final = 900
_COLLATES: Final = re.compile(r"\bCOLLATE\s+(?!BINARY)", re.IGNORECASE)

_STRICT: Final = re.compile(r"\)[^)]*\bSTRICT\b[^)]*\Z", re.IGNORECASE)


class Sqlite:
    def __init__(self, path: str, timeout: float) -> None:
        self.where = f"SQLite {path}"
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        try:
            # A missing file is an error, not a new database. A reader uses the connection in its own thread.
            address = "file:" + path.replace("%", "%25").replace("?", "%3f").replace("#", "%23") + "?mode=rw"
            self._connection = sqlite3.connect(
                address, timeout, isolation_level=None, check_same_thread=False, uri=True
            )
        except sqlite3.Error as error:
            msg = f"{self.where} can't be opened: {error}. Check the path"
            raise ConnectorError(msg) from None
        self._connection.set_progress_handler(self._is_late, _STEPS)
        self._connection.execute("PRAGMA synchronous = EXTRA")  # a commit outlives a power cut

    # -- tables -------------------------------------------------------------------------------------------

    def describe(self, table: str) -> TableInfo:
        with self._call(f"look up table {table}"):
            found = self._run(f"PRAGMA table_xinfo({_quoted(table)})")
            indexes = self._run(
                "SELECT sql FROM sqlite_master WHERE tbl_name = ? COLLATE NOCASE AND sql IS NOT NULL",
                (table,),
            )
        if not found:
            msg = f"{self.where} has no table {table}: create it"
            raise ConnectorError(msg)
        is_strict = any(_STRICT.search(text) for (text,) in indexes)
        collates = any(_COLLATES.search(text) for (text,) in indexes)
        columns = {
            name: Column(
                name,
                # Only a strict table keeps values of ANY as they are.
                "BLOB" if is_strict and kind.upper() == "ANY" else kind,
                is_required=bool(required),
                has_default=default is not None,
                is_generated=hidden in (2, 3),
                collation="another" if collates else "",
            )
            for _, name, kind, required, default, _, hidden in found
        }
        return TableInfo("", table, columns)

    def check_key(self, table: TableInfo, key: Sequence[str]) -> None:
        names = _names(key)
        target = _quoted(table.name)
        merge = f"INSERT INTO {target} ({names}) SELECT {names} FROM {target} WHERE false"
        try:
            self._connection.execute(f"EXPLAIN {merge} ON CONFLICT ({names}) DO NOTHING").fetchall()
        except sqlite3.Error as error:
            msg = (
                f"{self.where}: table {table.name} has no unique index on ({', '.join(key)}), which key= "
                f"needs ({error}): CREATE UNIQUE INDEX by_key ON {table.name} ({', '.join(key)})"
            )
            raise ConnectorError(msg) from None

    def encode(self, column: Column, values: Values) -> list[Any]:
        listed = values.to_pylist() if isinstance(values, pa.Array) else values
        return [value if type(value) in _NATIVE else _native(value) for value in listed]

    # -- staged tables ------------------------------------------------------------------------------------

    def stage(self, table: TableInfo, stage: Stage, columns: Mapping[str, Values]) -> None:
        if stage.has_deletes and any(table.columns[name].collation for name in stage.key):
            msg = (
                f"{self.where}: table {table.name} has a COLLATE clause, so different keys may compare as "
                "equal. Change kinds need keys without COLLATE: remove it, or leave change_kind out"
            )
            raise ConnectorError(msg)
        names = list(columns)
        places = ", ".join("?" for _ in names)
        put = f"INSERT INTO {_quoted(stage.name)} ({_names(names)}) VALUES ({places})"
        copied, kept = _names(stage.columns), _kept(stage)
        with self._call(f"stage rows for table {table.name}"), self._transaction():
            self._run(_stage_ddl(table, stage))
            try:
                self._connection.executemany(put, zip(*columns.values(), strict=True))
                self._run("SAVEPOINT trial")
                self._run(
                    f"INSERT OR REPLACE INTO {_quoted(table.name)} ({copied}) "
                    f"SELECT {copied} FROM {_quoted(stage.name)}{kept}"
                )
            except (sqlite3.IntegrityError, sqlite3.DataError, OverflowError, UnicodeError) as error:
                msg = f"{self.where}: table {table.name} would refuse a record: {error}"
                raise BadRecordError(msg) from None
            self._run("ROLLBACK TO trial")
            self._run("RELEASE trial")

    def make_ledger(self, table: TableInfo) -> None:
        with self._call(f"create the table {LEDGER}"), self._transaction():
            self._run(
                f"CREATE TABLE IF NOT EXISTS {LEDGER} (lineage TEXT PRIMARY KEY, number INTEGER NOT NULL, "
                "committed_at TEXT NOT NULL)"
            )

    def commit(self, table: TableInfo, lineage: str, commits: Sequence[tuple[int, Sequence[Stage]]]) -> int:
        rows = 0
        with self._call(f"commit to table {table.name}"), self._transaction():
            found = self._run(f"SELECT number FROM {LEDGER} WHERE lineage = ?", (lineage,))
            committed = found[0][0] if found else 0
            left = [(number, stages) for number, stages in commits if number > committed]
            for _, stages in left:
                for stage in stages:
                    if not self._run("SELECT 1 FROM sqlite_master WHERE name = ?", (stage.name,)):
                        raise lost(self.where, stage)
                    for statement in merge_statements(table, stage):
                        self._run(statement)
                    self._run(f"DROP TABLE {_quoted(stage.name)}")
                    rows += stage.rows
            if left:
                self._run(
                    f"INSERT OR REPLACE INTO {LEDGER} VALUES (?, ?, datetime('now'))", (lineage, left[-1][0])
                )
        return rows

    def staged(self, table: TableInfo, prefix: str) -> list[str]:
        assert prefix.startswith(STAGED), "only staged tables are listed"
        with self._call("list staged tables"):
            found = self._run(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND substr(name, 1, ?) = ?",
                (len(prefix), prefix),
            )
        return sorted(name for (name,) in found)

    def drop(self, table: TableInfo, name: str) -> bool:
        assert name.startswith(STAGED), "only staged tables are dropped"
        with self._call(f"drop the staged table {name}"), self._transaction():
            self._run(f"DROP TABLE IF EXISTS {_quoted(name)}")
        return True

    def fence(self, prefix: str, attempt: int) -> None:
        """Do nothing: SQLite has no connections that another process could end."""

    # -- queries ------------------------------------------------------------------------------------------

    def read(self, query: str, by: Sequence[str], page: Page, limit: int) -> Rows:
        conditions: list[str] = []
        values: list[Any] = []
        for operator, position in ((">", page.after), ("<=", page.until)):
            if position is not None:
                conditions.append(f"({_names(by)}) {operator} ({', '.join('?' for _ in by)})")
                values += position
        for operator, limit_of in ((">", page.above), ("<=", page.up_to)):
            if limit_of is not None:
                conditions.append(f"{_quoted(by[0])} {operator} ?")
                values.append(limit_of)
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        text = f"SELECT * FROM ({_query(query)}) AS q{where} ORDER BY {_names(by)} LIMIT {int(limit)}"
        with self._call("read"):
            return self._rows(text, values)

    def first(self, query: str, by: Sequence[str]) -> tuple[Any, ...] | None:
        nulls = " OR ".join(f"{_quoted(name)} IS NULL" for name in by)
        with self._call("read"):
            if self._run(f"SELECT 1 FROM ({_query(query)}) AS q WHERE {nulls} LIMIT 1"):
                raise null_position(self.where, by)
            return self._end_of(query, by, _names(by))

    def last(self, query: str, by: Sequence[str]) -> tuple[Any, ...] | None:
        with self._call("read"):
            return self._end_of(query, by, ", ".join(f"{_quoted(name)} DESC" for name in by))

    def _end_of(self, query: str, by: Sequence[str], order: str) -> tuple[Any, ...] | None:
        text = f"SELECT {_names(by)} FROM ({_query(query)}) AS q ORDER BY {order} LIMIT 1"
        found = self._run(text)
        return tuple(found[0]) if found else None

    def find(self, query: str, key: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Rows:
        at_a_time = _MOST_VALUES // len(key)
        found: list[tuple[Any, ...]] = []
        names: tuple[str, ...] = ()
        with self._call("look up"):
            for start in range(0, len(values), at_a_time):
                part = values[start : start + at_a_time]
                places = ", ".join(f"({', '.join('?' for _ in key)})" for _ in part)
                text = f"SELECT * FROM ({_query(query)}) AS q WHERE ({_names(key)}) IN (VALUES {places})"
                rows = self._rows(text, [_native(value) for each in part for value in each])
                names = rows.names
                found += rows.tuples
        return Rows(names, None, found)

    def _rows(self, text: str, values: Sequence[Any]) -> Rows:
        cursor = self._connection.execute(text, values)
        return Rows(tuple(column[0] for column in cursor.description), None, cursor.fetchall())

    # -- calls --------------------------------------------------------------------------------------------

    @contextmanager
    def _call(self, what: str) -> Iterator[None]:
        self._deadline = time.monotonic() + self._timeout
        try:
            yield
        except (sqlite3.Error, OverflowError) as error:
            late = f" within {self._timeout:g} s" if str(error) == "interrupted" else ""
            msg = f"{self.where} can't {what}{late}: {error}"
            raise ConnectorError(msg) from None

    def _is_late(self) -> int:
        return int(time.monotonic() > self._deadline)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._run("BEGIN IMMEDIATE")
        try:
            yield
            self._run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                self._run("ROLLBACK")
            raise

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._connection.execute(statement, values).fetchall()

    def close(self) -> None:
        self._connection.close()


def merge_statements(table: TableInfo, stage: Stage) -> list[str]:
    """The statements that apply a stage: the deletes, and then the inserts."""
    target, staged, columns = _quoted(table.name), _quoted(stage.name), _names(stage.columns)
    if not stage.key:
        return [f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {staged} ORDER BY rowid"]
    key = _names(stage.key)
    order = f" ORDER BY {ROW}"  # a later row of a key updates an earlier one
    if stage.has_deletes:
        number = f"row_number() OVER (PARTITION BY {key} ORDER BY {ROW} DESC)"
        staged = (
            f"(SELECT * FROM (SELECT *, {number} AS _penstock_place FROM {staged}) WHERE _penstock_place = 1)"
        )
        order = ""
    changed = ", ".join(
        f"{_quoted(name)} = excluded.{_quoted(name)}" for name in stage.columns if name not in stage.key
    )
    then = f"UPDATE SET {changed}" if changed else "NOTHING"
    statements = []
    if stage.has_deletes:
        gone = f"SELECT {key} FROM {staged} AS s WHERE s.{DELETES}"
        statements.append(f"DELETE FROM {target} WHERE ({key}) IN ({gone})")
    kept = _kept(stage) or " WHERE true"  # otherwise SQLite parses ON as part of a join
    merge = f"INSERT INTO {target} ({columns}) SELECT {columns} FROM {staged} AS s{kept}{order}"
    return [*statements, f"{merge} ON CONFLICT ({key}) DO {then}"]


def _kept(stage: Stage) -> str:
    return f" WHERE NOT {DELETES}" if stage.has_deletes else ""


def _stage_ddl(table: TableInfo, stage: Stage) -> str:
    parts = []
    for name in stage.columns:
        column = table.columns[name]
        parts.append(f"{_quoted(name)} {column.kind}")
        if column.is_required or name in stage.key:
            unless = f"{DELETES} OR " if stage.has_deletes and name not in stage.key else ""
            parts[-1] += f" CHECK ({unless}{_quoted(name)} IS NOT NULL)"
    if stage.has_deletes:
        parts.append(f"{DELETES} INTEGER NOT NULL")
    if stage.key:
        parts.append(f"{ROW} INTEGER PRIMARY KEY")
    return f"CREATE TABLE {_quoted(stage.name)} ({', '.join(parts)})"


_NATIVE: Final = frozenset([int, float, str, bytes, type(None)])


def _native(value: Any) -> Any:
    """The value as SQLite keeps it: times, decimals and UUIDs as text, containers as JSON."""
    match value:
        case bool():
            return int(value)
        case int() | float() | str() | bytes() | None:
            return value
        case datetime():
            return value.isoformat(" ")
        case date() | time_of_day():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Decimal() | UUID():
            return str(value)
        case dict() | list() | tuple():
            return json.dumps(value, allow_nan=False)
        case bytearray() | memoryview():
            return bytes(value)
    msg = f"SQLite has no type for {type(value).__name__}"
    raise TypeError(msg)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _names(names: Sequence[str]) -> str:
    return ", ".join(map(_quoted, names))


def _query(query: str) -> str:
    return query.strip().rstrip(";") + "\n"  # the query may end with a comment
