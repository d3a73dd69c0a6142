"""`SourceLag`: records, bytes and splits that a reader has not read yet, in total and by split.

Records and bytes are counted where a connector knows them. A number that is unknown for one reader is unknown
for the whole source. The sum of the other readers would look like a small lag.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from heapq import nlargest
from typing import Final

#: Maximum number of splits that are listed, for a subtask and for the whole source: the largest lags.
MOST_SPLITS: Final = 200


@dataclass(frozen=True, slots=True)
class SplitLag:
    """The rest of one split.

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
class SourceLag:
    """The rest of the input, for one reader or for a whole source.

    Attributes:
        records: Number of records that are left; `None` if it is not known.
        bytes: Number of bytes that are left; `None` if it is not known.
        splits: Number of splits that are not read to their end.
        by_split: The splits with the largest lag, at most 200; empty for a connector that names none.

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

    @staticmethod
    def of(splits: Iterable[SplitLag]) -> SourceLag:
        """Add up splits; without a split nothing is left."""
        listed = list(splits)
        return SourceLag(
            _sum(split.records for split in listed),
            _sum(split.bytes for split in listed),
            len(listed),
            _largest(listed),
        )

    def plus(self, other: SourceLag) -> SourceLag:
        """Return the lag of both readers together."""
        return SourceLag(
            _sum((self.records, other.records)),
            _sum((self.bytes, other.bytes)),
            self.splits + other.splits,
            _largest((*self.by_split, *other.by_split)),
        )

    def bounded(self) -> SourceLag:
        """Return this lag with at most 200 splits."""
        if len(self.by_split) <= MOST_SPLITS:
            return self
        return SourceLag(self.records, self.bytes, self.splits, _largest(self.by_split))


def _sum(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def _largest(splits: Iterable[SplitLag]) -> tuple[SplitLag, ...]:
    largest = nlargest(MOST_SPLITS, splits, key=lambda split: (split.records or 0, split.bytes or 0))
    return tuple(sorted(largest, key=lambda split: split.split))
