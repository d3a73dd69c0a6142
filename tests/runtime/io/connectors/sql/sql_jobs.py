"""Sinks and sources of databases in jobs whose checkpoints a test decides."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from serving.postgres import PostgresServer

from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch
from penstock.runtime.snapshot.completed_checkpoint import permit_of_completed_checkpoint
from penstock.sql import SqlSink, SqlSource


@dataclass
class Shop:
    """A database, and how a test runs statements there."""

    url: str
    run: Callable[[str], list[Any]]

    @property
    def is_sqlite(self) -> bool:
        return self.url.startswith("sqlite")


def sqlite_shop(folder: Path) -> Shop:
    path = folder / "shop.db"

    def run(statement: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as connection, connection:
            return connection.execute(statement).fetchall()

    path.touch()
    return Shop(f"sqlite://{path}", run)


def postgres_shop(server: PostgresServer) -> Shop:
    url = server.new_database()
    return Shop(url, lambda statement: server.run(statement, database=url.rpartition("/")[2]))


class Job:
    """One writer and the committer of a sink. All that is staged is committed by `checkpoint`."""

    def __init__(
        self, sink: SqlSink, context: Callable[..., Any], *, job: str = "job-1", attempt: int = 1
    ) -> None:
        self.sink = sink
        self.writer = sink.writer(context(operator="out", attempt=attempt, job=job))
        self.committer = sink.committer(context(operator="out-committer", attempt=attempt, job=job))

    def write(self, *rows: Any) -> None:
        self.writer.write(RowBatch(list(rows)))

    def write_columns(self, columns: dict[str, Any]) -> None:
        self.writer.write(ArrowBatch(pa.record_batch(columns)))

    def pre_commit(self) -> list[Any]:
        self.committer.write(RowBatch(list(self.writer.prepare_commit())))
        return list(self.committer.prepare_commit())

    def commit(self, committables: Sequence[Any]) -> None:
        self.committer.commit(committables, permit_of_completed_checkpoint(1, 1))

    def checkpoint(self) -> None:
        self.commit(self.pre_commit())

    def remove_leftovers(self) -> None:
        self.committer.remove_leftovers(permit_of_completed_checkpoint(1, 1))

    def close(self) -> None:
        self.writer.close()
        self.committer.close()


def read_all(
    source: SqlSource, context: Callable[..., ConnectorContext], splits: Sequence[Any] | None = None
) -> list[Any]:
    """Read a source to its end."""
    reader = source.reader(context(), source.splits(1) if splits is None else splits)
    rows: list[Any] = []
    while not (polled := reader.poll(1_000)).finished:
        rows += rows_in(polled.batch)
    reader.close()
    return rows


def rows_in(batch: Batch | None) -> list[Any]:
    if batch is None:
        return []
    return list(batch.rows) if isinstance(batch, RowBatch) else batch.batch.to_pylist()
