"""`LogFiles`: finds the files at the start of a chain that no longer hold a live row.

A `ColumnLog` or `RowLog` numbers its rows, and deletes them roughly in this order. So if all state of a
backend is in logs, its oldest files hold only deleted rows after some time. They are dropped from the chain
without being read. Otherwise the state of a join would be rewritten every few checkpoints, because the
changes soon outweigh the base (`keyed_snapshot.py`).

A file holds only rows whose numbers are below the next numbers of the logs at its snapshot. So it is dead
once the number of each log's first live row has reached the log's next number at that snapshot. Deletions
that it holds belong to rows of older files, which are dropped before it. Files of a restored checkpoint count
as if the first snapshot after it had written them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from penstock.runtime.snapshot.handles import KeyedStateHandle, StateHandle

#: Numbers of rows, by name of the log.
Numbers: TypeAlias = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Content:
    checkpoint_id: int
    next_numbers: Numbers
    entries: int


class LogFiles:
    def __init__(self) -> None:
        self._contents: dict[StateHandle, _Content] = {}
        self._begun: dict[int, Numbers] = {}

    def begun(self, checkpoint_id: int, next_numbers: Numbers) -> None:
        """Note a snapshot whose file will hold rows below these numbers."""
        self._begun[checkpoint_id] = next_numbers

    def finished(self, checkpoint_id: int, handle: KeyedStateHandle) -> None:
        """Note the new file of a snapshot."""
        next_numbers = self._begun.pop(checkpoint_id, None)
        if next_numbers is not None:
            self._note(checkpoint_id, handle, next_numbers)

    def forget(self, checkpoint_id: int) -> None:
        """Forget an aborted snapshot."""
        self._begun.pop(checkpoint_id, None)

    def clear(self) -> None:
        self._contents.clear()
        self._begun.clear()

    def live(
        self, base: KeyedStateHandle, base_id: int, first_numbers: Numbers, next_numbers: Numbers
    ) -> tuple[Sequence[StateHandle], int]:
        """The files of a confirmed checkpoint that may hold live rows, and the number of their entries.

        Args:
            first_numbers: Number of the first live row of each log.
            next_numbers: Next number of each log.
        """
        self._note(base_id, base, next_numbers)
        self._contents = {
            file: content
            for file, content in self._contents.items()
            if content.checkpoint_id > base_id or file in base.files
        }
        # A snapshot that was lost is reported neither as finished nor as aborted.
        self._begun = {known: numbers for known, numbers in self._begun.items() if known > base_id}
        dead = 0
        for file in base.files:
            below = self._contents[file].next_numbers
            if any(number < below.get(name, 0) for name, number in first_numbers.items()):
                break
            dead += 1
        kept = base.files[dead:]
        return kept, sum(self._contents[file].entries for file in kept)

    def _note(self, checkpoint_id: int, handle: KeyedStateHandle, next_numbers: Numbers) -> None:
        known = sum(self._contents[file].entries for file in handle.files if file in self._contents)
        for file in handle.files:
            if file not in self._contents:
                self._contents[file] = _Content(checkpoint_id, next_numbers, max(handle.entries - known, 0))
                known = handle.entries
