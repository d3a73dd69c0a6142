"""`ClosedEpochs`: which epochs of a depot are closed, and how far its reader and checkpoints have come."""

from __future__ import annotations

from collections import deque


class ClosedEpochs:
    """The epochs whose rows can be read, by the number of frames up to their ends.

    Attributes:
        newest: The newest closed epoch; -1 for none.
        covered: The newest epoch of which a completed checkpoint covers all rows; -1 for none.
        passed: The newest epoch of which the reader has given all rows on to the job; an earlier one again
            after a restore.
        begins: It has no epoch, and goes on behind none.

    Example:
        >>> epochs = ClosedEpochs()
        >>> epochs.add(0, end=2)
        >>> epochs.add(1, end=2)  # without a frame
        >>> epochs.at(1), epochs.at(2), epochs.ending_at(2)
        (-1, 1, 1)
        >>> epochs.confirm(2, epoch=0)
        >>> epochs.covered
        0
    """

    def __init__(self) -> None:
        self.newest = self.covered = self.passed = -1
        self.begins = True
        #: Those that no checkpoint covers.
        self._ends: deque[tuple[int, int]] = deque()

    def resume(self, epoch: int) -> None:
        """A snapshot of another job covers all up to this epoch; -1 when it was taken before the first."""
        self.newest = self.covered = self.passed = epoch
        self.begins = False

    def add(self, epoch: int, end: int) -> None:
        """An epoch is closed, and ends behind so many frames."""
        self.newest = epoch
        self.begins = False
        self._ends.append((epoch, end))

    def confirm(self, position: int, epoch: int) -> None:
        """A completed checkpoint covers all frames before this position, and knows of ends up to this epoch.

        A reader may have all frames of an epoch, or there are none, and not know yet that it has ended. Who
        starts from such a snapshot would go on before that end, and Spark must not have gone on behind it.
        """
        while self._ends and self._ends[0][1] <= position and self._ends[0][0] <= epoch:
            self.covered, _ = self._ends.popleft()

    def at(self, position: int) -> int:
        """The newest epoch all of whose frames are before this position; -1 for none."""
        return max((epoch for epoch, end in self._ends if end <= position), default=self.covered)

    def ending_at(self, position: int) -> int | None:
        """The newest epoch that ends right before this position, and is not covered; `None` for none."""
        return max((epoch for epoch, end in self._ends if end == position), default=None)

    def is_passed(self, epoch: int) -> bool:
        """Whether a checkpoint that starts now covers an epoch, and knows of its end."""
        return epoch <= self.passed
