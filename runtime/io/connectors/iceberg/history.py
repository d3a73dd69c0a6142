"""Walks through the snapshots of a branch, from its newest to older ones.

Maintenance expires old snapshots. The chain then ends early, at a snapshot whose parent is missing. The last
snapshot may also name no parent, because pyiceberg removes the ids of expired parents. So the end of a chain
does not show whether older snapshots have existed. Sequence numbers do: each new snapshot of a table has the
next one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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


#: Totals in the summary of a snapshot, and what it adds to them and takes from them.
_TOTALS: Final = (
    ("total-records", "added-records", "deleted-records"),
    ("total-data-files", "added-data-files", "deleted-data-files"),
    ("total-files-size", "added-files-size", "removed-files-size"),
)


def totals_of(snapshot: Snapshot | None) -> tuple[int, ...]:
    """Rows, data files and bytes of the table at a snapshot; empty if its summary lacks them."""
    found = _properties(snapshot)
    if any(total not in found for total, _, _ in _TOTALS):
        return ()
    return tuple(int(found[total]) for total, _, _ in _TOTALS)


def totals_before(snapshot: Snapshot) -> tuple[int, ...]:
    """The totals of the snapshot before it, which may have expired."""
    found = _properties(snapshot)
    return tuple(
        total - int(found.get(added, 0)) + int(found.get(removed, 0))
        for total, (_, added, removed) in zip(totals_of(snapshot), _TOTALS, strict=False)
    )


def _properties(snapshot: Snapshot | None) -> Mapping[str, str]:
    if snapshot is None or snapshot.summary is None:
        return {}
    found: Mapping[str, str] = snapshot.summary.additional_properties
    return found
