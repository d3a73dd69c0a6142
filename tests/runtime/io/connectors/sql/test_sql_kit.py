"""PostgreSQL and SQLite pass the tests that every sink and every source must pass."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from deep import DEEP
from kit_steps import SINK_STEPS, SOURCE_STEPS
from serving.postgres import PASSWORD, PostgresServer
from sql_worlds import FlakyCalls, FlakySink, FlakySource, SqliteModel

from penstock.sql import SqlSink, SqlSource
from penstock.testing.connectors import SinkTests, SourceTests


@pytest.fixture
def tmp_path(folder: Path) -> Path:
    return folder


class SqliteTable(FlakyCalls):
    """A table in a file of SQLite."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.path, self.settings = folder / "shop.db", settings
        self.url = f"sqlite://{self.path}"
        self.run("CREATE TABLE orders (number INTEGER PRIMARY KEY CHECK (number >= 0))")

    def sink(self) -> SqlSink:
        return FlakySink(self.url, "orders", world=self, **self.settings)

    def source(self) -> SqlSource:
        query = "SELECT number FROM orders"
        return FlakySource(self.url, query, by=["number"], world=self, **self.settings)

    def write(self, records: Sequence[Any]) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            connection.executemany("INSERT INTO orders VALUES (:number)", records)

    def rows(self) -> list[Any]:
        return [{"number": number} for (number,) in self.run("SELECT number FROM orders")]

    def hidden(self) -> list[Any]:
        return self.run("SELECT name FROM sqlite_master WHERE name GLOB '_penstock_*_*'")

    def run(self, statement: str) -> list[Any]:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            return connection.execute(statement).fetchall()


class TestSqliteSink(SinkTests):
    seeds = range(3 * DEEP)

    def make_world(self, folder: Path) -> SqliteTable:
        return SqliteTable(folder)

    def make_model(self) -> Callable[[], Any]:
        return SqliteModel

    def bad_record(self) -> Any:
        return {"number": -1}


class TestUpsertingSqliteSink(TestSqliteSink):
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> SqliteTable:
        return SqliteTable(folder, key=["number"])

    def make_model(self) -> Callable[[], Any]:
        return lambda: SqliteModel(key=["number"])


class PostgresTable(FlakyCalls):
    """A table of its own in a shared database."""

    secret = PASSWORD

    def __init__(self, server: PostgresServer, **settings: Any) -> None:
        self.server, self.settings = server, settings
        self.url = server.url
        self.table = f"orders_{uuid4().hex}"
        server.run(
            f"CREATE SCHEMA {self.table}",
            f"CREATE TABLE {self.table}.orders (number bigint PRIMARY KEY CHECK (number >= 0))",
        )

    def sink(self) -> SqlSink:
        return FlakySink(self.url, f"{self.table}.orders", world=self, **self.settings)

    def source(self) -> SqlSource:
        query = f"SELECT number FROM {self.table}.orders"
        return FlakySource(self.url, query, by=["number"], world=self, **self.settings)

    def write(self, records: Sequence[Any]) -> None:
        values = ", ".join(f"({record['number']})" for record in records)
        self.server.run(f"INSERT INTO {self.table}.orders VALUES {values}")

    def rows(self) -> list[Any]:
        return [
            {"number": number} for (number,) in self.server.run(f"SELECT number FROM {self.table}.orders")
        ]

    def hidden(self) -> list[Any]:
        return self.server.run(
            "SELECT relname FROM pg_class WHERE relname LIKE '\\_penstock\\_%\\_%\\_%' AND relkind = 'r' "
            f"AND relnamespace = '{self.table}'::regnamespace"
        )


class TestPostgresSink(SinkTests):
    steps = SINK_STEPS
    simulated = False

    @pytest.fixture(autouse=True)
    def _use(self, postgres: PostgresServer) -> None:
        self.server = postgres

    def make_world(self, folder: Path) -> PostgresTable:
        return PostgresTable(self.server, key=["number"])

    def bad_record(self) -> Any:
        return {"number": -1}


class TestSqliteSource(SourceTests):
    steps = SOURCE_STEPS
    seeds = range(2 * DEEP)

    def make_world(self, folder: Path) -> SqliteTable:
        return SqliteTable(folder, partitions=3, page_rows=2)

    def make_model(self) -> Callable[[], Any]:
        return lambda: SqliteModel(partitions=3, page_rows=2)


class TestFollowingSqliteSource(SourceTests):
    steps = SOURCE_STEPS
    simulated = False
    is_bounded = False
    is_resumable = False  # the kit waits for all records, and a new job reads only the rest

    def make_world(self, folder: Path) -> SqliteTable:
        return SqliteTable(folder, watch=0.001, page_rows=5)


class TestPostgresSource(SourceTests):
    steps = SOURCE_STEPS[1:2]
    simulated = False

    @pytest.fixture(autouse=True)
    def _use(self, postgres: PostgresServer) -> None:
        self.server = postgres

    def make_world(self, folder: Path) -> PostgresTable:
        return PostgresTable(self.server, partitions=2, page_rows=4)
