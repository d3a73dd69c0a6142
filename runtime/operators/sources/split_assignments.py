"""`SplitAssignments`: which splits were assigned since which checkpoint (Flink's `SplitAssignmentTracker`).

When one reader fails and comes back with the state of an older checkpoint, what it was given since is nowhere
in its state. It is given back. When the whole job is restored nothing of this is needed: the enumerator's own
state is as old as the readers'.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class SplitAssignments:
    """Remembers assignments until a completed checkpoint covers them.

    Example:
        >>> assignments = SplitAssignments()
        >>> assignments.assigned(0, ["a"])
        >>> assignments.checkpointed(1)
        >>> assignments.assigned(0, ["b"])
        >>> assignments.take_back(0, 1)
        ['b']
    """

    def __init__(self) -> None:
        self._since: dict[int, list[Any]] = {}
        self._before: dict[int, dict[int, list[Any]]] = {}

    def assigned(self, subtask: int, splits: Sequence[Any]) -> None:
        """A reader was given splits."""
        self._since.setdefault(subtask, []).extend(splits)

    def checkpointed(self, checkpoint_id: int) -> None:
        """All assignments so far come before this checkpoint's barrier."""
        self._before[checkpoint_id], self._since = self._since, {}

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """A checkpoint is complete: nothing in front of it is ever given back."""
        self._before = {known: splits for known, splits in self._before.items() if known > checkpoint_id}

    def take_back(self, subtask: int, checkpoint_id: int | None) -> list[Any]:
        """Splits unknown to a reader that is restored from this checkpoint (`None`: from nothing)."""
        restored = -1 if checkpoint_id is None else checkpoint_id
        forgotten: list[Any] = []
        for known in sorted(self._before):
            if known > restored:
                forgotten += self._before[known].pop(subtask, [])
        return forgotten + self._since.pop(subtask, [])
