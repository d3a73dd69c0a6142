"""`SqlDatabase`: the calls that the connectors need, and the names of the tables that they make.

Each call is one transaction, or a query. After `timeout` a call raises a `ConnectorError`, and the connection
can't be used any longer. The caller never repeats a call on the same connection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final, Protocol, TypeAlias

import pyarrow as pa

from penstock.runtime.errors import ConfigurationError, ConnectorError, LostOutputError

#: Table of the commits that were made, beside the table of the sink.
LEDGER: Final = "_penstock_commits"
#: Prefix of the names of staged tables.
STAGED: Final = "_penstock_"
#: Column of a staged table: whether the row deletes the row of its key.
DELETES: Final = "_penstock_delete"
#: Column of a staged table: the order of its rows.
ROW: Final = "_penstock_row"

#: Values of a column: Python values, or Arrow.
Values: TypeAlias = Sequence[Any] | pa.Array


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Attributes:
        kind: Type as the database writes it.
        arrow: Arrow type of its values; `None` if the database does not fix a type.
        is_required: Whether it is NOT NULL.
        has_default: Whether a row may leave it out although it is required.
        is_generated: Whether the database computes it, so no row may have it.
        is_plain: Whether equal values are exactly those that Arrow calls equal.
        collation: Collation that differs from that of its type; empty for none.
        takes_null: Whether its type allows null; a domain may refuse it.
    """

    name: str
    kind: str
    arrow: pa.DataType | None = None
    is_required: bool = False
    has_default: bool = False
    is_generated: bool = False
    is_plain: bool = False
    collation: str = ""
    takes_null: bool = True


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table of the database.

    Attributes:
        schema: Name of its schema; empty for SQLite.
        checks: Conditions of its rows, each with the columns that it names.
    """

    schema: str
    name: str
    columns: Mapping[str, Column]
    checks: tuple[tuple[tuple[str, ...], str], ...] = ()

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class Stage:
    """A staged table: rows that wait for their commit. It is written once, in one transaction.

    Attributes:
        columns: Columns of the table that its rows have.
        key: Columns that identify a row; empty if all rows are inserted.
        has_deletes: Whether it has the column `DELETES`.
        is_distinct: Whether each key is in it only once. Otherwise it has the column `ROW`.
        rows: Number of rows.
    """

    name: str
    columns: tuple[str, ...]
    key: tuple[str, ...]
    has_deletes: bool
    is_distinct: bool
    rows: int


class SqlDatabase(Protocol):
    """A connection to a database. One thread at a time uses it."""

    where: str

    def describe(self, table: str) -> TableInfo:
        """Look up a table.

        Raises:
            ConnectorError: There is no such table.
        """
        ...

    def check_key(self, table: TableInfo, key: Sequence[str]) -> None:
        """Refuse a key without a unique index.

        Raises:
            ConnectorError: The key has no unique index.
        """
        ...

    def encode(self, column: Column, values: Values) -> Values:
        """Convert the values of a column to those that `stage` takes.

        Raises:
            ValueError: A value does not fit the column.
            TypeError: A value does not fit the column.
        """
        ...

    def stage(self, table: TableInfo, stage: Stage, columns: Mapping[str, Values]) -> None:
        """Create a staged table with rows.

        Raises:
            BadRecordError: The table would refuse a row.
        """
        ...

    def make_ledger(self, table: TableInfo) -> None:
        """Create the table of commits, unless it exists."""
        ...

    def commit(self, table: TableInfo, lineage: str, commits: Sequence[tuple[int, Sequence[Stage]]]) -> int:
        """Apply the stages of all commits that the ledger lacks, drop them, and record the last number.

        Args:
            commits: Numbers and stages, in ascending order of the numbers.

        Returns:
            The number of rows.

        Raises:
            LostOutputError: A stage is missing.
        """
        ...

    def staged(self, table: TableInfo, prefix: str) -> list[str]:
        """Names of staged tables that begin with a prefix."""
        ...

    def drop(self, table: TableInfo, name: str) -> bool:
        """Drop a staged table; return false if another process holds it."""
        ...

    def fence(self, prefix: str, attempt: int) -> None:
        """End the connections of earlier attempts, where the database can."""
        ...

    def read(self, query: str, by: Sequence[str], page: Page, limit: int) -> Rows:
        """Read the next rows of a query in the order of `by`.

        Raises:
            ConnectorError: The query fails, or it lacks a column of `by`.
        """
        ...

    def first(self, query: str, by: Sequence[str]) -> tuple[Any, ...] | None:
        """The smallest position of a query; `None` without rows.

        Raises:
            ConnectorError: A value of `by` is null.
        """
        ...

    def last(self, query: str, by: Sequence[str]) -> tuple[Any, ...] | None:
        """The largest position of a query; `None` without rows."""
        ...

    def find(self, query: str, key: Sequence[str], values: Sequence[tuple[Any, ...]]) -> Rows:
        """Read the rows of a query that have one of these keys."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a query's rows, in the order of the columns `by`.

    Attributes:
        after: Position after which the part begins: the values of all columns `by`. `None` for the beginning.
        until: Position with which the part ends; `None` for no end.
        above: Lower limit of the first column, itself not included; `None` for none.
        up_to: Upper limit of the first column, itself included; `None` for none.
    """

    after: tuple[Any, ...] | None = None
    until: tuple[Any, ...] | None = None
    above: Any = None
    up_to: Any = None


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of a query, either as an Arrow table or as tuples."""

    names: tuple[str, ...]
    table: pa.Table | None = None
    tuples: Sequence[tuple[Any, ...]] = ()

    def __len__(self) -> int:
        return len(self.tuples) if self.table is None else self.table.num_rows

    def dicts(self) -> list[dict[str, Any]]:
        if self.table is not None:
            rows: list[dict[str, Any]] = self.table.to_pylist()
            return rows
        return [dict(zip(self.names, row, strict=True)) for row in self.tuples]

    def position(self, index: int, by: Sequence[str]) -> tuple[Any, ...]:
        """Values of the columns of `by` in one row."""
        if self.table is not None:
            return tuple(self.table.column(name)[index].as_py() for name in by)
        row = self.tuples[index]
        return tuple(row[self.names.index(name)] for name in by)

    def has_null(self, by: Sequence[str]) -> bool:
        """Whether a column of `by` is null in a row."""
        if self.table is not None:
            return any(self.table.column(name).null_count for name in by)
        places = [self.names.index(name) for name in by] if self.tuples else []
        return any(row[place] is None for place in places for row in self.tuples)

    def slice(self, start: int, count: int) -> Rows:
        if self.table is not None:
            return Rows(self.names, self.table.slice(start, count))
        return Rows(self.names, None, self.tuples[start : start + count])


