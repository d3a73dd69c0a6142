"""`StateSweep`: lets an operator's keyed state do its work between two batches.

The work has two parts. What has expired is forgotten, some entries at a time. A slice looks at `MOST_ENTRIES`
entries, which takes about a millisecond. Between two slices the task does something else for several times as
long. So when a million entries expire at once, records still flow and barriers still pass. A user's function
never sees its state change under it.

What has changed is examined for the next snapshot. This never rests: changes come as fast as records do. A
rest would make each examination longer than the one before it, and so the next rest, too.
"""

from __future__ import annotations

from typing import Final

from penstock.runtime.ports import Clock
from penstock.runtime.state.state_backend import KeyedStateBackend

#: Entries that one slice looks at.
MOST_ENTRIES: Final = 2_000
#: How long the task is left alone after a slice, in lengths of that slice; and at least, in seconds.
_REST: Final = 4.0
_SHORTEST_REST: Final = 0.001


class StateSweep:
    """When the next slice is due, and the slice itself.

    Args:
        backend: The operator's keyed state.
        clock: Measures slices.
    """

    def __init__(self, backend: KeyedStateBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._rest_until = 0.0

    @property
    def due_at(self) -> float | None:
        """Monotonic time of the next slice, `None` for never; in the past when it is due."""
        if self._backend.is_examination_due:
            return 0.0
        due_in = self._backend.sweep_in
        if due_in is None:
            return None
        return self._rest_until if due_in <= 0 else self._clock.monotonic() + due_in

    def run_if_due(self) -> None:
        """Examine what has changed, or else do one slice, if it is time."""
        if self._backend.is_examination_due:
            self._backend.examine_changes()
            return
        due_at, begun = self.due_at, self._clock.monotonic()
        if due_at is None or due_at > begun:
            return
        self._backend.sweep(MOST_ENTRIES)
        ended = self._clock.monotonic()
        self._rest_until = ended + max(_SHORTEST_REST, _REST * (ended - begun))
