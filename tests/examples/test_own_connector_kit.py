"""The connector of `examples/own_connector.py` passes the tests that every connector must pass."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from deep import DEEP
from kit_steps import SINK_STEPS, SOURCE_STEPS
from memory_folder import memory_folder
from own_connector import SqliteSink, SqliteSource, connect

from penstock.testing.connectors import SinkTests, SourceTests


class PublishedTable:
    """The database to which the example writes."""

    def __init__(self, folder: Path) -> None:
        self.database = str(folder / "readings.db")

    def sink(self) -> SqliteSink:
        return SqliteSink(self.database, "published")

    def rows(self) -> list[Any]:
        return [json.loads(record) for record in self._all("published")]

    def hidden(self) -> list[Any]:
        return [json.loads(record) for record in self._all("published_staged")]

    def _all(self, table: str) -> list[str]:
        with closing(connect(self.database)) as database:
            try:
                return [record for (record,) in database.execute(f"SELECT record FROM {table}")]
            except sqlite3.OperationalError:  # no writer has made the table yet
                return []


class Readings:
    """The table from which the example reads; a record is a row of it."""

    def __init__(self, folder: Path) -> None:
        self.database = str(folder / "readings.db")
        with closing(connect(self.database)) as database, database:
            database.execute("CREATE TABLE readings (sensor TEXT, celsius REAL)")

    def source(self) -> SqliteSource:
        return SqliteSource(self.database, "readings")

    def write(self, records: Sequence[Any]) -> None:
        with closing(connect(self.database)) as database, database:
            database.executemany("INSERT INTO readings VALUES (?, ?)", records)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder in memory: the tests wait for a hundred commits of a database."""
    with memory_folder() as folder:
        yield folder


class TestSqliteSink(SinkTests):
    seeds = range(DEEP)
    steps = SINK_STEPS

    def make_world(self, folder: Path) -> PublishedTable:
        return PublishedTable(folder)


class TestSqliteSource(SourceTests):
    simulated = DEEP > 1
    steps = SOURCE_STEPS

    def make_world(self, folder: Path) -> Readings:
        return Readings(folder)

    def record(self, number: int) -> tuple[str, float]:
        return f"sensor-{number}", number / 2