def column_names(setting: str, names: Sequence[str]) -> tuple[str, ...]:
    """Check that a setting is a list of column names, and return them.

    Raises:
        ConfigurationError: The setting is a single string, or has an empty or repeated name.
    """
    columns = tuple(names)
    if isinstance(names, str) or len(set(columns)) < len(columns) or not all(columns):
        msg = f"{setting}={names!r} is not allowed: give a list of distinct column names"
        raise ConfigurationError(msg)
    return columns


def staged_prefix(job_id: str, operator_id: str) -> str:
    """Beginning of the names of all staged tables of one sink.

    Example:
        >>> staged_prefix("orders-1", "out")
        '_penstock_336edfb9eed1b28c_'
    """
    return f"{STAGED}{blake2b(f'{job_id}/{operator_id}'.encode(), digest_size=8).hexdigest()}_"


def attempt_of(name: str, prefix: str) -> int | None:
    """The attempt that has written a staged table; `None` for another table."""
    number = name.removeprefix(prefix).partition("_")[0]
    return int(number) if name.startswith(prefix) and number.isdecimal() else None


def lost(where: str, stage: Stage) -> LostOutputError:
    """Make the error for a staged table that does not exist, although the ledger lacks its commit."""
    return LostOutputError(
        f"{where}: the staged table {stage.name} is gone, so {stage.rows} rows of a completed checkpoint "
        "are lost. Was it dropped by hand, or is this another database? Start from an older savepoint, or "
        "without a snapshot"
    )


def null_position(where: str, by: Sequence[str]) -> ConnectorError:
    """Make the error for a row that has no position."""
    return ConnectorError(
        f"{where}: a column of by={list(by)} is null in a row, so the row has no position: exclude such rows "
        "in the query"
    )
