"""Databases whose calls go wrong as a test or a simulation wants."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from typing import Any

from memory_folder import memory_folder

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.sql.connections import open_database
from penstock.sql import SqlSink, SqlSource
from penstock.testing import ExternalWorld, Fate


class FlakyDatabase:
    """A connection whose calls, one by one, are made by `call`."""

    def __init__(self, inner: Any, call: Callable[[Callable[[], Any]], Any]) -> None:
        self._inner, self._call = inner, call

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._inner, name)
        if name in ("where", "encode", "close"):
            return found
        return lambda *arguments: self._call(lambda: found(*arguments))


@dataclass(frozen=True)
class FlakySink(SqlSink):
    """A sink that connects to the database of a world."""

    world: Any = field(default=None, repr=False, kw_only=True)

    def prepare_destination(self, job_id: str) -> None:
        """Leave it out: its failure ends a job in its first attempt."""

    def _open(self, name: str) -> Any:
        return FlakyDatabase(
            self.world.call(lambda: open_database(self.world.url, 30.0, name)), self.world.call
        )


@dataclass(frozen=True)
class FlakySource(SqlSource):
    """A source that connects to the database of a world, and reads without a thread if that is simulated."""

    world: Any = field(default=None, repr=False, kw_only=True)

    def _open(self) -> Any:
        return FlakyDatabase(self.world.call(lambda: open_database(self.world.url, 30.0)), self.world.call)

    @property
    def _begin(self) -> Any:
        return at_once if isinstance(self.world, ExternalWorld) else super()._begin


def at_once(work: Callable[[], Any]) -> Future[Any]:
    future: Future[Any] = Future()
    try:
        future.set_result(work())
    except Exception as error:  # as in a thread
        future.set_exception(error)
    return future


class FlakyCalls:
    """The part of a world that makes its calls, with a real database."""

    _next: Fate | None = None

    def next_fate(self, fate: Fate | None) -> None:
        self._next = fate

    def kill(self, writer: Any) -> None:
        """Close the connection, as the death of its process does."""
        writer.close()

    def call(self, effect: Callable[[], Any]) -> Any:
        fate, self._next = self._next or Fate.ANSWERED, None
        if not fate.is_done:
            raise ConnectorError(f"a test: {fate.value}")
        answer = effect()
        if fate in (Fate.ANSWER_LOST, Fate.HANGS_DONE):
            raise ConnectorError(f"a test: {fate.value}")
        return answer


class SqliteModel(ExternalWorld):
    """A database for simulated jobs: each run has a file of its own in memory."""

    settings: dict[str, Any]

    def __init__(self, **settings: Any) -> None:
        self.settings = settings
        self._waiting: list[Any] = []

    def begin(self, run: Any) -> None:
        super().begin(run)
        self._ends = ExitStack()
        self._path = self._ends.enter_context(memory_folder()) / "shop.db"
        self.url = f"sqlite://{self._path}"
        self.run_sql("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        for record in self._waiting:
            self.run_sql("INSERT INTO orders VALUES (?)", (record["number"],))

    def end(self) -> None:
        self._ends.close()

    def call(self, effect: Callable[[], Any]) -> Any:
        try:
            return self.run.call(effect, timeout=30)
        except OSError as error:
            raise ConnectorError(str(error)) from error

    def source(self) -> FlakySource:
        query = "SELECT number FROM orders"
        return FlakySource("sqlite:///model", query, by=["number"], world=self, **self.settings)

    def write(self, records: Sequence[Any]) -> None:
        self._waiting = [*self._waiting, *records]

    def sink(self) -> FlakySink:
        return FlakySink("sqlite:///model", "orders", world=self, **self.settings)

    def rows(self) -> list[Any]:
        return [{"number": number} for (number,) in self.run_sql("SELECT number FROM orders")]

    def hidden(self) -> list[Any]:
        return self.run_sql("SELECT name FROM sqlite_master WHERE name GLOB '_penstock_*_*'")

    def run_sql(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        with closing(sqlite3.connect(self._path)) as connection, connection:
            return connection.execute(statement, values).fetchall()
