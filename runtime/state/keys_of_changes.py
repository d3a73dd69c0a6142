"""`KeysOfChanges`: the changes of a table whose backend finds the values by itself, when it saves them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from penstock.runtime.record.value_codec import ValueCodec
from penstock.runtime.state.changes import Changes
from penstock.runtime.state.fixed_values import FixedValues


class KeysOfChanges(Changes):
    """Puts every entry that was written or deleted into a set, and keeps no value.

    Args:
        keys: The set. It is the backend's, which empties it.

    Example:
        >>> keys = set()
        >>> changed = KeysOfChanges(keys)
        >>> changed.written["ann"] = 1
        >>> changed.put(["bob"], [2])
        >>> sorted(keys)
        ['ann', 'bob']
    """

    __slots__ = ()

    def __init__(self, keys: set[Any]) -> None:
        super().__init__({}, FixedValues(ValueCodec()))
        self.looked_up = keys
        self.add, self.update = keys.add, keys.update
        self.written = _Into(keys)

    def put(self, entries: Sequence[Any], values: Sequence[Any]) -> None:
        """Say that these entries were written."""
        self.update(entries)

    def put_new(self, entry: Any, value: Any) -> None:
        """Say that an entry was put in."""
        self.add(entry)

    def remove(self, entry: Any) -> None:
        """Say that an entry was deleted."""
        self.add(entry)


class _Into(dict[Any, Any]):
    """Takes values for entries, and keeps the entries only."""

    def __init__(self, keys: set[Any]) -> None:
        super().__init__()
        self._keys = keys

    def __setitem__(self, entry: Any, value: Any, /) -> None:
        self._keys.add(entry)

    def update(self, values: Iterable[Any]) -> None:  # type: ignore[override]
        """All of these."""
        self._keys.update(values)
