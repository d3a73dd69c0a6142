"""`SqlSource`: reads a query of PostgreSQL or SQLite, each row exactly once by its position.

**Position.** `by` names columns that together are unique and never null, such as the primary key. The
position of a row is their values. Rows are read in this order, page by page, and a page begins after the last
position. So a restored job continues after the last row that its checkpoint covers. `OFFSET` would not do:
rows before it may have been inserted or deleted.

**The end.** Without `watch` the source ends at the largest position that it finds when the job starts without
a snapshot. With `watch` it then looks for rows with larger positions, and never ends.

**What is not read.** Pages are queries of their own. A row that is changed or deleted before its page is read
is seen as it is then, or not at all. With `watch`, a row that appears at a *smaller* position than the last
one read is never read. That happens when two transactions take numbers 7 and 8, and 8 commits first. `settle`
waits for such rows: the source reads only up to the largest position that was there that long ago. So a row
is read if its transaction commits within `settle` after it took its number. A position that changes, such as
a time of the last update, makes a changed row appear again.

Two rows with one position fail the job, because a checkpoint could not tell them apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Any, ClassVar

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError, ConnectorError
from penstock.runtime.io.connectors.daemon_threads import in_thread
from penstock.runtime.io.connectors.errors import checked_setting
from penstock.runtime.io.connectors.sql.connections import check_url, open_database
from penstock.runtime.io.connectors.sql.database import SqlDatabase, column_names
from penstock.runtime.io.connectors.sql.reader import SqlReader, SqlSplit
from penstock.runtime.names import NearestNames
from penstock.runtime.operators.source import ConnectorContext
from penstock.runtime.record.elements import BatchFormat
from penstock.runtime.redaction import without_secrets
from penstock.runtime.time.durations import Duration, as_seconds, seconds_in


@without_secrets
@dataclass(frozen=True)
class SqlSource(metaclass=NearestNames):
    """Reads the rows of a query: dicts, or Arrow batches.

    Attributes:
        url: `postgresql://user:password@host/database`, or `sqlite://` and the absolute path of a file. No
            message or log shows its password.
        query: A `SELECT` without `ORDER BY`, such as `SELECT * FROM orders`.
        by: Columns of the query that together are unique and never null. Rows are read in this order. The
            database needs an index on them.
        partitions: Number of parts that are read in parallel: equal ranges of the first column of `by`, which
            must be an integer.
        watch: Time between two checks for rows with larger positions. By default the source ends.
        settle: With `watch`, the time for which a position must have existed before the source reads up to
            it. Rows that are committed out of order are read if they are at most this late.
        batch_format: `"rows"`, or `"arrow"` for Arrow batches.
        schema: Arrow schema of Arrow batches. SQLite needs it, because it fixes no types.
        page_rows: Maximum number of rows that one query reads; two pages are in memory.
        timeout: Maximum time of a query.

    Raises:
        ConfigurationError: A setting has a value that is not allowed, or psycopg is not installed.

    Example:
        >>> SqlSource("sqlite:///data/shop.db", "SELECT * FROM orders", by=["id"]).watch is None
        True
    """

    only_reads: ClassVar[bool] = True
    makes_new_records: ClassVar[bool] = True

    url: str = field(repr=False)
    query: str
    _: KW_ONLY
    by: Sequence[str]
    partitions: int = 1
    watch: Duration | None = None
    settle: Duration = 0.0
    batch_format: BatchFormat = "rows"
    schema: pa.Schema | None = None
    page_rows: int = 16_384
    timeout: Duration = 60.0

    def __post_init__(self) -> None:
        check_url(self.url)
        checked_setting("batch_format", self.batch_format, ("rows", "arrow"))
        object.__setattr__(self, "by", column_names("by", self.by))
        if not self.by:
            msg = "by=() is not allowed: give the columns that identify a row, such as its primary key"
            raise ConfigurationError(msg)
        for name in ("partitions", "page_rows"):
            if getattr(self, name) < 1:
                msg = f"{name}={getattr(self, name)} is not allowed: give at least 1"
                raise ConfigurationError(msg)
        if self.watch is not None:
            object.__setattr__(self, "watch", seconds_in("watch", self.watch, above=0.0))
        object.__setattr__(self, "settle", seconds_in("settle", self.settle))
        object.__setattr__(self, "timeout", seconds_in("timeout", self.timeout, above=0.0))
        if self.settle and self.watch is None:
            msg = "settle= needs watch=: a source that ends reads what is there when it starts"
            raise ConfigurationError(msg)
        if self.batch_format == "arrow" and self.schema is None and self.url.startswith("sqlite"):
            msg = 'batch_format="arrow" of SQLite needs schema=: its columns have no types'
            raise ConfigurationError(msg)

    def splits(self, parallelism: int) -> Sequence[SqlSplit]:
        """Find the first and the last position, and divide the range between them.

        Raises:
            ConnectorError: The query fails, or a position is null.
        """
        database = self._open()
        try:
            first = database.first(self.query, self.by)
            last = None if first is None else database.last(self.query, self.by)
        finally:
            database.close()
        follows = [] if self.watch is None else [SqlSplit("new rows", last, follows=True)]
        if first is None or last is None:
            return follows
        return [*self._parts(first[0], last[0], last), *follows]

    def reader(self, context: ConnectorContext, splits: Sequence[SqlSplit]) -> SqlReader:
        """Make the reader of one subtask."""
        return SqlReader(self, self._open, in_thread, context.clock, splits)

    def _parts(self, low: Any, high: Any, last: tuple[Any, ...]) -> list[SqlSplit]:
        if self.partitions == 1:
            return [SqlSplit("rows", None, last)]
        if not isinstance(low, int) or not isinstance(high, int):
            msg = f"partitions={self.partitions} needs integers in the column {self.by[0]!r}: it has {low!r}"
            raise ConnectorError(msg)
        count = min(self.partitions, high - low + 1)
        limits = [low - 1 + (high - low + 1) * index // count for index in range(count + 1)]
        return [
            SqlSplit(f"rows {above + 1} to {up_to}", None, last, above, up_to)
            for above, up_to in pairwise(limits)
        ]

    def _open(self) -> SqlDatabase:
        return open_database(self.url, as_seconds(self.timeout))
