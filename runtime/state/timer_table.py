"""`TimerTable`: the timers of one subtask and one kind of time, as entries of keyed state."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.runtime.state.state_table import StateTable


class TimerTable:
    """Timers in a nested table, which maps a key and a moment to the number of the timer's registration."""

    def __init__(self, table: StateTable) -> None:
        self._entries = table.entries
        self._changed = table.changed

    def __iter__(self) -> Iterator[tuple[Any, int, int]]:
        """Yield key, moment and number of each timer, in any order."""
        for key, moments in self._entries.items():
            for at, number in moments.items():
                yield key, at, number

    def number_of(self, key: Any, at: int) -> int | None:
        moments = self._entries.get(key)
        return None if moments is None else moments.get(at)

    def put(self, key: Any, at: int, number: int) -> None:
        """Add a timer that is not set."""
        moments = self._entries.get(key)
        if moments is None:
            self._entries[key] = {at: number}
        else:
            moments[at] = number
        self._changed.put_new((key, at), number)

    def remove(self, key: Any, at: int) -> None:
        """Remove a timer that is set."""
        moments = self._entries[key]
        del moments[at]
        if not moments:
            del self._entries[key]
        self._changed.remove((key, at))
