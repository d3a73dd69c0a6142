"""`Postgres`: a connection to PostgreSQL by psycopg.

Rows travel as CSV of `COPY`, which Arrow writes and reads in C++. An empty field is null, and a quoted one is
not, so empty strings and nulls stay apart.

**Bounds.** `statement_timeout` and `lock_timeout` bound what the server does. They don't help if the server
or the network is stuck. So a timer shuts the socket down when a call takes longer than these timeouts.
"""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import psycopg
import pyarrow as pa
import pyarrow.csv as csv
from psycopg import sql

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError
from penstock.runtime.io.connectors.sql.database import (
    LEDGER,
    STAGED,
    Column,
    Page,
    Rows,
    Stage,
    TableInfo,
    Values,
    attempt_of,
    lost,
    null_position,
)
from penstock.runtime.io.connectors.sql.postgres_statements import (
    CHECKS,
    COLUMNS,
    as_query,
    literals,
    merge_statements,
    name_list,
    stage_ddl,
    statement,
    table_named,
    target_of,
)
from penstock.runtime.io.connectors.sql.postgres_types import (
    QueryColumn,
    arrow_type,
    as_text,
    from_text,
    is_plain,
)
from penstock.runtime.redaction import redacted

#: Seconds for the server to answer a connection request.
_CONNECT: Final = 10.0
#: Seconds that the server gets to report its own timeouts.
_GRACE: Final = 5.0
#: Milliseconds that a table may be locked by others when a leftover is dropped.
_SHORT: Final = 1_000
#: Maximum number of times that a commit is repeated after a deadlock.
_DEADLOCKS: Final = 5


