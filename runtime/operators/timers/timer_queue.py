"""`TimerQueue`: which keys have a timer when, in the order in which they fire.

Timers are keyed state. A timer is an entry of a nested table: its key, its moment, and as value the number
of its registration. So a timer is in the snapshot as soon as it is set. It goes where its key goes when the
job is rescaled, and a checkpoint writes those that were set or fired since the last one. Of a timer that was
set and has fired in between, it writes nothing. There is one timer for a key and a moment: an entry can't be
there twice.

The table knows no order, so a heap in memory stands beside it. It is in no snapshot: it is built from the
table when the operator opens. A timer that is deleted leaves the table and stays in the heap until its turn
comes. An item of the heap counts only if the table has its number at its key and moment. When more than half
of the heap is such waste it is built anew. So time and memory follow the timers that are set.

*Order.* The earliest moment comes first; of one moment the timer that was set first. At another parallelism
the numbers of several old subtasks meet. Each keeps the order of its own; between two of them there is none.

A timer leaves the table before it fires, as in Flink's `InternalTimerServiceImpl`. The state of a snapshot
between two timers then says exactly which ones have had their effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any, Final

from penstock.runtime.state.state_backend import KeyedTable

#: Items of the heap that may be waste before anybody counts.
_LEAST_WASTE: Final = 1024


class TimerQueue:
    """Timers of one subtask and one kind of time; a moment is in microseconds.

    Args:
        table: A nested table, with the restored timers.

    Example:
        >>> from penstock.runtime.state.state_table import StateTable
        >>> queue = TimerQueue(StateTable("timers", nested=True))
        >>> for key, at in [("ann", 20), ("bob", 10), ("ann", 10), ("ann", 20)]:
        ...     queue.register(key, at)
        >>> queue.delete("ann", 10)
        >>> list(queue.due(20))
        [(10, 'bob'), (20, 'ann')]
    """

    def __init__(self, table: KeyedTable) -> None:
        self._entries = table.entries
        self._changed = table.changed
        self._ties = count()
        numbers = [number for moments in self._entries.values() for number in moments.values()]
        self._set = len(numbers)
        self._next_number = max(numbers, default=-1) + 1
        self._heap: list[tuple[int, int, int, Any]] = []
        self._build()

    def __len__(self) -> int:
        return self._set

    @property
    def next_at(self) -> int | None:
        """The earliest moment; `None` when no timer is set."""
        heap = self._heap
        while heap and not self._is_set(heap[0]):
            heappop(heap)
        return heap[0][0] if heap else None

    def register(self, key: Any, at: int) -> None:
        """Set a timer; one that is set already stays as it is, with its place in the order."""
        moments = self._entries.get(key)
        if moments is None:
            moments = self._entries[key] = {}
        elif at in moments:
            return
        number = moments[at] = self._next_number
        self._next_number = number + 1
        self._set += 1
        self._changed.put_new((key, at), number)
        heappush(self._heap, (at, number, next(self._ties), key))

    def delete(self, key: Any, at: int) -> None:
        """Delete a timer; nothing happens when it is not set."""
        if at in self._entries.get(key, ()):
            self._take_out(key, at)
            if len(self._heap) > 2 * self._set + _LEAST_WASTE:
                self._build()

    def due(self, until: int) -> Iterator[tuple[int, Any]]:
        """Take out the timers up to a moment, one when it is asked for; gives moment and key.

        Those that are set meanwhile come in their turn.
        """
        heap = self._heap
        while heap and heap[0][0] <= until:
            item = heappop(heap)
            if self._is_set(item):
                at, _, _, key = item
                self._take_out(key, at)
                yield at, key
                heap = self._heap

    def _take_out(self, key: Any, at: int) -> None:
        moments = self._entries[key]
        del moments[at]
        if not moments:
            del self._entries[key]
        self._set -= 1
        self._changed.remove((key, at))

    def _is_set(self, item: tuple[int, int, int, Any]) -> bool:
        at, number, _, key = item
        moments = self._entries.get(key)
        return moments is not None and moments.get(at) == number

    def _build(self) -> None:
        self._heap = [
            (at, number, next(self._ties), key)
            for key, moments in self._entries.items()
            for at, number in moments.items()
        ]
        heapify(self._heap)
