"""`SqlWriter`: puts the rows of one subtask into staged tables.

Rows are collected until there are `stage_rows` of them, a row with other columns comes, or the checkpoint
comes. Then they become one staged table. With a key only the last row of each key is kept. Within a staged
table the order of rows then means nothing, and staged tables are applied in the order in which they were
made. So rows of one key must come from one subtask, as after `key_by`.

The database decides whether two keys are equal. Arrow decides only for types on which both agree. Rows with
other keys, such as `numeric`, are numbered, and the database chooses the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import numpy as np
import pyarrow as pa

from penstock.runtime.errors import ConnectorError
from penstock.runtime.io.connectors.errors import BadRecordError, shown
from penstock.runtime.io.connectors.sql.database import (
    DELETES,
    ROW,
    Column,
    SqlDatabase,
    Stage,
    TableInfo,
    Values,
)
from penstock.runtime.names import nearest_name
from penstock.runtime.record.elements import ArrowBatch, Batch, RowBatch

if TYPE_CHECKING:
    from penstock.runtime.io.connectors.sql.sink import SqlSink

#: Whether a change of this kind deletes the row of its key.
KINDS: Final = {"insert": False, "update_preimage": True, "update_postimage": False, "delete": True}

_DELETES: Final = Column(DELETES, "boolean", pa.bool_())


class SqlWriter:
    """Stages the rows of one subtask.

    Args:
        prefix: Beginning of the names of its staged tables.
    """

    def __init__(self, sink: SqlSink, connect: Callable[[], SqlDatabase], prefix: str) -> None:
        self._sink = sink
        self._connect = connect
        self._prefix = prefix
        self._opened: SqlDatabase | None = None
        self._names: tuple[str, ...] = ()
        self._parts: list[Mapping[str, Values]] = []
        self._rows = 0
        self._staged: list[Stage] = []

    def write(self, batch: Batch) -> None:
        if self._opened is None:  # a failure in `writer` would end a job that is in its first attempt
            self._opened = self._connect()
            self._table = self._opened.describe(self._sink.table)
            check_writable(self._opened.where, self._table, self._sink.key)
        for part in [batch] if isinstance(batch, ArrowBatch) else _of_same_columns(batch):
            columns = self._encoded(part)
            if tuple(columns) != self._names:
                self._stage()
                self._names = tuple(columns)
            self._parts.append(columns)
            self._rows += len(part)
            if self._rows >= self._sink.stage_rows:
                self._stage()

    def prepare_commit(self) -> Sequence[Stage]:
        self._stage()
        staged, self._staged = self._staged, []
        return staged

    def close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    @property
    def _database(self) -> SqlDatabase:
        assert self._opened is not None, "write() opens it"
        return self._opened

    def _encoded(self, batch: Batch) -> dict[str, Values]:
        """The columns of a batch as the database takes them, in the order of the table."""
        given = _columns_of(batch)
        for name in self._sink.columns:
            given.setdefault(name, [None] * len(batch))
        kind = self._sink.change_kind
        kinds = None if kind is None else given.pop(kind, None)
        if kind is not None and kinds is None:
            msg = f"the column {kind!r} of change_kind= is missing"
            raise self._refused(msg, batch, 0)
        for name in (*given, *self._sink.key):
            self._check_name(name, given, batch)
        deletes = None if kinds is None else self._deletes(kinds, batch)
        if deletes is not None and all(deletes):
            # Only the key counts. Nulls in the columns of the previous rows avoid another staged table.
            others = [name for name in self._names if name not in (*self._sink.key, DELETES)]
            if not all(self._table.columns[name].takes_null for name in others):
                others = []
            given = {name: given[name] for name in self._sink.key} | {
                name: [None] * len(batch) for name in others
            }
        encoded = {
            name: self._values(column, given[name], batch)
            for name, column in self._table.columns.items()
            if name in given
        }
        for name in self._sink.key:
            self._check_no_null(name, encoded[name], batch)
        missing = [
            name
            for name, column in self._table.columns.items()
            if column.is_required and not column.has_default and name not in encoded
        ]
        if missing and (deletes is None or False in deletes):
            index = 0 if deletes is None else deletes.index(False)
            msg = f"the column {missing[0]!r} is NOT NULL, and has no default"
            raise self._refused(msg, batch, index)
        if deletes is not None:
            encoded[DELETES] = self._database.encode(_DELETES, deletes)
        return encoded

    def _check_name(self, name: str, given: Mapping[str, Values], batch: Batch) -> None:
        column = self._table.columns.get(name)
        if column is None:
            hint = nearest_name(name, self._table.columns)
            msg = f"the table has no column {name!r}{hint}"
            raise self._refused(msg, batch, 0)
        if name not in given:
            msg = f"the column {name!r} of key= is missing"
            raise self._refused(msg, batch, 0)
        if column.is_generated:
            msg = f"the database generates the column {name!r}: leave it out"
            raise self._refused(msg, batch, 0)

    def _values(self, column: Any, values: Values, batch: Batch) -> Values:
        try:
            return self._database.encode(column, values)
        except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
            for index in range(len(values)):  # find the value
                try:
                    self._database.encode(column, values[index : index + 1])
                except (ValueError, TypeError, OverflowError, pa.ArrowException) as one:
                    what = f"the column {column.name!r} is {column.kind or 'of no type'}: {one}"
                    raise self._refused(what, batch, index) from None
            msg = f"the column {column.name!r} is {column.kind}: {error}"
            raise self._refused(msg, batch, 0) from None

    def _check_no_null(self, name: str, values: Values, batch: Batch) -> None:
        if isinstance(values, pa.Array):
            nulls = values.is_null().to_pylist() if values.null_count else []
        else:
            nulls = [value is None for value in values]
        if any(nulls):
            msg = f"the column {name!r} of key= is null"
            raise self._refused(msg, batch, nulls.index(True))

    def _deletes(self, kinds: Values, batch: Batch) -> list[bool]:
        listed = kinds.to_pylist() if isinstance(kinds, pa.Array) else kinds
        deletes = []
        for index, kind in enumerate(listed):
            if not isinstance(kind, str) or kind not in KINDS:
                known = ", ".join(map(repr, KINDS))
                what = f"{kind!r} in {self._sink.change_kind!r} is not a kind of change: use one of {known}"
                raise self._refused(what, batch, index)
            deletes.append(KINDS[kind])
        return deletes

    def _refused(self, what: str, batch: Batch, index: int) -> BadRecordError:
        rows = (
            batch.batch.slice(index, 1).to_pylist() if isinstance(batch, ArrowBatch) else [batch.rows[index]]
        )
        return BadRecordError(
            f"{self._database.where}: table {self._table.label}: {what}; the record is {shown(rows[0])}"
        )

    def _stage(self) -> None:
        if not self._rows:
            return
        columns = {name: _joined([part[name] for part in self._parts]) for name in self._names}
        key, rows = self._sink.key, self._rows
        is_distinct = bool(key) and all(self._table.columns[name].is_plain for name in key)
        if is_distinct:
            columns = last_of_each_key(columns, key)
            rows = len(columns[key[0]])
        elif key:
            columns[ROW] = range(rows) if isinstance(columns[key[0]], list) else pa.array(np.arange(rows))
        stage = Stage(
            f"{self._prefix}_{uuid4().hex[:12]}",
            tuple(name for name in self._names if name != DELETES),
            tuple(key),
            DELETES in columns,
            is_distinct,
            rows,
        )
        self._database.stage(self._table, stage, columns)
        self._staged.append(stage)
        self._parts, self._rows = [], 0


def check_writable(where: str, table: TableInfo, key: Sequence[str]) -> None:
    """Check that a table has all columns of the key.

    Raises:
        ConnectorError: A column is missing.
    """
    for name in key:
        if name not in table.columns:
            hint = nearest_name(name, table.columns)
            msg = f"{where}: table {table.label} has no column {name!r} of key={hint}"
            raise ConnectorError(msg)


def last_of_each_key(columns: Mapping[str, Values], key: Sequence[str]) -> dict[str, Values]:
    """The last row of each key, from Arrow columns.

    Example:
        >>> last_of_each_key({"id": pa.array([1, 2, 1]), "n": pa.array([7, 8, 9])}, ["id"])["n"].to_pylist()
        [8, 9]
    """
    rows = pa.table(dict(columns))
    numbered = rows.select(list(key)).append_column(ROW, pa.array(np.arange(rows.num_rows)))
    last = numbered.group_by(list(key), use_threads=False).aggregate([(ROW, "max")]).column(f"{ROW}_max")
    if len(last) == rows.num_rows:
        return dict(columns)
    taken = rows.take(last.combine_chunks().sort()).combine_chunks()
    return {name: taken.column(name) for name in taken.column_names}


def _of_same_columns(batch: RowBatch) -> Iterator[RowBatch]:
    """Cut a batch where the columns change: a record sets only its own columns."""
    start = 0
    for index, row in enumerate(batch.rows):
        if not isinstance(row, dict):
            msg = f"SqlSink takes dicts, not {shown(row)}: make dicts with map before the sink"
            raise BadRecordError(msg)
        if row.keys() != batch.rows[start].keys():
            yield RowBatch(batch.rows[start:index])
            start = index
    if start < len(batch.rows):
        yield RowBatch(batch.rows[start:])


def _columns_of(batch: Batch) -> dict[str, Values]:
    if isinstance(batch, ArrowBatch):
        return dict(zip(batch.batch.schema.names, batch.batch.columns, strict=True))
    return {name: [row[name] for row in batch.rows] for name in batch.rows[0]}


def _joined(parts: Sequence[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts)
    joined: list[Any] = []
    for part in parts:
        joined += part
    return joined
