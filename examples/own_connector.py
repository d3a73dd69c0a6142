"""A connector of your own: a source and a transactional sink for tables of a SQLite database.

    python examples/own_connector.py --database readings.db

A source needs `splits` and `reader`; a sink needs `writer`. No base class, no registration. The source's
splits are ranges of row ids, each beginning with the next row to read. The sink writes rows into a staging
table. When their checkpoint is complete, it moves them into the result in one transaction of the database.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import Checkpointing, ConnectorError, PenstockError, StreamEnvironment
from penstock.connectors import CommitPermit, ConnectorContext, Polled
from penstock.operators import Batch, RowBatch

#: First and last row id of a range, both inclusive.
Split = tuple[int, int]


@dataclass(frozen=True)
class SqliteSource:
    """The rows of a table as tuples, in the order of their row ids."""

    database: str
    table: str

    def splits(self, parallelism: int) -> Sequence[Split]:
        """A few ranges for each subtask; called for each attempt that restores no state of this source."""
        if not Path(self.database).is_file():
            raise ConnectorError(f"{self.database} does not exist; create it, or name another database")
        with closing(connect(self.database)) as database:
            query = f"SELECT coalesce(min(rowid), 1), coalesce(max(rowid), 0) FROM {self.table}"
            first, last = database.execute(query).fetchone()
        step = max(1, (last - first) // (4 * parallelism) + 1)
        return [(start, min(start + step - 1, last)) for start in range(first, last + 1, step)]

    def reader(self, context: ConnectorContext, splits: Sequence[Split]) -> SqliteReader:
        """Called in each subtask with its share of the splits, on a fresh start or after a restore."""
        return SqliteReader(self, splits)


class SqliteReader:
    """Reads its ranges one after another."""

    def __init__(self, source: SqliteSource, splits: Sequence[Split]) -> None:
        self._database = connect(source.database)
        self._query = (
            f"SELECT rowid, * FROM {source.table} WHERE rowid BETWEEN ? AND ? ORDER BY rowid LIMIT ?"
        )
        self._ranges = list(splits)

    def poll(self, max_rows: int) -> Polled[tuple[Any, ...]]:
        """Return the next rows, and move the start of the range past them."""
        while self._ranges:
            first, last = self._ranges[0]
            rows = self._database.execute(self._query, (first, last, max_rows)).fetchall()
            if rows:
                self._ranges[0] = (rows[-1][0] + 1, last)
                return Polled(RowBatch([row[1:] for row in rows]))
            del self._ranges[0]
        return Polled(finished=True)

    def snapshot(self) -> Sequence[Split]:
        """Return the remaining ranges; a restored reader needs nothing else."""
        return list(self._ranges)

    def close(self) -> None:
        """Close the connection."""
        self._database.close()


@dataclass(frozen=True)
class SqliteSink:
    """Adds each record to a table with one column, as JSON."""

    database: str
    table: str

    def writer(self, context: ConnectorContext) -> SqliteWriter:
        """Called in each subtask."""
        return SqliteWriter(self, context)


class SqliteWriter:
    """Stages rows before a checkpoint and publishes them after it."""

    def __init__(self, sink: SqliteSink, context: ConnectorContext) -> None:
        self._table = sink.table
        self._staged = f"{sink.table}_staged"
        self._owner = f"{context.job_id}/{context.operator_id}"
        self._attempt = context.attempt
        self._subtask = context.subtask
        self._transactions = 0
        self._open: list[str] = []
        self._database = connect(sink.database)
        with self._database:
            self._database.execute(f"CREATE TABLE IF NOT EXISTS {self._table} (record TEXT)")
            self._database.execute(
                f"CREATE TABLE IF NOT EXISTS {self._staged} (owner TEXT, attempt INT, name TEXT, record TEXT)"
            )

    def write(self, batch: Batch) -> None:
        """Add records to the open transaction."""
        assert isinstance(batch, RowBatch), "this sink takes rows"
        self._open.extend(map(json.dumps, batch.rows))

    def prepare_commit(self) -> Sequence[str]:
        """Pre-commit: store the rows in the staging table, and return the name of the transaction."""
        if not self._open:
            return []
        name = f"{self._owner}/{self._attempt}/{self._subtask}/{self._transactions}"
        rows = [(self._owner, self._attempt, name, record) for record in self._open]
        with self._database:
            self._database.executemany(f"INSERT INTO {self._staged} VALUES (?, ?, ?, ?)", rows)
        self._transactions += 1
        self._open = []
        return [name]

    def commit(self, committables: Sequence[str], permit: CommitPermit) -> None:
        """Publish the rows; a repeated commit finds no staged rows, so it does nothing."""
        for name in committables:
            with self._database:
                self._database.execute(
                    f"INSERT INTO {self._table} SELECT record FROM {self._staged} WHERE name = ?", (name,)
                )
                self._database.execute(f"DELETE FROM {self._staged} WHERE name = ?", (name,))

    def remove_leftovers(self, permit: CommitPermit) -> None:
        """Optional: delete rows that earlier attempts of this job staged and no checkpoint covers."""
        with self._database:
            self._database.execute(
                f"DELETE FROM {self._staged} WHERE owner = ? AND attempt < ?", (self._owner, self._attempt)
            )

    def close(self) -> None:
        """Close the connection; staged rows stay for the next attempt to publish."""
        self._database.close()


def connect(database: str) -> sqlite3.Connection:
    """Open a connection that waits while other subtasks write."""
    return sqlite3.connect(database, timeout=60)


def fahrenheit(reading: tuple[Any, ...]) -> dict[str, object]:
    """The published form of a reading."""
    sensor, celsius = reading
    return {"sensor": sensor, "fahrenheit": round(celsius * 9 / 5 + 32, 1)}


def make_readings(database: str, count: int) -> None:
    """Make a table of readings."""
    readings = [(f"sensor-{i % 7}", (i * 37 % 400) / 10) for i in range(count)]
    with closing(connect(database)) as target, target:
        target.execute("DROP TABLE IF EXISTS readings")
        target.execute("DROP TABLE IF EXISTS published")
        target.execute("CREATE TABLE readings (sensor TEXT, celsius REAL)")
        target.executemany("INSERT INTO readings VALUES (?, ?)", readings)


def main() -> int:
    """Make a table, run the job, and count the published rows."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--database", required=True, metavar="FILE", help="SQLite database, made if missing")
    parser.add_argument("--readings", type=int, default=100_000, metavar="N")
    parser.add_argument("--parallelism", type=int, default=2)
    options = parser.parse_args()
    database = Path(options.database).resolve()
    make_readings(str(database), options.readings)

    storage = str(database.with_name(f"{database.name}-checkpoints"))
    env = StreamEnvironment(
        "own-connector",
        parallelism=options.parallelism,
        checkpointing=Checkpointing(every=1, storage=storage),
    )
    readings = env.from_source("readings", SqliteSource(str(database), "readings"))
    readings.map(fahrenheit).sink("published", SqliteSink(str(database), "published"))
    try:
        env.run()
    except PenstockError as error:
        print(f"own_connector: {error}", file=sys.stderr)
        return 1
    with closing(connect(str(database))) as result:
        (published,) = result.execute("SELECT count(*) FROM published").fetchone()
    print(f"{published} of {options.readings} readings published")
    return 0 if published == options.readings else 1


if __name__ == "__main__":
    sys.exit(main())
