"""`TimerIndex`: which windows of which keys are due when, in the order of time.

It is in no snapshot. The moments stand in the entries of the windows, and the index is built from them when
the operator opens. So the two can't disagree after a restore.

Many keys have the same window, so they share one item of the heap. An item whose keys have all gone stays in
the heap until its turn comes. When most of the heap is such waste, as sessions make it, it is built anew.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, Final, TypeAlias

#: Start and end of a window: the second part of an entry of keyed state.
Span: TypeAlias = tuple[int, int]

#: Items of the heap that may be waste before anybody counts.
_LEAST_WASTE: Final = 1024


class TimerIndex:
    """Moments of windows; the earliest comes first, and of one moment the window that begins first.

    Example:
        >>> index = TimerIndex()
        >>> index.add(20, (0, 21), "ann")
        >>> index.add(10, (0, 11), "ann")
        >>> index.add(10, (0, 11), "bob")
        >>> index.remove(20, (0, 21), "ann")
        >>> index.next_at, index.pop(10), index.pop(10), index.pop(10), len(index)
        (10, (10, (0, 11), 'ann'), (10, (0, 11), 'bob'), None, 0)
    """

    def __init__(self) -> None:
        self._keys: dict[tuple[int, Span], dict[Any, None]] = {}
        self._heap: list[tuple[int, Span]] = []
        #: Keys of one item that are left, the next one last.
        self._turn: list[Any] = []
        self._whose_turn: tuple[int, Span] | None = None
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def next_at(self) -> int | None:
        """The earliest moment; `None` when there is none."""
        heap = self._heap
        while heap and heap[0] not in self._keys:
            heappop(heap)
        return heap[0][0] if heap else None

    def add(self, at: int, window: Span, key: Any) -> None:
        """A window is due then; nothing happens when that is known."""
        item = at, window
        keys = self._keys.get(item)
        if keys is None:
            keys = self._keys[item] = {}
            heappush(self._heap, item)
        elif key in keys:
            return
        keys[key] = None
        self._count += 1

    def remove(self, at: int, window: Span, key: Any) -> None:
        """A window is not due then; nothing happens when it was not."""
        item = at, window
        keys = self._keys.get(item)
        if keys is None or key not in keys:
            return
        self._take_out(item, keys, key)
        if len(self._heap) > 2 * len(self._keys) + _LEAST_WASTE:
            self._heap = list(self._keys)
            heapify(self._heap)

    def pop(self, until: int) -> tuple[int, Span, Any] | None:
        """Take out the first that is due at a moment: when it was due, window and key."""
        heap = self._heap
        while heap and heap[0][0] <= until:
            item = heap[0]
            keys = self._keys.get(item)
            if keys is None:
                heappop(heap)
                continue
            if item != self._whose_turn or not self._turn:
                self._turn = list(reversed(keys))
                self._whose_turn = item
            key = self._turn.pop()
            if key in keys:
                self._take_out(item, keys, key)
                return (*item, key)
        return None

    def _take_out(self, item: tuple[int, Span], keys: dict[Any, None], key: Any) -> None:
        del keys[key]
        if not keys:
            del self._keys[item]
        self._count -= 1
