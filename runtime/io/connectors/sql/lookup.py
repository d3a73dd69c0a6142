"""`SqlLookup`: the records of a lookup join, from a query of PostgreSQL or SQLite."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.sql.connections import check_url, open_database
from penstock.runtime.io.connectors.sql.database import Rows, SqlDatabase, column_names
from penstock.runtime.io.connectors.sql.reader import as_arrow
from penstock.runtime.names import NearestNames
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in


@without_secrets
@dataclass(frozen=True)
class SqlLookup(metaclass=NearestNames):
    """Finds the row of a key, for `lookup`: `users.lookup(SqlLookup(...), on="country", cache=1_000)`.

    It looks up one key for each record that is not in the cache, or all keys of an Arrow batch at once. With
    `SqlLookup(...).find_async` instead, many look-ups run at the same time.

    Attributes:
        url: `postgresql://user:password@host/database`, or `sqlite://` and the absolute path of a file. No
            message or log shows its password.
        query: A `SELECT`, such as `SELECT * FROM countries`.
        key: Columns of the query that identify a row, in the order of `on`. The database needs an index on
            them.
        schema: Arrow schema of the rows for Arrow batches. SQLite needs it, because it fixes no types.
        timeout: Maximum time of a query.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or psycopg is not installed.

    Example:
        >>> SqlLookup("sqlite:///data/shop.db", "SELECT * FROM countries", key=["code"]).key
        ('code',)
    """

    url: str = field(repr=False)
    query: str
    _: KW_ONLY
    key: Sequence[str]
    schema: pa.Schema | None = None
    timeout: Duration = 30.0

    def __post_init__(self) -> None:
        check_url(self.url)
        object.__setattr__(self, "key", column_names("key", self.key))
        if not self.key:
            msg = "key=() is not allowed: give the columns that identify a row"
            raise ConfigurationError(msg)
        object.__setattr__(self, "timeout", seconds_in("timeout", self.timeout, above=0.0))

    def __call__(self, key: Any) -> Any:
        """Find the row of a key, or the rows of a batch of keys."""
        if isinstance(key, pa.RecordBatch):
            values = [tuple(row) for row in zip(*(column.to_pylist() for column in key.columns), strict=True)]
            return as_arrow(self._find(values), self.schema)
        values = [key if isinstance(key, tuple) and len(self.key) > 1 else (key,)]
        rows = self._find(values).dicts()
        if len(rows) > 1:
            msg = f"the query has {len(rows)} rows with the key {values[0]!r}: give a unique key="
            raise ConnectorError(msg)
        return rows[0] if rows else None

    async def find_async(self, key: Any) -> Any:
        """Find the row of a key, or the rows of a batch of keys, in a thread with a connection of its own."""
        return await asyncio.to_thread(self, key)

    def _find(self, values: Sequence[tuple[Any, ...]]) -> Rows:
        try:
            return self._connected.find(self.query, self.key, values)
        except ConnectorError:  # a retry needs another connection
            local: threading.local = self.__dict__["_local"]
            if hasattr(local, "database"):
                local.database.close()
                del local.database
            raise

    @property
    def _connected(self) -> SqlDatabase:
        """The connection of this thread."""
        local: Any = self.__dict__.setdefault("_local", threading.local())
        if not hasattr(local, "database"):
            local.database = open_database(self.url, as_seconds(self.timeout))
        database: SqlDatabase = local.database
        return database

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_local"}