class Postgres:
    """A connection.

    Args:
        timeout: Seconds that a call may take.
        name: Name of the connection in the database.
        replication: Whether it speaks the replication protocol, too.
    """

    def __init__(self, url: str, timeout: float, name: str, *, replication: bool = False) -> None:
        try:
            parts = psycopg.conninfo.conninfo_to_dict(url)
        except psycopg.Error as error:
            msg = f"PostgreSQL can't read url=: {_said(error)}"
            raise ConfigurationError(msg) from None
        self.where = f"PostgreSQL {parts.get('host', 'on a socket')}/{parts.get('dbname', '')}"
        self._timeout = timeout
        self._is_cut = False
        #: Staged tables that were applied, but not dropped because other sessions lock them.
        self._kept: list[str] = []
        self._described: dict[str, dict[str, QueryColumn]] = {}
        milliseconds = max(1, int(timeout * 1000))
        settings = {
            "statement_timeout": milliseconds,
            "lock_timeout": milliseconds,
            "idle_in_transaction_session_timeout": milliseconds,
            "idle_session_timeout": 0,
            "default_transaction_isolation": "read committed",
            "synchronous_commit": "on",
            "TimeZone": "UTC",
            "DateStyle": "ISO",
            "IntervalStyle": "iso_8601",
            "bytea_output": "hex",
            "extra_float_digits": 1,
        }
        keepalives: dict[str, Any] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
        if replication:
            keepalives["replication"] = "database"
        try:
            self._connection = psycopg.connect(
                url,
                autocommit=True,
                connect_timeout=int(min(_CONNECT, max(2.0, timeout))),
                application_name=name,
                client_encoding="utf-8",
                **keepalives,
            )
        except psycopg.Error as error:
            msg = f"{self.where} refuses the connection: {_said(error)}"
            raise ConnectorError(msg) from None
        with self._call("prepare the connection"):
            names = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in settings.items())
            self._run(f"SELECT {names}")

    def query(
        self, what: str, command: str | sql.Composable, parameters: Sequence[Any] = ()
    ) -> list[tuple[Any, ...]]:
        """Run a statement, and return its rows; `what` describes it in an error."""
        with self._call(what):
            return self._run(command, parameters)

    def raw(self, what: str, command: str, width: int) -> list[Sequence[bytes | None]]:
        """Run a query of `width` columns, and return its values in the text of the server."""
        with self._call(what):
            result = self._connection.execute(statement(command)).pgresult
            assert result is not None, "a query has a result"
            value, columns = result.get_value, range(width)
            return [[value(row, column) for column in columns] for row in range(result.ntuples)]

    # -- tables -------------------------------------------------------------------------------------------

    def describe(self, table: str) -> TableInfo:
        parts = table.split(".")
        name = ".".join('"' + part.replace('"', '""') + '"' for part in parts)
        with self._call(f"look up table {table}"):
            found = self._run(
                "SELECT c.oid, n.nspname, c.relname FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)",
                (name,),
            )
            if not found:
                msg = f"{self.where} has no table {table}: create it, or give its schema as in schema.table"
                raise ConnectorError(msg)
            ((oid, schema, relation),) = found
            columns = {}
            for row in self._run(COLUMNS, (oid,)):
                name, kind, type_name, modifier, is_required, has_default, is_generated, *about = row
                deterministic, collation, takes_null = about
                columns[name] = Column(
                    name,
                    kind,
                    arrow_type(type_name, modifier),
                    is_required,
                    has_default,
                    is_generated,
                    deterministic and is_plain(type_name, modifier),
                    collation,
                    takes_null,
                )
            checks = tuple((tuple(names), text) for text, names in self._run(CHECKS, (oid,)))
        return TableInfo(schema, relation, columns, checks)

    def check_key(self, table: TableInfo, key: Sequence[str]) -> None:
        columns = name_list(key)
        merge = statement(
            "INSERT INTO {} ({}) SELECT {} FROM {} WHERE false ON CONFLICT ({}) DO NOTHING"
        ).format(target_of(table), columns, columns, target_of(table), columns)
        with self._call(f"check the key of table {table.label}"):
            try:
                self._run(statement("EXPLAIN {}").format(merge))
            except psycopg.errors.InvalidColumnReference:
                msg = (
                    f"{self.where}: table {table.label} has no unique index on ({', '.join(key)}), which "
                    f"key= needs: CREATE UNIQUE INDEX ON {table.label} ({', '.join(key)})"
                )
                raise ConnectorError(msg) from None

    def encode(self, column: Column, values: Values) -> Values:
        return as_text(column, values)

    # -- staged tables ------------------------------------------------------------------------------------

    def stage(self, table: TableInfo, stage: Stage, columns: Mapping[str, Values]) -> None:
        data = pa.table(dict(columns))
        buffer = io.BytesIO()
        csv.write_csv(data, buffer, csv.WriteOptions(include_header=False, quoting_style="needed"))
        copy = statement("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
            table_named(table, stage.name), name_list(data.column_names)
        )
        with self._call(f"stage rows for table {table.label}"):
            try:
                with self._connection.transaction(), self._connection.cursor() as cursor:
                    cursor.execute(stage_ddl(table, stage))
                    with cursor.copy(copy) as writing:
                        writing.write(buffer.getbuffer())
            except (psycopg.DataError, psycopg.IntegrityError) as error:
                msg = f"{self.where}: table {table.label} would refuse a record: {_said(error)}"
                raise BadRecordError(msg) from None

    def make_ledger(self, table: TableInfo) -> None:
        ledger = table_named(table, LEDGER)
        with self._call(f"create the table {LEDGER}"), self._connection.transaction():
            # Two processes that create a table at the same time may fail, in spite of IF NOT EXISTS.
            self._run("SELECT pg_advisory_xact_lock(hashtext(%s))", (LEDGER,))
            if not self._run("SELECT to_regclass(%s)", (ledger.as_string(self._connection),))[0][0]:
                self._run(
                    statement(
                        "CREATE TABLE {} (lineage text PRIMARY KEY, number bigint NOT NULL, "
                        "committed_at timestamptz NOT NULL DEFAULT now())"
                    ).format(ledger)
                )

    def commit(self, table: TableInfo, lineage: str, commits: Sequence[tuple[int, Sequence[Stage]]]) -> int:
        with self._call(f"commit to table {table.label}"):
            for _ in range(_DEADLOCKS):
                try:
                    return self._commit(table, lineage, commits)
                except psycopg.errors.DeadlockDetected:  # another writer changes the same rows
                    continue
            return self._commit(table, lineage, commits)

    def _commit(self, table: TableInfo, lineage: str, commits: Sequence[tuple[int, Sequence[Stage]]]) -> int:
        named, committer = table_named(table, LEDGER), sql.Literal(lineage)
        with self._connection.transaction():
            # Locks the row, so another process that makes the same commit waits, and then finds it done.
            add = statement("INSERT INTO {} VALUES ({}, 0) ON CONFLICT DO NOTHING")
            self._run(add.format(named, committer))
            find = statement("SELECT number FROM {} WHERE lineage = {} FOR UPDATE")
            ((committed,),) = self._run(find.format(named, committer))
            left = [(number, stages) for number, stages in commits if number > committed]
            applied = [stage for _, stages in left for stage in stages]
            for stage in applied:
                self._apply(table, stage)
            if left:
                note = statement("UPDATE {} SET number = {}, committed_at = now() WHERE lineage = {}")
                self._run(note.format(named, sql.Literal(left[-1][0]), committer))
                self._drop_applied(table, [stage.name for stage in applied])
        return sum(stage.rows for stage in applied)

    def _apply(self, table: TableInfo, stage: Stage) -> None:
        staged = table_named(table, stage.name)
        if not self._run("SELECT to_regclass(%s)", (staged.as_string(self._connection),))[0][0]:
            raise lost(self.where, stage)
        for command in merge_statements(table, stage):
            self._run(command)

    def _drop_applied(self, table: TableInfo, names: Sequence[str]) -> None:
        """Drop staged tables, or leave them to a later commit if others hold them, such as `pg_dump`."""
        names = [*self._kept, *names]
        listed = statement(", ").join(table_named(table, name) for name in names)
        try:
            with self._connection.transaction():
                self._run(f"SET LOCAL lock_timeout = {_SHORT}")
                self._run(statement("DROP TABLE IF EXISTS {}").format(listed))
        except psycopg.errors.LockNotAvailable:
            self._kept = names
        else:
            self._kept = []

    def staged(self, table: TableInfo, prefix: str) -> list[str]:
        assert prefix.startswith(STAGED), "only staged tables are listed"
        with self._call("list staged tables"):
            found = self._run(
                "SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = %s::regnamespace "
                "AND starts_with(relname, %s)",
                (sql.Identifier(table.schema).as_string(self._connection), prefix),
            )
        return sorted(name for (name,) in found)

    def drop(self, table: TableInfo, name: str) -> bool:
        assert name.startswith(STAGED), "only staged tables are dropped"
        with self._call(f"drop the staged table {name}"):
            try:
                with self._connection.transaction():
                    self._run(f"SET LOCAL lock_timeout = {_SHORT}")
                    self._run(statement("DROP TABLE IF EXISTS {}").format(table_named(table, name)))
            except psycopg.errors.LockNotAvailable:
                return False
        return True

    def fence(self, prefix: str, attempt: int) -> None:
        with self._call("end connections of earlier attempts"):
            sessions = self._run(
                "SELECT pid, application_name FROM pg_stat_activity WHERE starts_with(application_name, %s) "
                "AND usename = current_user AND datname = current_database()",
                (prefix,),
            )
            for pid, name in sessions:
                of = attempt_of(name, prefix)
                if of is not None and of < attempt:
                    self._run("SELECT pg_terminate_backend(%s)", (pid,))

    # -- queries ------------------------------------------------------------------------------------------

    def read(self, query: str, by: Sequence[str], page: Page, limit: int) -> Rows:
        conditions: list[sql.Composable] = []
        place = statement("({})").format(name_list(by))
        if page.after is not None:
            conditions.append(statement("{} > ({})").format(place, literals(page.after)))
        if page.until is not None:
            conditions.append(statement("{} <= ({})").format(place, literals(page.until)))
        if page.above is not None:
            conditions.append(statement("{} > {}").format(sql.Identifier(by[0]), sql.Literal(page.above)))
        if page.up_to is not None:
            conditions.append(statement("{} <= {}").format(sql.Identifier(by[0]), sql.Literal(page.up_to)))
        where = statement(" WHERE ") + statement(" AND ").join(conditions) if conditions else sql.SQL("")
        text = statement("SELECT * FROM ({}) AS q{} ORDER BY {} LIMIT {}").format(
            as_query(query), where, name_list(by), sql.Literal(limit)
        )
        with self._call("read"):
            return self._copied(text, query)

    def first(self, query: str, by: Sequence[str]) -> tuple[Any, ...] | None:
        nulls = statement(" OR ").join(statement("{} IS NULL").format(sql.Identifier(name)) for name in by)
        with self._call("read"):
            if self._run(
                statement("SELECT 1 FROM ({}) AS q WHERE {} LIMIT 1").format(as_query(query), nulls)
            ):
                raise null_position(self.where, by)
            return self._end_of(query, by, name_list(by))

    def last(self, query: str, by: Sequence[str]) -> tuple[Any, ...] | None:
        order = statement(", ").join(statement("{} DESC").format(sql.Identifier(name)) for name in by)
        with self._call("read"):
            return self._end_of(query, by, order)

    def _end_of(self, query: str, by: Sequence[str], order: sql.Composed) -> tuple[Any, ...] | None:
        # `COPY` returns the same values as `read` does.
        text = statement("SELECT {} FROM ({}) AS q ORDER BY {} LIMIT 1").format(
            name_list(by), as_query(query), order
        )
        found = self._copied(text, query, by)
        return found.position(0, by) if len(found) else None

    def find(self, query: str, key: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Rows:
        rows = statement(", ").join(statement("({})").format(literals(each)) for each in values)
        text = statement("SELECT * FROM ({}) AS q WHERE ({}) IN ({})").format(
            as_query(query), name_list(key), rows
        )
        with self._call("look up"):
            return self._copied(text, query)

    def _copied(self, text: sql.Composed, query: str, names: Sequence[str] | None = None) -> Rows:
        """Read rows by `COPY`; they have all columns of the query, or those in `names`."""
        known = self._columns_of(query)
        missing = [name for name in names or () if name not in known]
        if missing:
            msg = f"{self.where}: the query has no column {missing[0]!r}: it has {list(known)}"
            raise ConnectorError(msg)
        kinds = [known[name] for name in (known if names is None else names)]
        with (
            self._connection.cursor() as cursor,
            cursor.copy(statement("COPY ({}) TO STDOUT (FORMAT csv)").format(text)) as reading,
        ):
            data = b"".join(bytes(part) for part in reading)
        table = from_text(data, kinds)
        return Rows(tuple(table.column_names), table)

    def _columns_of(self, query: str) -> dict[str, QueryColumn]:
        if query not in self._described:
            cursor = self._connection.execute(
                statement("SELECT * FROM ({}) AS q LIMIT 0").format(as_query(query))
            )
            columns = [
                (column.name, column.type_code, column.precision, column.scale)
                for column in cursor.description or ()
            ]
            self._described[query] = {column[0]: column for column in columns}
            if len(self._described[query]) < len(columns):
                msg = f"{self.where}: two columns of the query have the same name: give them names with AS"
                raise ConnectorError(msg)
        return self._described[query]

    # -- calls --------------------------------------------------------------------------------------------

    @contextmanager
    def _call(self, what: str) -> Iterator[None]:
        """Bound a call, and turn its errors into a `ConnectorError`."""
        timer = threading.Timer(self._timeout + _GRACE, self._cut)
        timer.daemon = True
        timer.start()
        try:
            yield
        except psycopg.Error as error:
            if self._is_cut:
                msg = f"{self.where} gave no answer for {self._timeout + _GRACE:g} s to the call: {what}"
                raise ConnectorError(msg) from None
            msg_0 = f"{self.where} can't {what}: {_said(error)}"
            raise ConnectorError(msg_0) from None
        except pa.ArrowException as error:
            msg_0 = f"{self.where} returned data that can't be read: {_said(error)}"
            raise ConnectorError(msg_0) from None
        finally:
            timer.cancel()

    def _cut(self) -> None:
        self._is_cut = True
        try:
            copied = socket.socket(fileno=socket.dup(self._connection.fileno()))
        except (OSError, psycopg.Error):  # it was closed at this moment
            return
        with copied:
            copied.shutdown(socket.SHUT_RDWR)

    def _run(self, command: str | sql.Composable, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        text = statement(command) if isinstance(command, str) else command
        cursor = self._connection.execute(cast("sql.SQL", text), parameters or None)
        return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        self._connection.close()


def _said(error: BaseException) -> str:
    return redacted(" ".join(str(error).split()) or type(error).__name__)
