"""Walks through the snapshots of a branch, from its newest to older ones.

Maintenance expires old snapshots. The chain then ends early, at a snapshot whose parent is missing. The last
snapshot may also name no parent, because pyiceberg removes the ids of expired parents. So the end of a chain
does not show whether older snapshots have existed. Sequence numbers do: each new snapshot of a table has the
next one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

MAIN: Final = "main"


def head_of(table: Table, ref: str) -> int | None:
    """Id of the newest snapshot of a branch or tag; `None` if it does not exist."""
    found = table.refs().get(ref)
    return None if found is None else found.snapshot_id


def ancestors(table: Table, head: int | None) -> Iterator[Snapshot]:
    """The snapshot `head` and those before it, as far as they are kept."""
    known = {snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}
    while head is not None and head in known:
        snapshot = known[head]
        yield snapshot
        head = snapshot.parent_snapshot_id


def sequence_of(snapshot: Snapshot | None) -> int:
    """Sequence number of a snapshot; 0 before the first one, and in tables of format version 1."""
    return 0 if snapshot is None else snapshot.sequence_number or 0
