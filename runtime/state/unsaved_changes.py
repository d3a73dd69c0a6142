"""What takes the place of the changes where no snapshot will ever be taken.

Only a snapshot empties them. Without one they would grow by every key that the job ever sees, also when the
state itself stays small.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.runtime.state.changes import Changes
from penstock.runtime.state.fixed_values import FixedValues


class UnsavedChanges(Changes):
    """Changes that keep nothing of what they are told.

    Example:
        >>> from penstock.runtime.record.value_codec import ValueCodec
        >>> changed = UnsavedChanges(FixedValues(ValueCodec()))
        >>> changed.add("word")
        >>> changed.update(["word", "line"])
        >>> changed.written["word"] = 1
        >>> len(changed)
        0
    """

    __slots__ = ()

    def __init__(self, fixed: FixedValues) -> None:
        super().__init__({}, fixed)
        self.written = _Nothing()
        self.add = self.update = _ignore

    def put(self, entries: Sequence[Any], values: Sequence[Any]) -> None:
        """Nothing."""

    def put_new(self, entry: Any, value: Any) -> None:
        """Nothing."""

    def remove(self, entry: Any) -> None:
        """Nothing."""

    def put_all(self) -> None:
        """Nothing."""

    def clear(self) -> None:
        """Nothing."""


class _Nothing(dict[Any, Any]):
    def __setitem__(self, entry: Any, value: Any, /) -> None:
        """Nothing."""

    def update(self, *entries: Iterable[Any]) -> None:  # type: ignore[override]
        """Nothing."""


def _ignore(entry: Any, /) -> None:
    """Nothing."""
