"""The connector of `examples/own_connector.py` passes the tests that every connector must pass."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from own_connector import SqliteSink, connect

from penstock.testing.connectors import SinkTests


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


class TestSqliteSink(SinkTests):
    def make_world(self, folder: Path) -> PublishedTable:
        return PublishedTable(folder)
