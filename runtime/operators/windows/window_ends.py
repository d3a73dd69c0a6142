"""`WindowEnds`: which keys have a window that ends when, for windows of one size.

It is in no snapshot. `WindowOperator` builds it from the windows when it opens. Each window is in it until it
fires. So keys are only added, and taken off from the front. `TimerIndex` of other windows lets them go at any
time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Any


class WindowEnds:
    """Ends of windows; the earliest comes first, and of one end the key that was added first.

    Example:
        >>> ends = WindowEnds()
        >>> for end, key in [(20, "ann"), (10, "ann"), (10, "bob")]:
        ...     ends.add(end, key)
        >>> due = ends.due(9)
        >>> next(due), ends.next_at
        ((10, 'ann'), 9)
        >>> list(ends.due(9)), ends.next_at
        ([(10, 'bob')], 19)
    """

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._keys: dict[int, dict[Any, None]] = {}
        #: Keys of one end that are left, and this end.
        self._turn: deque[Any] = deque()
        self._whose_turn = 0

    @property
    def next_at(self) -> int | None:
        """Last microsecond of the windows that end first; `None` when there are none."""
        if self._turn:
            return self._whose_turn - 1
        return self._ends[0] - 1 if self._ends else None

    def add(self, end: int, key: Any) -> None:
        """A key has a window that ends then."""
        keys = self._keys.get(end)
        if keys is None:
            keys = self._keys[end] = {}
            heappush(self._ends, end)
        keys[key] = None

    def due(self, until: int) -> Iterator[tuple[int, Any]]:
        """Take off the windows whose last microsecond has come by then: end and key, one by one."""
        turn = self._turn
        while turn or (self._ends and self._ends[0] - 1 <= until):
            if not turn:
                self._whose_turn = heappop(self._ends)
                turn.extend(self._keys.pop(self._whose_turn))
            yield self._whose_turn, turn.popleft()
