"""`SourceLag`: records, bytes, splits and versions that a reader has not read yet.

Records and bytes are counted where a connector knows them. A number that is unknown for one reader is unknown
for the whole source. The sum of the other readers would look like a small lag.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from heapq import nlargest
from typing import Final

#: Maximum number of listed splits, for a subtask and for the whole source: those with the largest lags.
MOST_SPLITS: Final = 200


@dataclass(frozen=True, slots=True)
class SplitLag:
    """The unread part of one split.

    Attributes:
        split: Name of the split, such as `orders[3]` or the path of a file.
        records: Number of records that are left; `None` if it is not known.
        bytes: Number of bytes that are left; `None` if it is not known.
        position: Position of the next record, in the connector's own units.
        end: Position after the last record that the split has now.
    """

    split: str
    records: int | None = None
    bytes: int | None = None
    position: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class VersionLag:
    """The version of a table that a source reads, and the versions after it.

    Attributes:
        version: The version as users know it, such as `"7"`, or the id of a snapshot.
        newest: The newest version, as of the last check; `None` if it is not known.
        behind: Number of versions after `version`; `None` if it is not known.
        committed_at: Time of the commit of `version`, in seconds since the epoch; `None` if it is not known.
    """

    version: str
    newest: str | None = None
    behind: int | None = None
    committed_at: float | None = None


@dataclass(frozen=True, slots=True)
class SourceLag:
    """The unread part of the input, for one reader or for a whole source.

    Attributes:
        records: Number of records that are left; `None` if it is not known.
        bytes: Number of bytes that are left; `None` if it is not known.
        splits: Number of splits that are not read to their end.
        by_split: The splits with the largest lag, at most 200; empty for a connector that names none.
        version: The version that is read, for sources of tables. Of several readers, the one that is
            furthest behind gives the version; an unknown distance counts as the largest.

    Example:
        >>> lag = SourceLag.of([SplitLag("orders[0]", records=7), SplitLag("orders[1]", records=0)])
        >>> lag.records, lag.bytes, lag.splits
        (7, None, 2)
        >>> lag.plus(SourceLag(records=3, splits=1)).records
        10
    """

    records: int | None = None
    bytes: int | None = None
    splits: int = 0
    by_split: tuple[SplitLag, ...] = ()
    version: VersionLag | None = None

    @staticmethod
    def of(splits: Iterable[SplitLag], version: VersionLag | None = None) -> SourceLag:
        """Add up the lags of splits; if there are no splits, the lag is 0."""
        listed = list(splits)
        return SourceLag(
            _sum(split.records for split in listed),
            _sum(split.bytes for split in listed),
            len(listed),
            _largest(listed),
            version,
        )

    def plus(self, other: SourceLag) -> SourceLag:
        """Return the lag of both readers together."""
        return SourceLag(
            _sum((self.records, other.records)),
            _sum((self.bytes, other.bytes)),
            self.splits + other.splits,
            _largest((*self.by_split, *other.by_split)),
            _furthest_behind(self.version, other.version),
        )

    def bounded(self) -> SourceLag:
        """Return this lag with at most 200 splits."""
        if len(self.by_split) <= MOST_SPLITS:
            return self
        return replace(self, by_split=_largest(self.by_split))


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _furthest_behind(a: VersionLag | None, b: VersionLag | None) -> VersionLag | None:
    if a is None or b is None:
        return a or b
    if a.behind is None or b.behind is None:
        return a if a.behind is None else b
    return a if a.behind >= b.behind else b


def _largest(splits: Iterable[SplitLag]) -> tuple[SplitLag, ...]:
    largest = nlargest(MOST_SPLITS, splits, key=lambda split: (split.records or 0, split.bytes or 0))
    return tuple(sorted(largest, key=lambda split: split.split))
