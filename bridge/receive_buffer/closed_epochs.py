"""`ClosedEpochs`: the closed epochs of a receive buffer, and how far its reader and checkpoints have come."""

from __future__ import annotations

from collections import deque


class ClosedEpochs:
    """The epochs whose rows can be read, by the number of frames up to their ends.

    Attributes:
        newest: The newest closed epoch; -1 for none.
        covered: The newest epoch whose rows are all covered by a completed checkpoint; -1 for none.
        emitted: The newest epoch whose rows the reader has all emitted; goes back after a restore.
        begins: There is no epoch yet, and the reader does not continue behind one.

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
        self.newest = self.covered = self.emitted = -1
        self.begins = True
        #: Epochs that no checkpoint covers, with the number of frames up to their ends.
        self._ends: deque[tuple[int, int]] = deque()

    def resume(self, epoch: int) -> None:
        """Continue behind another job's snapshot, which covers all up to this epoch; -1 for none."""
        self.newest = self.covered = self.emitted = epoch
        self.begins = False

    def add(self, epoch: int, end: int) -> None:
        """Add a closed epoch that ends after this many frames."""
        self.newest = epoch
        self.begins = False
        self._ends.append((epoch, end))

    def confirm(self, position: int, epoch: int) -> None:
        """Note that a completed checkpoint covers all frames before `position`, and ends up to `epoch`.

        A reader may have all frames of an epoch before it knows that the epoch has ended. A job that is
        restored from such a snapshot continues before that end, so Spark must not commit the epoch.
        """
        while self._ends and self._ends[0][1] <= position and self._ends[0][0] <= epoch:
            self.covered, _ = self._ends.popleft()

    def at(self, position: int) -> int:
        """The newest epoch whose frames are all before this position; -1 for none."""
        return max((epoch for epoch, end in self._ends if end <= position), default=self.covered)

    def ending_at(self, position: int) -> int | None:
        """The newest epoch that ends exactly before this position and is not covered; `None` for none."""
        return max((epoch for epoch, end in self._ends if end == position), default=None)

    def is_emitted(self, epoch: int) -> bool:
        """Whether a checkpoint that starts now covers an epoch and knows its end."""
        return epoch <= self.emitted
