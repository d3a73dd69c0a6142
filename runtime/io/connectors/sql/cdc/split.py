"""`CdcSplit`: the position of a source of changes. Checkpoints hold it.

**The stream.** Transactions come in the order of their commits, and each change has a number in its
transaction. The server repeats a transaction from its beginning, with the same changes in the same order. So
the position is a place in the log, before which all commits are read. In a transaction that is read in part,
it is also the place of its commit and the number of changes that are read.

**The snapshot.** The rows of a table are read in the order of its primary key, in one transaction. A restored
job continues after the last key in another transaction, which sees other rows. So each *chunk* of keys has
the snapshot of its transaction: the list of transactions that it sees. The stream is read afterwards. A
change is left out if the chunk of its key sees the change's transaction, because the chunk already has the
result of the change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, Self, TypeAlias

from penstock.runtime.io.connectors.sql.cdc.pgoutput import TableColumn

#: Values of the primary key: integers, or strings in the order of their bytes.
Key: TypeAlias = tuple[int | str, ...]

#: Number of transactions after which their 32-bit ids repeat.
_WRAP: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Visible:
    """The transactions that a snapshot sees (`pg_snapshot`).

    Attributes:
        below: All transactions below this id had ended.
        until: No transaction from this id on had ended.
        running: Ids in between of transactions that had not ended.
    """

    below: int
    until: int
    running: frozenset[int]

    def sees(self, xid: int) -> bool:
        """Return whether a transaction that has committed is visible.

        Args:
            xid: The lower 32 bits of its id; the whole id is the nearest one to those of the snapshot.
        """
        whole = self.until + (xid - self.until + _WRAP // 2) % _WRAP - _WRAP // 2
        return whole < self.until and whole not in self.running


@lru_cache(maxsize=1024)
def visible_in(snapshot: str) -> Visible:
    """Read the text of a `pg_snapshot`.

    Example:
        >>> seen = visible_in("10:20:10,14")
        >>> [xid for xid in range(9, 22) if not seen.sees(xid)]
        [10, 14, 20, 21]
        >>> visible_in("4294967290:4294967300:").sees(3), visible_in("4294967290:4294967300:").sees(5)
        (True, False)
    """
    below, until, running = snapshot.split(":")
    return Visible(
        int(below), int(until), frozenset(map(int, running.split(","))) if running else frozenset()
    )


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """Rows of a table that were read in one snapshot.

    Attributes:
        up_to: Key of its last row; `None` for all keys that are left.
    """

    up_to: Key | None
    snapshot: str


@dataclass(frozen=True, slots=True)
class CdcTable:
    """A table that is read.

    Attributes:
        name: Schema and name.
        oid: Its id in the database; a table that is dropped and created again has another one.
        columns: Columns of the last record.
        key: Columns of its primary key.
        chunks: Parts of the snapshot in the order of keys; empty when no change can be in them any more.
    """

    name: str
    oid: int
    columns: tuple[TableColumn, ...]
    key: tuple[str, ...]
    chunks: tuple[SnapshotChunk, ...] = ()

    def verdict(self, xid: int) -> bool | tuple[bool, ...]:
        """Whether the changes of a transaction are new; one value per chunk if the chunks differ."""
        new = tuple(not visible_in(chunk.snapshot).sees(xid) for chunk in self.chunks)
        return new if len(set(new)) > 1 else all(new)

    def chunk_of(self, key: Key) -> int:
        """Index of the chunk that has read a key."""
        return next(i for i, chunk in enumerate(self.chunks) if chunk.up_to is None or key <= chunk.up_to)

    def read_to(self, up_to: Key | None, snapshot: str) -> Self:
        """The table after rows were read in a snapshot."""
        before = self.chunks
        if before and before[-1].snapshot == snapshot:
            before = before[:-1]
        return replace(self, chunks=(*before, SnapshotChunk(up_to, snapshot)))


@dataclass(frozen=True, slots=True)
class CdcSplit:
    """All changes of a slot, from a position on.

    Attributes:
        system: Identifier of the database cluster.
        lsn: All transactions that were committed before this place are read.
        commit_lsn: Place of the commit of a transaction that has been read in part.
        changes: Number of its changes that have been read.
        reading: Index of the table whose rows are being read; `None` once the snapshot has been read.
        settled: Transactions that were committed from this place on are in no chunk.
        stop: The split ends at this place; `None` for no end.
    """

    slot: str
    system: str
    lsn: int
    tables: tuple[CdcTable, ...]
    commit_lsn: int | None = None
    changes: int = 0
    reading: int | None = None
    settled: int = 0
    stop: int | None = None

    @property
    def name(self) -> str:
        return self.slot

    def moved_to(self, position: CdcSplit) -> CdcSplit:
        return position

    def with_table(self, changed: CdcTable) -> Self:
        return replace(
            self, tables=tuple(changed if table.oid == changed.oid else table for table in self.tables)
        )

    def at(self, lsn: int) -> Self:
        """The position between two transactions."""
        tables = self.tables
        if self.settled and lsn >= self.settled and self.reading is None:
            tables = tuple(replace(table, chunks=()) for table in tables)
            return replace(self, lsn=lsn, commit_lsn=None, changes=0, tables=tables, settled=0)
        return replace(self, lsn=lsn, commit_lsn=None, changes=0)


def key_reader(columns: Sequence[TableColumn], key: Sequence[str]) -> Callable[[Sequence[object]], Key]:
    """Return a function that reads the key from the values of a row in the server's text format."""
    names = [name for name, _, _ in columns]
    places = [(names.index(name), columns[names.index(name)][1] in INTEGERS) for name in key]

    def read(values: Sequence[object]) -> Key:
        found: list[int | str] = []
        for place, is_integer in places:
            value = values[place]
            assert isinstance(value, bytes), "a primary key is never null, and always sent"
            found.append(int(value) if is_integer else value.decode())
        return tuple(found)

    return read


#: Ids of the types int8, int2 and int4.
INTEGERS: Final = frozenset([20, 21, 23])
