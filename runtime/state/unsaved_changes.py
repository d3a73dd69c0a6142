"""What takes the place of the set of changed keys where no snapshot will ever be taken.

Only a snapshot empties that set. Without one it would grow by every key that the job ever sees, also when
the state itself stays small.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class UnsavedChanges(set[Any]):
    """A set that keeps nothing of what it is told.

    Example:
        >>> changed = UnsavedChanges()
        >>> changed.add("word")
        >>> changed.update(["word", "line"])
        >>> len(changed)
        0
    """

    def add(self, key: Any, /) -> None:
        """Nothing."""

    def update(self, *keys: Iterable[Any]) -> None:
        """Nothing."""
