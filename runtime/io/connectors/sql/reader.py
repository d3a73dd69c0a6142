"""`SqlReader`: reads the splits of one subtask page by page, in a thread of its own.

The thread reads the next page while the task thread emits the current one. So at most two pages are in
memory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.arrow_batches import arrow_rows
from penstock.runtime.io.connectors.sql.database import Page, Rows, SqlDatabase, null_position
from penstock.runtime.operators.lag import SourceLag, SplitLag
from penstock.runtime.operators.source import Polled
from penstock.runtime.ports import Clock
from penstock.runtime.record.elements import ArrowBatch, RowBatch, one_batch
from penstock.runtime.time.durations import as_seconds

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.sql.source import SqlSource


@dataclass(frozen=True, slots=True)
class SqlSplit:
    """A part of a query, after a position.

    Attributes:
        after: Position of the last row that was read; `None` before the first one.
        until: Last position to read; `None` for no end.
        above: Exclusive lower limit of the first column of `by`.
        up_to: Inclusive upper limit of the first column of `by`.
        follows: Whether the split has no end and waits for new rows.
    """

    name: str
    after: tuple[Any, ...] | None
    until: tuple[Any, ...] | None = None
    above: Any = None
    up_to: Any = None
    follows: bool = False

    @property
    def has_ended(self) -> bool:
        """Whether the row at `until` was read; a split may also end without reading that row."""
        return self.until is not None and self.after == self.until

    @property
    def page(self) -> Page:
        return Page(self.after, self.until, self.above, self.up_to)


@dataclass(frozen=True, slots=True)
class _Loaded:
    """A page.

    Attributes:
        is_last: Whether no rows followed the page when it was read.
    """

    rows: Rows
    is_last: bool


Work: TypeAlias = Callable[[], _Loaded]


class SqlReader:
    """Reads the splits in turn; the split without an end comes last.

    Args:
        begin: Starts work in another thread.
    """

    def __init__(
        self,
        source: SqlSource,
        connect: Callable[[], SqlDatabase],
        begin: Callable[[Work], Future[_Loaded]],
        clock: Clock,
        splits: Sequence[SqlSplit],
    ) -> None:
        self._source = source
        self._connect = connect
        self._begin = begin
        self._clock = clock
        self._waiting = deque(sorted(splits, key=lambda split: split.follows))
        self._split: SqlSplit | None = None
        self._page: _Loaded | None = None
        self._emitted = 0
        self._coming: Future[_Loaded] | None = None
        # The splits' last positions are known by now. With `settle`, rows before them may still be committed.
        has_end = any(not split.follows for split in splits)
        self._look_at = clock.monotonic() + as_seconds(source.settle) if has_end and source.settle else 0.0
        self._has_caught_up = False
        # Of the thread that reads:
        self._database: SqlDatabase | None = None
        self._seen: deque[tuple[float, tuple[Any, ...]]] = deque()
        self._lag = self._measured()

    def poll(self, max_rows: int) -> Polled[Any]:
        if self._split is None:
            if not self._waiting:
                return Polled(finished=True)
            self._split = self._waiting.popleft()
        if self._page is not None and self._emitted == len(self._page.rows):
            self._end_page(self._page)
            return Polled(ready_at=self._clock.monotonic())
        if self._page is None:
            if self._coming is None:
                if self._clock.monotonic() < self._look_at:
                    return Polled(ready_at=self._look_at)
                self._coming = self._load(self._split)
            if not self._coming.done():
                return Polled()
            coming, self._coming = self._coming, None
            self._page, self._emitted = coming.result(), 0
            if not self._page.is_last:
                after = self._page.rows.position(len(self._page.rows) - 1, self._source.by)
                self._coming = self._load(replace(self._split, after=after))
            return Polled(ready_at=self._clock.monotonic())
        return self._emit(self._split, self._page.rows, max_rows)

    def snapshot(self) -> Sequence[SqlSplit]:
        return [*(() if self._split is None else (self._split,)), *self._waiting]

    def lag(self) -> SourceLag:
        """The splits that are left, with their positions if these are integers; rows are not counted."""
        return self._lag

    def close(self) -> None:
        self._waiting.clear()
        if self._coming is not None:
            self._coming.add_done_callback(lambda done: self._disconnect())
        else:
            self._disconnect()

    def _emit(self, split: SqlSplit, rows: Rows, max_rows: int) -> Polled[Any]:
        in_columns = self._source.batch_format == "arrow"
        left = len(rows) - self._emitted
        part = rows.slice(self._emitted, min(left, arrow_rows(max_rows) if in_columns else max_rows))
        self._emitted += len(part)
        self._has_caught_up = False
        self._split = replace(split, after=part.position(len(part) - 1, self._source.by))
        self._lag = self._measured()
        if in_columns:
            return Polled(ArrowBatch(one_batch(as_arrow(part, self._source.schema))))
        return Polled(RowBatch(part.dicts()))

    def _end_page(self, page: _Loaded) -> None:
        assert self._split is not None, "it has a page"
        self._page = None
        if page.is_last and not self._split.follows:
            self._split = None
        elif page.is_last:
            self._has_caught_up = True
            watch = self._source.watch
            self._look_at = self._clock.monotonic() + as_seconds(watch if watch is not None else 0.0)
        self._lag = self._measured()

    def _load(self, split: SqlSplit) -> Future[_Loaded]:
        return self._begin(lambda: self._read(split))

    def _measured(self) -> SourceLag:
        read = self._split is None or self._has_caught_up or self._split.has_ended
        left = [*(() if read or self._split is None else (self._split,)), *self._waiting]
        return SourceLag.of(_lag_of(split) for split in left)

    # -- the thread that reads ----------------------------------------------------------------------------

    def _read(self, split: SqlSplit) -> _Loaded:
        source = self._source
        if self._database is None:
            self._database = self._connect()
        page = split.page
        if split.follows and source.settle:
            until = self._settled(self._database)
            if until is None:
                return _Loaded(Rows(()), is_last=True)
            page = replace(page, until=until)
        # One more row shows whether the page's last position repeats on the next page.
        rows = self._database.read(source.query, source.by, page, source.page_rows + 1)
        if rows.has_null(source.by):
            raise null_position(self._database.where, source.by)
        if len(rows) > 1 and (same := _repeated(rows, source.by)) is not None:
            msg = (
                f"{self._database.where}: two rows have the position {same} in by={list(source.by)}. Add "
                "columns to by= so that the positions are unique, such as the primary key as the last column"
            )
            raise ConnectorError(msg)
        return _Loaded(rows.slice(0, source.page_rows), is_last=len(rows) <= source.page_rows)

    def _settled(self, database: SqlDatabase) -> tuple[Any, ...] | None:
        """The largest position that existed `settle` ago; `None` if there is none yet."""
        last, now = database.last(self._source.query, self._source.by), self._clock.monotonic()
        if last is not None and None in last:
            raise null_position(database.where, self._source.by)
        if last is not None:
            self._seen.append((now, last))
        settle = as_seconds(self._source.settle)
        while len(self._seen) > 1 and self._seen[1][0] <= now - settle:
            self._seen.popleft()
        return self._seen[0][1] if self._seen and self._seen[0][0] <= now - settle else None

    def _disconnect(self) -> None:
        if self._database is not None:
            self._database.close()


def as_arrow(rows: Rows, schema: pa.Schema | None) -> pa.Table:
    """Rows as an Arrow table of a schema.

    Raises:
        ConnectorError: A value does not fit the schema, or a column is missing.
    """
    try:
        if rows.table is not None:
            return rows.table if schema is None else rows.table.select(schema.names).cast(schema)
        assert schema is not None, "a database without types needs a schema"
        places = [rows.names.index(name) for name in schema.names]
        columns = [pa.array([row[at] for row in rows.tuples], schema.types[i]) for i, at in enumerate(places)]
        return pa.Table.from_arrays(columns, schema=schema)
    except (pa.ArrowException, ValueError, KeyError) as error:
        msg = f"the rows of the query don't fit schema=: {error}. They have the columns {list(rows.names)}"
        raise ConnectorError(msg) from error


def _repeated(rows: Rows, by: Sequence[str]) -> tuple[Any, ...] | None:
    """A position that two consecutive rows share; rows are sorted by position."""
    if rows.table is None:
        positions = [rows.position(index, by) for index in range(len(rows))]
        return next((one for one, two in pairwise(positions) if one == two), None)
    same: Any = None
    for name in by:
        column = rows.table.column(name).combine_chunks()
        equal = pc.equal(column[:-1], column[1:])
        same = equal if same is None else pc.and_(same, equal)
    at = pc.index(same, True).as_py()
    return None if at < 0 else rows.position(at, by)


def _lag_of(split: SqlSplit) -> SplitLag:
    after = split.after[0] if split.after is not None else None
    end = split.until[0] if split.until is not None else split.up_to
    position, end = (value if isinstance(value, int) else None for value in (after, end))
    return SplitLag(split.name, position=position, end=end)
