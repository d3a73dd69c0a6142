"""The messages of `pgoutput`, PostgreSQL's plugin for logical replication, in version 1 of its protocol.

https://www.postgresql.org/docs/current/protocol-logicalrep-message-formats.html
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, TypeAlias

from penstock.runtime.errors import ConnectorError


class Unchanged:
    """The unchanged value of a column that the server stores out of line (TOAST) and does not send."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED: Final = Unchanged()

#: Value of a column in the server's text format; `None` for null.
Value: TypeAlias = bytes | Unchanged | None

#: Name, type id and type modifier.
TableColumn: TypeAlias = tuple[str, int, int]

#: Microseconds from the epoch of Unix to that of PostgreSQL, 2000-01-01.
_EPOCH: Final = 946_684_800_000_000

_BEGIN: Final = Struct(">qqI")
_COMMIT: Final = Struct(">Bqqq")
_LENGTH: Final = Struct(">i")
_COUNT: Final = Struct(">h")
_TYPE: Final = Struct(">ii")
_OID: Final = Struct(">I")

_NULL: Final = ord("n")
_TEXT: Final = ord("t")
_UNCHANGED: Final = ord("u")


@dataclass(frozen=True, slots=True, eq=False)
class Relation:
    """A table as it was when the following changes were made.

    Attributes:
        identity: The replica identity: `"f"` for full, `"d"` for the primary key, `"i"` for an index.
        in_identity: Whether each column belongs to the replica identity.
    """

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[TableColumn, ...]
    in_identity: tuple[bool, ...]

    @property
    def label(self) -> str:
        return f"{self.schema}.{self.name}"


@dataclass(frozen=True, slots=True)
class Begin:
    """The beginning of a transaction.

    Attributes:
        timestamp: Time of its commit, in microseconds since the epoch.
        xid: Lower 32 bits of its id.
    """

    commit_lsn: int
    timestamp: int
    xid: int


def read_begin(data: bytes, at: int) -> Begin:
    lsn, timestamp, xid = _BEGIN.unpack_from(data, at)
    return Begin(lsn, timestamp + _EPOCH, xid)


def read_commit(data: bytes, at: int) -> int:
    """The LSN after the commit."""
    end: int = _COMMIT.unpack_from(data, at)[2]
    return end


def read_relation(data: bytes, at: int) -> Relation:
    (oid,) = _OID.unpack_from(data, at)
    schema, at = _text(data, at + 4)
    name, at = _text(data, at)
    identity = chr(data[at])
    (count,) = _COUNT.unpack_from(data, at + 1)
    at += 3
    columns, flags = [], []
    for _ in range(count):
        flags.append(bool(data[at] & 1))
        column, at = _text(data, at + 1)
        type_id, modifier = _TYPE.unpack_from(data, at)
        columns.append((column, type_id & 0xFFFFFFFF, modifier))
        at += 8
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns), tuple(flags))


def read_truncate(data: bytes, at: int) -> Sequence[int]:
    """The ids of the tables that were emptied."""
    (count,) = _LENGTH.unpack_from(data, at)
    return [_OID.unpack_from(data, at + 5 + 4 * index)[0] for index in range(count)]


def read_oid(data: bytes, at: int) -> int:
    oid: int = _OID.unpack_from(data, at)[0]
    return oid


def read_row(data: bytes, at: int) -> tuple[list[Value], int]:
    """The values of a row, and the offset in `data` after it.

    Raises:
        ConnectorError: A value is of a kind that was not requested.
    """
    count, at = data[at] << 8 | data[at + 1], at + 2
    values: list[Value] = []
    add, length_of = values.append, _LENGTH.unpack_from
    for _ in range(count):
        kind = data[at]
        at += 1
        if kind == _TEXT:
            end = at + 4 + length_of(data, at)[0]
            add(data[at + 4 : end])
            at = end
        elif kind == _NULL:
            add(None)
        elif kind == _UNCHANGED:
            add(UNCHANGED)
        else:
            msg = f"pgoutput sent a value of the unknown kind {chr(kind)!r}"
            raise ConnectorError(msg)
    return values, at


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def lsn_text(lsn: int) -> str:
    """An LSN (a position in the write-ahead log) as PostgreSQL shows it.

    Example:
        >>> lsn_text(0x5_96818E00), lsn_of("5/96818E00") == 0x5_96818E00
        ('5/96818E00', True)
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)
