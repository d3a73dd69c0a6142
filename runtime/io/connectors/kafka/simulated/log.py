"""`PartitionLog`: one partition, with open, committed and aborted records, and the markers between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class Visibility(Enum):
    """The readers of an entry of a log."""

    COMMITTED = "all readers"
    OPEN = "readers of uncommitted records"
    ABORTED = "readers of uncommitted records, for ever"
    MARKER = "no reader"


@dataclass(slots=True)
class PartitionEntry:
    """A record, or the marker that ends a transaction.

    Attributes:
        timestamp: Milliseconds since the epoch.
    """

    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp: int
    visibility: Visibility


@dataclass(slots=True)
class PartitionLog:
    """A partition.

    Attributes:
        start: Offset of the first entry that has not been deleted.
        open: Entries of open transactions by producer id, in their order.

    Example:
        >>> log = PartitionLog()
        >>> log.append(b"open", None, (), 0, producer_id=7)
        0
        >>> log.append(b"behind", None, (), 0)
        1
        >>> log.last_stable_offset, log.end
        (0, 2)
        >>> log.end_transaction(7, commit=False, timestamp=0)
        >>> [entry.value for entry in log.read(0, is_committed=True)], log.last_stable_offset
        ([b'behind'], 3)
    """

    entries: list[PartitionEntry] = field(default_factory=list)
    start: int = 0
    open: dict[int, list[PartitionEntry]] = field(default_factory=dict)

    @property
    def end(self) -> int:
        """Offset of the next entry (the high watermark)."""
        return self.start + len(self.entries)

    @property
    def last_stable_offset(self) -> int:
        """Offset of the first record of the oldest open transaction; the end if there is none."""
        return min((entries[0].offset for entries in self.open.values()), default=self.end)

    def readable_end(self, *, is_committed: bool) -> int:
        return self.last_stable_offset if is_committed else self.end

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Headers,
        timestamp: int,
        *,
        producer_id: int | None = None,
    ) -> int:
        """Add a record, of an open transaction if there is a producer id; return its offset."""
        visibility = Visibility.COMMITTED if producer_id is None else Visibility.OPEN
        entry = PartitionEntry(self.end, value, key, tuple(headers), timestamp, visibility)
        self.entries.append(entry)
        if producer_id is not None:
            self.open.setdefault(producer_id, []).append(entry)
        return entry.offset

    def end_transaction(self, producer_id: int, *, commit: bool, timestamp: int) -> None:
        """Write the marker of a producer's transaction."""
        for entry in self.open.pop(producer_id, ()):
            entry.visibility = Visibility.COMMITTED if commit else Visibility.ABORTED
        self.entries.append(PartitionEntry(self.end, None, None, (), timestamp, Visibility.MARKER))

    def read(self, offset: int, *, is_committed: bool) -> Iterator[PartitionEntry]:
        """Read the records from `offset`, which must not have been deleted, to the readable end."""
        wanted = {Visibility.COMMITTED} if is_committed else set(Visibility) - {Visibility.MARKER}
        end = self.readable_end(is_committed=is_committed)
        for entry in self.entries[offset - self.start : end - self.start]:
            if entry.visibility in wanted:
                yield entry

    def offset_for_time(self, timestamp: int, *, is_committed: bool) -> PartitionEntry | None:
        """The first record with this timestamp or a later one."""
        end = self.readable_end(is_committed=is_committed)
        found = (
            entry
            for entry in self.entries
            if entry.offset < end
            and entry.visibility is not Visibility.MARKER
            and entry.timestamp >= timestamp
        )
        return next(found, None)

    def delete_before(self, offset: int) -> int:
        """Delete entries as retention does, never those of an open transaction; return how many."""
        before = self.start
        self.start = max(before, min(offset, self.last_stable_offset))
        del self.entries[: self.start - before]
        return self.start - before
