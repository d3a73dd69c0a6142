"""Splits of sources whose records have numbers: every `step`-th index from `next` on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexRange:
    """Indices that are still to be read.

    Attributes:
        end: First index that does not exist; `None` when there is no end.
        step: Distance between indices, the number of splits that the source was cut into.
    """

    next: int
    end: int | None
    step: int

    @property
    def finished(self) -> bool:
        """Whether nothing is left."""
        return self.end is not None and self.next >= self.end

    def first(self, count: int) -> range:
        """At most the first `count` indices.

        Example:
            >>> list(IndexRange(1, 10, 4).first(5))
            [1, 5, 9]
        """
        stop = self.next + count * self.step
        return range(self.next, stop if self.end is None else min(stop, self.end), self.step)

    def after(self, indices: range) -> IndexRange:
        """The range that is left when these, its first indices, are read."""
        return IndexRange(self.next + len(indices) * self.step, self.end, self.step)


def index_splits(end: int | None, parallelism: int) -> list[IndexRange]:
    """Cut all indices below `end` into one range per subtask, interleaved.

    Example:
        >>> [list(split.first(9)) for split in index_splits(5, 2)]
        [[0, 2, 4], [1, 3]]
    """
    return [IndexRange(start, end, parallelism) for start in range(parallelism)]
